// The kernels that exist once per instruction set, and the choice between them. Every variant gives the same
// bits for the same input: GF(2^8) is exact, and the optimizers use only IEEE operations in one fixed order
// (no contraction, no libm but sqrt), so shards may move between machines of different kinds.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kintsugi {

enum class OptimizerKind : std::uint32_t { Sgd, Momentum, Adagrad, RowwiseAdagrad, Adam };

struct OptimizerParams {
  OptimizerKind kind = OptimizerKind::Sgd;
  float lr = 0;
  float momentum = 0;
  float eps = 0;
  float initialAccumulator = 0;
  double beta1 = 0;
  double beta2 = 0;
};

struct Kernels {
  const char* name;
  /** dst[0..n) ^= c * src[0..n). Any alignment; the ranges do not overlap. */
  void (*mulAdd)(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, std::uint8_t c);
  /** For i < count: base[slots[i] * stride ..] ^= c * src[i * stride ..]. `slots` is a little-endian u32
   * array at any address. */
  void (*mulAddRows)(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots, std::size_t count,
                     const std::uint8_t* src, std::uint8_t c);
  /** One optimizer step of one row: values `w` and state `s` are updated with gradient `g`; none overlap. */
  void (*updateRow)(const OptimizerParams& params, float* w, float* s, const float* g, std::uint32_t dim);
};

extern const Kernels kScalarKernels;
/** nullptr where the compiler or the machine cannot run them. */
const Kernels* avx512Kernels();

/** The variant in use: the best one that the machine has, unless forced otherwise. */
const Kernels& kernels();
/** Switches to the named variant if the machine has it ("auto": the best one); returns the name now in use.
 */
const char* forceIsa(const char* name);

}  // namespace kintsugi
