// The life of rows in a table with a policy. A row that was not seen for so many steps counts as not there
// from that step on, wherever it is read. Pushes evict such rows a few at a time: as deltas of their batch.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "engine/shard.h"
#include "kernels/kernels.h"

namespace kintsugi {

/** Within a ttl every run has its turn so many times, and is looked at if a row of it may be gone. */
static constexpr std::uint32_t kSweeps = 128;
/** Runs that a push looks at, at least, until every one was looked at: what is known of them saves requests
 * from reading lives. */
static constexpr std::uint64_t kFirstTurns = 64;
/** Rows whose lives are fetched ahead. */
static constexpr std::size_t kAhead = 48;
/** Rows that a push evicts at most for each of its keys, beside `leastSwept`; and slots that it looks at
 * for each, beyond one run. */
static constexpr std::size_t kSweptPerKey = 2, kLooksPerKey = 8;
/** Seconds after which a clock goes on without a push in any case: readers have thresholds of their own. */
static constexpr std::uint32_t kMostBehind = 60;
/** Keys for which a shard looks and evicts at most where a clock of seconds goes on without a push. */
static constexpr std::size_t kKeysOfTime = std::size_t{1} << 14;
/** Rows that tell how old those are which `keep` holds. */
static constexpr std::uint32_t kSampled = 1024;
/** Snapshots whose clocks are known: increments to older ones name all rows that are not served. */
static constexpr std::size_t kMostClocks = 256;

void Table::removeUnserved(BlockSet& slots, const Serving& serving) const {
  if (!first_ || !extent_) return;
  slots.removeRange(0, first_);
  const std::uint32_t now = clock();
  for (std::uint32_t slot = first_; slot < extent_; slot++) {
    if (tags()[slot] && !isServed(slot, now, serving)) slots.remove(slot);
  }
}

void Table::noteClock(std::uint32_t stamp) {
  if (!first_) return;
  if (clocks_.size() == kMostClocks) clocks_.erase(clocks_.begin());
  clocks_.push_back({stamp, clock()});
}

// Sightings of a row only grow, unless they decay. One that was seen too seldom was not served before, unless
// its key had another row, which was removed since then.
void Table::listUnserved(std::uint32_t since, const Serving& serving,
                         std::vector<std::uint64_t>& tags) const {
  if (!first_ || !extent_) return;
  const std::uint32_t now = clock();
  std::uint32_t then = 0;
  for (const Clock& each : clocks_) {
    if (each.stamp == since) then = each.clock;
  }
  for (std::uint32_t slot = first_; slot < extent_; slot++) {
    const std::uint64_t tag = this->tags()[slot];
    if (!tag || isServed(slot, now, serving)) continue;
    if (!rule_.decays() && !isSeen(slot, now, serving)) continue;
    if (!then || stamps_.isNewer(slot, since) || isServed(slot, then, serving)) tags.push_back(tag);
  }
}

void Table::hideUnserved(std::vector<std::uint32_t>& slots, const Serving& serving) const {
  if (!first_ || !extent_) return;
  const std::uint32_t now = clock();
  for (std::uint32_t& slot : slots) {
    if (slot == kNone || (!serving.valuesOnly && !mayBeGone(slot, now))) continue;
    if (!isServed(slot, now, serving)) slot = kNone;
  }
}

void Table::changeLife(std::uint32_t slot, Life life, std::uint32_t place) {
  const Life before = lifeOf(slot);
  std::uint8_t* delta = batch_.delta(place) + lifeAt_;
  storeAt(delta, 0, loadAt<std::uint32_t>(delta, 0) ^ before.last ^ life.last);
  storeAt(delta, 1, loadAt<std::uint32_t>(delta, 1) ^ before.sightings ^ life.sightings);
  setLife(slot, life);
}

// After a change of the rule, all runs may have rows that are gone.
std::uint32_t Table::turns(std::uint32_t clock) const {
  const std::uint32_t runs = runCount() - firstRun(), ttl = rule_.leastTtl();
  if (!ttl || rule_.hasLines()) return runs;
  const bool seconds = spec_.policy.seconds;
  const std::uint64_t steps = seconds ? clock - std::min(clock, sweptAt_) : 1, left = seconds ? left_ : 0,
                      least = visited_ < runs ? kFirstTurns : 1,
                      turns = left + std::max(std::uint64_t{runs} * kSweeps * steps / ttl + 1, least);
  return static_cast<std::uint32_t>(std::min(turns, std::uint64_t{runs}));
}

void Table::advance() {
  if (!spec_.policy.seconds || !extent_ || now() == clock()) return;
  changeLife(0, {now(), lifeOf(0).sightings}, batch_.touchFromZero(0));
}

void Table::endStep() {
  const bool counts = spec_.policy.seconds && spec_.policy.chance;
  const Life life = lifeOf(0);
  const std::uint32_t number = counts ? life.sightings + 1 : life.sightings;
  changeLife(0, {nextStep(), number}, batch_.touchFromZero(0));
}

bool Table::isBehind() const {
  const std::uint32_t ttl = rule_.leastTtl();
  if (!spec_.policy.seconds || !index_.size() || absent_[kRows].count() || !ready_) return false;
  const std::uint32_t behind = now() - clock();
  return left_ || !rule_.isOf(spec_.policy) || behind >= kMostBehind ||
         behind * std::uint64_t{kSweeps} >= ttl;
}

std::uint32_t Table::sweepOf(std::size_t keys) const {
  if (!extent_ || !mayGo()) return 0;
  const std::uint32_t runs = runCount(), step = nextStep();
  const std::size_t most = std::min<std::size_t>(extent_, leastSwept() + kSweptPerKey * keys);
  std::size_t due = 0;
  const std::uint32_t turns = this->turns(step);
  for (std::uint32_t i = 0, run = turn_; i < turns && due < most; i++, run++) {
    if (run < firstRun() || run >= runs) run = firstRun();
    if (run >= runs_.size() || runs_[run].due <= step) due += kRunSlots;
  }
  return static_cast<std::uint32_t>(std::min(due, most));
}

// A run says when the first of its rows may be gone, as it was when somebody looked. Rows that are seen again
// only go later; new ones and those that come with their age say so.
void Table::sweep(std::uint32_t most, std::size_t keys, std::uint32_t clock,
                  std::vector<std::uint32_t>& slots) {
  slots.clear();
  if (!mayGo()) return;
  const std::uint32_t runs = runCount();
  if (runs_.size() < runs) runs_.resize(runs);
  std::size_t looks = 1 + kLooksPerKey * keys / kRunSlots;
  const std::uint32_t keptFrom = this->keptFrom(clock);
  std::uint32_t left = turns(clock);
  for (; left && looks; left--) {
    if (turn_ < firstRun() || turn_ >= runs) turn_ = firstRun();
    if (runs_[turn_].due <= clock) {
      const Run seen = lookAt(turn_, clock, keptFrom, most, slots);
      if (!seen.due) break;
      runs_[turn_] = seen;
      looks--;
    }
    turn_++;
    if (visited_ < runs - firstRun()) visited_++;
  }
  sweptAt_ = clock;
  left_ = left;
  std::sort(slots.begin(), slots.end());
}

// A sample of the rows, which is taken some times within a ttl, says from which step on a row is one of so
// many that were seen last. It may say too early a step, and the number of rows itself is never passed.
std::uint32_t Table::keptFrom(std::uint32_t clock) {
  const std::uint32_t ttl = rule_.keptTtl();
  if (!ttl || index_.size() <= rule_.keep()) return 0;
  if (keptFromAt_ && clock < keptFromAt_ + ttl / kSweeps + 1) return keptFrom_;
  std::vector<std::uint32_t> seen;
  const std::uint32_t all = extent_ - first_, step = std::max(1u, all / kSampled);
  for (std::uint32_t slot = first_ + clock % step; slot < extent_; slot += step)
    if (tags()[slot]) seen.push_back(lifeOf(slot).last);
  std::sort(seen.begin(), seen.end(), std::greater<>());
  // A sample may have some more of the newest than their part. All rows have their part.
  const double part = static_cast<double>(rule_.keep()) / static_cast<double>(index_.size()),
               count = static_cast<double>(seen.size()),
               spread = step > 1 ? 2 * std::sqrt(count * part * (1 - part)) : 0;
  const auto kept = static_cast<std::size_t>(std::ceil(count * part + spread));
  keptFrom_ = kept < seen.size() ? seen[kept - (kept > 0)] : 0;
  keptFromAt_ = clock;
  return keptFrom_;
}

Table::Run Table::lookAt(std::uint32_t number, std::uint32_t clock, std::uint32_t keptFrom,
                         std::uint32_t most, std::vector<std::uint32_t>& slots) const {
  Run run{Rule::kNever, true};
  const std::uint32_t keptTtl = rule_.keptTtl();
  const std::uint32_t end = std::min(extent_, (number + 1) * kRunSlots);
  for (std::uint32_t slot = std::max(first_, number * kRunSlots); slot < end; slot++) {
    if (!tags()[slot]) continue;
    const Life life = lifeOf(slot);
    const bool isOld = keptTtl && ageAt(life, clock) > keptTtl,
               mayGo = isOld && life.last < keptFrom && index_.size() - slots.size() > rule_.keep();
    if (mayGo || isGone(slot, clock)) {
      if (slots.size() == most) return {};
      slots.push_back(slot);
      continue;
    }
    const std::uint32_t faintTtl = rule_.faintTtl();
    run.due = std::min(run.due, rule_.dueOf(life));
    if (keptTtl) run.due = std::min(run.due, isOld ? clock + keptTtl / kSweeps + 1 : life.last + keptTtl + 1);
    // Whether its norm is low then is asked then. The next push of a row may make its norm low.
    if (faintTtl)
      run.due = std::min(run.due, (life.last + faintTtl < clock ? clock : life.last) + faintTtl + 1);
    run.admitted = run.admitted && life.sightings >= rule_.admitAt();
  }
  return run;
}

void Table::noteBegun(std::uint32_t slot) {
  if (slot / kRunSlots >= runs_.size()) return;
  Run& run = runs_[slot / kRunSlots];
  run.due = std::min(run.due, nextStep() + rule_.leastTtl() + 1);
  run.admitted = false;
}

void Table::countGone(std::uint32_t slot) {
  switch (rule_.goneFor(livingRow(slot), clock())) {
    case Gone::Rare:
      return leave(slot, Reason::Rare, counts_.rare);
    case Gone::Faint:
      return leave(slot, Reason::Faint, counts_.faint);
    default:
      return leave(slot, Reason::Expired, counts_.expired);
  }
}

/** The words of a row that has just become one: in this step, not yet seen. */
static void beginLife(const Table& t, std::vector<float>& row) {
  row[row.size() - 2] = std::bit_cast<float>(t.nextStep());
  row[row.size() - 1] = 0;
}

// In the order of `newTags`, which is the order in which their slots were planned. The initial row is a delta
// like any other; a gradient then adds to it.
void Shard::addKeys(const Plan& plan, bool initialize) {
  Table& t = *plan.table;
  if (initialize) beginRows(t);
  for (const std::uint64_t tag : plan.newTags) {
    const std::uint32_t slot = t.addKey(tag);
    if (initialize) putInitial(t, slot);
  }
}

// State, and words of a life that begins.
void Shard::beginRows(const Table& t) {
  const TableSpec& spec = t.spec();
  initial_.resize(spec.width());
  initialState(spec, initial_.data() + spec.dim);
  if (t.hasPolicy()) beginLife(t, initial_);
}

void Shard::putInitial(Table& t, std::uint32_t slot) {
  const TableSpec& spec = t.spec();
  initialValues(spec, t.tags()[slot] - 1, initial_.data());
  const std::uint32_t place = t.batch().touch(slot);
  kernels().replaceRow(t.row(slot), reinterpret_cast<const std::uint8_t*>(initial_.data()),
                       initial_.size() * 4, spec.stride(), t.batch().delta(place), place & kAddTo);
}

// A gone row that is pushed is a new one: nothing of it is left.
void Shard::startAgain(const Plan& plan) {
  Table& t = *plan.table;
  const std::uint32_t now = t.clock();
  beginRows(t);
  gone_.clear();
  for (const std::uint32_t slot : plan.slots) {
    if (!t.mayBeGone(slot, now) || !t.isGone(slot, now)) continue;
    t.countGone(slot);
    noteRemoved(t, gone_ = {slot});
    putInitial(t, slot);
    t.noteBegun(slot);
  }
}

// A whole row comes in place of one that was gone. The slot of a new key has zeros, and was never seen.
void Shard::countReplaced(Table& t, std::uint32_t slot) {
  if (!t.lifeOf(slot).last) return;
  if (t.isGone(slot, t.clock())) t.countGone(slot);
  noteRemoved(t, gone_ = {slot});
}

// A row that is gone already went by itself.
void Shard::countDeleted(const Plan& plan) {
  Table& t = *plan.table;
  const std::uint32_t now = t.hasPolicy() ? t.clock() : 0;
  for (const std::uint32_t slot : plan.slots) {
    if (t.hasPolicy() && t.isGone(slot, now)) {
      t.countGone(slot);
    } else {
      t.countDeleted(slot);
    }
  }
}

// Rows that were not seen often enough take no step: `steps` goes on without them.
void Shard::admit(const RequestTable& r, const Plan& plan, RowSteps& steps) {
  Table& t = *plan.table;
  const std::size_t distinct = steps.count;
  const bool each = distinct == r.count && !r.counts;
  sightings_.assign(distinct, each ? 1 : 0);
  for (std::uint32_t i = 0; !each && i < r.count; i++)
    sightings_[inverse_[i]] = addSightings(sightings_[inverse_[i]], r.sightings(i));
  const std::uint32_t least = t.rule().admitAt();
  if (least < 2) return;
  const auto isAdmitted = [&](std::size_t i) {
    if (i + kAhead < distinct) t.prefetchLife(plan.slots[i + kAhead]);
    const std::uint32_t slot = plan.slots[i];
    return t.isAdmitted(slot) || std::uint64_t{t.lifeOf(slot).sightings} + sightings_[i] >= least;
  };
  std::size_t first = 0;
  while (first < distinct && isAdmitted(first)) first++;
  if (first == distinct) return;
  const std::size_t bytes = std::size_t{r.width} * 4;
  admittedSlots_.clear();
  admittedPlaces_.clear();
  for (std::size_t i = 0; i < distinct; i++) {
    const std::uint32_t slot = plan.slots[i];
    if (isAdmitted(i)) {
      admittedSlots_.push_back(slot);
      admittedPlaces_.push_back(places_[i]);
    } else if (!(places_[i] & kAddTo)) {
      std::memset(t.batch().delta(places_[i]), 0, t.spec().stride());
    }
  }
  const std::size_t admitted = admittedSlots_.size();
  t.countRefused(distinct - admitted);
  // Gradients in the caller's section cannot be moved; those in `gradients_` move to the front.
  if (gradients_.size() < distinct * r.width) gradients_.resize(distinct * r.width);
  auto* to = reinterpret_cast<std::uint8_t*>(gradients_.data());
  for (std::size_t i = 0, at = 0; i < distinct && at < admitted; i++) {
    if (plan.slots[i] != admittedSlots_[at]) continue;
    std::memmove(to + at++ * bytes, steps.gradients + i * bytes, bytes);
  }
  steps.gradients = to;
  steps.slots = admittedSlots_.data();
  steps.places = admittedPlaces_.data();
  steps.count = admitted;
}

// After their steps, whose deltas replace what was at a place.
void Shard::seeRows(const Plan& plan, std::size_t distinct) {
  Table& t = *plan.table;
  const std::uint32_t step = t.nextStep();
  for (std::size_t i = 0; i < distinct; i++) {
    if (i + kAhead < distinct) t.prefetchLife(plan.slots[i + kAhead], places_[i + kAhead]);
    const std::uint64_t seen =
        std::uint64_t{t.rule().sightingsOf(t.lifeOf(plan.slots[i]), step)} + sightings_[i];
    t.changeLife(plan.slots[i], {step, static_cast<std::uint32_t>(std::min<std::uint64_t>(seen, kMostSteps))},
                 places_[i]);
  }
}

// A row that is given as a whole has its age, and no step passes. One that nobody has seen begins its life.
void Shard::takeLife(Table& t, std::uint32_t slot, std::uint32_t place) {
  Life life = t.given(slot);
  if (!life.sightings) life.sightings = std::max(1u, t.rule().admitAt());
  t.changeLife(slot, life, place);
  if (t.hasScores()) t.changeScore(slot, t.scoreOf(slot), place);
  t.noteGiven(slot);
}

// Whole rows have their age in place of the step in which they were last seen.
void Shard::giveAges(const Table& t, const std::vector<std::uint32_t>& slots, std::uint8_t* rows) {
  const std::size_t bytes = std::size_t{t.spec().width()} * 4;
  const std::uint32_t now = t.clock();
  for (std::size_t i = 0; i < slots.size(); i++) {
    if (slots[i] != kNone) storeAt(rows + (i + 1) * bytes - kLifeWords * 4, 0, t.ageOf(slots[i], now));
  }
}

void Shard::endStep(const Plan& plan) {
  Table& t = *plan.table;
  t.endStep();
  sweep(t, plan.swept, plan.tags.size());
  if (plan.displaced > swept_.size()) {
    // Within a second, others may have been seen that are not of this push.
    kept_.clear();
    if (t.spec().policy.seconds) kept_ = plan.slots;
    std::sort(kept_.begin(), kept_.end());
    t.displace(plan.displaced, t.clock(), swept_, kept_);
  }
  evict(t);
}

// Rows that are gone by the clock, up to so many, are the first to go.
void Shard::sweep(Table& t, std::uint32_t most, std::size_t keys) {
  swept_.clear();
  if (!t.absent(kRows).count()) t.sweep(most, keys, t.clock(), swept_);
  for (const std::uint32_t slot : swept_) t.countGone(slot);
  t.dropLines();
}

void Shard::evict(Table& t) {
  if (swept_.empty()) return;
  if (snapshot_) snapshot_->keep(t, swept_);
  deleteRows(t, swept_);
}

void Shard::tell(std::uint32_t seconds, std::size_t maxDelta) {
  seconds_ = std::max(seconds_, std::min(seconds, kMostSteps - kFirstStep));
  for (const auto& [id, t] : tables_) {
    if (!t->spec().policy.seconds) continue;
    t->tell(seconds_);
    if (maxDelta && t->isBehind()) passTime(*t, maxDelta);
  }
}

// A table that nobody pushes to has its rows evicted, too, and another policy begins.
void Shard::passTime(Table& t, std::size_t maxDelta) {
  const std::size_t each = t.spec().stride() + kSlotBytes,
                    bytes = openBytes() + kDeltaTableBytes + kSlotPadding + t.reserved() * each;
  if (bytes + each > maxDelta) return;
  const auto most =
      static_cast<std::uint32_t>(std::min<std::size_t>(t.sweepOf(kKeysOfTime), (maxDelta - bytes) / each));
  if (!t.batch().expect(std::size_t{most} + t.reserved())) return;
  const Change change(*this, t);
  t.advance();
  followPolicy(t);
  sweep(t, most, kKeysOfTime);
  evict(t);
}

}  // namespace kintsugi
