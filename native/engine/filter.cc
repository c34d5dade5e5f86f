// Keys that wait for a row. Where a table has a chance, a key without a row gets one at each of its sightings
// with that chance: drawn from the key, the step and the number of the sighting in its push, so that every
// run that pushes the same in the same order draws the same. Where a table has a filter, counters tell how
// often such a key was seen.
//
// Counters lie in the first slots of the rows, behind the rule. What a push adds to them is in its delta, so
// they are coded, recovered, moved and followed as rows are. All counters of a key are in one slot: a
// sighting is one row of a delta. A key that gets a row takes what it counted out of the filter, so only keys
// that wait are in it. Counters that are full stay, since nobody knows what is in them.
#include <algorithm>
#include <array>
#include <bit>

#include "engine/shard.h"
#include "kernels/kernels.h"

namespace kintsugi {

/** The seed of draws is another one than that of initial values. */
static constexpr std::uint64_t kChanceSeed = 0x94D049BB133111EBull;
/** A key is drawn so often for its sightings in a push, and once for all others together. */
static constexpr std::uint32_t kMostDraws = 64;
/** More counters of a key do not help. */
static constexpr std::uint32_t kMostHashes = 32;
/** Bytes of slots that begin again in one push, about: a delta has to fit a frame. */
static constexpr std::size_t kMostClearedBytes = std::size_t{4} << 20;

namespace {

/** The counters of a key in its slot, each once. */
struct Counters {
  std::array<std::uint32_t, kMostHashes> at;
  std::uint32_t count = 0;

  Counters(const TableSpec& spec, std::uint64_t key) {
    std::uint64_t hash = filterHash(key);
    for (std::uint32_t i = 0; i < std::min(spec.policy.filter.hashes, kMostHashes); i++) {
      hash = mix64(hash + 0x9E3779B97F4A7C15ull);
      const std::uint32_t next = below(hash, spec.stride());
      if (std::find(at.begin(), at.begin() + count, next) == at.begin() + count) at[count++] = next;
    }
  }
};

std::uint32_t slotOf(const Table& t, std::uint64_t key) {
  const Filter& filter = t.spec().policy.filter;
  return t.reserved() +
         static_cast<std::uint32_t>((lineSlot(key, filter.line) - filter.first) % filter.slots);
}

/** A lap of all slots takes half of the capacity, after a first half that fills them. */
std::uint64_t lapOf(const Filter& filter) { return std::max(1u, filter.capacity / 2); }

/** Slots of the filter that began again in the first `sightings` of waiting keys. */
std::uint64_t turnsAfter(const Filter& filter, std::uint64_t sightings) {
  const std::uint64_t lap = lapOf(filter);
  return sightings < lap ? 0 : (sightings - lap) * filter.slots / lap;
}

/** The most sightings after which no more than so many slots began again. */
std::uint64_t sightingsUntil(const Filter& filter, std::uint64_t turns) {
  const std::uint64_t lap = lapOf(filter);
  return lap + ((turns + 1) * lap - 1) / filter.slots;
}

/** The same turn of a later lap, so that the number stays small. */
std::uint32_t wrapped(const Filter& filter, std::uint64_t sightings) {
  const std::uint64_t lap = lapOf(filter);
  return static_cast<std::uint32_t>(sightings < 2 * lap ? sightings : lap + sightings % lap);
}

/** part^exponent; parts of 2^64, rounded down. */
std::uint64_t power(std::uint64_t part, std::uint32_t exponent) {
  const auto times = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
  };
  std::uint64_t result = ~std::uint64_t{0};
  for (; exponent; exponent >>= 1, part = times(part, part))
    if (exponent & 1) result = times(result, part);
  return result;
}

bool isDrawn(const TableSpec& spec, std::uint64_t key, std::uint32_t step, std::uint32_t sightings) {
  const std::uint64_t stream = drawStream(spec.seed ^ kChanceSeed, key), chance = spec.policy.chance;
  const auto drawn = [&](std::uint32_t i) { return draw(stream, std::uint64_t{step} << 32 | i); };
  for (std::uint32_t i = 0; i < std::min(sightings, kMostDraws); i++)
    if (drawn(i) >> 32 < chance) return true;
  if (sightings <= kMostDraws) return false;
  // A chance of 2^32 parts was drawn above.
  return drawn(kMostDraws) >= power(((std::uint64_t{1} << 32) - chance) << 32, sightings - kMostDraws);
}

}  // namespace

