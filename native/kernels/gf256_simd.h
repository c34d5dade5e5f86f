// Code of all vector variants of the GF(2^8) kernels, as templates over an instruction set. The file of each
// variant includes this one inside its target region, after the headers whose functions other files share.
#pragma once
#include <cstring>

#include "kernels/gf256.h"
#include "kernels/prefetch.h"
#include "kernels/rows.h"

namespace kintsugi {
namespace {

/** The kernels that add. `V` has Factor, factorOf(c) and addBytes<Multiply>(dst, src, n, factor): dst ^=
 * factor * src, or dst ^= src. */
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
            rows.stepRows, rows.replaceRow, rows.gatherRows, rows.scatterRows, rows.findTags,
            rows.hashKeys};
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

/** Products by nibble tables (gf256.h), for instruction sets that look up sixteen bytes at once. `W` has
 * Bytes, kBytes, load, store, zero, bitXor, low and high (the nibbles of bytes), lookUp(table, nibbles) and
 * table(sixteen bytes). */
template <class W>
struct Nibbled {
  using Bytes = typename W::Bytes;
  static constexpr std::size_t kBytes = W::kBytes;

  struct Factor {
    Bytes low, high;
    const std::uint8_t* product;
  };

  static inline Factor factorOf(std::uint8_t c) {
    const gf::Nibbles& tables = gf::kTables.nibbles[c];
    return {W::table(tables.low), W::table(tables.high), gf::kTables.product[c]};
  }

  static inline Bytes product(const Factor& f, Bytes low, Bytes high) {
    return W::bitXor(W::lookUp(f.low, low), W::lookUp(f.high, high));
  }

  template <bool Multiply>
  static inline void addBytes(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, const Factor& f) {
    std::size_t i = 0;
    for (; i + kBytes <= n; i += kBytes) {
      Bytes x = W::load(src + i);
      if constexpr (Multiply) x = product(f, W::low(x), W::high(x));
      W::store(dst + i, W::bitXor(W::load(dst + i), x));
    }
    for (; i < n; i++) dst[i] ^= Multiply ? f.product[src[i]] : src[i];
  }

  // The nibbles of the data are taken apart once for all parities.
  template <std::uint32_t R, bool FirstIsSum>
  static void encodeBlocks(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                           std::size_t n, const std::uint8_t* coefficients) {
    constexpr std::size_t kColumns = R == 1 && FirstIsSum ? 8 : 2, kStep = kColumns * kBytes;
    for (std::size_t at = 0; at + kStep <= n; at += kStep) {
      Bytes sums[R][kColumns];
#pragma GCC unroll 4
      for (std::uint32_t j = 0; j < R; j++) {
#pragma GCC unroll 8
        for (std::size_t c = 0; c < kColumns; c++) sums[j][c] = W::zero();
      }
      for (std::uint32_t i = 0; i < k; i++) {
        const std::uint8_t* from = data[i] + at;
        Bytes x[kColumns], low[kColumns], high[kColumns];
#pragma GCC unroll 8
        for (std::size_t c = 0; c < kColumns; c++) {
          x[c] = W::load(from + c * kBytes);
          low[c] = W::low(x[c]);
          high[c] = W::high(x[c]);
        }
#pragma GCC unroll 4
        for (std::uint32_t j = 0; j < R; j++) {
          const Factor f = factorOf(coefficients[j * k + i]);
#pragma GCC unroll 8
          for (std::size_t c = 0; c < kColumns; c++) {
            const Bytes term = FirstIsSum && j == 0 ? x[c] : product(f, low[c], high[c]);
            sums[j][c] = W::bitXor(sums[j][c], term);
          }
        }
      }
#pragma GCC unroll 4
      for (std::uint32_t j = 0; j < R; j++) {
#pragma GCC unroll 8
        for (std::size_t c = 0; c < kColumns; c++) W::store(parity[j] + at + c * kBytes, sums[j][c]);
      }
    }
    encodeTail(data, k, parity, R, n / kStep * kStep, n, coefficients);
  }

  static void encode(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                     std::uint32_t r, std::size_t n, const std::uint8_t* coefficients) {
    using Encode = void (*)(const std::uint8_t* const*, std::uint32_t, std::uint8_t* const*, std::size_t,
                            const std::uint8_t*);
    static constexpr Encode of[2][kMaxEncode] = {
        {encodeBlocks<1, false>, encodeBlocks<2, false>, encodeBlocks<3, false>, encodeBlocks<4, false>},
        {encodeBlocks<1, true>, encodeBlocks<2, true>, encodeBlocks<3, true>, encodeBlocks<4, true>}};
    of[sumComesFirst(coefficients, k)][r - 1](data, k, parity, n, coefficients);
  }
};

}  // namespace
}  // namespace kintsugi
