// The kernels that exist once per instruction set, and the choice between them. Every variant gives the same
// bits for the same input: GF(2^8) is exact, and the optimizers use only IEEE operations in one fixed order
// (no contraction, no libm but sqrt), so shards may move between machines of different kinds. Only which NaN
// an operation makes is the machine's own choice.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/optimizers.h"

namespace kintsugi {

inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFF;

/** Optimizer steps over many rows of a slab, each row once. */
struct RowSteps {
  std::uint8_t* rows = nullptr;
  std::uint32_t dim = 0, stride = 0;
  const std::uint32_t* slots = nullptr;
  const std::uint8_t* gradients = nullptr;  // f32[count * dim] at any address
  std::uint8_t* deltas = nullptr;           // rows of `stride` bytes; nullptr: none are wanted
  const std::uint32_t* places = nullptr;    // where in `deltas` each row's delta goes
  std::size_t count = 0;
};
/** In `RowSteps.places`: the delta adds to what is there instead of replacing it. */
inline constexpr std::uint32_t kAddTo = 0x80000000;

struct Kernels {
  const char* name;
  /** dst[0..n) ^= c * src[0..n). Any alignment; the ranges do not overlap. */
  void (*mulAdd)(std::uint8_t* dst, const std::uint8_t* src, std::size_t n, std::uint8_t c);
  /** For i < count: base[slots[i] * stride ..] ^= c * src[i * stride ..]. `slots` is a little-endian u32
   * array at any address. */
  void (*mulAddRows)(std::uint8_t* base, std::size_t stride, const std::uint8_t* slots, std::size_t count,
                     const std::uint8_t* src, std::uint8_t c);
  /** parity[j][0..n) = sum over i < k of coefficients[j * k + i] * data[i][0..n), for j < r <= kMaxEncode. */
  void (*encode)(const std::uint8_t* const* data, std::uint32_t k, std::uint8_t* const* parity,
                 std::uint32_t r, std::size_t n, const std::uint8_t* coefficients);
  /** One optimizer step of one row: values `w` and state `s` are updated with gradient `g`; none overlap. */
  void (*updateRow)(const OptimizerParams& params, float* w, float* s, const float* g, std::uint32_t dim);
  /** One pass per row: old row in, new row out, delta (old ^ new) out. */
  void (*stepRows)(const OptimizerParams& params, const RowSteps& steps);
  /** row := content (bytes, then zeros to the stride), and its delta as in RowSteps: place `add` or not. */
  void (*replaceRow)(std::uint8_t* row, const std::uint8_t* content, std::size_t bytes, std::size_t stride,
                     std::uint8_t* delta, bool add);
  /** out[i * bytes ..] = rows[slots[i] * stride ..] of `bytes` bytes each; kNoSlot is passed over. `bytes` is
   * a multiple of 4. */
  void (*gatherRows)(std::uint8_t* out, const std::uint8_t* rows, std::size_t stride, std::size_t bytes,
                     const std::uint32_t* slots, std::size_t count);
  /** rows[slots[i] * stride ..] = from[i * bytes ..] of `bytes` bytes each: the way back. */
  void (*scatterRows)(std::uint8_t* rows, std::size_t stride, std::size_t bytes, const std::uint32_t* slots,
                      std::size_t count, const std::uint8_t* from);
  /** The look-up of an index (engine/index.h): out[i] = slot of wanted[i], whose home bucket is homes[i], or
   * kNoSlot. A bucket is 8 tags and, elsewhere, 8 slots. `homes` goes on for `ahead` more keys, which are
   * looked up in the next call. */
  void (*findTags)(const std::uint64_t* tags, const std::uint32_t* slots, std::size_t mask,
                   const std::uint64_t* wanted, const std::uint32_t* homes, std::size_t count,
                   std::size_t ahead, std::uint32_t* out);
  /** keys[i] = hash of the number keys[i]; that of kMissingBit, which no value is, is `missing`. */
  void (*hashKeys)(std::uint64_t* keys, std::size_t count, std::uint32_t seed, std::uint64_t missing);
};

inline constexpr std::uint32_t kMaxEncode = 4;

extern const Kernels kScalarKernels;
/** nullptr where the compiler or the machine cannot run them. */
const Kernels* avx2Kernels();
const Kernels* avx512Kernels();
const Kernels* neonKernels();

/** Every variant that this machine can run, the slowest first, nullptr at the end. */
const Kernels* const* availableKernels();

/** The variant in use: the best one that the machine has, unless forced otherwise. */
const Kernels& kernels();
/** Switches to the named variant if the machine has it ("auto": the best one); returns the name now in use.
 */
const char* forceIsa(const char* name);

}  // namespace kintsugi
