// AVX-512 + GFNI. Multiplication by a constant is linear over GF(2), so it is one 8x8 bit matrix per
// coefficient, and gf2p8affineqb applies it to 64 bytes at once for any polynomial (gf2p8mulb knows only
// 0x11B).
#include "kernels/kernels.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX512)
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu.h"
#include "kernels/gf256.h"
#include "kernels/rows.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,gfni"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,gfni")
#endif
#include "kernels/gf256_simd.h"

namespace kintsugi {
namespace {

// Result bit i of gf2p8affineqb is the parity of byte 7-i of the matrix and the input byte.
constexpr std::uint64_t bitMatrix(unsigned c) {
  std::uint64_t matrix = 0;
  unsigned column = c;  // c * 2^j
  for (unsigned j = 0; j < 8; j++) {
    for (unsigned i = 0; i < 8; i++) {
      if (column >> i & 1) matrix |= std::uint64_t{1} << ((7 - i) * 8 + j);
    }
    column <<= 1;
    if (column & 0x100) column ^= gf::kPolynomial;
  }
  return matrix;
}

struct Matrices {
  std::uint64_t of[256];
};

constexpr Matrices makeMatrices() {
  Matrices m{};
  for (unsigned c = 0; c < 256; c++) m.of[c] = bitMatrix(c);
  return m;
}

constinit const Matrices kMatrices = makeMatrices();

struct V512 {
  using Factor = __m512i;

  static inline Factor factorOf(std::uint8_t c) {
    return _mm512_set1_epi64(static_cast<long long>(kMatrices.of[c]));
  }

