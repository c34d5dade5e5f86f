// One table in one shard: its columns, its index, which blocks are absent, and its open batch. A row's slot
// never changes; the slot of a key that was removed is used again, after the batch of the removal. Layout of
// a row: values f32[dim], optimizer state, in a table with a policy its score, if it has scores, and the
// words of its life, zeros up to a multiple of 16 bytes. Such a table has no key at slot 0: the row there has
// the clock of the table in the place of its last step, and the rule that holds (rule.h) in front of it.
// Where rows are too short, the slots behind have the rule. The counters of a filter lie behind both. So all
// of it is coded, recovered and followed as rows are.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/arena.h"
#include "engine/batch.h"
#include "engine/blocks.h"
#include "engine/index.h"
#include "engine/rule.h"
#include "engine/sections.h"
#include "engine/snapshot.h"
#include "engine/status.h"
#include "engine/table_spec.h"

namespace kintsugi {

/** Since the table is in this shard object: rows that went by themselves, rows that were displaced by others,
 * rows that were deleted, and gradients that changed nothing because their row had not been seen often
 * enough. */
struct LifeCounts {
  std::uint64_t expired = 0, rare = 0, faint = 0, displaced = 0, deleted = 0, refused = 0;
};

/** Why a row left its table; the numbers are those of `EVICTION_REASONS` (src/engine/policies.ts). */
enum class Reason : std::uint8_t { Expired, Rare, Faint, Displaced, Deleted };

/** Keys whose rows left, in that order, and the reason of each. */
struct Evicted {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint8_t> reasons;
};

class Table {
 public:
  Table(Memory& memory, const TableSpec& spec);

  const TableSpec& spec() const { return spec_; }
  /** Pushes from now on have the settings of this specification of the same table. Rows and deltas that are
   * there stay. A policy that is another one holds from `followPolicy` on. */
  void set(const TableSpec& settings);
  std::uint32_t extent() const { return extent_; }
  /** Keys are present and indexed. */
  bool ready() const { return ready_; }
  const Index& index() const { return index_; }
  OpenBatch& batch() { return batch_; }
  const OpenBatch& batch() const { return batch_; }
  const ColumnShape& shape(ColumnKind kind) const { return shapes_[kind]; }
  const BlockSet& absent(ColumnKind kind) const { return absent_[kind]; }
  Stamps& stamps() { return stamps_; }
  const Stamps& stamps() const { return stamps_; }
  /** Rows at these slots are about to be removed, after snapshot `newest` began; see `Removals::add`. */
  std::uint32_t noteRemoved(const std::vector<std::uint32_t>& slots, std::uint32_t newest);
  /** Keys of rows that snapshot `since` may have had and that one that begins now has not, each once. All
   * blocks are present. */
  std::vector<std::uint64_t> removedSince(std::uint32_t since, const Serving& serving) const;
  /** Snapshot `stamp` begins. */
  void noteClock(std::uint32_t stamp);
  /** Slots below the extent that have no key. */
  const std::vector<std::uint32_t>& freeSlots() const { return free_; }
  /** Slots that are free after the batch. */
  std::size_t freedSlots() const { return freed_.size(); }
  /** New keys that have room without more memory. */
  std::size_t fitting() const {
    return std::min(free_.size(), index_.capacity() - std::min(index_.capacity(), index_.size()));
  }
  /** A push to the open batch has so many new keys. */
  void noteWanted(std::size_t newKeys) { wanted_ += newKeys; }
  std::size_t bytes() const {
    return columns_[kKeys].bytes() + columns_[kRows].bytes() + index_.bytes() + stamps_.bytes() +
           removals_.bytes() + runBytes_.bytes();
  }

  /** `makeRoom` may move all rows. */
  std::uint8_t* row(std::uint32_t slot) const {
    return columns_[kRows].data() + std::size_t{slot} * shapes_[kRows].stride;
  }
  const std::uint64_t* tags() const { return reinterpret_cast<const std::uint64_t*>(columns_[kKeys].data()); }

