// The row kernels as one template over a vector type `V` (elements.h), included by one file per instruction
// set inside its target region. A row is read once: its delta is taken from the registers that hold the old
// and the new value, where a pass of its own would read both again.
#pragma once
#include <bit>
#include <cstring>

#include "kernels/elements.h"
#include "kernels/key_hash_simd.h"
#include "kernels/optimizer_steps.h"
#include "kernels/prefetch.h"
#include "kernels/rows.h"

namespace kintsugi {
namespace {

template <class V>
struct Rows : Elements<V> {
  using typename Elements<V>::F;
  using Elements<V>::kLanes;
  using Elements<V>::each;
  using Hashes = KeyHashes<kLanes * sizeof(std::uint32_t)>;

  template <OptimizerKind Kind, std::size_t Lines, bool Adjusted>
  static void stepEach(const OptimizerParams& p, const RowSteps& all) {
    const std::size_t stride = all.stride, used = (all.dim + stateFloats(p, all.dim)) * std::size_t{4};
    const std::size_t lines = linesToFetch(stride);
    for (std::size_t i = 0; i < all.count; i++) {
      prefetchAhead<Lines>(lines, i, all.count,
                           [&](std::size_t j) { return all.rows + all.slots[j] * stride; });
      auto* w = reinterpret_cast<float*>(all.rows + all.slots[i] * stride);
      const auto* g = reinterpret_cast<const float*>(all.gradients + i * all.dim * 4);
      if (!all.deltas) {
        step<V, Kind, kNoDelta, Adjusted>(p, w, w + all.dim, g, all.dim, nullptr);
        continue;
      }
      std::uint8_t* delta = all.deltas + (all.places[i] & ~kAddTo) * stride;
      auto* d = reinterpret_cast<float*>(delta);
      if (all.places[i] & kAddTo) {
        step<V, Kind, kAddDelta, Adjusted>(p, w, w + all.dim, g, all.dim, d);
      } else {
        step<V, Kind, kSetDelta, Adjusted>(p, w, w + all.dim, g, all.dim, d);
        for (std::size_t f = used / 4; f < stride / 4; f++) d[f] = 0;
      }
    }
  }

  template <OptimizerKind Kind>
  static void stepAll(const OptimizerParams& p, const RowSteps& all) {
    if (p.adjusts()) return stepEach<Kind, 0, true>(p, all);
    withLines(all.stride, [&](auto lines) { stepEach<Kind, lines, false>(p, all); });
  }

  static void stepRows(const OptimizerParams& p, const RowSteps& all) {
    withKind(p.kind, [&](auto kind) { stepAll<kind>(p, all); });
  }

  static void updateRow(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
    withKind(p.kind, [&](auto kind) {
      if (p.adjusts()) return step<V, kind, kNoDelta, true>(p, w, s, g, dim, nullptr);
      step<V, kind, kNoDelta, false>(p, w, s, g, dim, nullptr);
    });
  }

  static void replaceRow(std::uint8_t* row, const std::uint8_t* content, std::size_t bytes,
                         std::size_t stride, std::uint8_t* delta, bool add) {
    auto *w = reinterpret_cast<float*>(row), *d = reinterpret_cast<float*>(delta);
    const auto* c = reinterpret_cast<const float*>(content);
    const auto floats = static_cast<std::uint32_t>(bytes / 4);
    if (!add) std::memset(delta + bytes, 0, stride - bytes);
    for (std::size_t i = floats; i < stride / 4; i++)
      Elements<V>::template putOne<kAddDelta>(w + i, d + i, 0);
    each(floats, [&](std::uint32_t i, std::uint32_t n) {
      const F old = V::load(w + i, n), now = V::load(c + i, n);
      if (add) {
        Elements<V>::template put<kAddDelta>(w + i, d + i, old, now, n);
      } else {
        Elements<V>::template put<kSetDelta>(w + i, d + i, old, now, n);
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
  static void scatterEach(std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                          const std::uint32_t* slots, std::size_t count, const std::uint8_t* from) {
    const std::size_t lines = linesToFetch(bytes);
    for (std::size_t i = 0; i < count; i++) {
      prefetchAhead<Lines>(lines, i, count, [&](std::size_t j) { return rows + slots[j] * stride; });
      copy(rows + slots[i] * stride, from + i * bytes, bytes);
    }
  }

  static void scatterRows(std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                          const std::uint32_t* slots, std::size_t count, const std::uint8_t* from) {
    withLines(bytes, [&](auto lines) { scatterEach<lines>(rows, stride, bytes, slots, count, from); });
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
    return {updateRow, stepRows, replaceRow, gatherRows, scatterRows, findTags, Hashes::hashKeys};
  }
};

}  // namespace
}  // namespace kintsugi
