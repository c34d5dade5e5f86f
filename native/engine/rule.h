// The rule by which rows of a table with a policy go and are admitted. A policy may change while pushes come,
// and all copies of a shard must begin with the new one at the same step. So the rule that holds lies in the
// first slots of the table, beside the clock: coded, recovered and followed as rows are. The owner writes it,
// in the delta of a push, or of a second (life.cc). Nothing but this reads a policy where a row is looked at.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/bytes.h"
#include "engine/table_spec.h"

namespace kintsugi {

/** The words of a row: the step in which it was last seen, and how often it was. */
struct Life {
  std::uint32_t last, sightings;
};

/** The steps since the row was last seen. */
inline std::uint32_t ageAt(Life life, std::uint32_t clock) {
  return clock > life.last ? std::min(clock - life.last, kMostAge) : 0;
}

/** Sightings that are left when so many multiples were passed: rounded once, to the nearest number, so that
 * a row which is seen once between two of them does not stay at one. The same on every machine. More
 * multiples never leave more. */
inline std::uint32_t decayed(std::uint32_t sightings, std::uint32_t factor, std::uint32_t times) {
  using Wide = unsigned __int128;
  std::uint64_t left = 0, part = std::uint64_t{factor} << 48;
  bool isFirst = true;
  for (; times; times >>= 1, part = static_cast<std::uint64_t>(Wide{part} * part >> 64)) {
    if (!(times & 1)) continue;
    left = isFirst ? part : static_cast<std::uint64_t>(Wide{left} * part >> 64);
    isFirst = false;
  }
  const Wide half = Wide{1} << 63;
  return isFirst ? sightings : static_cast<std::uint32_t>((Wide{left} * sightings + half) >> 64);
}

/** Why a row is gone: it was not seen for long, or was seen seldom, or its norm is low. */
enum class Gone { Not, Expired, Rare, Faint };

/** A row as a rule looks at it. */
struct LivingRow {
  Life life;
  const std::uint8_t* values;
  std::uint32_t dim;

  /** The Euclidean norm of the values is lower. The same bits give the same answer on every machine: squares
   * of floats are exact in a double, and are added in order. */
  bool isFaint(float norm) const {
    double squares = 0;
    for (std::uint32_t i = 0; i < dim; i++) {
      const double value = loadAt<float>(values, i);
      squares += value * value;
    }
    return squares < double{norm} * double{norm};
  }
};

class Rule {
 public:
  Rule() = default;
  /** The rule of a table without rows. */
  explicit Rule(const LifePolicy& policy) { take(policy); }

  /** Some push has written it. Zeros are no rule. */
  bool isWritten() const { return written_ == 1; }
  /** True: the rule is that of the policy. `maxRows` and `forMemory` are no part of it. */
  bool isOf(const LifePolicy& policy) const {
    return ttl_ == policy.ttl && rareBelow_ == policy.rareBelow && rareTtl_ == policy.rareTtl &&
           faintBelow_ == policy.faintBelow && faintTtl_ == policy.faintTtl && admitAt_ == policy.admitAt &&
           keep_ == policy.keep && decay_ == policy.decay;
  }
  std::uint32_t admitAt() const { return admitAt_; }
  /** The fewest steps after which a row may go; 0: none goes. */
  std::uint32_t leastTtl() const {
    std::uint32_t least = 0;
    for (const std::uint32_t ttl : {ttl_, rareTtl_, faintTtl_})
      if (ttl && (!least || ttl < least)) least = ttl;
    return least;
  }
  /** The first step in which a row may be gone that is not seen again, whatever its values are; `kNever`. */
  std::uint32_t dueOf(Life life) const {
    const std::uint32_t ttl = ttlOf(life.sightings);
    std::uint64_t due = ttl ? std::uint64_t{life.last} + ttl + 1 : kNever;
    if (decays() && rareTtl_ && life.sightings >= rareBelow_)
      due = std::min(due, std::max(std::uint64_t{life.last} + rareTtl_ + 1, rareFrom(life)));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(due, kNever));
  }
  /** No row goes by itself. */
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
  /** Steps after which a row goes whose norm is low; 0: the norm says nothing. */
  std::uint32_t faintTtl() const { return faintTtl_; }
  /** Rows go that were last seen more steps ago, but for so many that were seen last: a sweep takes them
   * away, and until then they are there. 0: no such rows. */
  std::uint32_t keptTtl() const { return keep_ ? ttl_ : 0; }
  std::uint32_t keep() const { return keep_; }
  /** Sightings get fewer while a row is not seen. */
  bool decays() const { return decay_.every != 0; }
  /** The number that the sightings of a row count for at this clock. */
  std::uint32_t sightingsOf(Life life, std::uint32_t clock) const { return leftOf(life, clock, decay_); }
  /** Why a row is gone at this clock. */
  Gone goneFor(const LivingRow& row, std::uint32_t clock) const {
    const std::uint32_t last = row.life.last, now = sightingsOf(row.life, clock), ttl = ttlOf(now),
                        line = lineOf(row.life);
    if ((ttl && ageAt(row.life, clock) > ttl) || last < line)
      return now < rareBelow_ || (last >= goneBefore_ && last < line) ? Gone::Rare : Gone::Expired;
    return !keeps(row, clock) || last < lineOf(row) ? Gone::Faint : Gone::Not;
  }
  /** This rule keeps the row, whatever former ones said. */
  bool keeps(const LivingRow& row, std::uint32_t clock) const {
    const std::uint32_t ttl = ttlOf(sightingsOf(row.life, clock)), age = ageAt(row.life, clock);
    return !(ttl && age > ttl) && !(faintTtl_ && age > faintTtl_ && row.isFaint(faintBelow_));
  }
  /** Rows that former rules let go may be there. */
  bool hasLines() const { return goneBefore_ || rare_[0].before || faint_.before; }
  void dropLines() {
    goneBefore_ = 0;
    for (Line& line : rare_) line = {};
    faint_ = {};
  }
  /** The first step that the row may say, if no former rule let it go. */
  std::uint32_t lineOf(const LivingRow& row) const {
    const std::uint32_t line = lineOf(row.life);
    return faint_.before > line && row.isFaint(faint_.below) ? faint_.before : line;
  }

