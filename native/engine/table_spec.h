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

/** Counters of sightings, a byte each, in the first slots of a table's rows (filter.cc). The slots of all
 * shards are a line, of which each shard has a part: it is the same line in any number of shards. */
struct Filter {
  std::uint32_t admitAt = 0;   // sightings from which on a key has a row; 0: there is no filter
  std::uint32_t slots = 0;     // with counters alone
  std::uint32_t hashes = 0;    // counters of a key, all in one slot
  std::uint32_t capacity = 0;  // sightings of waiting keys that it knows at most
  std::uint64_t line = 0;      // slots of all shards
  std::uint64_t first = 0;     // of these, the first one of this shard

  bool operator==(const Filter&) const = default;
};

/** Counters stay when they have this value, so no key is admitted later than that. */
inline constexpr std::uint32_t kMostCounter = 255;

/** Sightings get fewer while a row is not seen. */
struct Decay {
  std::uint32_t factor = 0;  // of 2^16: of a row's sightings so many are left...
  std::uint32_t every = 0;   // ...whenever the clock passes a multiple of this; 0: they stay

  bool operator==(const Decay&) const = default;
};

/** The policy of a table: rows go by themselves, and are not admitted at once. A step of a table is a push of
 * gradients to it that its shard has applied: the clock of the table counts them, or the seconds of the job
 * that its shard was told; what is said of steps is then of seconds. Zeros: rows stay, and have no words for
 * it. */
struct LifePolicy {
  std::uint32_t ttl = 0;        // a row is gone that was last seen more steps ago; 0: never
  std::uint32_t rareBelow = 0;  // a row that was seen fewer times...
  std::uint32_t rareTtl = 0;    // ...is gone when it was last seen more than so many steps ago
  std::uint32_t admitAt = 0;    // sightings from which on gradients change a row
  std::uint32_t maxRows = 0;    // new rows displace others where this shard has so many; 0: it may have any
  bool forMemory = false;       // the same where the budget of the node is nearly used up
  std::uint64_t chance = 0;  // of 2^32: each sighting of a key without a row makes it one; 0: the first does
  Filter filter{};           // counts sightings of keys without a row
  float faintBelow = 0;      // a row whose values have a lower Euclidean norm...
  std::uint32_t faintTtl = 0;  // ...is gone when it was last seen more than so many steps ago
  bool score = false;      // pushes may give rows scores: of the lowest go first for `maxRows`, `forMemory`
  bool seconds = false;    // the clock counts seconds of the job
  std::uint32_t keep = 0;  // `ttl` lets none go of so many rows of this shard that were seen last
  Decay decay{};           // of sightings, for `rareBelow`

  bool any() const { return mayGo() || admitAt || maxRows || forMemory || filters(); }
  /** Rows go by themselves. */
  bool mayGo() const { return ttl || rareTtl || faintTtl; }
  /** Keys may be seen and have no row. */
  bool filters() const { return chance || filter.admitAt; }
  /** Floats of a row, see `kLifeWords`. */
  std::uint32_t words() const;
  bool operator==(const LifePolicy&) const = default;
};

/** The last words of a row in a table with a policy, u32 among floats: the step in which it was last seen,
 * and how often pushes of gradients have brought its key. Where rows are given out or come in as a whole, the
 * first word is the row's age instead: the steps since then. So rows go from one shard to another, whose
 * clock is not the same. A table with scores has one more word in front of them, a finite f32. */
inline constexpr std::uint32_t kLifeWords = 2;
/** The clock of a table stops here: its words are no NaN. */
inline constexpr std::uint32_t kMostSteps = 0x7F7FFFFF;
/** A clock begins here, so that rows may come in that were last seen before. */
inline constexpr std::uint32_t kFirstStep = 1u << 29, kMostAge = kFirstStep;

inline std::uint32_t LifePolicy::words() const { return any() ? kLifeWords + score : 0; }

struct TableSpec {
  std::uint32_t id = 0;
  std::uint32_t dim = 0;
  OptimizerParams optimizer;
  InitializerParams initializer;
  std::uint64_t seed = 0;
  LifePolicy policy;

  /** Floats of a whole row: values, optimizer state, words of its life. */
  std::uint32_t width() const { return dim + stateFloats(optimizer, dim) + policy.words(); }
  /** Bytes of a row in the slab. */
  std::uint32_t stride() const { return (width() * 4 + 15) / 16 * 16; }

  bool operator==(const TableSpec&) const = default;
  /** The same table: all but the settings that may change. Those are the largest norm, the learning rate
   * where it is no part of the state, the schedule where rows count their steps with both or with neither,
   * and the policy where both have one, with the same filter and clock, and both have scores or neither has.
   */
  bool isSameTable(const TableSpec& other) const;
};

/** The values of a row that was never pushed: a pure function of (seed, key, column), the same bits
 * everywhere. */
void initialValues(const TableSpec& spec, std::uint64_t key, float* values);
void initialState(const TableSpec& spec, float* state);

}  // namespace kintsugi
