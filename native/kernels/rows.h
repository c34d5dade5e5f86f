// The row kernels: optimizer steps fused with their deltas, gathering, scattering, and the look-up of tags.
// The steps of the optimizers are in optimizer_steps.h. The vector variants are one template, rows_simd.h.
#pragma once
#include <cstdint>

// Before the region of an instruction set: its functions are for every processor.
#include "kernels/kernels.h"
#include "kernels/key_hash.h"

namespace kintsugi {

void updateRowScalar(const OptimizerParams& params, float* w, float* s, const float* g, std::uint32_t dim);
void stepRowsScalar(const OptimizerParams& params, const RowSteps& steps);
void replaceRowScalar(std::uint8_t* row, const std::uint8_t* content, std::size_t bytes, std::size_t stride,
                      std::uint8_t* delta, bool add);
void gatherRowsScalar(std::uint8_t* out, const std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                      const std::uint32_t* slots, std::size_t count);
void scatterRowsScalar(std::uint8_t* rows, std::size_t stride, std::size_t bytes, const std::uint32_t* slots,
                       std::size_t count, const std::uint8_t* from);
void findTagsScalar(const std::uint64_t* tags, const std::uint32_t* slots, std::size_t mask,
                    const std::uint64_t* wanted, const std::uint32_t* homes, std::size_t count,
                    std::size_t ahead, std::uint32_t* out);
void hashKeysScalar(std::uint64_t* keys, std::size_t count, std::uint32_t seed, std::uint64_t missing);

/** The row kernels of one vector instruction set, for its table of kernels. */
struct RowKernels {
  decltype(Kernels::updateRow) updateRow;
  decltype(Kernels::stepRows) stepRows;
  decltype(Kernels::replaceRow) replaceRow;
  decltype(Kernels::gatherRows) gatherRows;
  decltype(Kernels::scatterRows) scatterRows;
  decltype(Kernels::findTags) findTags;
  decltype(Kernels::hashKeys) hashKeys;
};
extern const RowKernels kAvx2Rows, kAvx512Rows, kNeonRows;

}  // namespace kintsugi
