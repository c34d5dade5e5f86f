// The scalar reference of the GF(2^8) kernels, and the tables that everything is checked against.
#include <cstring>

#include "kernels/gf256.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace kintsugi {
namespace gf {

static constexpr Tables makeTables() {
  Tables t{};
  std::uint8_t power[510] = {};
  std::uint8_t log[256] = {};
  unsigned x = 1;
  for (unsigned i = 0; i < 255; i++) {
    power[i] = power[i + 255] = static_cast<std::uint8_t>(x);
    log[x] = static_cast<std::uint8_t>(i);
    x <<= 1;
    if (x & 0x100) x ^= kPolynomial;
  }
  for (unsigned a = 1; a < 256; a++) {
    t.inverse[a] = power[255 - log[a]];
    for (unsigned b = 1; b < 256; b++) t.product[a][b] = power[log[a] + log[b]];
    for (unsigned x = 0; x < 16; x++) {
      t.nibbles[a].low[x] = t.product[a][x];
      t.nibbles[a].high[x] = t.product[a][x << 4];
    }
  }
  return t;
}

constinit const Tables kTables = makeTables();

}  // namespace gf

static void xorInto(std::uint8_t* dst, const std::uint8_t* src, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t a, b;
    std::memcpy(&a, dst + i, 8);
    std::memcpy(&b, src + i, 8);
    a ^= b;
    std::memcpy(dst + i, &a, 8);
  }
  for (; i < n; i++) dst[i] ^= src[i];
}

static void mulAddScalar(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, std::uint8_t c) {
  if (c == 0) return;
  if (c == 1) return xorInto(dst, src, n);
  const std::uint8_t* product = gf::kTables.product[c];
  for (std::size_t i = 0; i < n; i++) dst[i] ^= product[src[i]];
}

static void mulAddRowsScalar(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots,
                             std::size_t count, const std::uint8_t* src, std::uint8_t c) {
  for (std::size_t i = 0; i < count; i++) {
    std::uint32_t slot;
    std::memcpy(&slot, slots + i * 4, 4);
    mulAddScalar(base + slot * stride, src + i * stride, stride, c);
  }
}

static void encodeScalar(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                         std::uint32_t r, std::size_t n, const std::uint8_t* coefficients) {
  for (std::uint32_t j = 0; j < r; j++) {
    std::memset(parity[j], 0, n);
    for (std::uint32_t i = 0; i < k; i++) mulAddScalar(parity[j], data[i], n, coefficients[j * k + i]);
  }
}

const Kernels kScalarKernels = {"scalar",          mulAddScalar,   mulAddRowsScalar, encodeScalar,
                                updateRowScalar,   stepRowsScalar, replaceRowScalar, gatherRowsScalar,
                                scatterRowsScalar, findTagsScalar, hashKeysScalar};

}  // namespace kintsugi
