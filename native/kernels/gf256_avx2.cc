// AVX2. Multiplication by a constant c is linear, so c * x = c * (low nibble) + c * (high nibble): two tables
// of sixteen entries per coefficient, looked up 32 bytes at a time with VPSHUFB.
#include "kernels/kernels.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX2)
#include <immintrin.h>

#include <cstring>

#include "kernels/gf256.h"
#include "kernels/rows.h"

#define TARGET __attribute__((target("avx2")))

namespace kintsugi {

struct alignas(32) Nibbles {
  std::uint8_t low[16], high[16];
};

static const Nibbles* nibbles() {
  static const struct All {
    Nibbles of[256];
    All() {
      for (unsigned c = 0; c < 256; c++) {
        for (unsigned x = 0; x < 16; x++) {
          of[c].low[x] = gf::kTables.product[c][x];
          of[c].high[x] = gf::kTables.product[c][x << 4];
        }
      }
    }
  } all;
  return all.of;
}

struct Factor {
  __m256i low, high;
};

TARGET static inline Factor factorOf(const Nibbles& table) {
  const auto* halves = reinterpret_cast<const __m128i*>(&table);
  return {_mm256_broadcastsi128_si256(_mm_load_si128(halves)),
          _mm256_broadcastsi128_si256(_mm_load_si128(halves + 1))};
}

TARGET static inline __m256i load(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
}
TARGET static inline void store(std::uint8_t* p, __m256i x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), x);
}

TARGET static inline __m256i times(__m256i x, Factor f) {
  const __m256i mask = _mm256_set1_epi8(0x0F);
  const __m256i low = _mm256_shuffle_epi8(f.low, _mm256_and_si256(x, mask));
  const __m256i high = _mm256_shuffle_epi8(f.high, _mm256_and_si256(_mm256_srli_epi64(x, 4), mask));
  return _mm256_xor_si256(low, high);
}

template <bool Multiply>
TARGET static inline void addBytes(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, Factor f,
                                   const std::uint8_t* product) {
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i x = load(src + i);
    if constexpr (Multiply) x = times(x, f);
    store(dst + i, _mm256_xor_si256(load(dst + i), x));
  }
  for (; i < n; i++) dst[i] ^= product[src[i]];
}

TARGET static void mulAdd(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, std::uint8_t c) {
  if (c == 0) return;
  const Factor f = factorOf(nibbles()[c]);
  const std::uint8_t* product = gf::kTables.product[c];
  if (c == 1) {
    addBytes<false>(dst, src, n, f, product);
  } else {
    addBytes<true>(dst, src, n, f, product);
  }
}

// Two stages of prefetch, as in the AVX-512 variant.
template <bool Multiply>
TARGET static void addRows(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots,
                           std::size_t count, const std::uint8_t* src, std::uint8_t c) {
  constexpr std::size_t kFar = 32, kNear = 8, kMaxPrefetch = 1024;
  const Factor f = factorOf(nibbles()[c]);
  const std::uint8_t* product = gf::kTables.product[c];
  const std::size_t reach = stride < kMaxPrefetch ? stride : kMaxPrefetch;
  const auto rowOf = [&](std::size_t i) {
    std::uint32_t slot;
    std::memcpy(&slot, slots + i * 4, 4);
    return base + slot * stride;
  };
  for (std::size_t i = 0; i < count; i++) {
    if (i + kFar < count) {
      const std::uint8_t* row = rowOf(i + kFar);
      for (std::size_t b = 0; b < reach; b += 64) __builtin_prefetch(row + b, 0, 2);
    }
    if (i + kNear < count) {
      const std::uint8_t* row = rowOf(i + kNear);
      for (std::size_t b = 0; b < reach; b += 64) __builtin_prefetch(row + b, 0, 3);
    }
    addBytes<Multiply>(rowOf(i), src + i * stride, stride, f, product);
  }
}

static void mulAddRows(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots, std::size_t count,
                       const std::uint8_t* src, std::uint8_t c) {
  if (c == 0) return;
  if (c == 1) {
    addRows<false>(base, stride, slots, count, src, c);
  } else {
    addRows<true>(base, stride, slots, count, src, c);
  }
}

