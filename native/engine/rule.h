// The rule by which rows of a table with a policy go and are admitted. A policy may change while pushes come,
// and all copies of a shard must begin with the new one at the same step. So the rule that holds lies in the
// first slots of the table, beside the clock: coded, recovered and followed as rows are. The owner writes it,
// in the delta of a push. Nothing but this reads a policy where a row is looked at.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/bytes.h"
#include "engine/table_spec.h"

namespace kintsugi {

/** The words of a row: the step in which it was last seen, and how often it was. */
struct Life {
  std::uint32_t last, sightings;
};

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
           faintBelow_ == policy.faintBelow && faintTtl_ == policy.faintTtl && admitAt_ == policy.admitAt;
  }
  std::uint32_t admitAt() const { return admitAt_; }
  /** The fewest steps after which a row may go; 0: none goes. */
  std::uint32_t leastTtl() const {
    const std::uint32_t ttl = rareTtl_ ? ttlOf(0) : ttl_;
    return faintTtl_ && (!ttl || faintTtl_ < ttl) ? faintTtl_ : ttl;
  }
  /** The steps after which a row is gone that was seen so many times, whatever its values are; 0: never. */
  std::uint32_t ttlOf(std::uint32_t sightings) const {
    return sightings < rareBelow_ && (!ttl_ || rareTtl_ < ttl_) ? rareTtl_ : ttl_;
  }
  /** The same for a row whose norm is low; 0: the norm says nothing. */
  std::uint32_t faintTtl() const { return faintTtl_; }
  /** Why a row is gone that was last seen so many steps ago. */
  Gone goneFor(const LivingRow& row, std::uint32_t age) const {
    const auto [last, sightings] = row.life;
    const std::uint32_t ttl = ttlOf(sightings);
    if ((ttl && age > ttl) || last < lineOf(sightings))
      return sightings < rareBelow_ || (last >= goneBefore_ && last < lineOf(sightings)) ? Gone::Rare
                                                                                         : Gone::Expired;
    return !keeps(row, age) || last < lineOf(row) ? Gone::Faint : Gone::Not;
  }
  /** This rule keeps the row, whatever former ones said. */
  bool keeps(const LivingRow& row, std::uint32_t age) const {
    const std::uint32_t ttl = ttlOf(row.life.sightings);
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
    const std::uint32_t line = lineOf(row.life.sightings);
    return faint_.before > line && row.isFaint(faint_.below) ? faint_.before : line;
  }

  /** Another policy holds from here on. What is gone at this clock stays so: no row comes back with what it
   * had. False, and nothing is changed: there is no room for one line more; see `kMostLines`. */
  bool follow(const LifePolicy& policy, std::uint32_t clock) {
    Rule next = *this;
    if (ttl_) next.goneBefore_ = std::max(goneBefore_, clock - ttl_);
    if (rareTtl_ && rareBelow_ && !next.add({rareBelow_, clock - rareTtl_})) return false;
    if (faintTtl_ && !next.addFaint({faintBelow_, clock - faintTtl_})) return false;
    next.take(policy);
    *this = next;
    return true;
  }
  void write() { written_ = 1; }

 private:
  /** Rows that were seen fewer times are gone if they were last seen before this step. */
  struct Line {
    std::uint32_t below = 0, before = 0;
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

  /** The first step that a row which was seen so many times may say, whatever its values are. */
  std::uint32_t lineOf(std::uint32_t sightings) const {
    std::uint32_t line = goneBefore_;
    for (const Line& each : rare_)
      if (sightings < each.below) line = std::max(line, each.before);
    return line;
  }

  void take(const LifePolicy& policy) {
    ttl_ = policy.ttl;
    rareBelow_ = policy.rareBelow;
    rareTtl_ = policy.rareTtl;
    faintBelow_ = policy.faintBelow;
    faintTtl_ = policy.faintTtl;
    admitAt_ = policy.admitAt;
  }
  // Lines that another one covers are left out. The others are at the front.
  bool add(Line line) {
    const auto covers = [](Line a, Line b) { return a.below >= b.below && a.before >= b.before; };
    Line kept[kMostLines + 1];
    std::size_t count = 0;
    bool isCovered = line.before <= goneBefore_;
    for (const Line& each : rare_) {
      if (!each.before || each.before <= goneBefore_) continue;
      isCovered = isCovered || covers(each, line);
      if (isCovered || !covers(line, each)) kept[count++] = each;
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
};

static_assert(std::is_trivially_copyable_v<Rule> && sizeof(Rule) == 56);

/** The first slots of a table with a policy: of its clock, and of its rule where a row is too short for both.
 */
inline std::uint32_t reservedSlots(const TableSpec& spec) {
  const std::size_t stride = spec.stride(), room = (spec.width() - kLifeWords) * 4;
  return room < sizeof(Rule) ? 1 + static_cast<std::uint32_t>((sizeof(Rule) + stride - 1) / stride) : 1;
}

}  // namespace kintsugi
