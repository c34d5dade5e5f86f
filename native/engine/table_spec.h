// A table as the engine knows it: the shape of its rows, how they start and how a gradient changes them.
#pragma once
#include <cstdint>

#include "kernels/optimizers.h"

namespace kintsugi {

enum class InitializerKind : std::uint32_t { Zeros, Constant, Uniform, Normal };

/** `a`, `b`: value; low, high; mean, std. */
struct InitializerParams {
  InitializerKind kind = InitializerKind::Zeros;
  double a = 0;
  double b = 0;

  bool operator==(const InitializerParams&) const = default;
};

struct TableSpec {
  std::uint32_t id = 0;
  std::uint32_t dim = 0;
  OptimizerParams optimizer;
  InitializerParams initializer;
  std::uint64_t seed = 0;

  /** Floats of a whole row: values, then optimizer state. */
  std::uint32_t width() const { return dim + stateFloats(optimizer, dim); }
  /** Bytes of a row in the slab. */
  std::uint32_t stride() const { return (width() * 4 + 15) / 16 * 16; }

  bool operator==(const TableSpec&) const = default;
  /** The same table: all but the learning rate, which may change where it is no part of the state. */
  bool isSameTable(const TableSpec& other) const;
};

/** The values of a row that was never pushed: a pure function of (seed, key, column), the same bits
 * everywhere. */
void initialValues(const TableSpec& spec, std::uint64_t key, float* values);
void initialState(const TableSpec& spec, float* state);

}  // namespace kintsugi