  /** Another policy holds from here on. What is gone at this clock stays so: no row comes back with what it
   * had. False, and nothing is changed: there is no room for one line more; see `kMostLines`. */
  bool follow(const LifePolicy& policy, std::uint32_t clock) {
    Rule next = *this;
    if (ttl_ && !keep_) next.goneBefore_ = std::max(goneBefore_, clock - ttl_);
    const Line line{rareBelow_, clock - rareTtl_, decays() ? clock : 0, decay_};
    if (rareTtl_ && rareBelow_ && !next.add(line)) return false;
    if (faintTtl_ && !next.addFaint({faintBelow_, clock - faintTtl_})) return false;
    next.take(policy);
    *this = next;
    return true;
  }
  void write() { written_ = 1; }

 private:
  /** Rows whose sightings counted for less at step `at` are gone if they were last seen before this step. */
  struct Line {
    std::uint32_t below = 0, before = 0, at = 0;
    Decay decay{};

    bool has(Life life) const { return leftOf(life, at, decay) < below; }
    bool covers(const Line& other) const {
      return decay == other.decay && below >= other.below && before >= other.before && at >= other.at;
    }
  };
  /** Lines of rows that were seen seldom. Two are enough, unless `minFrequency` changes again and again
   * before all slots were looked at: then the next change waits until they were. */
  static constexpr std::size_t kMostLines = 2;
  /** Rows with a lower norm are gone if they were last seen before this step. A second change to which this
   * does not come down waits in the same way. */
  struct FaintLine {
    float below = 0;
    std::uint32_t before = 0;
  };

  static std::uint32_t leftOf(Life life, std::uint32_t clock, const Decay& decay) {
    if (!decay.every || clock <= life.last) return life.sightings;
    return decayed(life.sightings, decay.factor, clock / decay.every - life.last / decay.every);
  }
  /** The steps after which a row is gone whose sightings count for so many; 0: never. */
  std::uint32_t ttlOf(std::uint32_t sightings) const {
    const std::uint32_t ttl = keep_ ? 0 : ttl_;
    return sightings < rareBelow_ && (!ttl || rareTtl_ < ttl) ? rareTtl_ : ttl;
  }
  /** No step before this one lets the sightings of a row count for less than `rareBelow_`. */
  std::uint64_t rareFrom(Life life) const {
    const double times = std::log((rareBelow_ - 0.5) / life.sightings) / std::log(decay_.factor / 65536.0);
    // One fewer, because logarithms are rounded.
    const auto least = static_cast<std::uint64_t>(std::max(1.0, std::floor(times) - 1));
    return (life.last / decay_.every + least) * decay_.every;
  }

  /** The first step that a row may say, whatever its values are. */
  std::uint32_t lineOf(Life life) const {
    std::uint32_t line = goneBefore_;
    for (const Line& each : rare_)
      if (each.before > line && each.has(life)) line = each.before;
    return line;
  }

  void take(const LifePolicy& policy) {
    ttl_ = policy.ttl;
    rareBelow_ = policy.rareBelow;
    rareTtl_ = policy.rareTtl;
    faintBelow_ = policy.faintBelow;
    faintTtl_ = policy.faintTtl;
    admitAt_ = policy.admitAt;
    keep_ = policy.keep;
    decay_ = policy.decay;
  }
  // Lines that another one covers are left out. The others are at the front.
  bool add(Line line) {
    Line kept[kMostLines + 1];
    std::size_t count = 0;
    bool isCovered = line.before <= goneBefore_;
    for (const Line& each : rare_) {
      if (!each.before || each.before <= goneBefore_) continue;
      isCovered = isCovered || each.covers(line);
      if (isCovered || !line.covers(each)) kept[count++] = each;
    }
    if (!isCovered) kept[count++] = line;
    if (count > kMostLines) return false;
    for (std::size_t i = 0; i < kMostLines; i++) rare_[i] = i < count ? kept[i] : Line{};
    return true;
  }

  bool addFaint(FaintLine line) {
    const auto covers = [](FaintLine a, FaintLine b) { return a.below >= b.below && a.before >= b.before; };
    if (line.before <= goneBefore_ || covers(faint_, line)) return true;
    if (faint_.before > goneBefore_ && !covers(line, faint_)) return false;
    faint_ = line;
    return true;
  }

  std::uint32_t written_ = 0;
  std::uint32_t ttl_ = 0, rareBelow_ = 0, rareTtl_ = 0, admitAt_ = 0;
  std::uint32_t goneBefore_ = 0;
  Line rare_[kMostLines];
  float faintBelow_ = 0;
  std::uint32_t faintTtl_ = 0;
  FaintLine faint_;
  std::uint32_t keep_ = 0;
  Decay decay_;
};

static_assert(std::is_trivially_copyable_v<Rule> && sizeof(Rule) == 92);

/** The first slots of a table with a policy: of its clock, and of its rule where a row is too short for both.
 */
inline std::uint32_t reservedSlots(const TableSpec& spec) {
  const std::size_t stride = spec.stride(), room = (spec.width() - kLifeWords) * 4;
  return room < sizeof(Rule) ? 1 + static_cast<std::uint32_t>((sizeof(Rule) + stride - 1) / stride) : 1;
}

}  // namespace kintsugi
