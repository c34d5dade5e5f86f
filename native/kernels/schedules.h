// Schedules of learning rates: names and parameters. The factors of a step count are in schedule_factor.h.
// The table of the TypeScript side, src/engine/schedules.ts, has the same kinds and parameters; a test
// compares the two.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kintsugi {

/** None, then in the order of kSchedules. */
enum class ScheduleKind : std::uint32_t { None, Constant, Cosine, Step, InverseSqrt };

/** Parameters of a schedule. The entry of its kind in kSchedules names `length` and `value`. Lengths are
 * steps of the row. */
struct ScheduleParams {
  ScheduleKind kind = ScheduleKind::None;
  double warmup = 0;
  double length = 0;
  double value = 0;

  bool operator==(const ScheduleParams&) const = default;
};

struct Schedule {
  ScheduleKind kind;
  const char* name;
  /** Names of the parameters beside `warmup`; nullptr: there is none. */
  const char *length, *value;
};

inline constexpr Schedule kSchedules[] = {
    {ScheduleKind::Constant, "constant", nullptr, nullptr},
    {ScheduleKind::Cosine, "cosine", "steps", "floor"},
    {ScheduleKind::Step, "step", "every", "factor"},
    {ScheduleKind::InverseSqrt, "inverse_sqrt", "scale", nullptr},
};

}  // namespace kintsugi
