// Optimizer steps over one row, one function per instruction set. What they compute is written once, in
// rows.cc; the order of the operations there is part of the format, because parity and replicas compare bits.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace kintsugi {

/** State floats per row that follow the `dim` values. */
std::uint32_t stateFloats(OptimizerKind kind, std::uint32_t dim);

void updateRowScalar(const OptimizerParams& params, float* w, float* s, const float* g, std::uint32_t dim);

/** The factors of one Adam step that do not depend on the element; shared by all variants so that they cannot
 * differ. */
struct AdamFactors {
  float beta1, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, correction, eps;
};
AdamFactors adamFactors(const OptimizerParams& params, float step);

/** Sixteen partial sums folded in halves: the one order in which a row's squares are added up. */
float foldLanes(float lanes[16]);

}  // namespace kintsugi