  bool hasPolicy() const { return first_ != 0; }
  /** The slots before this one have no keys. */
  std::uint32_t firstSlot() const { return first_; }
  /** The slots of the clock and the filter are there from now on; `grow` came before. */
  void open() { extent_ = std::max(extent_, least_); }
  /** Keys can be listed. With a policy, rows say which of them are gone. */
  bool keysAreKnown() const { return ready_ && (!first_ || !absent_[kRows].count()); }
  /** The steps of a table with a policy. The block of slot 0 is present. */
  std::uint32_t clock() const { return extent_ && lifeOf(0).last ? lifeOf(0).last : kFirstStep; }
  /** The clock that a push or a row which comes now finds. */
  std::uint32_t now() const {
    return spec_.policy.seconds ? std::max(clock(), kFirstStep + seconds_) : clock();
  }
  /** The newest second of the job, for a clock that counts seconds; it never falls. */
  void tell(std::uint32_t seconds) { seconds_ = std::max(seconds_, seconds); }
  /** The clock goes on to `now`, in the delta of the open batch, for which there is room. */
  void advance();
  /** The same without a delta. */
  void setClock() { setLife(0, {now(), lifeOf(0).sightings}); }
  /** A clock of seconds is behind by so much that rows may be gone, or some were left when it was not, or
   * another policy is to begin. */
  bool isBehind() const;
  /** The steps since the row was last seen. */
  std::uint32_t ageOf(std::uint32_t slot, std::uint32_t clock) const { return ageAt(lifeOf(slot), clock); }
  /** A row with a key that counts as not there: it waits for `evict`. Its block and the clock are present. */
  bool isGone(std::uint32_t slot, std::uint32_t clock) const { return isGone(slot, clock, rule_); }
  bool isGone(std::uint32_t slot, std::uint32_t clock, const Rule& rule) const {
    return rule.goneFor(livingRow(slot), clock) != Gone::Not;
  }
  /** A row with a key is for readers at this clock. */
  bool isServed(std::uint32_t slot, std::uint32_t clock, const Serving& serving) const {
    if (isGone(slot, clock)) return false;
    if (!serving.valuesOnly) return true;
    const std::uint32_t maxAge = spec_.policy.seconds ? serving.maxSeconds : serving.maxAge;
    return isSeen(slot, clock, serving) && (!maxAge || ageOf(slot, clock) <= maxAge);
  }
  /** Takes away slots that a snapshot of a table with a policy does not have: those in front of all keys,
   * and those of rows that are not served. */
  void removeUnserved(BlockSet& slots, const Serving& serving) const;
  /** Gives kNone to slots of rows that are not served, of a table with a policy. Their blocks and the clock
   * are present. */
  void hideUnserved(std::vector<std::uint32_t>& slots, const Serving& serving) const;
  Life lifeOf(std::uint32_t slot) const {
    const std::uint8_t* at = row(slot) + lifeAt_;
    return {loadAt<std::uint32_t>(at, 0), loadAt<std::uint32_t>(at, 1)};
  }
  LivingRow livingRow(std::uint32_t slot) const { return {lifeOf(slot), row(slot), spec_.dim}; }
  /** Fetches the words of a row's life, and those of its delta, into the cache. */
  void prefetchLife(std::uint32_t slot) const { __builtin_prefetch(row(slot) + lifeAt_); }
  void prefetchLife(std::uint32_t slot, std::uint32_t place) {
    prefetchLife(slot);
    __builtin_prefetch(batch_.delta(place) + lifeAt_);
  }
  /** Without a delta. */
  void setLife(std::uint32_t slot, Life life) {
    std::uint8_t* at = row(slot) + lifeAt_;
    storeAt(at, 0, life.last);
    storeAt(at, 1, life.sightings);
  }
  /** Rows have scores, of a table with a policy. */
  bool hasScores() const { return spec_.policy.score; }
  /** The score of a row, which is finite. A row that was given as a whole may have brought another one. */
  float scoreOf(std::uint32_t slot) const {
    const auto score = loadAt<float>(row(slot) + lifeAt_ - 4, 0);
    return std::isfinite(score) ? score : 0;
  }
  /** Without a delta. Both zeros are the same score, so they are the same bits. */
  void setScore(std::uint32_t slot, float score) { storeAt(row(slot) + lifeAt_ - 4, 0, score + 0.0f); }
  /** `setScore` whose change is added to the row's delta at `place`. */
  void changeScore(std::uint32_t slot, float score, std::uint32_t place);
  /** The words that a row gets which was given with its age. */
  Life given(std::uint32_t slot) const;
  /** The rule by which rows go. The block of slot 0 is present. */
  const Rule& rule() const { return rule_; }
  /** The rule as `followPolicy` will make it. The block of slot 0 is present. */
  Rule nextRule() const;
  /** Slots that have the clock and the rule; 0 without a policy. */
  std::uint32_t reserved() const { return reserved_; }
  /** The rule follows the policy, from the push or second on that is being applied: in the open batch, for
   * which there is room. True: it is another one than before. */
  bool followPolicy();
  /** The rule of a table whose rows come without a delta. */
  void writeFirstRule();
  /** All slots were looked at since the rule changed: what was gone before has been removed. */
  void dropLines();
  /** `setLife` whose change is added to the row's delta at `place`. */
  void changeLife(std::uint32_t slot, Life life, std::uint32_t place);
  /** The step of the push that is being applied. */
  std::uint32_t nextStep() const { return spec_.policy.seconds ? now() : std::min(clock() + 1, kMostSteps); }
  /** A number that no other push had: draws of keys go by it. */
  std::uint32_t pushNumber() const {
    return spec_.policy.seconds ? (extent_ ? lifeOf(0).sightings : 0) + 1 : nextStep();
  }
  /** The step is over: slot 0 says so, in its delta. */
  void endStep();
  /** A row that is gone is to become nothing, or a new row. */
  void countGone(std::uint32_t slot);
  void countDeleted(std::uint32_t slot) { leave(slot, Reason::Deleted, counts_.deleted); }
  void countRefused(std::size_t gradients) { counts_.refused += gradients; }
  const LifeCounts& counts() const { return counts_; }
  /** From now on, the keys of rows that leave are noted, or are not: then those that were are forgotten. */
  void watch(bool on) {
    watched_ = on;
    evicted_ = {};
  }
  /** The keys that were noted since the last call: those that left in the open batch, if there was a call
   * before each flush. */
  Evicted takeEvicted() { return std::exchange(evicted_, {}); }
  /** The most rows that a push of so many keys evicts. */
  std::uint32_t sweepOf(std::size_t keys) const;
  /** The next rows that are gone, ascending, for a push of so many keys. */
  void sweep(std::uint32_t most, std::size_t keys, std::uint32_t clock, std::vector<std::uint32_t>& slots);
  /** False: the row at this slot is not gone. */
  bool mayBeGone(std::uint32_t slot, std::uint32_t clock) const {
    return mayGo() && (slot / kRunSlots >= runs_.size() || runs_[slot / kRunSlots].due <= clock);
  }
  /** True: the row at this slot was seen often enough before. */
  bool isAdmitted(std::uint32_t slot) const {
    return slot / kRunSlots < runs_.size() && runs_[slot / kRunSlots].admitted;
  }
  /** The row at this slot begins its life. */
  void noteBegun(std::uint32_t slot);
  /** The row at this slot has a life that was given. */
  void noteGiven(std::uint32_t slot) {
    if (slot / kRunSlots < runs_.size()) runs_[slot / kRunSlots] = {};
  }
  /** Many rows are new or have a life that was given. */
  void lookAgain() {
    runs_.clear();
    visited_ = 0;
  }
  /** The most rows that are evicted or displaced by a push with so many new keys, to make room. */
  std::uint32_t surplusOf(std::size_t newKeys, bool tight) const;
  /** Memory is short for a table with so many new keys. */
  bool isTight(std::size_t newKeys, const Memory& memory) const;
  /** Adds rows of a low score, or that were not seen for long, and not in step `clock`, to those that go, up
   * to `count` slots in all, and counts them. Slots are ascending before and after; `kept`, ascending, stay.
   */
  void displace(std::size_t count, std::uint32_t clock, std::vector<std::uint32_t>& slots,
                const std::vector<std::uint32_t>& kept = {});

