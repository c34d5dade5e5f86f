// The optimizers of the engine: names, parameters and state. The steps are in optimizer_steps.h.
// The table of the TypeScript side, src/engine/optimizers.ts, has the same kinds and parameters; a test
// compares the two.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/schedules.h"

namespace kintsugi {

/** In the order of kOptimizers. */
enum class OptimizerKind : std::uint32_t { Sgd, Momentum, Adagrad, RowwiseAdagrad, Adam, AdamW, Ftrl };

/** The parameters of all kinds; a kind reads `lr` and those that its entry in kOptimizers names. */
struct OptimizerParams {
  OptimizerKind kind = OptimizerKind::Sgd;
  double lr = 0;
  double momentum = 0;
  double eps = 0;
  double initialAccumulator = 0;
  double beta1 = 0;
  double beta2 = 0;
  double weightDecay = 0;
  double beta = 0;
  double l1 = 0;
  double l2 = 0;
  /** Every kind has a largest norm of a row's gradient; 0 = any. */
  double clipNorm = 0;
  ScheduleParams schedule;

  /** A step needs more than the kind's own rule. */
  bool adjusts() const { return clipNorm > 0 || schedule.kind != ScheduleKind::None; }
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
  /** Value of the state before the first step, but for the first `zeroVectors` and a step count, which are
   * zero; nullptr: all of the state is zero. */
  double OptimizerParams::*initialState;
  std::uint32_t zeroVectors;
  /** The last scalar is the number of steps that the row has had. */
  bool countsSteps;
  /** Beside the learning rate; the first one without a name ends them. */
  OptimizerParameter parameters[kMaxParameters];
  /** The learning rate is part of what the state means: neither a schedule nor a push has another one. */
  bool fixedRate = false;
};

/** The parameter that every kind has. */
inline constexpr OptimizerParameter kLearningRate{"lr", &OptimizerParams::lr};

inline constexpr OptimizerParameter kMomentum{"momentum", &OptimizerParams::momentum},
    kEps{"eps", &OptimizerParams::eps},
    kInitialAccumulator{"initialAccumulator", &OptimizerParams::initialAccumulator},
    kBeta1{"beta1", &OptimizerParams::beta1}, kBeta2{"beta2", &OptimizerParams::beta2},
    kWeightDecay{"weightDecay", &OptimizerParams::weightDecay}, kBeta{"beta", &OptimizerParams::beta},
    kL1{"l1", &OptimizerParams::l1}, kL2{"l2", &OptimizerParams::l2};

inline constexpr Optimizer kOptimizers[] = {
    {OptimizerKind::Sgd, "sgd", 0, 0, nullptr, 0, false, {}},
    {OptimizerKind::Momentum, "momentum", 1, 0, nullptr, 0, false, {kMomentum}},
    {OptimizerKind::Adagrad,
     "adagrad",
     1,
     0,
     kInitialAccumulator.value,
     0,
     false,
     {kEps, kInitialAccumulator}},
    {OptimizerKind::RowwiseAdagrad,
     "rowwise_adagrad",
     0,
     1,
     kInitialAccumulator.value,
     0,
     false,
     {kEps, kInitialAccumulator}},
    {OptimizerKind::Adam, "adam", 2, 1, nullptr, 0, true, {kBeta1, kBeta2, kEps}},
    {OptimizerKind::AdamW, "adamw", 2, 1, nullptr, 0, true, {kBeta1, kBeta2, kEps, kWeightDecay}},
    {OptimizerKind::Ftrl,
     "ftrl",
     2,
     0,
     kInitialAccumulator.value,
     1,
     false,
     {kBeta, kL1, kL2, kInitialAccumulator},
     true},
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

/** The count that a row has only for its schedule, as the last float of its state. */
constexpr bool hasCountOfItsOwn(const OptimizerParams& p) {
  return p.schedule.kind != ScheduleKind::None && !optimizerOf(p.kind).countsSteps;
}

/** State floats per row that follow the `dim` values: the vectors, then the scalars. */
constexpr std::uint32_t stateFloats(OptimizerKind kind, std::uint32_t dim) {
  return optimizerOf(kind).vectors * dim + optimizerOf(kind).scalars;
}
constexpr std::uint32_t stateFloats(const OptimizerParams& p, std::uint32_t dim) {
  return stateFloats(p.kind, dim) + (hasCountOfItsOwn(p) ? 1 : 0);
}

}  // namespace kintsugi
