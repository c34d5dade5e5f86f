#include "engine/table_spec.h"

#include "engine/hash.h"

namespace kintsugi {

bool TableSpec::isSameTable(const TableSpec& other) const {
  TableSpec alike = other;
  if (!optimizerOf(optimizer.kind).fixedRate) alike.optimizer.lr = optimizer.lr;
  alike.optimizer.clipNorm = optimizer.clipNorm;
  if (hasCountOfItsOwn(optimizer) == hasCountOfItsOwn(other.optimizer))
    alike.optimizer.schedule = optimizer.schedule;
  if (policy.words() == other.policy.words() && policy.filter == other.policy.filter &&
      policy.seconds == other.policy.seconds)
    alike.policy = policy;
  return *this == alike;
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
  const Optimizer& optimizer = optimizerOf(spec.optimizer.kind);
  const auto start = optimizer.initialState;
  const float value = start ? static_cast<float>(spec.optimizer.*start) : 0;
  const std::uint32_t zeros = optimizer.zeroVectors * spec.dim,
                      own = stateFloats(spec.optimizer.kind, spec.dim), all = spec.width() - spec.dim;
  for (std::uint32_t i = 0; i < all; i++) state[i] = i < zeros || i >= own ? 0 : value;
}

}  // namespace kintsugi