  /** The slot that the `n`-th new key from now would get: free slots first, then beyond the extent. */
  std::uint64_t slotForNew(std::uint32_t n) const;
  std::uint32_t extentAfter(std::uint32_t newKeys) const;
  /** Budget that `newKeys` more take. */
  std::size_t costOf(std::uint32_t newKeys) const;
  /** Makes room for `newKeys` more, without a visible change. False if the system refuses, or if the table
   * would have more slots than a table may have. */
  bool makeRoom(std::uint32_t newKeys);
  /** After `makeRoom`: charges the budget; `addKey` does not fail then. */
  void grow(std::uint32_t newKeys);
  /** Gives the next slot (see `slotForNew`) to a tag that is not there; `grow` came before. */
  std::uint32_t addKey(std::uint64_t tag);
  /** Removes the keys of these slots, ascending and each once. Their rows are zeros by then. */
  void removeKeys(const std::vector<std::uint32_t>& slots);
  /** Empties the open batch; slots of removed keys can be used from now on. */
  void closeBatch();
  /** Removes the rows at these slots, ascending and each once, without a delta. */
  void unload(const std::vector<std::uint32_t>& slots);
  /** Gives slots to those tags that have kNone, without a delta. They are not there, but may come twice; at
   * most `newKeys` are distinct. `makeRoom(newKeys)` came before. */
  void enter(const std::vector<std::uint64_t>& tags, std::vector<std::uint32_t>& slots,
             std::uint32_t newKeys);

