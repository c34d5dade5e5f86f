// The shard of a replica: it follows an owner's shard, and takes its deltas instead of pushes. All present
// blocks are of one position of the stream. An absent block comes later, as content of the position that the
// shard then has.
#include <algorithm>

#include "engine/shard.h"
#include "kernels/kernels.h"

namespace kintsugi {

Status Shard::checkFollowed(const std::vector<DeltaTable>& delta) {
  for (const DeltaTable& d : delta) {
    const Table* t = find(d.table);
    if (!t) return Status::UnknownTable;
    if (t->spec().stride() != d.stride) return Status::DimMismatch;
    if (!t->batch().empty()) return Status::BadFrame;
  }
  for (const DeltaTable& d : delta) {
    if (!find(d.table)->makeRoomFor(d)) return Status::MemoryLimit;
  }
  return Status::Applied;
}

// XOR is its own inverse, so a second call with the same delta takes the delta back.
Status Shard::applyDelta(View delta) {
  if (!parseDelta(delta, delta_)) return Status::BadFrame;
  if (const Status status = checkFollowed(delta_); status != Status::Applied) return status;
  for (const DeltaTable& d : delta_) {
    Table& t = *find(d.table);
    const Change change(*this, t);
    t.applyDelta(d);
  }
  return Status::Applied;
}

bool Table::makeRoomFor(const DeltaTable& d) {
  const std::uint32_t extent = std::max(extent_, d.extent);
  return makeRoomFor(extent, ready_ ? index_.size() + d.keyCount : extent);
}

void Table::applyDelta(const DeltaTable& d) {
  lookAgain();
  if (d.extent > extent_) {
    // Charged without asking the budget, as in a sink: the budget of the followed shard's node has allowed
    // these bytes.
    for (const ColumnKind kind : {kKeys, kRows}) columns_[kind].grow(shapes_[kind].bytes(d.extent));
    runBytes_.set(runBytes(d.extent));
    extent_ = d.extent;
  }
  applyKeys(d);
  std::uint8_t* rows = columns_[kRows].data();
  const ColumnShape& shape = shapes_[kRows];
  if (!d.rowCount) return;
  if (!absent_[kRows].count()) {
    kernels().mulAddRows(rows, shape.stride, d.rowSlots, d.rowCount, d.rowXor, 1);
  } else {
    for (std::uint32_t i = 0; i < d.rowCount; i++) {
      const auto slot = loadAt<std::uint32_t>(d.rowSlots, i);
      if (absent_[kRows].has(shape.blockOfSlot(slot))) continue;
      kernels().mulAdd(rows + std::size_t{slot} * shape.stride, d.rowXor + std::size_t{i} * shape.stride,
                       shape.stride, 1);
    }
  }
  readRule();
}

// Keys go before others come: a key that was removed and pushed again in one batch leaves one slot and comes
// to another, and the other way round when its delta is taken back.
void Table::applyKeys(const DeltaTable& d) {
  std::uint8_t* keys = columns_[kKeys].data();
  if (ready_ && d.keyCount) index_.reserve(index_.size() + d.keyCount);
  for (std::uint32_t i = 0; i < d.keyCount; i++) {
    const auto slot = loadAt<std::uint32_t>(d.keySlots, i);
    if (absent_[kKeys].has(shapes_[kKeys].blockOfSlot(slot))) continue;
    const auto before = loadAt<std::uint64_t>(keys, slot);
    storeAt(keys, slot, before ^ loadAt<std::uint64_t>(d.keyXor, i));
    if (ready_ && before) index_.remove(before, slot);
  }
  if (!ready_) return;
  for (std::uint32_t i = 0; i < d.keyCount; i++) {
    const auto slot = loadAt<std::uint32_t>(d.keySlots, i);
    if (const std::uint64_t tag = tags()[slot]) index_.enter(tag, slot);
  }
}

}  // namespace kintsugi
