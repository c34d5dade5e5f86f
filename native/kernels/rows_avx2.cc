// The row kernels with AVX2; what they do is in rows_simd.h.
#include "kernels/rows.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX2)
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include "kernels/rows_simd.h"

namespace kintsugi {
namespace {

// The last `n` lanes of a row: eight entries from position 8 - n on.
alignas(32) constexpr std::int32_t kLaneMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

struct V256 {
  using F = __m256;
  static constexpr std::uint32_t kLanes = 8;

  static inline __m256i mask(std::uint32_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(kLaneMasks + (8 - n)));
  }
  static inline F load(const void* p, std::uint32_t n) {
    const auto* bytes = static_cast<const float*>(p);
    return n == kLanes ? _mm256_castsi256_ps(_mm256_loadu_si256(static_cast<const __m256i_u*>(p)))
                       : _mm256_maskload_ps(bytes, mask(n));
  }
  static inline void store(void* p, F x, std::uint32_t n) {
    if (n == kLanes) {
      _mm256_storeu_si256(static_cast<__m256i_u*>(p), _mm256_castps_si256(x));
    } else {
      _mm256_maskstore_ps(static_cast<float*>(p), mask(n), x);
    }
  }
  static inline F set1(float x) { return _mm256_set1_ps(x); }
  static inline F zero() { return _mm256_setzero_ps(); }
  static inline F add(F a, F b) { return _mm256_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static inline F div(F a, F b) { return _mm256_div_ps(a, b); }
  static inline F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static inline F bitXor(F a, F b) { return _mm256_xor_ps(a, b); }
  static inline F whereAbove(F a, F b, F x) { return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ), x); }
  static inline unsigned findInBucket(const std::uint64_t* bucket, std::uint64_t tag) {
    const auto* halves = reinterpret_cast<const __m256i*>(bucket);
    const __m256i wanted = _mm256_set1_epi64x(static_cast<long long>(tag));
    const __m256i low = _mm256_cmpeq_epi64(_mm256_load_si256(halves), wanted);
    const __m256i high = _mm256_cmpeq_epi64(_mm256_load_si256(halves + 1), wanted);
    return static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(low))) |
           static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(high))) << 4;
  }
};

}  // namespace

extern constinit const RowKernels kAvx2Rows = Rows<V256>::table();

}  // namespace kintsugi
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