  /** A page of keys in slot order, of slots from `slot` on. Leaves `slot` where the next page begins; it is
   * the extent when there is none. */
  std::vector<std::uint64_t> keysBySlot(std::uint32_t& slot, std::size_t max) const;
  /** The `max` least keys that are not below `least`, ascending. `more`: others follow them. Reads the whole
   * column of keys, but keeps no more than 2 x `max` of them. */
  std::vector<std::uint64_t> keysInOrder(std::uint64_t least, std::size_t max, bool& more) const;

  Fault adopt(std::uint32_t extent);
  /** Copies a present block; zeros beyond the extent. */
  void read(ColumnKind kind, std::uint32_t index, std::uint8_t* out) const;
  /** False if the block is not absent. The last block of keys makes the table ready. */
  bool install(ColumnKind kind, std::uint32_t index, const std::uint8_t* bytes);

  /** Makes room for `applyDelta`, in a table that takes no pushes. False if the system refuses the memory. */
  bool makeRoomFor(const DeltaTable& d);
  /** XOR into what is present; `makeRoomFor` came before. */
  void applyDelta(const DeltaTable& d);

 private:
  /** The row at this slot, whose key is still there, leaves. */
  void leave(std::uint32_t slot, Reason reason, std::uint64_t& counter) {
    counter++;
    if (!watched_) return;
    evicted_.keys.push_back(tags()[slot] - 1);
    evicted_.reasons.push_back(static_cast<std::uint8_t>(reason));
  }
  bool makeRoomFor(std::uint32_t extent, std::size_t keys);
  void rebuild();
  bool isSeen(std::uint32_t slot, std::uint32_t clock, const Serving& serving) const {
    return !serving.valuesOnly ||
           rule_.sightingsOf(lifeOf(slot), clock) >= std::max(rule_.admitAt(), serving.minSightings);
  }
  /** The first step that the last of the rows may say which `keep` holds, about; see `sweep`. */
  std::uint32_t keptFrom(std::uint32_t clock);
  /** Appends the tags of rows that were served when snapshot `since` began, or could have been, and are not
   * any more, but for those whose keys are among the removed ones. */
  void listUnserved(std::uint32_t since, const Serving& serving, std::vector<std::uint64_t>& tags) const;
  bool isListed(std::uint32_t slot) const;
  /** False: no row is gone, and none goes by itself. */
  bool mayGo() const { return rule_.leastTtl() || rule_.hasLines(); }
  /** Rows that a push makes go in any case. Wide ones are fewer: the delta of a push has to fit a frame. */
  static constexpr std::size_t kLeastSwept = 64, kLeastSweptBytes = std::size_t{8} << 20;
  std::size_t leastSwept() const {
    return std::clamp<std::size_t>(kLeastSweptBytes / spec_.stride(), 1, kLeastSwept);
  }
  /** The rule as the slots have it. */
  void readRule();
  void writeRule(const Rule& rule);
  std::uint8_t* ruleAt() const { return row(ruleSlot_); }
  std::uint32_t runCount() const { return extent_ / kRunSlots + (extent_ % kRunSlots != 0); }
  /** The first run that may have keys: those before it have a filter alone. */
  std::uint32_t firstRun() const { return std::min(first_ / kRunSlots, runCount()); }
  /** Runs that have their turn at this clock. */
  std::uint32_t turns(std::uint32_t clock) const;
  /** Slots that are looked at together. */
  static constexpr std::uint32_t kRunSlots = 64;
  /** Rows of a run, as far as they are known: most requests need not read their lives. */
  struct Run {
    std::uint32_t due = 0;  // no row is gone before this step
    bool admitted = false;  // all have been seen often enough
  };
  std::size_t runBytes(std::uint32_t extent) const {
    const bool areLookedAt = mayGo() || spec_.policy.mayGo();
    return areLookedAt ? (std::size_t{extent} + kRunSlots - 1) / kRunSlots * sizeof(Run) : 0;
  }
  /** Adds the rows of a run that are gone. Nothing is known of the others where these are more than `most`.
   */
  Run lookAt(std::uint32_t number, std::uint32_t clock, std::uint32_t keptFrom, std::uint32_t most,
             std::vector<std::uint32_t>& slots) const;
  void applyKeys(const DeltaTable& d);
  /** The next slot of which no key was ever there. */
  std::uint32_t unused() const { return extent_ > first_ ? extent_ : first_; }
  /** Slots that keys have or had: a filter is not among them. */
  std::uint32_t keySlots() const { return unused() - first_; }

