// A row, some elements at a time: the loop over vectors of elements, and stores that leave the delta of what
// they overwrite. Included by each instruction set inside its own target region, so nothing here is shared
// between files.
//
// `V` has kLanes, F, load/store(pointer, lanes), set1, zero, add, sub, mul, div, sqrt, bitXor, whereAbove(a,
// b, x) -> x where a > b, else +0, and findInBucket(bucket, tag) -> bit mask. Lanes beyond a row are masked:
// they are neither read nor written.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace kintsugi {
namespace {

/** Use of the delta (old ^ new): not wanted, stored, or added to the one that is there. */
enum DeltaMode { kNoDelta, kSetDelta, kAddDelta };

/** One element at a time: the scalar reference. */
struct V1 {
  using F = float;
  static constexpr std::uint32_t kLanes = 1;
  static inline F load(const float* p, std::uint32_t) { return *p; }
  static inline void store(float* p, F x, std::uint32_t) { *p = x; }
  static inline F set1(float x) { return x; }
  static inline F zero() { return 0; }
  static inline F add(F a, F b) { return a + b; }
  static inline F sub(F a, F b) { return a - b; }
  static inline F mul(F a, F b) { return a * b; }
  static inline F div(F a, F b) { return a / b; }
  static inline F sqrt(F a) { return std::sqrt(a); }
  static inline F whereAbove(F a, F b, F x) { return a > b ? x : 0; }
  static inline F bitXor(F a, F b) {
    return std::bit_cast<F>(std::bit_cast<std::uint32_t>(a) ^ std::bit_cast<std::uint32_t>(b));
  }
};

template <class V>
struct Elements {
  using F = typename V::F;
  static constexpr std::uint32_t kLanes = V::kLanes;

  /** body(first element, number of elements) over a row; the number is a constant but for the last one. */
  template <class Body>
  static inline void each(std::uint32_t count, Body body) {
    const std::uint32_t whole = count - count % kLanes;
    for (std::uint32_t i = 0; i < whole; i += kLanes) body(i, kLanes);
    if (whole < count) body(whole, count - whole);
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
};

}  // namespace
}  // namespace kintsugi
