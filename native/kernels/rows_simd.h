// The row kernels as one template over a vector type `V`, included by one file per instruction set inside its
// target region. Each element goes through the same IEEE operations in the same order as in rows.cc, and
// lanes beyond a row are masked, so the bits are the same. A row is read once: its delta is taken from the
// registers that hold the old and the new value, where a pass of its own would read both again.
//
// `V` has kLanes, F, load/store(pointer, lanes), set1, zero, add, sub, mul, div, sqrt, bitXor and
// findInBucket(bucket, tag) -> bit mask.
#pragma once
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/prefetch.h"
#include "kernels/rows.h"

namespace kintsugi {
namespace {

enum DeltaMode { kNoDelta, kSetDelta, kAddDelta };

template <class V>
struct Rows {
  using F = typename V::F;
  static constexpr std::uint32_t kLanes = V::kLanes;

  /** body(first element, number of elements) over a row; the number is a constant but for the last one. */
  template <class Body>
  static inline void each(std::uint32_t count, Body body) {
    std::uint32_t i = 0;
    for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
    if (i < count) body(i, count - i);
  }

  template <DeltaMode Mode>
  static inline void put(float* to, float* delta, F before, F after, std::uint32_t n) {
    V::store(to, after, n);
    if constexpr (Mode == kNoDelta) return;
    F change = V::bitXor(before, after);
    if constexpr (Mode == kAddDelta) change = V::bitXor(change, V::load(delta, n));
    V::store(delta, change, n);
  }

  template <DeltaMode Mode>
  static inline void putOne(float* to, float* delta, float after) {
    std::uint32_t change = std::bit_cast<std::uint32_t>(*to) ^ std::bit_cast<std::uint32_t>(after);
    *to = after;
    if constexpr (Mode == kNoDelta) return;
    if constexpr (Mode == kAddDelta) change ^= std::bit_cast<std::uint32_t>(*delta);
    *delta = std::bit_cast<float>(change);
  }

