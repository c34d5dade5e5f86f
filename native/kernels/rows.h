// The row kernels: optimizer steps fused with their deltas, gathering, scattering, and the look-up of tags.
// What the optimizers compute is written once, in rows.cc; the order of the operations there is part of the
// format, because parity and replicas compare bits. The vector variants are one template, rows_simd.h.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace kintsugi {

/** State floats per row that follow the `dim` values. */
std::uint32_t stateFloats(OptimizerKind kind, std::uint32_t dim);

void updateRowScalar(const OptimizerParams& params, float* w, float* s, const float* g, std::uint32_t dim);
void stepRowsScalar(const OptimizerParams& params, const RowSteps& steps);
void replaceRowScalar(std::uint8_t* row, const std::uint8_t* content, std::size_t bytes, std::size_t stride,
                      std::uint8_t* delta, bool add);
void gatherRowsScalar(std::uint8_t* out, const std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                      const std::uint32_t* slots, std::size_t count);
void scatterRowsScalar(std::uint8_t* rows, std::size_t bytes, const std::uint32_t* slots, std::size_t count,
                       const std::uint8_t* from);
void findTagsScalar(const std::uint64_t* tags, const std::uint32_t* slots, std::size_t mask,
                    const std::uint64_t* wanted, const std::uint32_t* homes, std::size_t count,
                    std::size_t ahead, std::uint32_t* out);

/** The factors of one Adam step that do not depend on the element; shared by all variants so that they cannot
 * differ. */
struct AdamFactors {
  float beta1, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, correction, eps;
};
AdamFactors adamFactors(const OptimizerParams& params, float step);

/** Sixteen partial sums folded in halves: the one order in which a row's squares are added up. */
float foldLanes(float lanes[16]);

/** The row kernels of one vector instruction set, for its table of kernels. */
struct RowKernels {
  decltype(Kernels::updateRow) updateRow;
  decltype(Kernels::stepRows) stepRows;
  decltype(Kernels::replaceRow) replaceRow;
  decltype(Kernels::gatherRows) gatherRows;
  decltype(Kernels::scatterRows) scatterRows;
  decltype(Kernels::findTags) findTags;
};
extern const RowKernels kAvx2Rows, kAvx512Rows, kNeonRows;

}  // namespace kintsugi
