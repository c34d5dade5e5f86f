// What one step of each optimizer computes, once for all instruction sets: a template over a vector type `V`
// (elements.h), of which one element at a time is the scalar reference. The rules are the usual ones: PyTorch
// for SGD, momentum, Adagrad and Adam; row-wise Adagrad as in recommendation systems, with one accumulator
// per row that sums the mean of the squared gradient.
//
// Every element goes through the same IEEE operations in the same order whatever the vector. That order is
// part of the format, because parities and replicas compare bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/elements.h"
#include "kernels/optimizers.h"

namespace kintsugi {
namespace {

/** Parameters are rounded to single precision before anything is computed with them, but for the betas. */
inline float single(double parameter) { return static_cast<float>(parameter); }

// beta^step by squaring: libm's pow differs between machines in the last bit.
inline double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

/** The factors of one Adam step that do not depend on the element. */
struct AdamFactors {
  float beta1, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, correction, eps;
};

inline AdamFactors adamFactors(const OptimizerParams& p, float step) {
  // A step count that came in with a whole row may be anything; outside 1..2^24 the corrections are 1 anyway.
  const double clamped = step >= 1 ? (step < 16777216.0f ? static_cast<double>(step) : 16777216.0) : 1.0;
  const auto t = static_cast<std::uint64_t>(clamped);
  const double first = 1 - power(p.beta1, t);
  const double second = 1 - power(p.beta2, t);
  return {static_cast<float>(p.beta1),
          static_cast<float>(1 - p.beta1),
          static_cast<float>(p.beta2),
          static_cast<float>(1 - p.beta2),
          static_cast<float>(single(p.lr) / first),
          static_cast<float>(std::sqrt(second)),
          single(p.eps)};
}

/** Sixteen partial sums folded in halves: the one order in which a row's squares are added up. */
inline float foldLanes(float lanes[16]) {
  for (unsigned half = 8; half; half >>= 1) {
    for (unsigned i = 0; i < half; i++) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/**
 * The rules. Each updates the values `w` and the state `s` of a row with the gradient `g`; `d` is the delta
 * of the row, values first, and is used as `Mode` says.
 */
template <class V>
struct Steps : Elements<V> {
  using typename Elements<V>::F;
  using Elements<V>::kLanes;
  using Elements<V>::each;

  /** Stores `after` at `to`, and the change in the delta `d` from element `at` on. */
  template <DeltaMode Mode>
  static inline void put(float* to, float* d, std::uint32_t at, F before, F after, std::uint32_t n) {
    Elements<V>::template put<Mode>(to, part<Mode>(d, at), before, after, n);
  }
  template <DeltaMode Mode>
  static inline void putOne(float* to, float* d, std::uint32_t at, float after) {
    Elements<V>::template putOne<Mode>(to, part<Mode>(d, at), after);
  }
  /** Without deltas there is no memory to point into. */
  template <DeltaMode Mode>
  static inline float* part(float* d, std::uint32_t at) {
    return Mode == kNoDelta ? nullptr : d + at;
  }

  template <DeltaMode Mode>
  static inline void sgd(const OptimizerParams& p, float* w, float*, const float* g, std::uint32_t dim,
                         float* d) {
    const F rate = V::set1(single(p.lr));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n);
      put<Mode>(w + i, d, i, old, V::sub(old, V::mul(rate, V::load(g + i, n))), n);
    });
  }