// The nibbles of the data are taken apart once for all parities.
template <std::uint32_t R, bool FirstIsSum>
TARGET static void encodeBlocks(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                                std::size_t n, const std::uint8_t* coefficients) {
  constexpr std::size_t kColumns = R == 1 && FirstIsSum ? 8 : 2, kStep = kColumns * 32;
  const Nibbles* tables = nibbles();
  const __m256i mask = _mm256_set1_epi8(0x0F);
  for (std::size_t at = 0; at + kStep <= n; at += kStep) {
    __m256i sums[R][kColumns];
#pragma GCC unroll 4
    for (std::uint32_t j = 0; j < R; j++) {
#pragma GCC unroll 8
      for (std::size_t c = 0; c < kColumns; c++) sums[j][c] = _mm256_setzero_si256();
    }
    for (std::uint32_t i = 0; i < k; i++) {
      const std::uint8_t* from = data[i] + at;
      __m256i x[kColumns], low[kColumns], high[kColumns];
#pragma GCC unroll 8
      for (std::size_t c = 0; c < kColumns; c++) {
        x[c] = load(from + c * 32);
        low[c] = _mm256_and_si256(x[c], mask);
        high[c] = _mm256_and_si256(_mm256_srli_epi64(x[c], 4), mask);
      }
#pragma GCC unroll 4
      for (std::uint32_t j = 0; j < R; j++) {
        const Factor f = factorOf(tables[coefficients[j * k + i]]);
#pragma GCC unroll 8
        for (std::size_t c = 0; c < kColumns; c++) {
          const __m256i term = FirstIsSum && j == 0 ? x[c]
                                                    : _mm256_xor_si256(_mm256_shuffle_epi8(f.low, low[c]),
                                                                       _mm256_shuffle_epi8(f.high, high[c]));
          sums[j][c] = _mm256_xor_si256(sums[j][c], term);
        }
      }
    }
#pragma GCC unroll 4
    for (std::uint32_t j = 0; j < R; j++) {
#pragma GCC unroll 8
      for (std::size_t c = 0; c < kColumns; c++) store(parity[j] + at + c * 32, sums[j][c]);
    }
  }
  for (std::size_t at = n / kStep * kStep; at < n; at++) {
    for (std::uint32_t j = 0; j < R; j++) {
      std::uint8_t sum = 0;
      for (std::uint32_t i = 0; i < k; i++) sum ^= gf::multiply(coefficients[j * k + i], data[i][at]);
      parity[j][at] = sum;
    }
  }
}

static void encode(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                   std::uint32_t r, std::size_t n, const std::uint8_t* coefficients) {
  bool firstIsSum = true;
  for (std::uint32_t i = 0; i < k; i++) firstIsSum = firstIsSum && coefficients[i] == 1;
  using Encode = void (*)(const std::uint8_t* const*, std::uint32_t, std::uint8_t* const*, std::size_t,
                          const std::uint8_t*);
  static constexpr Encode of[2][kMaxEncode] = {
      {encodeBlocks<1, false>, encodeBlocks<2, false>, encodeBlocks<3, false>, encodeBlocks<4, false>},
      {encodeBlocks<1, true>, encodeBlocks<2, true>, encodeBlocks<3, true>, encodeBlocks<4, true>}};
  of[firstIsSum][r - 1](data, k, parity, n, coefficients);
}

const Kernels* avx2Kernels() {
  static const bool able = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
  }();
  static const Kernels table = {"avx2",
                                mulAdd,
                                mulAddRows,
                                encode,
                                kAvx2Rows.updateRow,
                                kAvx2Rows.stepRows,
                                kAvx2Rows.replaceRow,
                                kAvx2Rows.gatherRows,
                                kAvx2Rows.scatterRows,
                                kAvx2Rows.findTags};
  return able ? &table : nullptr;
}

}  // namespace kintsugi

#else

namespace kintsugi {
const Kernels* avx2Kernels() { return nullptr; }
}  // namespace kintsugi

#endif
