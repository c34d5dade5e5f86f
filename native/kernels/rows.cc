// The optimizers, scalar reference. Update rules are the usual ones (PyTorch for SGD, momentum, Adagrad and
// Adam; row-wise Adagrad as in recommendation systems: one accumulator per row that sums the mean of the
// squared gradient).
#include "kernels/rows.h"

#include <cmath>
#include <cstring>
#include <vector>

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

std::uint32_t stateFloats(OptimizerKind kind, std::uint32_t dim) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return 0;
    case OptimizerKind::Momentum:
    case OptimizerKind::Adagrad:
      return dim;
    case OptimizerKind::RowwiseAdagrad:
      return 1;
    case OptimizerKind::Adam:
      return 2 * dim + 1;
  }
  return 0;
}

// beta^step by squaring: libm's pow differs between machines in the last bit.
static double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

AdamFactors adamFactors(const OptimizerParams& p, float step) {
  // A step count that came in with a whole row may be anything; outside 1..2^24 the corrections are 1 anyway.
  const double clamped = step >= 1 ? (step < 16777216.0f ? static_cast<double>(step) : 16777216.0) : 1.0;
  const auto t = static_cast<std::uint64_t>(clamped);
  const double first = 1 - power(p.beta1, t);
  const double second = 1 - power(p.beta2, t);
  return {static_cast<float>(p.beta1),
          static_cast<float>(1 - p.beta1),
          static_cast<float>(p.beta2),
          static_cast<float>(1 - p.beta2),
          static_cast<float>(static_cast<double>(p.lr) / first),
          static_cast<float>(std::sqrt(second)),
          p.eps};
}

float foldLanes(float lanes[16]) {
  for (unsigned half = 8; half; half >>= 1) {
    for (unsigned i = 0; i < half; i++) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

static void sgd(float lr, float* w, const float* g, std::uint32_t dim) {
  for (std::uint32_t i = 0; i < dim; i++) w[i] -= lr * g[i];
}

static void momentum(float lr, float mu, float* w, float* v, const float* g, std::uint32_t dim) {
  for (std::uint32_t i = 0; i < dim; i++) {
    v[i] = mu * v[i] + g[i];
    w[i] -= lr * v[i];
  }
}

static void adagrad(float lr, float eps, float* w, float* s, const float* g, std::uint32_t dim) {
  for (std::uint32_t i = 0; i < dim; i++) {
    s[i] += g[i] * g[i];
    w[i] -= (lr * g[i]) / (std::sqrt(s[i]) + eps);
  }
}

static void rowwiseAdagrad(float lr, float eps, float* w, float* s, const float* g, std::uint32_t dim) {
  float lanes[16] = {};
  for (std::uint32_t i = 0; i < dim; i++) lanes[i & 15] += g[i] * g[i];
  s[0] += foldLanes(lanes) / static_cast<float>(dim);
  const float denominator = std::sqrt(s[0]) + eps;
  for (std::uint32_t i = 0; i < dim; i++) w[i] -= (lr * g[i]) / denominator;
}

// State: m[dim], v[dim], step. The step count lives in the row so that recovered state is never torn.
static void adam(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
  float* m = s;
  float* v = s + dim;
  s[2 * dim] += 1;
  const AdamFactors f = adamFactors(p, s[2 * dim]);
  for (std::uint32_t i = 0; i < dim; i++) {
    m[i] = f.beta1 * m[i] + f.oneMinusBeta1 * g[i];
    v[i] = f.beta2 * v[i] + (f.oneMinusBeta2 * g[i]) * g[i];
    w[i] -= (f.stepSize * m[i]) / (std::sqrt(v[i]) / f.correction + f.eps);
  }
}

void updateRowScalar(const OptimizerParams& p, float* w, float* s, const float* g, std::uint32_t dim) {
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

void scatterRowsScalar(std::uint8_t* rows, std::size_t bytes, const std::uint32_t* slots, std::size_t count,
                       const std::uint8_t* from) {
  for (std::size_t i = 0; i < count; i++) std::memcpy(rows + slots[i] * bytes, from + i * bytes, bytes);
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

}  // namespace kintsugi
