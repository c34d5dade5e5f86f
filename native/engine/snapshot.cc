#include "engine/snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "engine/table.h"
#include "kernels/kernels.h"

namespace kintsugi {

/** About; a longer row has a page of its own. */
static constexpr std::size_t kPageBytes = std::size_t{256} << 10;
/** Rows are copied in two passes, values and state, so few at a time that the second finds them in the
 * caches. */
static constexpr std::size_t kTileBytes = std::size_t{128} << 10;

static constexpr std::uint32_t kMostStamp = 255;

bool Stamps::settle(std::uint32_t count, std::uint32_t newest) {
  if (newest - base_ > kMostStamp) {
    base_ = newest;
    std::fill_n(stamps_.get(), covered_, std::uint8_t{0});
    std::fill_n(changed_.get(), room_ / 64, std::uint64_t{0});
  }
  const auto stamp = static_cast<std::uint8_t>(newest - base_);
  for (std::uint32_t word = 0; word < room_ / 64; word++) {
    for (std::uint64_t bits = std::exchange(changed_[word], 0); bits; bits &= bits - 1)
      stamps_[word * 64 + static_cast<unsigned>(std::countr_zero(bits))] = stamp;
  }
  if (count > room_) {
    const auto room = static_cast<std::uint32_t>(alignUp(count + count / 8, 64));
    std::unique_ptr<std::uint8_t[]> stamps(new (std::nothrow) std::uint8_t[room]);
    std::unique_ptr<std::uint64_t[]> changed(new (std::nothrow) std::uint64_t[room / 64]());
    if (!stamps || !changed) return false;
    std::copy_n(stamps_.get(), covered_, stamps.get());
    stamps_ = std::move(stamps);
    changed_ = std::move(changed);
    room_ = room;
    charge_.set(room + room / 8);
  }
  if (count > covered_) std::fill(stamps_.get() + covered_, stamps_.get() + count, stamp);
  covered_ = std::max(covered_, count);
  return true;
}

void Stamps::removeOlder(std::uint32_t since, BlockSet& slots) const {
  if (since <= base_) return;
  for (std::uint32_t slot = 0; slot < covered_; slot++) {
    if (stamps_[slot] < since - base_) slots.remove(slot);
  }
}

void Stamps::mark(const std::vector<std::uint32_t>& slots) {
  for (const std::uint32_t slot : slots) {
    if (slot < covered_) changed_[slot / 64] |= std::uint64_t{1} << (slot % 64);
  }
}

std::uint32_t Removals::add(const std::vector<std::uint64_t>& tags, std::uint32_t newest, std::size_t most) {
  std::uint32_t forgotten = 0;
  if (tags.size() > most) {
    all_.clear();
    forgotten = newest;
  } else {
    for (const std::uint64_t tag : tags) all_.push_back({tag, newest});
    if (all_.size() > most) {
      forgotten = all_[all_.size() - most - 1].stamp;
      const auto end =
          std::find_if(all_.begin(), all_.end(), [&](const Removal& r) { return r.stamp > forgotten; });
      all_.erase(all_.begin(), end);
    }
  }
  charge_.set(all_.capacity() * sizeof(Removal));
  return forgotten;
}

void Removals::list(std::uint32_t since, std::vector<std::uint64_t>& tags) const {
  for (auto at = all_.rbegin(); at != all_.rend() && at->stamp >= since; ++at) tags.push_back(at->tag);
}

std::size_t Snapshot::Part::valueBytes() const {
  return areCounters ? table->spec().stride() : std::size_t{table->spec().dim} * 4;
}

std::size_t Snapshot::Part::stateBytes() const {
  return areCounters ? 0 : (table->spec().width() - table->spec().dim) * std::size_t{4};
}

RowArrays Snapshot::Part::advanced(RowArrays to, std::size_t rows) const {
  to.keys += rows;
  to.values += rows * valueBytes();
  if (to.state) to.state += rows * stateBytes();
  return to;
}

RowArrays Snapshot::Part::arraysOf(std::uint8_t* memory, std::size_t room, std::size_t row) const {
  std::uint8_t* values = memory + room * sizeof(std::uint64_t);
  return advanced({reinterpret_cast<std::uint64_t*>(memory), values, values + room * valueBytes()}, row);
}

// Rows of a table with a policy have their ages by its clock.
void Snapshot::Part::copy(const std::uint32_t* slots, std::size_t count, RowArrays to) const {
  const TableSpec& spec = table->spec();
  const std::size_t stride = spec.stride(), values = valueBytes(), state = stateBytes();
  const std::uint64_t first = spec.policy.filter.first;
  const std::size_t tile = std::max<std::size_t>(64, kTileBytes / stride);
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t n = std::min(tile, count - at);
    for (std::size_t i = 0; i < n; i++) {
      const std::uint32_t slot = slots[at + i];
      to.keys[at + i] = areCounters ? first + slot - table->reserved() : table->tags()[slot] - 1;
    }
    kernels().gatherRows(to.values + at * values, table->row(0), stride, values, slots + at, n);
    if (state)
      kernels().gatherRows(to.state + at * state, table->row(0) + values, stride, state, slots + at, n);
    for (std::size_t i = 0; !areCounters && table->hasPolicy() && i < n; i++)
      storeAt(to.state + (at + i + 1) * state - kLifeWords * 4, 0, table->ageOf(slots[at + i], clock));
  }
}

