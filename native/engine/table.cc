#include "engine/table.h"

#include <algorithm>

namespace kintsugi {

/** Removed keys that are known take at most so many, or so much of the rows: what is more costs the next
 * increment of a file all rows. */
static constexpr std::size_t kLeastRemoved = 1024, kRowsPerRemoved = 4;
/** Distance of prefetch, in keys. */
static constexpr std::size_t kAhead = 16;
/** Each batch takes this part off what the largest one of late wanted. */
static constexpr std::size_t kForgotten = 64;

Table::Table(Memory& memory, const TableSpec& spec)
    : spec_(spec),
      shapes_{keysShape(), shapeOf(spec.stride())},
      columns_{Column(memory), Column(memory)},
      index_(memory),
      batch_(spec.stride()),
      stamps_(memory),
      removals_(memory),
      lifeAt_(spec.policy.any() ? (spec.width() - kLifeWords) * 4 : 0),
      rule_(spec.policy),
      runBytes_(memory) {
  if (!spec.policy.any()) return;
  ruleSlot_ = lifeAt_ < sizeof(Rule);
  reserved_ = reservedSlots(spec);
  first_ = reserved_ + spec.policy.filter.slots;
  least_ = spec.policy.filters() ? first_ : 0;
}

std::uint64_t Table::slotForNew(std::uint32_t n) const {
  if (n < free_.size()) return free_[free_.size() - 1 - n];
  return std::uint64_t{unused()} + (n - free_.size());
}

std::uint32_t Table::extentAfter(std::uint32_t newKeys) const {
  return newKeys <= free_.size() ? std::max(extent_, least_)
                                 : unused() + (newKeys - static_cast<std::uint32_t>(free_.size()));
}

std::size_t Table::costOf(std::uint32_t newKeys) const {
  const std::uint32_t extent = extentAfter(newKeys);
  std::size_t cost = newKeys ? index_.growth(index_.size() + newKeys) : 0;
  for (const ColumnKind kind : {kKeys, kRows}) {
    const std::size_t bytes = shapes_[kind].bytes(extent);
    if (bytes > columns_[kind].bytes()) cost += bytes - columns_[kind].bytes();
  }
  return cost + runBytes(extent) - runBytes_.bytes();
}

bool Table::makeRoom(std::uint32_t newKeys) {
  if (!newKeys && extent_ >= least_) return true;
  if (newKeys > free_.size() && unused() + std::uint64_t{newKeys - free_.size()} > maxSlots(spec_.stride()))
    return false;
  return makeRoomFor(extentAfter(newKeys), index_.size() + newKeys);
}

bool Table::makeRoomFor(std::uint32_t extent, std::size_t keys) {
  return columns_[kKeys].makeRoom(shapes_[kKeys].bytes(extent)) &&
         columns_[kRows].makeRoom(shapes_[kRows].bytes(extent)) && index_.makeRoom(keys);
}

void Table::grow(std::uint32_t newKeys) {
  const std::uint32_t extent = extentAfter(newKeys);
  for (const ColumnKind kind : {kKeys, kRows}) columns_[kind].grow(shapes_[kind].bytes(extent));
  runBytes_.set(runBytes(extent));
  if (newKeys) index_.reserve(index_.size() + newKeys);
}

std::uint32_t Table::addKey(std::uint64_t tag) {
  const auto slot = static_cast<std::uint32_t>(slotForNew(0));
  if (free_.empty()) {
    extent_ = slot + 1;
  } else {
    free_.pop_back();
  }
  std::uint8_t* keys = columns_[kKeys].data();
  batch_.addKey(slot, loadAt<std::uint64_t>(keys, slot) ^ tag);
  storeAt(keys, slot, tag);
  index_.insert(tag, slot);
  if (first_) noteBegun(slot);
  return slot;
}

void Table::removeKeys(const std::vector<std::uint32_t>& slots) {
  std::vector<std::uint64_t> gone(slots.size());
  for (std::size_t i = 0; i < slots.size(); i++) {
    gone[i] = tags()[slots[i]];
    index_.remove(gone[i], slots[i]);
    storeAt<std::uint64_t>(columns_[kKeys].data(), slots[i], 0);
  }
  batch_.changeKeys(slots, gone);
  freed_.insert(freed_.end(), slots.begin(), slots.end());
}

std::uint32_t Table::noteRemoved(const std::vector<std::uint32_t>& slots, std::uint32_t newest) {
  std::vector<std::uint64_t> gone;
  for (const std::uint32_t slot : slots) {
    // Readers never had a row that was not admitted.
    if (!first_ || lifeOf(slot).sightings >= rule_.admitAt()) gone.push_back(tags()[slot]);
  }
  return removals_.add(gone, newest, std::max<std::size_t>(kLeastRemoved, extent_ / kRowsPerRemoved));
}

std::vector<std::uint64_t> Table::removedSince(std::uint32_t since, const Serving& serving) const {
  std::vector<std::uint64_t> gone;
  removals_.list(since, gone);
  std::vector<std::uint32_t> slots(gone.size());
  index_.findMany(gone.data(), gone.size(), slots.data());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < gone.size(); i++) {
    const bool isThere = slots[i] != kNone && (!first_ || isServed(slots[i], clock(), serving));
    if (!isThere) gone[kept++] = gone[i];
  }
  gone.resize(kept);
  listUnserved(since, serving, gone);
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  for (std::uint64_t& tag : gone) tag--;
  return gone;
}

