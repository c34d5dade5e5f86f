// Rows that make room for others: a table with `maxRows` or `forMemory` takes away rows that were not seen
// for long, or seldom, in the delta of the push that brings new ones. By age alone, keys that come once take
// the place of those that come often (bench/LOG.md, "Room for new rows"). Where rows have scores, those of
// the lowest score go before all others.
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/shard.h"

namespace kintsugi {

/** The row that was idle for longest of so many slots goes: steps since it was seen, for each sighting. Where
 * rows have scores, the lowest of so many, and of equal ones that which was idle for longest. */
static constexpr std::size_t kCandidates = 8;
/** A row that was seen more often is worth no more: so rows that were seen very often go at last, too. */
static constexpr std::uint32_t kMostCounted = 1024;
/** Steps that no row is idle for. */
static constexpr float kGoneIdle = 1e30f;
/** No score is lower: that of rows that are gone. */
static constexpr float kLowest = -std::numeric_limits<float>::infinity();
/** A push displaces `leastSwept` rows in any case, and further ones for each of its new keys: a table may
 * have got too many rows at once, as by a restore. */
static constexpr std::size_t kDisplacedPerKey = 2;
/** Where memory is short, a table keeps this part of its slots free, and as many as the largest batch of late
 * took, but no more than `kMostFreePart`: a slot is free only after the batch in which its row went. */
static constexpr std::size_t kFreePart = 32, kMostFreePart = 4;
/** Memory is short, too, if this part more of rows would not fit. */
static constexpr std::uint32_t kGrowthPart = 8;

/** Rows that came together lie together, and often have like scores: so looks are spread over all slots, each
 * of which comes once in as many looks. */
static std::uint32_t spread(std::uint32_t slots) {
  constexpr double kGolden = 0.6180339887;
  auto step = std::max(1u, static_cast<std::uint32_t>(slots * kGolden));
  while (std::gcd(step, slots) != 1) step++;
  return step;
}

std::uint32_t Table::surplusOf(std::size_t newKeys, bool tight) const {
  const LifePolicy& policy = spec_.policy;
  const std::size_t rows = index_.size() + newKeys;
  std::size_t surplus = policy.maxRows && rows > policy.maxRows ? rows - policy.maxRows : 0;
  if (policy.forMemory && newKeys && tight) {
    // Slots that are free are memory that new rows may have: only what they lack is made room for.
    const std::size_t most =
        std::min<std::size_t>(std::max(mostWanted_, wanted_ + newKeys), keySlots() / kMostFreePart);
    const std::size_t places = index_.capacity() - std::min(index_.capacity(), index_.size());
    const std::size_t free = std::min(free_.size() + freed_.size(), places),
                      wanted = newKeys + std::max(most, keySlots() / kFreePart);
    if (wanted > free) surplus = std::max(surplus, wanted - free);
  }
  return static_cast<std::uint32_t>(std::min(surplus, leastSwept() + kDisplacedPerKey * newKeys));
}

bool Table::isTight(std::size_t newKeys, const Memory& memory) const {
  return memory.isTight() ||
         !memory.allows(costOf(static_cast<std::uint32_t>(newKeys) + keySlots() / kGrowthPart));
}

void Table::displace(std::size_t count, std::uint32_t clock, std::vector<std::uint32_t>& slots,
                     const std::vector<std::uint32_t>& kept) {
  const std::size_t known = slots.size();
  candidates_.clear();
  const std::uint32_t all = keySlots(), step = hasScores() ? spread(all) : 1;
  std::size_t looks = std::min(extent_ - std::size_t{first_}, kLeastSwept + kCandidates * (count - known));
  for (; looks; looks--) {
    if (hand_ < first_ || hand_ >= extent_) hand_ = first_;
    const std::uint32_t slot = hand_;
    hand_ = hasScores() ? first_ + (slot - first_ + step) % all : slot + 1;
    if (!tags()[slot] || absent_[kRows].has(shapes_[kRows].blockOfSlot(slot))) continue;
    if (std::binary_search(slots.data(), slots.data() + known, slot)) continue;
    if (std::binary_search(kept.begin(), kept.end(), slot)) continue;
    const Life life = lifeOf(slot);
    if (life.last >= clock && !spec_.policy.seconds) continue;
    const auto age = static_cast<float>(ageAt(life, clock));
    // Gone rows come before all others. In `makeSlots` the step `clock` is still to come.
    const float idle =
        isGone(slot, this->clock())
            ? kGoneIdle
            : age / static_cast<float>(std::clamp(rule_.sightingsOf(life, clock), 1u, kMostCounted));
    const float score = !hasScores() ? 0 : idle < kGoneIdle ? scoreOf(slot) : kLowest;
    candidates_.push_back({score, idle, slot});
  }
  count = std::min(count - known, candidates_.size());
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  std::nth_element(candidates_.begin(), end, candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score < b.score;
    return a.idle != b.idle ? a.idle > b.idle : a.slot < b.slot;
  });
  for (auto each = candidates_.begin(); each != end; ++each) {
    slots.push_back(each->slot);
    if (each->idle < kGoneIdle) {
      leave(each->slot, Reason::Displaced, counts_.displaced);
    } else {
      countGone(each->slot);
    }
  }
  std::sort(slots.begin(), slots.end());
}

// The budget is used up, and a table with `forMemory` has too few free slots for the new keys of a push. So
// many rows go that the new keys find slots in the next batch, where there are so many beside those of the
// push. True: the open batch has to end.
bool Shard::makeSlots(const RequestTable& r, const Plan& plan, std::size_t maxDelta) {
  Table& t = *plan.table;
  const std::size_t fitting = t.fitting(), newKeys = plan.newTags.size();
  if (!r.count || newKeys <= fitting) return false;
  const std::size_t lacking = newKeys - fitting;
  if (t.freedSlots() < lacking) {
    const std::size_t bytes = openBytes() + kDeltaTableBytes + kSlotPadding,
                      room = maxDelta - std::min(maxDelta, bytes);
    const std::size_t count = lacking - t.freedSlots();
    if (count * (t.spec().stride() + kSlotBytes) > room || !t.batch().expect(count)) return false;
    kept_.clear();
    for (const std::uint32_t slot : plan.slots)
      if (slot < t.extent() && t.tags()[slot]) kept_.push_back(slot);
    std::sort(kept_.begin(), kept_.end());
    swept_.clear();
    const Change change(*this, t);
    t.displace(count, t.nextStep(), swept_, kept_);
    if (snapshot_) snapshot_->keep(t, swept_);
    deleteRows(t, swept_);
  }
  return t.freedSlots() >= lacking;
}

// New keys without a slot do not become rows, and their gradients are dropped: so such a push is not refused,
// and rows that were not seen for long make room for the next one. New keys have free slots first, see
// `planPush`.
void Shard::keepFitting(RequestTable& r, Plan& plan) {
  const Table& t = *plan.table;
  const auto free = static_cast<std::uint32_t>(t.freeSlots().size());
  if (plan.newTags.size() <= free && !t.costOf(static_cast<std::uint32_t>(plan.newTags.size()))) return;
  const std::size_t fitting = t.costOf(free) ? 0 : free;
  if (plan.newTags.size() <= fitting) return;
  plan.unfit = plan.newTags.size() - fitting;
  plan.newTags.resize(fitting);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < plan.tags.size(); i++) {
    const std::uint32_t slot = plan.slots[i];
    if (slot >= t.extent() || (!fitting && !t.tags()[slot])) continue;
    plan.keep(r, i, kept++);
  }
  plan.keepOnly(r, kept);
}

}  // namespace kintsugi
