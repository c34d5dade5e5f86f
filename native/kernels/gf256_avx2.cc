// AVX2: products by nibble tables (gf256.h), looked up 32 bytes at a time with VPSHUFB.
#include "kernels/kernels.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX2)
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu.h"
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

struct V256 {
  using Bytes = __m256i;
  static constexpr std::size_t kBytes = 32;

  static inline Bytes load(const std::uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
  }
  static inline void store(std::uint8_t* p, Bytes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), x);
  }
  static inline Bytes table(const std::uint8_t* sixteen) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(sixteen)));
  }
  static inline Bytes zero() { return _mm256_setzero_si256(); }
  static inline Bytes bitXor(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
  static inline Bytes low(Bytes x) { return _mm256_and_si256(x, _mm256_set1_epi8(0x0F)); }
  static inline Bytes high(Bytes x) {
    return _mm256_and_si256(_mm256_srli_epi64(x, 4), _mm256_set1_epi8(0x0F));
  }
  static inline Bytes lookUp(Bytes table, Bytes nibbles) { return _mm256_shuffle_epi8(table, nibbles); }
};

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels* avx2Kernels() {
  static const bool able = Cpu().avx2();
  // The code that makes the table is compiled for AVX2 itself.
  if (!able) return nullptr;
  static const Kernels table = Field<Nibbled<V256>>::table("avx2", Nibbled<V256>::encode, kAvx2Rows);
  return &table;
}

}  // namespace kintsugi

#else

namespace kintsugi {
const Kernels* avx2Kernels() { return nullptr; }
}  // namespace kintsugi

#endif