  template <DeltaMode Mode>
  static inline void sgd(const OptimizerParams& p, float* w, float*, const float* g, std::uint32_t dim,
                         float* d) {
    const F rate = V::set1(p.lr);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n);
      put<Mode>(w + i, d + i, old, V::sub(old, V::mul(rate, V::load(g + i, n))), n);
    });
  }

  template <DeltaMode Mode>
  static inline void momentum(const OptimizerParams& p, float* w, float* v, const float* g, std::uint32_t dim,
                              float* d) {
    const F rate = V::set1(p.lr), keep = V::set1(p.momentum);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F oldV = V::load(v + i, n), oldW = V::load(w + i, n);
      const F velocity = V::add(V::mul(keep, oldV), V::load(g + i, n));
      put<Mode>(v + i, d + dim + i, oldV, velocity, n);
      put<Mode>(w + i, d + i, oldW, V::sub(oldW, V::mul(rate, velocity)), n);
    });
  }

  template <DeltaMode Mode>
  static inline void adagrad(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim,
                             float* d) {
    const F rate = V::set1(p.lr), eps = V::set1(p.eps);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = V::load(g + i, n), oldS = V::load(s + i, n), oldW = V::load(w + i, n);
      const F sum = V::add(oldS, V::mul(gradient, gradient));
      put<Mode>(s + i, d + dim + i, oldS, sum, n);
      const F step = V::div(V::mul(rate, gradient), V::add(V::sqrt(sum), eps));
      put<Mode>(w + i, d + i, oldW, V::sub(oldW, step), n);
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
    putOne<Mode>(s, d + dim, s[0] + foldLanes(lanes) / static_cast<float>(dim));
    const F rate = V::set1(p.lr), denominator = V::set1(std::sqrt(s[0]) + p.eps);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n);
      put<Mode>(w + i, d + i, old, V::sub(old, V::div(V::mul(rate, V::load(g + i, n)), denominator)), n);
    });
  }

  template <DeltaMode Mode>
  static inline void adam(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim,
                          float* d) {
    float *m = s, *v = s + dim;
    putOne<Mode>(s + 2 * dim, d + 3 * dim, s[2 * dim] + 1);
    const AdamFactors f = adamFactors(p, s[2 * dim]);
    const F beta1 = V::set1(f.beta1), rest1 = V::set1(f.oneMinusBeta1), beta2 = V::set1(f.beta2),
            rest2 = V::set1(f.oneMinusBeta2), rate = V::set1(f.stepSize), correction = V::set1(f.correction),
            eps = V::set1(f.eps);
    each(dim, [&](std::uint32_t i, std::uint32_t n) {
      const F gradient = V::load(g + i, n), oldM = V::load(m + i, n), oldV = V::load(v + i, n),
              oldW = V::load(w + i, n);
      const F first = V::add(V::mul(beta1, oldM), V::mul(rest1, gradient));
      const F second = V::add(V::mul(beta2, oldV), V::mul(V::mul(rest2, gradient), gradient));
      put<Mode>(m + i, d + dim + i, oldM, first, n);
      put<Mode>(v + i, d + 2 * dim + i, oldV, second, n);
      const F denominator = V::add(V::div(V::sqrt(second), correction), eps);
      put<Mode>(w + i, d + i, oldW, V::sub(oldW, V::div(V::mul(rate, first), denominator)), n);
    });
  }

  template <OptimizerKind Kind, DeltaMode Mode>
  static inline void step(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim,
                          float* d) {
    if constexpr (Kind == OptimizerKind::Sgd) sgd<Mode>(p, w, s, g, dim, d);
    if constexpr (Kind == OptimizerKind::Momentum) momentum<Mode>(p, w, s, g, dim, d);
    if constexpr (Kind == OptimizerKind::Adagrad) adagrad<Mode>(p, w, s, g, dim, d);
    if constexpr (Kind == OptimizerKind::RowwiseAdagrad) rowwiseAdagrad<Mode>(p, w, s, g, dim, d);
    if constexpr (Kind == OptimizerKind::Adam) adam<Mode>(p, w, s, g, dim, d);
  }

  template <OptimizerKind Kind, std::size_t Lines>
  static void stepEach(const OptimizerParams& p, const RowSteps& all) {
    const std::size_t stride = all.stride, used = (all.dim + stateFloats(Kind, all.dim)) * std::size_t{4};
    const std::size_t lines = linesToFetch(stride);
    for (std::size_t i = 0; i < all.count; i++) {
      prefetchAhead<Lines>(lines, i, all.count,
                           [&](std::size_t j) { return all.rows + all.slots[j] * stride; });
      auto* w = reinterpret_cast<float*>(all.rows + all.slots[i] * stride);
      const auto* g = reinterpret_cast<const float*>(all.gradients + i * all.dim * 4);
      if (!all.deltas) {
        step<Kind, kNoDelta>(p, w, w + all.dim, g, all.dim, nullptr);
        continue;
      }
      std::uint8_t* delta = all.deltas + (all.places[i] & ~kAddTo) * stride;
      auto* d = reinterpret_cast<float*>(delta);
      if (all.places[i] & kAddTo) {
        step<Kind, kAddDelta>(p, w, w + all.dim, g, all.dim, d);
      } else {
        step<Kind, kSetDelta>(p, w, w + all.dim, g, all.dim, d);
        for (std::size_t b = used; b < stride; b++) delta[b] = 0;
      }
    }
  }

  template <OptimizerKind Kind>
  static void stepAll(const OptimizerParams& p, const RowSteps& all) {
    withLines(all.stride, [&](auto lines) { stepEach<Kind, lines>(p, all); });
  }

  static void stepRows(const OptimizerParams& p, const RowSteps& all) {
    switch (p.kind) {
      case OptimizerKind::Sgd:
        return stepAll<OptimizerKind::Sgd>(p, all);
      case OptimizerKind::Momentum:
        return stepAll<OptimizerKind::Momentum>(p, all);
      case OptimizerKind::Adagrad:
        return stepAll<OptimizerKind::Adagrad>(p, all);
      case OptimizerKind::RowwiseAdagrad:
        return stepAll<OptimizerKind::RowwiseAdagrad>(p, all);
      case OptimizerKind::Adam:
        return stepAll<OptimizerKind::Adam>(p, all);
    }
  }

  static void updateRow(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
    switch (p.kind) {
      case OptimizerKind::Sgd:
        return sgd<kNoDelta>(p, w, s, g, dim, nullptr);
      case OptimizerKind::Momentum:
        return momentum<kNoDelta>(p, w, s, g, dim, nullptr);
      case OptimizerKind::Adagrad:
        return adagrad<kNoDelta>(p, w, s, g, dim, nullptr);
      case OptimizerKind::RowwiseAdagrad:
        return rowwiseAdagrad<kNoDelta>(p, w, s, g, dim, nullptr);
      case OptimizerKind::Adam:
        return adam<kNoDelta>(p, w, s, g, dim, nullptr);
    }
  }

  static void replaceRow(std::uint8_t* row, const std::uint8_t* content, std::size_t bytes,
                         std::size_t stride, std::uint8_t* delta, bool add) {
    auto *w = reinterpret_cast<float*>(row), *d = reinterpret_cast<float*>(delta);
    const auto* c = reinterpret_cast<const float*>(content);
    const auto floats = static_cast<std::uint32_t>(bytes / 4);
    if (!add) std::memset(delta + bytes, 0, stride - bytes);
    for (std::size_t i = floats; i < stride / 4; i++) putOne<kAddDelta>(w + i, d + i, 0);
    each(floats, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n), now = V::load(c + i, n);
      if (add) {
        put<kAddDelta>(w + i, d + i, old, now, n);
      } else {
        put<kSetDelta>(w + i, d + i, old, now, n);
      }
    });
  }

  // Four vectors at a time: few branches, so that many rows fit into the core's window.
  static inline void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
    constexpr std::size_t kBytes = kLanes * 4;
    for (; bytes >= 4 * kBytes; bytes -= 4 * kBytes, to += 4 * kBytes, from += 4 * kBytes) {
      const F a = V::load(from, kLanes), b = V::load(from + kBytes, kLanes),
              c = V::load(from + 2 * kBytes, kLanes), d = V::load(from + 3 * kBytes, kLanes);
      V::store(to, a, kLanes);
      V::store(to + kBytes, b, kLanes);
      V::store(to + 2 * kBytes, c, kLanes);
      V::store(to + 3 * kBytes, d, kLanes);
    }
    each(static_cast<std::uint32_t>(bytes / 4), [&](std::uint32_t i, std::uint32_t n) {
      V::store(to + std::size_t{i} * 4, V::load(from + std::size_t{i} * 4, n), n);
    });
  }

  template <std::size_t Lines>
  static void gatherEach(std::uint8_t* out, const std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                         const std::uint32_t* slots, std::size_t count) {
    const std::size_t lines = linesToFetch(bytes);
    for (std::size_t i = 0; i < count; i++) {
      prefetchAhead<Lines>(lines, i, count, [&](std::size_t j) {
        return slots[j] == kNoSlot ? nullptr : rows + slots[j] * stride;
      });
      if (slots[i] != kNoSlot) copy(out + i * bytes, rows + slots[i] * stride, bytes);
    }
  }

  static void gatherRows(std::uint8_t* out, const std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                         const std::uint32_t* slots, std::size_t count) {
    withLines(bytes, [&](auto lines) { gatherEach<lines>(out, rows, stride, bytes, slots, count); });
  }

  template <std::size_t Lines>
  static void scatterEach(std::uint8_t* rows, std::size_t bytes, const std::uint32_t* slots,
                          std::size_t count, const std::uint8_t* from) {
    const std::size_t lines = linesToFetch(bytes);
    for (std::size_t i = 0; i < count; i++) {
      prefetchAhead<Lines>(lines, i, count, [&](std::size_t j) { return rows + slots[j] * bytes; });
      copy(rows + slots[i] * bytes, from + i * bytes, bytes);
    }
  }

  static void scatterRows(std::uint8_t* rows, std::size_t bytes, const std::uint32_t* slots,
                          std::size_t count, const std::uint8_t* from) {
    withLines(bytes, [&](auto lines) { scatterEach<lines>(rows, bytes, slots, count, from); });
  }

  static void findTags(const std::uint64_t* tags, const std::uint32_t* slots, std::size_t mask,
                       const std::uint64_t* wanted, const std::uint32_t* homes, std::size_t count,
                       std::size_t ahead, std::uint32_t* out) {
    for (std::size_t i = 0; i < count; i++) {
      prefetchBuckets(tags, slots, homes, i, count + ahead);
      std::size_t b = homes[i];
      unsigned hit = V::findInBucket(tags + b * 8, wanted[i]);
      while (!hit && tags[b * 8 + 7]) {
        b = (b + 1) & mask;
        hit = V::findInBucket(tags + b * 8, wanted[i]);
      }
      out[i] = hit ? slots[b * 8 + static_cast<unsigned>(std::countr_zero(hit))] : kNoSlot;
    }
  }

  static constexpr RowKernels table() {
    return {updateRow, stepRows, replaceRow, gatherRows, scatterRows, findTags};
  }
};

}  // namespace
}  // namespace kintsugi