// Which keys get a row depends on what the shard had before the push. False: it needs absent blocks first.
bool Shard::planAdmission(RequestTable& r, Plan& plan) {
  const Table& t = *plan.table;
  const TableSpec& spec = t.spec();
  const std::size_t needed = needed_.size();
  needRows(plan);
  if (needed_.size() > needed) return false;
  const std::uint32_t now = t.now();
  // A policy that begins with this push holds for what it admits.
  const Rule rule = t.nextRule();
  const bool isNew = !t.rule().isOf(spec.policy);
  ranks_.assign(plan.tags.size(), kNone);
  for (std::size_t i = 0; i < plan.tags.size(); i++) {
    const std::uint32_t slot = plan.slots[i];
    if (slot != kNone && !((isNew || t.mayBeGone(slot, now)) && t.isGone(slot, now, rule))) continue;
    if (plan.unknown.empty()) distinct_.reset(plan.tags.size() - i);
    bool added;
    ranks_[i] = distinct_.add(plan.tags[i], added);
    if (added) plan.unknown.push_back({plan.tags[i], 0, 0, 0, false});
    Unknown& key = plan.unknown[ranks_[i]];
    key.seen = addSightings(key.seen, r.sightings(i));
  }
  if (plan.unknown.empty()) return true;
  if (spec.policy.filter.admitAt) {
    needFilter(plan);
    if (needed_.size() > needed) return false;
  } else {
    for (Unknown& key : plan.unknown) key.admitted = isDrawn(spec, key.tag - 1, t.pushNumber(), key.seen);
  }
  for (const Unknown& key : plan.unknown) plan.refused += !key.admitted;
  if (plan.refused) dropRefused(r, plan, ranks_);
  if (!spec.policy.filter.admitAt) plan.unknown.clear();
  return true;
}

// Counters of unknown keys, and slots of the filter that begin again with this push.
void Shard::needFilter(Plan& plan) {
  const Table& t = *plan.table;
  const TableSpec& spec = t.spec();
  const Filter& filter = spec.policy.filter;
  const std::size_t needed = needed_.size();
  const auto need = [&](std::uint32_t slot) {
    const std::uint32_t index = t.shape(kRows).blockOfSlot(slot);
    if (t.absent(kRows).has(index)) needed_.push_back(BlockRef{spec.id * 2 + kRows, index}.id());
  };
  for (Unknown& key : plan.unknown) need(key.cellsAt = slotOf(t, key.tag - 1));
  if (needed_.size() > needed) return;
  std::uint64_t waiting = t.extent() ? t.lifeOf(0).sightings : 0;
  const std::uint64_t turn = turnsAfter(filter, waiting);
  for (Unknown& key : plan.unknown) {
    const Counters counters(spec, key.tag - 1);
    key.before = t.extent() ? kMostCounter : 0;
    for (std::uint32_t i = 0; i < counters.count && t.extent(); i++)
      key.before = std::min<std::uint32_t>(key.before, t.row(key.cellsAt)[counters.at[i]]);
    key.admitted = std::uint64_t{key.before} + key.seen >= filter.admitAt;
    if (!key.admitted) waiting += key.seen;
  }
  // Sightings whose slots would be too many are counted, but the filter forgets nothing for them.
  const std::uint64_t most =
      std::max<std::uint64_t>(filter.slots / lapOf(filter) + 1, kMostClearedBytes / spec.stride());
  if (turnsAfter(filter, waiting) - turn > most) waiting = sightingsUntil(filter, turn + most);
  plan.waiting = wrapped(filter, waiting);
  plan.cleared =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(turnsAfter(filter, waiting) - turn, filter.slots));
  for (std::uint32_t i = 0; i < plan.cleared; i++)
    need(static_cast<std::uint32_t>(t.reserved() + (turn + i) % filter.slots));
}

// Their rows of the request move away, so that the others are a request like any other.
void Shard::dropRefused(RequestTable& r, Plan& plan, const std::vector<std::uint32_t>& ranks) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < plan.tags.size(); i++) {
    if (ranks[i] != kNone && !plan.unknown[ranks[i]].admitted) continue;
    plan.keep(r, i, kept++);
  }
  plan.keepOnly(r, kept);
}

/** Changes a counter, with its part of the delta. */
static void setCounter(std::uint8_t* counters, std::uint8_t* delta, std::uint32_t at, std::uint32_t value) {
  delta[at] = static_cast<std::uint8_t>(delta[at] ^ counters[at] ^ value);
  counters[at] = static_cast<std::uint8_t>(value);
}