  TableSpec spec_;
  ColumnShape shapes_[2];
  Column columns_[2];
  Index index_;
  BlockSet absent_[2];
  OpenBatch batch_;
  Stamps stamps_;
  Removals removals_;
  struct Clock {
    std::uint32_t stamp, clock;
  };
  std::vector<Clock> clocks_;  // of a table with a policy, when its newest snapshots began
  std::uint32_t extent_ = 0;
  std::vector<std::uint32_t> free_;   // the last one is used first
  std::vector<std::uint32_t> freed_;  // in the open batch, where a slot has one change of its key
  std::size_t wanted_ = 0;            // new keys of the open batch
  std::size_t mostWanted_ = 0;        // of one batch, of late
  bool ready_ = true;
  LifeCounts counts_;
  bool watched_ = false;
  Evicted evicted_;             // empty unless `watched_`
  std::uint32_t reserved_ = 0;  // slots of the clock and the rule
  std::uint32_t first_ = 0;     // slot that a key may have
  std::uint32_t least_ = 0;     // slots that it has from the first step on, with rows or without
  std::uint32_t lifeAt_ = 0;    // in a row, of a table with a policy
  std::uint32_t ruleSlot_ = 0;
  Rule rule_;                                    // a copy of what the slots have
  std::uint32_t visited_ = 0;                    // runs that had their turn since the rule changed
  std::vector<Run> runs_;                        // as far as somebody has looked; see `sweep`
  Charge runBytes_;                              // of all runs, looked at or not
  std::uint32_t turn_ = 0;                       // the run where the next sweep begins
  std::uint32_t seconds_ = 0;                    // of the job, see `tell`
  std::uint32_t sweptAt_ = 0;                    // the clock of the newest sweep
  std::uint32_t left_ = 0;                       // runs whose turn it was, and that it did not come to
  std::uint32_t keptFrom_ = 0, keptFromAt_ = 0;  // the newest answer of `keptFrom`, and its clock
  std::uint32_t hand_ = 0;                       // where `displace` looks next
  struct Candidate {
    float score, idle;  // see `displace`
    std::uint32_t slot;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace kintsugi
