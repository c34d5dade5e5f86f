#include "engine/snapshot.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "engine/table.h"
#include "kernels/kernels.h"

namespace kintsugi {

/** About; a longer row has a page of its own. */
static constexpr std::size_t kPageBytes = std::size_t{256} << 10;
/** Rows are copied in two passes, values and state, so few at a time that the second finds them in the
 * caches. */
static constexpr std::size_t kTileBytes = std::size_t{128} << 10;

bool Stamps::cover(std::uint32_t count, std::uint32_t stamp) {
  if (count > room_) {
    const std::uint32_t room = count + count / 2;
    std::unique_ptr<std::uint32_t[]> larger(new (std::nothrow) std::uint32_t[room]);
    if (!larger) return false;
    std::copy_n(stamps_.get(), covered_, larger.get());
    stamps_ = std::move(larger);
    room_ = room;
    charge_.set(std::size_t{room} * sizeof(std::uint32_t));
  }
  for (; covered_ < count; covered_++) stamps_[covered_] = stamp;
  return true;
}

static std::size_t rowBytes(const TableSpec& spec) {
  return sizeof(std::uint64_t) + spec.width() * std::size_t{4};
}

static RowArrays advanced(const TableSpec& spec, RowArrays to, std::size_t rows) {
  to.keys += rows;
  to.values += rows * spec.dim * 4;
  if (to.state) to.state += rows * (spec.width() - spec.dim) * 4;
  return to;
}

static void copyRows(const Table& table, const std::uint32_t* slots, std::size_t count, RowArrays to) {
  const TableSpec& spec = table.spec();
  const std::size_t stride = spec.stride(), values = std::size_t{spec.dim} * 4,
                    state = spec.width() * std::size_t{4} - values;
  const std::size_t tile = std::max<std::size_t>(64, kTileBytes / stride);
  for (std::size_t at = 0; at < count; at += tile) {
    const std::size_t n = std::min(tile, count - at);
    for (std::size_t i = 0; i < n; i++) to.keys[at + i] = table.tags()[slots[at + i]] - 1;
    kernels().gatherRows(to.values + at * values, table.row(0), stride, values, slots + at, n);
    if (state)
      kernels().gatherRows(to.state + at * state, table.row(0) + values, stride, state, slots + at, n);
  }
}

void Snapshot::add(const Table& table, std::uint32_t since) {
  const std::uint32_t extent = table.extent();
  if (!extent) return;
  const ColumnShape& shape = table.shape(kRows);
  Part part{&table, extent, {}};
  const std::uint32_t blocks = shape.blocks(extent);
  part.unread.fill(blocks);
  std::uint64_t slots = extent;
  for (std::uint32_t b = 0; b < blocks; b++) {
    if (since == 0 || table.stamps()[b] >= since) continue;
    part.unread.remove(b);
    slots -= std::min(shape.slotsPerBlock, extent - b * shape.slotsPerBlock);
  }
  if (!part.unread.count()) return;
  for (const std::uint32_t slot : table.freeSlots()) slots -= part.unread.has(shape.blockOfSlot(slot));
  rows_ += slots;
  bytes_ += slots * rowBytes(table.spec());
  parts_.push_back(std::move(part));
}

/** Appends the slots of a block that had a key when the snapshot began, and still have it. */
void Snapshot::collect(const Part& part, std::uint32_t block) {
  const std::uint32_t perBlock = part.table->shape(kRows).slotsPerBlock, first = block * perBlock;
  const std::uint64_t* tags = part.table->tags();
  const std::uint32_t end = first + std::min(perBlock, part.extent - first);
  for (std::uint32_t slot = first; slot < end; slot++) {
    if (tags[slot]) slots_.push_back(slot);
  }
}

void Snapshot::keep(const Table& table, const std::vector<std::uint32_t>& slots) {
  const auto found =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.table == &table; });
  if (found == parts_.end() || !found->unread.count()) return;
  Part& part = *found;
  const ColumnShape& shape = table.shape(kRows);
  slots_.clear();
  for (const std::uint32_t slot : slots) {
    if (slot >= part.extent) continue;
    const std::uint32_t block = shape.blockOfSlot(slot);
    if (part.unread.remove(block)) collect(part, block);
  }
  for (std::size_t at = 0; at < slots_.size();) {
    Page* page = pageFor(part, slots_.size() - at);
    if (!page) return giveUp();
    const std::size_t n = std::min<std::size_t>(page->room - page->count, slots_.size() - at);
    copyRows(table, slots_.data() + at, n, arrays(*page, page->count));
    page->count += static_cast<std::uint32_t>(n);
    at += n;
  }
}

