// What the vector variants of the GF(2^8) kernels share, as one template over an instruction set `V`,
// included by one file each inside its target region, after the headers whose functions other files share.
// How parities are encoded differs too much between them to be shared.
//
// `V` has Factor, factorOf(c) and addBytes<Multiply>(dst, src, n, factor): dst ^= factor * src, or dst ^=
// src.
#pragma once
#include <cstring>

#include "kernels/gf256.h"
#include "kernels/prefetch.h"
#include "kernels/rows.h"

namespace kintsugi {
namespace {

template <class V>
struct Field {
  using Factor = typename V::Factor;

  static void mulAdd(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, std::uint8_t c) {
    if (c == 0) return;
    const Factor factor = V::factorOf(c);
    if (c == 1) {
      V::template addBytes<false>(dst, src, n, factor);
    } else {
      V::template addBytes<true>(dst, src, n, factor);
    }
  }

  template <bool Multiply, std::size_t Lines>
  static void addRows(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots, std::size_t count,
                      const std::uint8_t* src, std::uint8_t c) {
    const Factor factor = V::factorOf(c);
    const std::size_t lines = linesToFetch(stride);
    const auto rowAt = [&](std::size_t i) {
      std::uint32_t slot;
      std::memcpy(&slot, slots + i * 4, 4);
      return base + slot * stride;
    };
    for (std::size_t i = 0; i < count; i++) {
      prefetchAhead<Lines>(lines, i, count, rowAt);
      V::template addBytes<Multiply>(rowAt(i), src + i * stride, stride, factor);
    }
  }

  static void mulAddRows(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots, std::size_t count,
                         const std::uint8_t* src, std::uint8_t c) {
    if (c == 0) return;
    withLines(stride, [&](auto lines) {
      if (c == 1) {
        addRows<false, lines>(base, stride, slots, count, src, c);
      } else {
        addRows<true, lines>(base, stride, slots, count, src, c);
      }
    });
  }

  /** The whole table of an instruction set: these two, and what its own files have. */
  static constexpr Kernels table(const char* name, decltype(Kernels::encode) encode, const RowKernels& rows) {
    return {name,          mulAdd,          mulAddRows,      encode,           rows.updateRow,
            rows.stepRows, rows.replaceRow, rows.gatherRows, rows.scatterRows, rows.findTags};
  }
};

/** Whether the first parity is the plain sum, which needs no multiplication. */
[[maybe_unused]] bool sumComesFirst(const std::uint8_t* coefficients, std::uint32_t k) {
  for (std::uint32_t i = 0; i < k; i++) {
    if (coefficients[i] != 1) return false;
  }
  return true;
}

/** The last bytes of blocks, which fill no vector: parity[j][at..n). */
[[maybe_unused]] void encodeTail(const std::uint8_t* const* data, std::uint32_t k,
                                 std::uint8_t* const* parity, std::uint32_t r, std::size_t at, std::size_t n,
                                 const std::uint8_t* coefficients) {
  for (; at < n; at++) {
    for (std::uint32_t j = 0; j < r; j++) {
      std::uint8_t sum = 0;
      for (std::uint32_t i = 0; i < k; i++) sum ^= gf::multiply(coefficients[j * k + i], data[i][at]);
      parity[j][at] = sum;
    }
  }
}

}  // namespace
}  // namespace kintsugi
