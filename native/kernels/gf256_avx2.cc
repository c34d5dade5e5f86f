// AVX2: products by nibble tables (gf256.h), looked up 32 bytes at a time with VPSHUFB.
#include "kernels/kernels.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX2)
#include <immintrin.h>

#include <cstring>

#include "kernels/gf256.h"
#include "kernels/rows.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include "kernels/gf256_simd.h"

namespace kintsugi {
namespace {

inline __m256i load(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
}
inline void store(std::uint8_t* p, __m256i x) { _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), x); }

struct V256 {
  struct Factor {
    __m256i low, high;
    const std::uint8_t* product;
  };

  static inline Factor factorOf(std::uint8_t c) {
    const auto* halves = reinterpret_cast<const __m128i*>(&gf::kTables.nibbles[c]);
    return {_mm256_broadcastsi128_si256(_mm_load_si128(halves)),
            _mm256_broadcastsi128_si256(_mm_load_si128(halves + 1)), gf::kTables.product[c]};
  }

  static inline __m256i times(__m256i x, const Factor& f) {
    const __m256i mask = _mm256_set1_epi8(0x0F);
    const __m256i low = _mm256_shuffle_epi8(f.low, _mm256_and_si256(x, mask));
    const __m256i high = _mm256_shuffle_epi8(f.high, _mm256_and_si256(_mm256_srli_epi64(x, 4), mask));
    return _mm256_xor_si256(low, high);
  }

  template <bool Multiply>
  static inline void addBytes(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, const Factor& f) {
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32) {
      __m256i x = load(src + i);
      if constexpr (Multiply) x = times(x, f);
      store(dst + i, _mm256_xor_si256(load(dst + i), x));
    }
    for (; i < n; i++) dst[i] ^= f.product[src[i]];
  }
};

// The nibbles of the data are taken apart once for all parities.
template <std::uint32_t R, bool FirstIsSum>
void encodeBlocks(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                  std::size_t n, const std::uint8_t* coefficients) {
  constexpr std::size_t kColumns = R == 1 && FirstIsSum ? 8 : 2, kStep = kColumns * 32;
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
        const V256::Factor f = V256::factorOf(coefficients[j * k + i]);
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
  encodeTail(data, k, parity, R, n / kStep * kStep, n, coefficients);
}

void encode(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity, std::uint32_t r,
            std::size_t n, const std::uint8_t* coefficients) {
  using Encode = void (*)(const std::uint8_t* const*, std::uint32_t, std::uint8_t* const*, std::size_t,
                          const std::uint8_t*);
  static constexpr Encode of[2][kMaxEncode] = {
      {encodeBlocks<1, false>, encodeBlocks<2, false>, encodeBlocks<3, false>, encodeBlocks<4, false>},
      {encodeBlocks<1, true>, encodeBlocks<2, true>, encodeBlocks<3, true>, encodeBlocks<4, true>}};
  of[sumComesFirst(coefficients, k)][r - 1](data, k, parity, n, coefficients);
}

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels* avx2Kernels() {
  static const bool able = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
  }();
  static const Kernels table = Field<V256>::table("avx2", encode, kAvx2Rows);
  return able ? &table : nullptr;
}

}  // namespace kintsugi

#else

namespace kintsugi {
const Kernels* avx2Kernels() { return nullptr; }
}  // namespace kintsugi

#endif
