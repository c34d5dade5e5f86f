// Every vector variant against the scalar reference, and the scalar reference against arithmetic written
// another way.
#include <cmath>

#include "kernels/gf256.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "test/harness.h"

namespace kintsugi::test {
namespace {

/** Carry-less multiplication and reduction, bit by bit. */
std::uint8_t slowMultiply(unsigned a, unsigned b) {
  unsigned product = 0;
  for (unsigned i = 0; i < 8; i++) {
    if (b >> i & 1) product ^= a << i;
  }
  for (unsigned bit = 15; bit >= 8; bit--) {
    if (product >> bit & 1) product ^= gf::kPolynomial << (bit - 8);
  }
  return static_cast<std::uint8_t>(product);
}

TEST(gfTables) {
  for (unsigned a = 0; a < 256; a++) {
    for (unsigned b = 0; b < 256; b++) {
      CHECK_EQ(gf::multiply(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)), slowMultiply(a, b));
    }
    if (a) CHECK_EQ(gf::multiply(static_cast<std::uint8_t>(a), gf::invert(static_cast<std::uint8_t>(a))), 1);
  }
}

TEST(mulAddAllCoefficients) {
  Random random(seed);
  const std::size_t lengths[] = {0, 1, 7, 15, 16, 63, 64, 65, 127, 128, 200, 1031};
  std::vector<std::uint8_t> src(1200), dst(1200), expected(1200);
  for (unsigned c = 0; c < 256; c++) {
    for (const std::size_t n : lengths) {
      const std::size_t from = random.below(64), to = random.below(64);
      random.fill(src.data(), src.size());
      random.fill(dst.data(), dst.size());
      expected = dst;
      for (std::size_t i = 0; i < n; i++) expected[to + i] ^= slowMultiply(c, src[from + i]);
      kernels().mulAdd(dst.data() + to, src.data() + from, n, static_cast<std::uint8_t>(c));
      CHECK(dst == expected);
    }
  }
}

TEST(mulAddRows) {
  Random random(seed);
  for (const std::size_t stride : {8, 16, 48, 64, 80, 272, 1040}) {
    for (const unsigned c : {0u, 1u, 2u, 142u, 255u}) {
      const std::uint32_t count = 100, slots = 37;
      std::vector<std::uint8_t> base(slots * stride), src(count * stride), list(count * 4 + 1);
      random.fill(base.data(), base.size());
      random.fill(src.data(), src.size());
      std::vector<std::uint8_t> expected = base;
      for (std::uint32_t i = 0; i < count; i++) {
        const std::uint32_t slot = random.below(slots);
        std::memcpy(list.data() + 1 + i * 4, &slot, 4);  // misaligned, as in a section
        for (std::size_t b = 0; b < stride; b++)
          expected[slot * stride + b] ^= slowMultiply(c, src[i * stride + b]);
      }
      kernels().mulAddRows(base.data(), stride, list.data() + 1, count, src.data(),
                           static_cast<std::uint8_t>(c));
      CHECK(base == expected);
    }
  }
}

OptimizerParams paramsOf(OptimizerKind kind) {
  OptimizerParams p;
  p.kind = kind;
  p.lr = 0.05f;
  p.momentum = 0.9f;
  p.eps = 1e-6f;
  p.beta1 = 0.9;
  p.beta2 = 0.999;
  return p;
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adagrad,
                                    OptimizerKind::RowwiseAdagrad, OptimizerKind::Adam};

/** The textbook rules in double precision, state included; what the kernels compute must be close to it. */
void naive(const OptimizerParams& p, std::vector<double>& w, std::vector<double>& s,
           const std::vector<float>& g) {
  const std::size_t dim = w.size();
  double squares = 0;
  for (const float x : g) squares += double{x} * x;
  if (p.kind == OptimizerKind::RowwiseAdagrad) s[0] += squares / static_cast<double>(dim);
  if (p.kind == OptimizerKind::Adam) s[2 * dim] += 1;
  for (std::size_t i = 0; i < dim; i++) {
    const double x = g[i], lr = p.lr;
    if (p.kind == OptimizerKind::Sgd) w[i] -= lr * x;
    if (p.kind == OptimizerKind::Momentum) w[i] -= lr * (s[i] = p.momentum * s[i] + x);
    if (p.kind == OptimizerKind::Adagrad) w[i] -= lr * x / (std::sqrt(s[i] += x * x) + p.eps);
    if (p.kind == OptimizerKind::RowwiseAdagrad) w[i] -= lr * x / (std::sqrt(s[0]) + p.eps);
    if (p.kind != OptimizerKind::Adam) continue;
    s[i] = p.beta1 * s[i] + (1 - p.beta1) * x;
    s[dim + i] = p.beta2 * s[dim + i] + (1 - p.beta2) * x * x;
    const double first = s[i] / (1 - std::pow(p.beta1, s[2 * dim])),
                 second = s[dim + i] / (1 - std::pow(p.beta2, s[2 * dim]));
    w[i] -= lr * first / (std::sqrt(second) + p.eps);
  }
}

TEST(optimizersAgainstNaive) {
  Random random(seed);
  for (const OptimizerKind kind : kKinds) {
    for (const std::uint32_t dim : {1u, 3u, 15u, 16u, 17u, 64u, 100u}) {
      const OptimizerParams params = paramsOf(kind);
      const std::uint32_t stateCount = stateFloats(kind, dim);
      std::vector<float> row(dim + stateCount, 0), reference = row, g(dim);
      std::vector<double> w(dim, 0), s(stateCount, 0);
      for (int step = 0; step < 20; step++) {
        for (float& x : g) x = random.real();
        kernels().updateRow(params, row.data(), row.data() + dim, g.data(), dim);
        updateRowScalar(params, reference.data(), reference.data() + dim, g.data(), dim);
        CHECK(std::memcmp(row.data(), reference.data(), row.size() * 4) == 0);  // the same bits on every set
        naive(params, w, s, g);
      }
      for (std::uint32_t i = 0; i < dim; i++) CHECK(std::fabs(row[i] - w[i]) < 1e-4 * (1 + std::fabs(w[i])));
      for (std::uint32_t i = 0; i < stateCount; i++)
        CHECK(std::fabs(row[dim + i] - s[i]) < 1e-4 * (1 + std::fabs(s[i])));
    }
  }
}

TEST(adamStepBeyondRange) {
  // A whole row may bring any step count; the factors must stay finite.
  OptimizerParams params = paramsOf(OptimizerKind::Adam);
  for (const float step : {-5.0f, 0.0f, 1e9f, std::nanf(""), INFINITY}) {
    float w[1] = {1}, s[3] = {0, 0, step}, g[1] = {1};
    kernels().updateRow(params, w, s, g, 1);
    CHECK(std::isfinite(w[0]));
  }
}

}  // namespace
}  // namespace kintsugi::test