void Table::closeBatch() {
  batch_.clear();
  mostWanted_ = std::max(wanted_, mostWanted_ - (mostWanted_ + kForgotten - 1) / kForgotten);
  wanted_ = 0;
  free_.insert(free_.end(), freed_.begin(), freed_.end());
  freed_.clear();
}

void Table::unload(const std::vector<std::uint32_t>& slots) {
  for (const std::uint32_t slot : slots) {
    index_.remove(tags()[slot], slot);
    storeAt<std::uint64_t>(columns_[kKeys].data(), slot, 0);
    std::memset(row(slot), 0, spec_.stride());
  }
  free_.insert(free_.end(), slots.begin(), slots.end());
}

void Table::enter(const std::vector<std::uint64_t>& tags, std::vector<std::uint32_t>& slots,
                  std::uint32_t newKeys) {
  if (!newKeys) return;
  index_.reserve(index_.size() + newKeys);
  for (std::size_t i = 0; i < tags.size(); i++) {
    if (i + kAhead < tags.size()) index_.prefetch(tags[i + kAhead]);
    if (slots[i] != kNone) continue;
    const auto next = static_cast<std::uint32_t>(slotForNew(0));
    slots[i] = index_.enter(tags[i], next);
    if (slots[i] != next) continue;
    if (free_.empty()) {
      extent_ = next + 1;
    } else {
      free_.pop_back();
    }
    storeAt(columns_[kKeys].data(), next, tags[i]);
  }
  grow(0);
}

// Where blocks of rows are absent nobody can say which rows are gone: these are listed.
bool Table::isListed(std::uint32_t slot) const {
  if (!first_ || absent_[kRows].has(0) || absent_[kRows].has(shapes_[kRows].blockOfSlot(slot))) return true;
  return !isGone(slot, clock());
}

std::vector<std::uint64_t> Table::keysBySlot(std::uint32_t& slot, std::size_t max) const {
  std::vector<std::uint64_t> keys;
  for (; slot < extent_ && keys.size() < max; slot++) {
    if (tags()[slot] && isListed(slot)) keys.push_back(tags()[slot] - 1);
  }
  return keys;
}

std::vector<std::uint64_t> Table::keysInOrder(std::uint64_t least, std::size_t max, bool& more) const {
  std::vector<std::uint64_t> keys;
  std::uint64_t beyond = ~std::uint64_t{0};  // no key: it is reserved
  more = false;
  const auto shrink = [&] {
    if (keys.size() <= max) return;
    const auto end = keys.begin() + static_cast<std::ptrdiff_t>(max);
    std::nth_element(keys.begin(), end, keys.end());
    beyond = *end;
    keys.resize(max);
    more = true;
  };
  for (std::uint32_t slot = 0; slot < extent_; slot++) {
    const std::uint64_t tag = tags()[slot];
    if (tag <= least || tag > beyond || !isListed(slot)) continue;
    keys.push_back(tag - 1);
    if (keys.size() >= 2 * max) shrink();
  }
  shrink();
  std::sort(keys.begin(), keys.end());
  return keys;
}

Fault Table::adopt(std::uint32_t extent) {
  if (extent_ || !batch_.empty()) return badArgument("only an empty table can adopt a history");
  if (extent > maxSlots(spec_.stride())) return badArgument("extent is beyond the largest table");
  // Room for the index, too: it is needed when the last block of keys comes, which cannot be refused.
  if (!makeRoomFor(extent, extent - std::min(extent, first_)))
    return {"MEMORY_LIMIT", "the system refuses memory for the table"};
  if (!extent) return {};
  // Charged without asking: a lost shard has to live somewhere, and refusing it here would lose data.
  for (const ColumnKind kind : {kKeys, kRows}) {
    columns_[kind].grow(shapes_[kind].bytes(extent));
    absent_[kind].fill(shapes_[kind].blocks(extent));
  }
  runBytes_.set(runBytes(extent));
  extent_ = extent;
  ready_ = false;
  return {};
}

void Table::read(ColumnKind kind, std::uint32_t index, std::uint8_t* out) const {
  const ColumnShape& shape = shapes_[kind];
  if (index >= shape.blocks(extent_)) {
    std::memset(out, 0, shape.blockBytes);
  } else {
    std::memcpy(out, columns_[kind].data() + std::size_t{index} * shape.blockBytes, shape.blockBytes);
  }
}

bool Table::install(ColumnKind kind, std::uint32_t index, const std::uint8_t* bytes) {
  if (!absent_[kind].remove(index)) return false;
  std::memcpy(columns_[kind].data() + std::size_t{index} * shapes_[kind].blockBytes, bytes,
              shapes_[kind].blockBytes);
  if (kind == kKeys && !absent_[kKeys].count()) rebuild();
  if (kind == kRows && !index) readRule();
  return true;
}

void Table::rebuild() {
  index_.build(tags(), extent_);
  free_.clear();
  for (std::uint32_t slot = extent_; slot-- > first_;) {
    if (!tags()[slot]) free_.push_back(slot);
  }
  ready_ = true;
}

}  // namespace kintsugi
