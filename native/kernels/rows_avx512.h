// The AVX-512 variant of the row kernels; see rows.h for what they compute.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace kintsugi {

void updateRowAvx512(const OptimizerParams& params, float* w, float* s, const float* g, std::uint32_t dim);

}  // namespace kintsugi
