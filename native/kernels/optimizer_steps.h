// One step of each optimizer, written once for all instruction sets: a template over a vector type `V`
// (elements.h), of which one element at a time is the scalar reference. The rules are the usual ones: PyTorch
// for SGD, momentum, Adagrad, Adam and AdamW; row-wise Adagrad as in recommendation systems, with one
// accumulator per row that sums the mean of the squared gradient; FTRL-Proximal as McMahan et al. have it (Ad
// Click Prediction, 2013, algorithm 1).
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
#include "kernels/schedule_factor.h"

namespace kintsugi {
namespace {

/** Parameters are rounded to single precision before anything is computed with them, but for the betas. */
inline float single(double parameter) { return static_cast<float>(parameter); }

/** The factors of one Adam step that do not depend on the element. */
struct AdamFactors {
  float beta1, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, correction, eps, decay;
};

inline AdamFactors adamFactors(const OptimizerParams& p, float step) {
  // A step count that came in with a whole row may be anything; outside 1..2^24 the corrections are 1 anyway.
  const double clamped = step >= 1 ? (step < kMostSteps ? static_cast<double>(step) : kMostSteps) : 1.0;
  const auto t = static_cast<std::uint64_t>(clamped);
  const double first = 1 - power(p.beta1, t);
  const double second = 1 - power(p.beta2, t);
  return {static_cast<float>(p.beta1),
          static_cast<float>(1 - p.beta1),
          static_cast<float>(p.beta2),
          static_cast<float>(1 - p.beta2),
          static_cast<float>(single(p.lr) / first),
          static_cast<float>(std::sqrt(second)),
          single(p.eps),
          static_cast<float>(1 - p.lr * p.weightDecay)};
}

/** Sixteen partial sums folded in halves: the one order in which a row's squares are added up. */
inline float foldLanes(float lanes[16]) {
  for (unsigned half = 8; half; half >>= 1) {
    for (unsigned i = 0; i < half; i++) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/** The gradient of a row as it came. */
template <class V>
struct Plain {
  const float* g;
  typename V::F at(std::uint32_t i, std::uint32_t n) const { return V::load(g + i, n); }
};

/** The gradient of a row, scaled. */
template <class V>
struct Scaled {
  const float* g;
  typename V::F factor;
  typename V::F at(std::uint32_t i, std::uint32_t n) const { return V::mul(factor, V::load(g + i, n)); }
};

/**
 * The rules. Each updates the values `w` and the state `s` of a row with the gradient `g`, Plain or Scaled;
 * `d` is the delta of the row, values first, and is used as `Mode` says.
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

  template <DeltaMode Mode, class G>
  static inline void sgd(const OptimizerParams& p, float* w, float*, const G& g, std::uint32_t dim,
                         float* d) {
    const F rate = V::set1(single(p.lr));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n);
      put<Mode>(w + i, d, i, old, V::sub(old, V::mul(rate, g.at(i, n))), n);
    });
  }

  template <DeltaMode Mode, class G>
  static inline void momentum(const OptimizerParams& p, float* w, float* v, const G& g, std::uint32_t dim,
                              float* d) {
    const F rate = V::set1(single(p.lr)), keep = V::set1(single(p.momentum));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F oldV = V::load(v + i, n), oldW = V::load(w + i, n);
      const F velocity = V::add(V::mul(keep, oldV), g.at(i, n));
      put<Mode>(v + i, d, dim + i, oldV, velocity, n);
      put<Mode>(w + i, d, i, oldW, V::sub(oldW, V::mul(rate, velocity)), n);
    });
  }

  template <DeltaMode Mode, class G>
  static inline void adagrad(const OptimizerParams& p, float* w, float* s, const G& g, std::uint32_t dim,
                             float* d) {
    const F rate = V::set1(single(p.lr)), eps = V::set1(single(p.eps));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = g.at(i, n), oldS = V::load(s + i, n), oldW = V::load(w + i, n);
      const F sum = V::add(oldS, V::mul(gradient, gradient));
      put<Mode>(s + i, d, dim + i, oldS, sum, n);
      const F step = V::div(V::mul(rate, gradient), V::add(V::sqrt(sum), eps));
      put<Mode>(w + i, d, i, oldW, V::sub(oldW, step), n);
    });
  }

  /** Sum of the squares of all elements of a gradient. */
  template <class G>
  static inline float sumOfSquares(const G& g, std::uint32_t dim) {
    constexpr std::uint32_t kParts = 16 / kLanes;
    F sums[kParts];
    for (F& sum : sums) sum = V::zero();
    for (std::uint32_t i = 0; i < dim; i += 16) {
      for (std::uint32_t part = 0; part < kParts; part++) {
        const std::uint32_t at = i + part * kLanes;
        if (at >= dim) break;
        const F gradient = g.at(at, dim - at < kLanes ? dim - at : kLanes);
        sums[part] = V::add(sums[part], V::mul(gradient, gradient));
      }
    }
    float lanes[16];
    for (std::uint32_t part = 0; part < kParts; part++) V::store(lanes + part * kLanes, sums[part], kLanes);
    return foldLanes(lanes);
  }

  template <DeltaMode Mode, class G>
  static inline void rowwiseAdagrad(const OptimizerParams& p, float* w, float* s, const G& g,
                                    std::uint32_t dim, float* d) {
    putOne<Mode>(s, d, dim, s[0] + sumOfSquares(g, dim) / static_cast<float>(dim));
    const F rate = V::set1(single(p.lr)), denominator = V::set1(std::sqrt(s[0]) + single(p.eps));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n);
      put<Mode>(w + i, d, i, old, V::sub(old, V::div(V::mul(rate, g.at(i, n)), denominator)), n);
    });
  }

