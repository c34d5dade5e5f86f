#include "engine/optimizer.h"

#include "engine/hash.h"

namespace kintsugi {

bool sameSpec(const TableSpec& a, const TableSpec& b) {
  const OptimizerParams &p = a.optimizer, &q = b.optimizer;
  const InitializerParams &i = a.initializer, &j = b.initializer;
  return a.id == b.id && a.dim == b.dim && a.seed == b.seed && p.kind == q.kind && p.lr == q.lr &&
         p.momentum == q.momentum && p.eps == q.eps && p.initialAccumulator == q.initialAccumulator &&
         p.beta1 == q.beta1 && p.beta2 == q.beta2 && i.kind == j.kind && i.a == j.a && i.b == j.b;
}

static constexpr double kUnit = 1.0 / (1 << 24);  // of a 24-bit draw

// Twelve uniforms, added as integers so that only one rounding happens; no logarithm, no cosine, hence the
// same bits on every machine. The tails end at six standard deviations.
static double normal(std::uint64_t stream, std::uint32_t column) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 6; i++) {
    const std::uint64_t x = draw(stream, std::uint64_t{column} * 6 + i);
    sum += (x >> 40) + (x >> 16 & 0xFFFFFF);
  }
  return static_cast<double>(sum) * kUnit - 6;
}

void initialValues(const TableSpec& spec, std::uint64_t key, float* values) {
  const InitializerParams& p = spec.initializer;
  const std::uint64_t stream = drawStream(spec.seed, key);
  switch (p.kind) {
    case InitializerKind::Zeros:
      for (std::uint32_t i = 0; i < spec.dim; i++) values[i] = 0;
      return;
    case InitializerKind::Constant:
      for (std::uint32_t i = 0; i < spec.dim; i++) values[i] = static_cast<float>(p.a);
      return;
    case InitializerKind::Uniform:
      for (std::uint32_t i = 0; i < spec.dim; i++) {
        const double u = static_cast<double>(draw(stream, i) >> 40) * kUnit;
        values[i] = static_cast<float>(p.a + (p.b - p.a) * u);
      }
      return;
    case InitializerKind::Normal:
      for (std::uint32_t i = 0; i < spec.dim; i++)
        values[i] = static_cast<float>(p.a + p.b * normal(stream, i));
      return;
  }
}

void initialState(const TableSpec& spec, float* state) {
  const OptimizerKind kind = spec.optimizer.kind;
  const bool accumulates = kind == OptimizerKind::Adagrad || kind == OptimizerKind::RowwiseAdagrad;
  const float start = accumulates ? spec.optimizer.initialAccumulator : 0;
  const std::uint32_t count = stateFloats(kind, spec.dim);
  for (std::uint32_t i = 0; i < count; i++) state[i] = start;
}

}  // namespace kintsugi
