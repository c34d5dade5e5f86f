// The optimizers with AVX-512. Each element goes through the same IEEE operations in the same order as in
// rows.cc (no fused multiply-add), and the last lanes are masked, so the bits are the same.
#include "kernels/rows_avx512.h"

#if defined(__x86_64__) && !defined(KINTSUGI_NO_AVX512)
#include <immintrin.h>

#include <cmath>

#include "kernels/rows.h"

#define TARGET __attribute__((target("avx512f")))

namespace kintsugi {
namespace {

TARGET inline __mmask16 lanesLeft(std::uint32_t left) {
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1u << left) - 1);
}

TARGET inline __m512 load(__mmask16 mask, const float* p) { return _mm512_maskz_loadu_ps(mask, p); }
TARGET inline void store(float* p, __mmask16 mask, __m512 x) { _mm512_mask_storeu_ps(p, mask, x); }

TARGET void sgd(float lr, float* w, const float* g, std::uint32_t dim) {
  const __m512 rate = _mm512_set1_ps(lr);
  for (std::uint32_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = lanesLeft(dim - i);
    store(w + i, mask, _mm512_sub_ps(load(mask, w + i), _mm512_mul_ps(rate, load(mask, g + i))));
  }
}

TARGET void momentum(float lr, float mu, float* w, float* v, const float* g, std::uint32_t dim) {
  const __m512 rate = _mm512_set1_ps(lr), keep = _mm512_set1_ps(mu);
  for (std::uint32_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = lanesLeft(dim - i);
    const __m512 velocity = _mm512_add_ps(_mm512_mul_ps(keep, load(mask, v + i)), load(mask, g + i));
    store(v + i, mask, velocity);
    store(w + i, mask, _mm512_sub_ps(load(mask, w + i), _mm512_mul_ps(rate, velocity)));
  }
}

TARGET void adagrad(float lr, float eps, float* w, float* s, const float* g, std::uint32_t dim) {
  const __m512 rate = _mm512_set1_ps(lr), epsilon = _mm512_set1_ps(eps);
  for (std::uint32_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = lanesLeft(dim - i);
    const __m512 gradient = load(mask, g + i);
    const __m512 sum = _mm512_add_ps(load(mask, s + i), _mm512_mul_ps(gradient, gradient));
    store(s + i, mask, sum);
    const __m512 step =
        _mm512_div_ps(_mm512_mul_ps(rate, gradient), _mm512_add_ps(_mm512_maskz_sqrt_ps(mask, sum), epsilon));
    store(w + i, mask, _mm512_sub_ps(load(mask, w + i), step));
  }
}

TARGET void rowwiseAdagrad(float lr, float eps, float* w, float* s, const float* g, std::uint32_t dim) {
  __m512 sums = _mm512_setzero_ps();
  for (std::uint32_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = lanesLeft(dim - i);
    const __m512 gradient = load(mask, g + i);
    sums = _mm512_mask_add_ps(sums, mask, sums, _mm512_mul_ps(gradient, gradient));
  }
  float lanes[16];
  _mm512_storeu_ps(lanes, sums);
  s[0] += foldLanes(lanes) / static_cast<float>(dim);
  const __m512 rate = _mm512_set1_ps(lr), denominator = _mm512_set1_ps(std::sqrt(s[0]) + eps);
  for (std::uint32_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = lanesLeft(dim - i);
    const __m512 step = _mm512_div_ps(_mm512_mul_ps(rate, load(mask, g + i)), denominator);
    store(w + i, mask, _mm512_sub_ps(load(mask, w + i), step));
  }
}

TARGET void adam(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
  float* m = s;
  float* v = s + dim;
  s[2 * dim] += 1;
  const AdamFactors f = adamFactors(p, s[2 * dim]);
  const __m512 beta1 = _mm512_set1_ps(f.beta1), rest1 = _mm512_set1_ps(f.oneMinusBeta1);
  const __m512 beta2 = _mm512_set1_ps(f.beta2), rest2 = _mm512_set1_ps(f.oneMinusBeta2);
  const __m512 rate = _mm512_set1_ps(f.stepSize), correction = _mm512_set1_ps(f.correction),
               eps = _mm512_set1_ps(f.eps);
  for (std::uint32_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = lanesLeft(dim - i);
    const __m512 gradient = load(mask, g + i);
    const __m512 first =
        _mm512_add_ps(_mm512_mul_ps(beta1, load(mask, m + i)), _mm512_mul_ps(rest1, gradient));
    const __m512 second = _mm512_add_ps(_mm512_mul_ps(beta2, load(mask, v + i)),
                                        _mm512_mul_ps(_mm512_mul_ps(rest2, gradient), gradient));
    store(m + i, mask, first);
    store(v + i, mask, second);
    const __m512 denominator =
        _mm512_add_ps(_mm512_div_ps(_mm512_maskz_sqrt_ps(mask, second), correction), eps);
    store(w + i, mask,
          _mm512_sub_ps(load(mask, w + i), _mm512_div_ps(_mm512_mul_ps(rate, first), denominator)));
  }
}

}  // namespace

void updateRowAvx512(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
  switch (p.kind) {
    case OptimizerKind::Sgd:
      return sgd(p.lr, w, g, dim);
    case OptimizerKind::Momentum:
      return momentum(p.lr, p.momentum, w, s, g, dim);
    case OptimizerKind::Adagrad:
      return adagrad(p.lr, p.eps, w, s, g, dim);
    case OptimizerKind::RowwiseAdagrad:
      return rowwiseAdagrad(p.lr, p.eps, w, s, g, dim);
    case OptimizerKind::Adam:
      return adam(p, w, s, g, dim);
  }
}

}  // namespace kintsugi

#endif