  /** State: m[dim], v[dim], step. The step count lives in the row so that recovered state is never torn. */
  template <DeltaMode Mode, bool Decays, class G>
  static inline void adam(const OptimizerParams& p, float* w, float* s, const G& g, std::uint32_t dim,
                          float* d) {
    float *m = s, *v = s + dim;
    putOne<Mode>(s + 2 * dim, d, 3 * dim, s[2 * dim] + 1);
    const AdamFactors f = adamFactors(p, s[2 * dim]);
    const F beta1 = V::set1(f.beta1), rest1 = V::set1(f.oneMinusBeta1), beta2 = V::set1(f.beta2),
            rest2 = V::set1(f.oneMinusBeta2), rate = V::set1(f.stepSize), correction = V::set1(f.correction),
            eps = V::set1(f.eps), decay = V::set1(f.decay);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = g.at(i, n), oldM = V::load(m + i, n), oldV = V::load(v + i, n),
              oldW = V::load(w + i, n);
      const F first = V::add(V::mul(beta1, oldM), V::mul(rest1, gradient));
      const F second = V::add(V::mul(beta2, oldV), V::mul(V::mul(rest2, gradient), gradient));
      put<Mode>(m + i, d, dim + i, oldM, first, n);
      put<Mode>(v + i, d, 2 * dim + i, oldV, second, n);
      const F denominator = V::add(V::div(V::sqrt(second), correction), eps);
      const F base = Decays ? V::mul(oldW, decay) : oldW;
      put<Mode>(w + i, d, i, oldW, V::sub(base, V::div(V::mul(rate, first), denominator)), n);
    });
  }

  /** State: z[dim], n[dim]. The values are a function of it, and of the learning rate. */
  template <DeltaMode Mode, class G>
  static inline void ftrl(const OptimizerParams& p, float* w, float* s, const G& g, std::uint32_t dim,
                          float* d) {
    float *z = s, *squares = s + dim;
    const F rate = V::set1(single(p.lr)), beta = V::set1(single(p.beta)), l2 = V::set1(single(p.l2)),
            most = V::set1(single(p.l1)), least = V::set1(-single(p.l1));
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = g.at(i, n), oldZ = V::load(z + i, n), oldN = V::load(squares + i, n),
              oldW = V::load(w + i, n);
      const F sum = V::add(oldN, V::mul(gradient, gradient)), root = V::sqrt(sum);
      const F sigma = V::div(V::sub(root, V::sqrt(oldN)), rate);
      const F now = V::sub(V::add(oldZ, gradient), V::mul(sigma, oldW));
      put<Mode>(squares + i, d, 2 * dim + i, oldN, sum, n);
      put<Mode>(z + i, d, dim + i, oldZ, now, n);
      // Zero where |z| <= l1; elsewhere one of the two differences, and nothing of the other.
      const F over = V::whereAbove(now, most, V::sub(most, now)),
              under = V::whereAbove(least, now, V::sub(least, now));
      const F value = V::div(V::add(over, under), V::add(V::div(V::add(beta, root), rate), l2));
      const F chosen = V::add(V::whereAbove(now, most, value), V::whereAbove(least, now, value));
      put<Mode>(w + i, d, i, oldW, chosen, n);
    });
  }
};

template <class V, OptimizerKind Kind, DeltaMode Mode, class G>
inline void ruleOf(const OptimizerParams& p, float* w, float* s, const G& g, std::uint32_t dim, float* d) {
  using Of = Steps<V>;
  if constexpr (Kind == OptimizerKind::Sgd) {
    Of::template sgd<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::Momentum) {
    Of::template momentum<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::Adagrad) {
    Of::template adagrad<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::RowwiseAdagrad) {
    Of::template rowwiseAdagrad<Mode>(p, w, s, g, dim, d);
  } else if constexpr (Kind == OptimizerKind::Ftrl) {
    Of::template ftrl<Mode>(p, w, s, g, dim, d);
  } else {
    static_assert(Kind == OptimizerKind::Adam || Kind == OptimizerKind::AdamW,
                  "every optimizer needs its step");
    Of::template adam<Mode, Kind == OptimizerKind::AdamW>(p, w, s, g, dim, d);
  }
}

/** One step of a row. `Adjusted`: with the norm and the schedule of `p`, which others must not have. */
template <class V, OptimizerKind Kind, DeltaMode Mode, bool Adjusted>
inline void step(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim, float* d) {
  if constexpr (!Adjusted) {
    ruleOf<V, Kind, Mode>(p, w, s, Plain<V>{g}, dim, d);
  } else {
    using Of = Steps<V>;
    const std::uint32_t count = stateFloats(p, dim) - 1;  // where the steps are counted, if they are
    const bool scheduled = p.schedule.kind != ScheduleKind::None;
    OptimizerParams now = p;
    if (scheduled) now.lr = p.lr * scheduleFactor(p.schedule, s[count]);
    const float norm = p.clipNorm > 0 ? std::sqrt(Of::sumOfSquares(Plain<V>{g}, dim)) : 0;
    const float factor = norm > single(p.clipNorm) ? single(p.clipNorm) / norm : 1;
    ruleOf<V, Kind, Mode>(now, w, s, Scaled<V>{g, V::set1(factor)}, dim, d);
    if (hasCountOfItsOwn(p)) Of::template putOne<Mode>(s + count, d, dim + count, s[count] + 1);
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