/** With room for at least one of `rows` rows. No page is larger than what there is left to keep. */
Snapshot::Page* Snapshot::pageFor(Part& part, std::size_t rows) {
  if (part.open != kNone) {
    Page& page = pages_[part.open - dropped_];
    if (page.count < page.room) return &page;
  }
  const std::size_t bytes = rowBytes(part.table->spec());
  const std::uint64_t left = rows + part.unread.count() * part.table->shape(kRows).slotsPerBlock;
  const std::size_t room = std::min<std::uint64_t>(std::max<std::size_t>(1, kPageBytes / bytes), left);
  Page page{static_cast<std::uint32_t>(&part - parts_.data()), static_cast<std::uint32_t>(room), 0, 0,
            std::unique_ptr<std::uint8_t[]>(new (std::nothrow) std::uint8_t[room * bytes])};
  if (!page.memory) return nullptr;
  charge_.set(charge_.bytes() + room * bytes);
  part.open = dropped_ + static_cast<std::uint32_t>(pages_.size());
  pages_.push_back(std::move(page));
  return &pages_.back();
}

/** A page has its keys first, then all values, then all state. */
RowArrays Snapshot::arrays(const Page& page, std::uint32_t row) const {
  const TableSpec& spec = parts_[page.part].table->spec();
  std::uint8_t* values = page.memory.get() + page.room * sizeof(std::uint64_t);
  return advanced(spec,
                  {reinterpret_cast<std::uint64_t*>(page.memory.get()), values,
                   values + std::size_t{page.room} * spec.dim * 4},
                  row);
}

void Snapshot::giveUp() {
  broken_ = true;
  parts_.clear();
  pages_.clear();
  charge_.set(0);
}

bool Snapshot::read(std::size_t maxBytes, const AllocateRows& allocate) {
  if (!pages_.empty()) return readKept(maxBytes, allocate);
  for (; at_ < parts_.size(); at_++) {
    if (readPart(parts_[at_], maxBytes, allocate)) return true;
  }
  return false;
}

bool Snapshot::readKept(std::size_t maxBytes, const AllocateRows& allocate) {
  Part& part = parts_[pages_.front().part];
  const TableSpec& spec = part.table->spec();
  const std::size_t bytes = rowBytes(spec), max = std::max<std::size_t>(1, maxBytes / bytes);
  std::size_t rows = 0;
  for (const Page& page : pages_) {
    if (&parts_[page.part] != &part || rows >= max) break;
    rows += page.count - page.taken;
  }
  rows = std::min(rows, max);
  RowArrays to;
  if (!allocate(*part.table, rows, to)) return true;
  while (rows) {
    Page& page = pages_.front();
    const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(rows, page.count - page.taken));
    const RowArrays from = arrays(page, page.taken);
    std::copy_n(from.keys, n, to.keys);
    std::memcpy(to.values, from.values, n * std::size_t{spec.dim} * 4);
    if (spec.width() > spec.dim)
      std::memcpy(to.state, from.state, n * (bytes - 8 - spec.dim * std::size_t{4}));
    to = advanced(spec, to, n);
    rows -= n;
    page.taken += n;
    if (page.taken < page.count) break;
    if (part.open == dropped_) part.open = kNone;
    charge_.set(charge_.bytes() - page.room * bytes);
    pages_.pop_front();
    dropped_++;
  }
  return true;
}

bool Snapshot::readPart(Part& part, std::size_t maxBytes, const AllocateRows& allocate) {
  const std::size_t max = maxBytes / rowBytes(part.table->spec());
  slots_.clear();
  std::vector<std::uint32_t> blocks;
  for (std::uint32_t b = part.unread.next(part.from); b != kNone; b = part.unread.next(b + 1)) {
    const std::size_t before = slots_.size();
    collect(part, b);
    if (before && slots_.size() > max) {
      slots_.resize(before);
      break;
    }
    blocks.push_back(b);
  }
  if (!slots_.empty()) {
    RowArrays to;
    if (!allocate(*part.table, slots_.size(), to)) return true;
    copyRows(*part.table, slots_.data(), slots_.size(), to);
  }
  for (const std::uint32_t b : blocks) part.unread.remove(b);
  if (!blocks.empty()) part.from = blocks.back() + 1;
  return !slots_.empty();
}

}  // namespace kintsugi
