// The optimizers of the engine: names, parameters and state. What a step computes is in optimizer_steps.h.
// The table of the TypeScript side, src/optimizers.ts, has the same kinds and parameters; a test
// compares the two.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kintsugi {

/** In the order of kOptimizers. */
enum class OptimizerKind : std::uint32_t { Sgd, Momentum, Adagrad, RowwiseAdagrad, Adam };

/** The parameters of all kinds; a kind reads `lr` and those that its entry in kOptimizers names. */
struct OptimizerParams {
  OptimizerKind kind = OptimizerKind::Sgd;
  double lr = 0;
  double momentum = 0;
  double eps = 0;
  double initialAccumulator = 0;
  double beta1 = 0;
  double beta2 = 0;

  bool operator==(const OptimizerParams&) const = default;
};

struct OptimizerParameter {
  const char* name = nullptr;
  double OptimizerParams::*value = nullptr;
};

inline constexpr std::size_t kMaxParameters = 4;

struct Optimizer {
  OptimizerKind kind;
  const char* name;
  /** State of a row: floats for each of its values, then floats for the row as a whole. */
  std::uint32_t vectors, scalars;
  /** What every float of the state is before the first step; nullptr: zero. */
  double OptimizerParams::*initialState;
  /** Beside the learning rate; the first one without a name ends them. */
  OptimizerParameter parameters[kMaxParameters];
};

/** The parameter that every kind has. */
inline constexpr OptimizerParameter kLearningRate{"lr", &OptimizerParams::lr};

inline constexpr OptimizerParameter kMomentum{"momentum", &OptimizerParams::momentum},
    kEps{"eps", &OptimizerParams::eps},
    kInitialAccumulator{"initialAccumulator", &OptimizerParams::initialAccumulator},
    kBeta1{"beta1", &OptimizerParams::beta1}, kBeta2{"beta2", &OptimizerParams::beta2};

inline constexpr Optimizer kOptimizers[] = {
    {OptimizerKind::Sgd, "sgd", 0, 0, nullptr, {}},
    {OptimizerKind::Momentum, "momentum", 1, 0, nullptr, {kMomentum}},
    {OptimizerKind::Adagrad, "adagrad", 1, 0, kInitialAccumulator.value, {kEps, kInitialAccumulator}},
    {OptimizerKind::RowwiseAdagrad,
     "rowwise_adagrad",
     0,
     1,
     kInitialAccumulator.value,
     {kEps, kInitialAccumulator}},
    {OptimizerKind::Adam, "adam", 2, 1, nullptr, {kBeta1, kBeta2, kEps}},
};
inline constexpr std::size_t kOptimizerCount = sizeof(kOptimizers) / sizeof(kOptimizers[0]);

static_assert(
    [] {
      for (std::size_t i = 0; i < kOptimizerCount; i++) {
        if (static_cast<std::size_t>(kOptimizers[i].kind) != i) return false;
      }
      return true;
    }(),
    "kOptimizers is indexed by kind");

constexpr const Optimizer& optimizerOf(OptimizerKind kind) {
  return kOptimizers[static_cast<std::size_t>(kind)];
}

/** State floats per row that follow the `dim` values: the vectors, then the scalars. */
constexpr std::uint32_t stateFloats(OptimizerKind kind, std::uint32_t dim) {
  return optimizerOf(kind).vectors * dim + optimizerOf(kind).scalars;
}

}  // namespace kintsugi
