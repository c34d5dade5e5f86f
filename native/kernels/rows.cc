// The row kernels, scalar reference. Deltas are taken in passes of their own, before and after a step.
#include "kernels/rows.h"

#include <cstring>
#include <vector>

#include "kernels/optimizer_steps.h"
#include "kernels/prefetch.h"

namespace kintsugi {

/** n is a multiple of 8. */
static void xorBytes(std::uint8_t* dst, const std::uint8_t* src, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 8) {
    std::uint64_t a, b;
    std::memcpy(&a, dst + i, 8);
    std::memcpy(&b, src + i, 8);
    a ^= b;
    std::memcpy(dst + i, &a, 8);
  }
}

void updateRowScalar(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
  withKind(p.kind, [&](auto kind) {
    if (p.adjusts()) return step<V1, kind, kNoDelta, true>(p, w, s, g, dim, nullptr);
    step<V1, kind, kNoDelta, false>(p, w, s, g, dim, nullptr);
  });
}

void stepRowsScalar(const OptimizerParams& p, const RowSteps& steps) {
  const std::uint32_t dim = steps.dim, stride = steps.stride;
  thread_local std::vector<float> gradient;  // an aligned copy: a section starts at any address
  gradient.resize(dim);
  for (std::size_t i = 0; i < steps.count; i++) {
    std::uint8_t* row = steps.rows + std::size_t{steps.slots[i]} * stride;
    std::memcpy(gradient.data(), steps.gradients + i * dim * 4, std::size_t{dim} * 4);
    std::uint8_t* delta = nullptr;
    if (steps.deltas) {
      delta = steps.deltas + std::size_t{steps.places[i] & ~kAddTo} * stride;
      if (!(steps.places[i] & kAddTo)) std::memset(delta, 0, stride);
      xorBytes(delta, row, stride);
    }
    auto* w = reinterpret_cast<float*>(row);
    updateRowScalar(p, w, w + dim, gradient.data(), dim);
    if (delta) xorBytes(delta, row, stride);
  }
}

void replaceRowScalar(std::uint8_t* row, const std::uint8_t* content, std::size_t bytes, std::size_t stride,
                      std::uint8_t* delta, bool add) {
  if (!add) std::memset(delta, 0, stride);
  xorBytes(delta, row, stride);
  std::memcpy(row, content, bytes);
  std::memset(row + bytes, 0, stride - bytes);
  xorBytes(delta, row, stride);
}

void gatherRowsScalar(std::uint8_t* out, const std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                      const std::uint32_t* slots, std::size_t count) {
  for (std::size_t i = 0; i < count; i++) {
    if (slots[i] != kNoSlot) std::memcpy(out + i * bytes, rows + slots[i] * stride, bytes);
  }
}

void scatterRowsScalar(std::uint8_t* rows, std::size_t stride, std::size_t bytes, const std::uint32_t* slots,
                       std::size_t count, const std::uint8_t* from) {
  for (std::size_t i = 0; i < count; i++) std::memcpy(rows + slots[i] * stride, from + i * bytes, bytes);
}

void findTagsScalar(const std::uint64_t* tags, const std::uint32_t* slots, std::size_t mask,
                    const std::uint64_t* wanted, const std::uint32_t* homes, std::size_t count,
                    std::size_t ahead, std::uint32_t* out) {
  for (std::size_t i = 0; i < count; i++) {
    prefetchBuckets(tags, slots, homes, i, count + ahead);
    out[i] = kNoSlot;
    for (std::size_t b = homes[i];; b = (b + 1) & mask) {
      const std::uint64_t* bucket = tags + b * 8;
      unsigned at = 0;
      while (at < 8 && bucket[at] != wanted[i]) at++;
      if (at < 8) out[i] = slots[b * 8 + at];
      if (at < 8 || !bucket[7]) break;
    }
  }
}

void hashKeysScalar(std::uint64_t* keys, std::size_t count, std::uint32_t seed, std::uint64_t missing) {
  for (std::size_t i = 0; i < count; i++) {
    KeyHash hash(seed);
    hash.absorb(static_cast<std::uint32_t>(keys[i]));
    hash.absorb(static_cast<std::uint32_t>(keys[i] >> 32));
    keys[i] = keys[i] == kMissingBit ? missing : hash.end();
  }
}

}  // namespace kintsugi
