// The rule by which rows of a table with a policy go and are admitted. A policy may change while pushes come,
// and all copies of a shard must begin with the new one at the same step. So the rule that holds lies in the
// first slots of the table, beside the clock: coded, recovered and followed as rows are. The owner writes it,
// in the delta of a push. Nothing but this reads a policy where a row is looked at.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/table_spec.h"

namespace kintsugi {

/** The words of a row: the step in which it was last seen, and how often it was. */
struct Life {
  std::uint32_t last, sightings;
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
           admitAt_ == policy.admitAt;
  }
  std::uint32_t admitAt() const { return admitAt_; }
  /** The fewest steps after which a row may go; 0: none goes. */
  std::uint32_t leastTtl() const { return rareTtl_ ? ttlOf(0) : ttl_; }
  /** The steps after which a row is gone that was seen so many times; 0: never. */
  std::uint32_t ttlOf(std::uint32_t sightings) const {
    return sightings < rareBelow_ && (!ttl_ || rareTtl_ < ttl_) ? rareTtl_ : ttl_;
  }
  /** A former rule let the row go, before this one began. */
  bool wasGone(Life life) const { return life.last < lineOf(life.sightings); }
  /** True: the row went because it was seen too seldom. */
  bool isRare(Life life) const {
    return life.sightings < rareBelow_ || (life.last >= goneBefore_ && wasGone(life));
  }
  /** Rows that former rules let go may be there. */
  bool hasLines() const { return goneBefore_ || rare_[0].before; }
  void dropLines() {
    goneBefore_ = 0;
    for (Line& line : rare_) line = {};
  }
  /** The first step that a row which was seen so many times may say, if no former rule let it go. */
  std::uint32_t lineOf(std::uint32_t sightings) const {
    std::uint32_t line = goneBefore_;
    for (const Line& each : rare_)
      if (sightings < each.below) line = std::max(line, each.before);
    return line;
  }

  /** Another policy holds from here on. What is gone at this clock stays so: no row comes back with what it
   * had. False, and nothing is changed: there is no room for one line more; see `kMostLines`. */
  bool follow(const LifePolicy& policy, std::uint32_t clock) {
    Rule next = *this;
    if (ttl_) next.goneBefore_ = std::max(goneBefore_, clock - ttl_);
    if (rareTtl_ && rareBelow_ && !next.add({rareBelow_, clock - rareTtl_})) return false;
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

  void take(const LifePolicy& policy) {
    ttl_ = policy.ttl;
    rareBelow_ = policy.rareBelow;
    rareTtl_ = policy.rareTtl;
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

  std::uint32_t written_ = 0;
  std::uint32_t ttl_ = 0, rareBelow_ = 0, rareTtl_ = 0, admitAt_ = 0;
  std::uint32_t goneBefore_ = 0;
  Line rare_[kMostLines];
};

static_assert(std::is_trivially_copyable_v<Rule> && sizeof(Rule) == 40);

/** The first slots of a table with a policy: of its clock, and of its rule where a row is too short for both.
 */
inline std::uint32_t reservedSlots(const TableSpec& spec) {
  const std::size_t stride = spec.stride(), room = (spec.width() - kLifeWords) * 4;
  return room < sizeof(Rule) ? 1 + static_cast<std::uint32_t>((sizeof(Rule) + stride - 1) / stride) : 1;
}

}  // namespace kintsugi