void Snapshot::add(const Table& table, std::uint32_t since, const Serving& serving) {
  Part part;
  part.table = &table;
  part.left.fill(table.extent());
  if (since) table.stamps().removeOlder(since, part.left);
  for (const std::uint32_t slot : table.freeSlots()) part.left.remove(slot);
  table.removeUnserved(part.left, serving);
  if (table.hasPolicy()) part.clock = table.clock();
  if (since) part.removed = table.removedSince(since, serving);
  rows_ += part.left.count();
  push(std::move(part));
  if (!since && !serving.valuesOnly) addFilter(table);
}

// Slots without a sighting are left out.
void Snapshot::addFilter(const Table& table) {
  if (!table.spec().policy.filter.admitAt || !table.extent()) return;
  Part part;
  part.table = &table;
  part.areCounters = true;
  part.left.fill(table.firstSlot());
  part.left.removeRange(0, table.reserved());
  const std::size_t stride = table.spec().stride();
  for (std::uint32_t slot = table.reserved(); slot < table.firstSlot(); slot++) {
    const std::uint8_t* cells = table.row(slot);
    if (std::all_of(cells, cells + stride, [](std::uint8_t count) { return !count; })) part.left.remove(slot);
  }
  push(std::move(part));
}

void Snapshot::push(Part part) {
  if (!part.left.count() && part.removed.empty()) return;
  const std::size_t removed = part.removed.size() * sizeof(std::uint64_t);
  bytes_ += part.left.count() * part.rowBytes() + removed;
  sets_.set(sets_.bytes() + part.left.bytes() + removed);
  parts_.push_back(std::move(part));
}

Snapshot::Part* Snapshot::find(const Table& table, bool areCounters) {
  const std::pair wanted{table.spec().id, areCounters};
  const auto found =
      std::lower_bound(parts_.begin(), parts_.end(), wanted, [](const Part& p, const auto& key) {
        return std::pair{p.table->spec().id, p.areCounters} < key;
      });
  const bool isIt = found != parts_.end() && found->table == &table && found->areCounters == areCounters;
  return isIt ? &*found : nullptr;
}

void Snapshot::drop(const Table& table) {
  for (const bool areCounters : {false, true}) {
    if (Part* const part = find(table, areCounters)) drop(*part);
  }
}

void Snapshot::drop(Part& part) {
  for (const Page& page : part.pages) charge_.set(charge_.bytes() - page.room * part.rowBytes());
  sets_.set(sets_.bytes() - part.left.bytes() - part.removed.size() * sizeof(std::uint64_t));
  const auto place = static_cast<std::size_t>(
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return &p == &part; }) -
      parts_.begin());
  parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(place));
  if (place < left_) left_--;
  if (place < kept_) kept_--;
  if (place < removed_) removed_--;
}

void Snapshot::keep(const Table& table, const std::vector<std::uint32_t>& slots) {
  for (const bool areCounters : {false, true}) {
    Part* const part = find(table, areCounters);
    if (part && part->left.count()) keep(*part, slots);
    if (broken_) return;
  }
}

void Snapshot::keep(Part& part, const std::vector<std::uint32_t>& slots) {
  slots_.clear();
  for (const std::uint32_t slot : slots) {
    if (part.left.remove(slot)) slots_.push_back(slot);
  }
  for (std::size_t at = 0; at < slots_.size();) {
    Page* page = pageFor(part, slots_.size() - at);
    if (!page) return giveUp();
    const std::size_t n = std::min<std::size_t>(page->room - page->count, slots_.size() - at);
    part.copy(slots_.data() + at, n, part.arraysOf(page->memory.get(), page->room, page->count));
    page->count += static_cast<std::uint32_t>(n);
    part.kept += n;
    at += n;
  }
}