  template <DeltaMode Mode>
  static inline void momentum(const OptimizerParams& p, float* w, float* v, const float* g, std::uint32_t dim,
                              float* d) {
    const F rate = V::set1(single(p.lr)), keep = V::set1(single(p.momentum));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F oldV = V::load(v + i, n), oldW = V::load(w + i, n);
      const F velocity = V::add(V::mul(keep, oldV), V::load(g + i, n));
      put<Mode>(v + i, d, dim + i, oldV, velocity, n);
      put<Mode>(w + i, d, i, oldW, V::sub(oldW, V::mul(rate, velocity)), n);
    });
  }

  template <DeltaMode Mode>
  static inline void adagrad(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim,
                             float* d) {
    const F rate = V::set1(single(p.lr)), eps = V::set1(single(p.eps));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = V::load(g + i, n), oldS = V::load(s + i, n), oldW = V::load(w + i, n);
      const F sum = V::add(oldS, V::mul(gradient, gradient));
      put<Mode>(s + i, d, dim + i, oldS, sum, n);
      const F step = V::div(V::mul(rate, gradient), V::add(V::sqrt(sum), eps));
      put<Mode>(w + i, d, i, oldW, V::sub(oldW, step), n);
    });
  }

  template <DeltaMode Mode>
  static inline void rowwiseAdagrad(const OptimizerParams& p, float* w, float* s, const float* g,
                                    std::uint32_t dim, float* d) {
    constexpr std::uint32_t kParts = 16 / kLanes;
    F sums[kParts];
    for (F& sum : sums) sum = V::zero();
    for (std::uint32_t i = 0; i < dim; i += 16) {
      for (std::uint32_t part = 0; part < kParts; part++) {
        const std::uint32_t at = i + part * kLanes;
        if (at >= dim) break;
        const F gradient = V::load(g + at, dim - at < kLanes ? dim - at : kLanes);
        sums[part] = V::add(sums[part], V::mul(gradient, gradient));
      }
    }
    float lanes[16];
    for (std::uint32_t part = 0; part < kParts; part++) V::store(lanes + part * kLanes, sums[part], kLanes);
    putOne<Mode>(s, d, dim, s[0] + foldLanes(lanes) / static_cast<float>(dim));
    const F rate = V::set1(single(p.lr)), denominator = V::set1(std::sqrt(s[0]) + single(p.eps));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n);
      put<Mode>(w + i, d, i, old, V::sub(old, V::div(V::mul(rate, V::load(g + i, n)), denominator)), n);
    });
  }

  /** State: m[dim], v[dim], step. The step count lives in the row so that recovered state is never torn. */
  template <DeltaMode Mode>
  static inline void adam(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim,
                          float* d) {
    float *m = s, *v = s + dim;
    putOne<Mode>(s + 2 * dim, d, 3 * dim, s[2 * dim] + 1);
    const AdamFactors f = adamFactors(p, s[2 * dim]);
    const F beta1 = V::set1(f.beta1), rest1 = V::set1(f.oneMinusBeta1), beta2 = V::set1(f.beta2),
            rest2 = V::set1(f.oneMinusBeta2), rate = V::set1(f.stepSize), correction = V::set1(f.correction),
            eps = V::set1(f.eps);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = V::load(g + i, n), oldM = V::load(m + i, n), oldV = V::load(v + i, n),
              oldW = V::load(w + i, n);
      const F first = V::add(V::mul(beta1, oldM), V::mul(rest1, gradient));
      const F second = V::add(V::mul(beta2, oldV), V::mul(V::mul(rest2, gradient), gradient));
      put<Mode>(m + i, d, dim + i, oldM, first, n);
      put<Mode>(v + i, d, 2 * dim + i, oldV, second, n);
      const F denominator = V::add(V::div(V::sqrt(second), correction), eps);
      put<Mode>(w + i, d, i, oldW, V::sub(oldW, V::div(V::mul(rate, first), denominator)), n);
    });
  }
};

template <class V, OptimizerKind Kind, DeltaMode Mode>
inline void step(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim, float* d) {
  using Of = Steps<V>;
  if constexpr (Kind == OptimizerKind::Sgd) {
    Of::template sgd<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::Momentum) {
    Of::template momentum<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::Adagrad) {
    Of::template adagrad<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::RowwiseAdagrad) {
    Of::template rowwiseAdagrad<Mode>(p, w, s, g, dim, d);
  } else {
    static_assert(Kind == OptimizerKind::Adam, "every optimizer needs its step");
    Of::template adam<Mode>(p, w, s, g, dim, d);
  }
}

template <class Body, std::size_t... I>
inline void withKindOf(OptimizerKind kind, Body body, std::index_sequence<I...>) {
  const auto taken = [&](auto constant) {
    if (kind == constant) body(constant);
    return kind == constant;
  };
  (void)(taken(std::integral_constant<OptimizerKind, kOptimizers[I].kind>{}) || ...);
}

/** Calls body(kind) with the kind as a constant. */
template <class Body>
inline void withKind(OptimizerKind kind, Body body) {
  withKindOf(kind, body, std::make_index_sequence<kOptimizerCount>{});
}

}  // namespace
}  // namespace kintsugi
