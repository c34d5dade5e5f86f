// How the rule of a table changes, see rule.h.
#include "engine/shard.h"

namespace kintsugi {

void Table::set(const TableSpec& settings) {
  spec_.optimizer = settings.optimizer;
  spec_.policy = settings.policy;
  least_ = spec_.policy.filters() ? first_ : 0;
  if (!extent_) readRule();
  runBytes_.set(runBytes(extent_));
}

// Where no rule is written there is no row.
void Table::readRule() {
  if (!first_ || absent_[kRows].has(0)) return;
  if (extent_) std::memcpy(&rule_, ruleAt(), sizeof(Rule));
  if (!extent_ || !rule_.isWritten()) rule_ = Rule(spec_.policy);
  runBytes_.set(runBytes(extent_));
}

// `grow` came before for the first rows of a table.
void Table::writeRule(const Rule& rule) {
  std::uint8_t changed[sizeof(Rule)], *now = ruleAt();
  std::memcpy(changed, now, sizeof(Rule));
  std::memcpy(now, &rule, sizeof(Rule));
  for (std::size_t i = 0; i < sizeof(Rule); i++) changed[i] ^= now[i];
  const std::size_t stride = spec_.stride();
  for (std::size_t at = 0; at < sizeof(Rule); at += stride) {
    const auto slot = ruleSlot_ + static_cast<std::uint32_t>(at / stride);
    std::uint8_t* delta = batch_.delta(batch_.touchFromZero(slot));
    for (std::size_t i = 0; i < std::min(stride, sizeof(Rule) - at); i++) delta[i] ^= changed[at + i];
  }
  rule_ = rule;
}

Rule Table::nextRule() const {
  Rule next = rule_;
  if (!next.isOf(spec_.policy)) next.follow(spec_.policy, now());
  return next;
}

bool Table::followPolicy() {
  Rule next = nextRule();
  const bool isNew = next.isOf(spec_.policy) && !rule_.isOf(spec_.policy);
  if (!isNew && (rule_.isWritten() || !rule_.isOf(spec_.policy))) return false;
  next.write();
  writeRule(next);
  if (isNew) lookAgain();
  return isNew;
}

void Table::writeFirstRule() {
  if (rule_.isWritten()) return;
  rule_.write();
  std::memcpy(ruleAt(), &rule_, sizeof(Rule));
}

void Table::dropLines() {
  if (!rule_.hasLines() || visited_ < runCount() - firstRun()) return;
  Rule next = rule_;
  next.dropLines();
  writeRule(next);
  runBytes_.set(runBytes(extent_));
}

// A row that a former rule would have let go stays, where this one keeps it: it is as old as one that was not
// gone then.
Life Table::given(std::uint32_t slot) const {
  LivingRow row = livingRow(slot);
  const std::uint32_t age = std::min(row.life.last, kMostAge);
  row.life = {now() - age, std::min(row.life.sightings, kMostSteps)};
  if (rule_.keeps(row, now())) row.life.last = std::max(row.life.last, rule_.lineOf(row));
  return row.life;
}

// Increments to older snapshots would not say which rows are served now and were not before, or the other way
// round: so they have all rows.
void Shard::followPolicy(Table& t) {
  if (t.hasPolicy() && t.followPolicy()) forgotten_ = snapshots_;
}

}  // namespace kintsugi