/** A page with room for at least one of `rows` rows. A page is not larger than the rows that may still be
 * kept. */
Snapshot::Page* Snapshot::pageFor(Part& part, std::size_t rows) {
  if (!part.pages.empty() && part.pages.back().count < part.pages.back().room) return &part.pages.back();
  const std::size_t bytes = part.rowBytes();
  const std::size_t room =
      std::min<std::uint64_t>(std::max<std::size_t>(1, kPageBytes / bytes), rows + part.left.count());
  Page page{static_cast<std::uint32_t>(room), 0, 0,
            std::unique_ptr<std::uint8_t[]>(new (std::nothrow) std::uint8_t[room * bytes])};
  if (!page.memory) return nullptr;
  charge_.set(charge_.bytes() + room * bytes);
  part.pages.push_back(std::move(page));
  return &part.pages.back();
}

void Snapshot::giveUp() {
  broken_ = true;
  parts_.clear();
  charge_.set(0);
  sets_.set(0);
}

// The table to read from next; nullptr when no rows are left. If the kept rows take more than one piece, it
// is the table with most of them, so that memory is freed. Otherwise it is the first table with unread rows,
// and after these the first one with kept rows. Unread rows of a table never become more, and once no table
// has any, no further rows are kept. So `left_` and `kept_` only move forward.
Snapshot::Part* Snapshot::choose(std::size_t maxBytes) {
  const auto bytesIn = [](const Part& p) { return p.kept * p.rowBytes(); };
  if (charge_.bytes() > maxBytes) {
    return &*std::max_element(parts_.begin(), parts_.end(),
                              [&](const Part& a, const Part& b) { return bytesIn(a) < bytesIn(b); });
  }
  while (left_ < parts_.size() && !parts_[left_].left.count()) left_++;
  if (left_ < parts_.size()) return &parts_[left_];
  while (kept_ < parts_.size() && !parts_[kept_].kept) kept_++;
  return kept_ < parts_.size() ? &parts_[kept_] : nullptr;
}

// False if there are no removed keys left. The last ones of a part come first.
bool Snapshot::readRemoved(std::size_t maxBytes, const AllocateRows& allocate) {
  while (removed_ < parts_.size() && parts_[removed_].removed.empty()) removed_++;
  if (removed_ == parts_.size()) return false;
  Part& part = parts_[removed_];
  const std::size_t most = std::max<std::size_t>(1, maxBytes / sizeof(std::uint64_t));
  const std::size_t count = std::min(part.removed.size(), most), rest = part.removed.size() - count;
  RowArrays to;
  to.removedCount = count;
  if (!allocate(*part.table, 0, to)) return true;
  if (to.removed) std::copy_n(part.removed.data() + rest, count, to.removed);
  part.removed.resize(rest);
  sets_.set(sets_.bytes() - count * sizeof(std::uint64_t));
  return true;
}

bool Snapshot::read(std::size_t maxBytes, const AllocateRows& allocate) {
  if (readRemoved(maxBytes, allocate)) return true;
  Part* part = choose(maxBytes);
  if (!part) return false;
  const std::size_t max = std::max<std::size_t>(1, maxBytes / part->rowBytes());
  const std::size_t kept = std::min(part->kept, max);
  slots_.clear();
  part->left.list(part->from, max - kept, slots_);
  RowArrays to;
  to.areCounters = part->areCounters;
  if (!allocate(*part->table, kept + slots_.size(), to)) return true;
  takeKept(*part, kept, to);
  if (slots_.empty()) return true;
  part->copy(slots_.data(), slots_.size(), part->advanced(to, kept));
  part->from = slots_.back() + 1;
  part->left.removeRange(slots_.front(), part->from);
  return true;
}

void Snapshot::takeKept(Part& part, std::size_t rows, RowArrays to) {
  const std::size_t state = part.stateBytes();
  part.kept -= rows;
  while (rows) {
    Page& page = part.pages.front();
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(rows, page.count - page.taken));
    const RowArrays from = part.arraysOf(page.memory.get(), page.room, page.taken);
    std::copy_n(from.keys, n, to.keys);
    std::memcpy(to.values, from.values, n * part.valueBytes());
    if (state) std::memcpy(to.state, from.state, n * state);
    to = part.advanced(to, n);
    rows -= n;
    page.taken += n;
    if (page.taken < page.count) return;
    charge_.set(charge_.bytes() - page.room * part.rowBytes());
    part.pages.pop_front();
  }
}

}  // namespace kintsugi