  template <bool Multiply>
  static inline void addBytes(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, Factor matrix) {
    std::size_t i = 0;
    for (; i + 64 <= n; i += 64) {
      __m512i x = _mm512_loadu_si512(src + i);
      if constexpr (Multiply) x = _mm512_gf2p8affine_epi64_epi8(x, matrix, 0);
      _mm512_storeu_si512(dst + i, _mm512_xor_si512(_mm512_loadu_si512(dst + i), x));
    }
    if (i < n) {
      const __mmask64 tail = ~std::uint64_t{0} >> (64 - (n - i));
      __m512i x = _mm512_maskz_loadu_epi8(tail, src + i);
      if constexpr (Multiply) x = _mm512_gf2p8affine_epi64_epi8(x, matrix, 0);
      _mm512_mask_storeu_epi8(dst + i, tail, _mm512_xor_si512(_mm512_maskz_loadu_epi8(tail, dst + i), x));
    }
  }
};

// All parities in one pass over the data: each byte of data is loaded once, however many parities there are,
// and the sums stay in registers. Coefficients that are 1 (the first parity has no others) cost an addition
// only; the choice is made per group of parities, not per byte.
template <std::uint32_t R, bool FirstIsSum, bool Stream>
void encodeBlocks(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                  std::size_t n, const std::uint64_t* matrices) {
  // Measured: from DRAM narrower steps are faster, and software prefetch only gets in the way.
  constexpr std::size_t kColumns = Stream ? 4 : R == 1 ? 8 : R == 2 ? 6 : 4, kStep = kColumns * 64;
  for (std::size_t at = 0; at + kStep <= n; at += kStep) {
    __m512i sums[R][kColumns];
#pragma GCC unroll 4
    for (std::uint32_t j = 0; j < R; j++) {
#pragma GCC unroll 8
      for (std::size_t c = 0; c < kColumns; c++) sums[j][c] = _mm512_setzero_si512();
    }
    for (std::uint32_t i = 0; i < k; i++) {
      const std::uint8_t* from = data[i] + at;
      __m512i x[kColumns];
#pragma GCC unroll 8
      for (std::size_t c = 0; c < kColumns; c++) {
        x[c] = _mm512_loadu_si512(from + c * 64);
      }
#pragma GCC unroll 4
      for (std::uint32_t j = 0; j < R; j++) {
        const bool plain = FirstIsSum && j == 0;
        const __m512i matrix = _mm512_set1_epi64(static_cast<long long>(matrices[i * R + j]));
#pragma GCC unroll 8
        for (std::size_t c = 0; c < kColumns; c++) {
          const __m512i term = plain ? x[c] : _mm512_gf2p8affine_epi64_epi8(x[c], matrix, 0);
          sums[j][c] = _mm512_xor_si512(sums[j][c], term);
        }
      }
    }
#pragma GCC unroll 4
    for (std::uint32_t j = 0; j < R; j++) {
#pragma GCC unroll 8
      for (std::size_t c = 0; c < kColumns; c++) {
        auto* to = parity[j] + at + c * 64;
        if constexpr (Stream) {
          _mm512_stream_si512(reinterpret_cast<__m512i*>(to), sums[j][c]);
        } else {
          _mm512_storeu_si512(to, sums[j][c]);
        }
      }
    }
  }
  const std::size_t rest = n / kStep * kStep;
  for (std::size_t at = rest; at < n; at += 64) {
    const __mmask64 mask = n - at >= 64 ? ~__mmask64{0} : ~__mmask64{0} >> (64 - (n - at));
    for (std::uint32_t j = 0; j < R; j++) {
      __m512i sum = _mm512_setzero_si512();
      for (std::uint32_t i = 0; i < k; i++) {
        const __m512i matrix = _mm512_set1_epi64(static_cast<long long>(matrices[i * R + j]));
        const __m512i x = _mm512_maskz_loadu_epi8(mask, data[i] + at);
        sum = _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8(x, matrix, 0));
      }
      _mm512_mask_storeu_epi8(parity[j] + at, mask, sum);
    }
  }
  if constexpr (Stream) _mm_sfence();
}

using EncodeBlocks = void (*)(const std::uint8_t* const*, std::uint32_t, std::uint8_t* const*, std::size_t,
                              const std::uint64_t*);

template <bool FirstIsSum, bool Stream>
EncodeBlocks encoder(std::uint32_t r) {
  constexpr EncodeBlocks of[] = {encodeBlocks<1, FirstIsSum, Stream>, encodeBlocks<2, FirstIsSum, Stream>,
                                 encodeBlocks<3, FirstIsSum, Stream>, encodeBlocks<4, FirstIsSum, Stream>};
  return of[r - 1];
}

/** From this many bytes on the blocks do not fit the caches: parity is then written past them. */
constexpr std::size_t kStreamFrom = std::size_t{16} << 20;

void encode(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity, std::uint32_t r,
            std::size_t n, const std::uint8_t* coefficients) {
  std::uint64_t matrices[256 * kMaxEncode];
  bool aligned = true;
  for (std::uint32_t j = 0; j < r; j++) {
    for (std::uint32_t i = 0; i < k; i++) matrices[i * r + j] = kMatrices.of[coefficients[j * k + i]];
    aligned = aligned && reinterpret_cast<std::uintptr_t>(parity[j]) % 64 == 0;
  }
  const bool stream = aligned && n * (k + r) >= kStreamFrom;
  const EncodeBlocks run = sumComesFirst(coefficients, k)
                               ? (stream ? encoder<true, true>(r) : encoder<true, false>(r))
                               : (stream ? encoder<false, true>(r) : encoder<false, false>(r));
  run(data, k, parity, n, matrices);
}

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const Kernels* avx512Kernels() {
  static const bool able = Cpu().avx512();
  // The code that makes the table is compiled for AVX-512 itself.
  if (!able) return nullptr;
  static const Kernels table = Field<V512>::table("avx512-gfni", encode, kAvx512Rows);
  return &table;
}

}  // namespace kintsugi

#else

namespace kintsugi {
const Kernels* avx512Kernels() { return nullptr; }
}  // namespace kintsugi

#endif
