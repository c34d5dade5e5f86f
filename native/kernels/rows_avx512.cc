// The row kernels with AVX-512; what they do is in rows_simd.h.
#include "kernels/rows.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX512)
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")
#endif
#include "kernels/rows_simd.h"

namespace kintsugi {
namespace {

struct V512 {
  using F = __m512;
  static constexpr std::uint32_t kLanes = 16;

  static inline __mmask16 mask(std::uint32_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  static inline F load(const void* p, std::uint32_t n) {
    return n == kLanes ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(mask(n), p);
  }
  static inline void store(void* p, F x, std::uint32_t n) {
    if (n == kLanes) {
      _mm512_storeu_ps(p, x);
    } else {
      _mm512_mask_storeu_ps(p, mask(n), x);
    }
  }
  static inline F set1(float x) { return _mm512_set1_ps(x); }
  static inline F zero() { return _mm512_setzero_ps(); }
  static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
  static inline F sqrt(F a) { return _mm512_maskz_sqrt_ps(0xFFFF, a); }
  static inline F bitXor(F a, F b) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
  static inline F whereAbove(F a, F b, F x) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
  }
  static inline unsigned findInBucket(const std::uint64_t* bucket, std::uint64_t tag) {
    return _mm512_cmpeq_epi64_mask(_mm512_load_si512(bucket), _mm512_set1_epi64(static_cast<long long>(tag)));
  }
};

}  // namespace

extern constinit const RowKernels kAvx512Rows = Rows<V512>::table();

}  // namespace kintsugi
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