// Rows of keys that are admitted are there by now. One that no memory was left for still waits.
void Shard::fillFilter(const Plan& plan) {
  Table& t = *plan.table;
  const TableSpec& spec = t.spec();
  const Filter& filter = spec.policy.filter;
  keepFilter(plan);
  clearFilter(plan);
  for (const Unknown& key : plan.unknown) {
    const std::uint32_t slot = key.admitted ? t.index().find(key.tag) : kNone;
    if (key.admitted && slot == kNone) continue;
    if (slot != kNone && key.before) t.changeLife(slot, {t.nextStep(), key.before}, t.batch().touch(slot));
    const std::uint32_t place = t.batch().touchFromZero(key.cellsAt);
    std::uint8_t *cells = t.row(key.cellsAt), *delta = t.batch().delta(place);
    // Less than what it needs for a row, unless others are counted with it.
    const std::uint32_t own = std::min(key.before, filter.admitAt - 1);
    const Counters counters(spec, key.tag - 1);
    for (std::uint32_t i = 0; i < counters.count; i++) {
      const std::uint32_t at = counters.at[i], before = cells[at];
      if (before == kMostCounter) continue;
      const std::uint64_t after =
          key.admitted ? before - std::min(before, own)
                       : std::min<std::uint64_t>(before + std::uint64_t{key.seen}, kMostCounter);
      setCounter(cells, delta, at, static_cast<std::uint32_t>(after));
    }
  }
  t.changeLife(0, {t.lifeOf(0).last, plan.waiting}, t.batch().touchFromZero(0));
}

// A snapshot has the counters as they were.
void Shard::keepFilter(const Plan& plan) {
  if (!snapshot_) return;
  const Table& t = *plan.table;
  const Filter& filter = t.spec().policy.filter;
  const std::uint64_t turn = turnsAfter(filter, t.lifeOf(0).sightings);
  swept_.clear();
  for (const Unknown& key : plan.unknown) swept_.push_back(key.cellsAt);
  for (std::uint32_t i = 0; i < plan.cleared; i++)
    swept_.push_back(static_cast<std::uint32_t>(t.reserved() + (turn + i) % filter.slots));
  snapshot_->keep(t, swept_);
}

void Shard::clearFilter(const Plan& plan) {
  Table& t = *plan.table;
  const Filter& filter = t.spec().policy.filter;
  const std::uint64_t turn = turnsAfter(filter, t.lifeOf(0).sightings);
  const std::size_t stride = t.spec().stride();
  for (std::uint32_t i = 0; i < plan.cleared; i++) {
    const auto slot = static_cast<std::uint32_t>(t.reserved() + (turn + i) % filter.slots);
    const std::uint32_t place = t.batch().touchFromZero(slot);
    std::uint8_t *cells = t.row(slot), *delta = t.batch().delta(place);
    for (std::uint32_t at = 0; at < stride; at++) setCounter(cells, delta, at, 0);
  }
}

std::vector<FilterState> Shard::filters() const {
  std::vector<FilterState> all;
  for (const auto& [id, t] : tables_) {
    const Filter& filter = t->spec().policy.filter;
    if (filter.admitAt) all.push_back({id, filter, t->extent() ? t->lifeOf(0).sightings : 0});
  }
  return all;
}

Fault Shard::loadFilter(const LoadedFilter& f, Status& status) {
  if (dirty()) return badArgument("a filter is loaded after a flush");
  if (snapshot_) return badArgument("a snapshot of this shard is open");
  Table* t = find(f.table);
  status = t && t->spec().policy.filter.admitAt ? Status::Applied : Status::UnknownTable;
  if (status != Status::Applied) return {};
  if (t->absent(kRows).count()) return badArgument("blocks of this table are absent");
  const Filter& filter = t->spec().policy.filter;
  const std::size_t stride = t->spec().stride();
  if (f.byteCount != f.slotCount * stride) {
    status = Status::DimMismatch;
    return {};
  }
  const std::size_t cost = t->costOf(0);
  if ((cost && !memory_->allows(cost)) || !t->makeRoom(0)) {
    status = Status::MemoryLimit;
    return {};
  }
  const Change change(*this, *t);
  t->grow(0);
  t->open();
  t->writeFirstRule();
  for (std::size_t i = 0; i < f.slotCount; i++) {
    const std::uint64_t slot = f.slots[i] - filter.first;
    if (slot >= filter.slots) continue;
    std::uint8_t* cells = t->row(t->reserved() + static_cast<std::uint32_t>(slot));
    const std::uint8_t* more = f.counters + i * stride;
    for (std::size_t at = 0; at < stride; at++)
      cells[at] = static_cast<std::uint8_t>(std::min<std::uint32_t>(cells[at] + more[at], kMostCounter));
  }
  t->setLife(0, {t->lifeOf(0).last, wrapped(filter, f.waiting)});
  return {};
}

}  // namespace kintsugi
