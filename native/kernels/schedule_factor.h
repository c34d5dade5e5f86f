// The factor of the learning rate at a step of a row, as one sequence of IEEE operations in double precision:
// libm's pow and cos differ between machines in the last bit, and parities compare bits. Included by each
// instruction set inside its own target region, so nothing here is shared between files.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/schedules.h"

namespace kintsugi {
namespace {

/** A float counts steps exactly up to here, and stays here then. */
inline constexpr float kMostSteps = 16777216.0f;  // 2^24

/** base^exponent by squaring. */
inline double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

/** cos(x * pi / 2) for 0 <= x <= 1: the series, whose next term is below 1e-19. */
inline double cosineOfQuarter(double x) {
  constexpr double kHalfPi = 1.5707963267948966;
  const double y = x * kHalfPi, square = y * y;
  double sum = 1;
  for (unsigned k = 22; k; k -= 2) sum = 1 - sum * square / (k * (k - 1.0));
  return sum;
}

/** Factor of the learning rate of a row that has had `before` steps. */
inline double scheduleFactor(const ScheduleParams& s, float before) {
  // A step count that came in with a whole row may be anything.
  const double steps = before >= 0 ? (before < kMostSteps ? static_cast<double>(before) : kMostSteps) : 0.0;
  if (steps < s.warmup) return (steps + 1) / s.warmup;
  const double since = steps - s.warmup;
  switch (s.kind) {
    case ScheduleKind::Cosine: {
      if (since >= s.length) return s.value;
      const double cosine = cosineOfQuarter(since / s.length);
      return s.value + (1 - s.value) * (cosine * cosine);
    }
    case ScheduleKind::Step:
      return power(s.value, static_cast<std::uint64_t>(since / s.length));
    case ScheduleKind::InverseSqrt:
      return std::sqrt(s.length / (s.length + since));
    case ScheduleKind::None:
    case ScheduleKind::Constant:
      break;
  }
  return 1;
}

}  // namespace
}  // namespace kintsugi
