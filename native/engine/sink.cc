// Streams into a sink: extents, deltas, content. Growth of a parity is charged to the budget but never
// refused: its extents are bounded by those of the owners, whose budgets have allowed them, and a parity that
// refused a delta that its owner has applied would stop every acknowledgement of the group.
#include "engine/sink.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace kintsugi {

Sink::Sink(std::shared_ptr<Memory> memory, std::uint32_t k, std::uint32_t parity, bool complete)
    : memory_(std::move(memory)), parity_(parity), members_(k), accumulators_(*memory_) {
  for (Member& m : members_) m.started = complete;
}

Sink::Sums* Sink::find(std::uint32_t table) const {
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : found->second.get();
}

Sink::Sums* Sink::obtain(std::uint32_t table, std::uint32_t stride) {
  std::unique_ptr<Sums>& sums = tables_[table];
  if (!sums) sums = std::make_unique<Sums>(*memory_, stride);
  return sums.get();
}

Fault Sink::checkExtents(const std::vector<ExtentOf>& extents) {
  std::vector<std::uint32_t> ids;
  for (const ExtentOf& e : extents) {
    if (e.table >> 31 || !e.stride || e.stride % 16 || e.stride > kMaxStride)
      return badFrame("impossible extent");
    if (e.extent > maxSlots(e.stride)) return badFrame("extent is beyond the largest table");
    const Sums* sums = find(e.table);
    if (sums && sums->shapes[kRows].stride != e.stride) {
      return {"DIM_MISMATCH", "the members of a group disagree about the rows of a table"};
    }
    ids.push_back(e.table);
  }
  if (repeats(ids)) return badFrame("a table is listed twice");
  if (tables_.size() + extents.size() > 2 * kMaxTables) return badFrame("too many tables");
  // Only now anything is created; a refusal leaves empty tables behind, which is harmless.
  for (const ExtentOf& e : extents) {
    if (!obtain(e.table, e.stride)->makeRoom(e.extent)) return kNoMemory;
  }
  return {};
}

void Sink::raise(Sums& sums, Share& share, std::uint32_t extent) {
  share.extent = std::max(share.extent, extent);
  sums.extent = std::max(sums.extent, extent);
  for (const ColumnKind kind : {kKeys, kRows}) {
    Column& column = sums.columns[kind];
    bytes_ -= column.bytes();
    column.grow(sums.shapes[kind].bytes(extent));
    bytes_ += column.bytes();
  }
}

/** All blocks below `limit`, and no others. */
void Sink::exclude(Member& member, std::uint32_t table, Share& share, ColumnKind kind, std::uint32_t limit) {
  BlockSet& set = share.excluded[kind];
  const std::uint64_t before = set.count();
  set.fill(limit);
  member.excluded[kind].changed(table * 2 + kind, set, before);
}

void Sink::dropTable(std::uint32_t id) {
  const Sums* sums = find(id);
  if (!sums) return;
  accumulators_.clear();
  for (Member& m : members_) {
    const auto share = m.shares.find(id);
    if (share == m.shares.end()) continue;
    for (const ColumnKind kind : {kKeys, kRows}) exclude(m, id, share->second, kind, 0);
    m.shares.erase(share);
  }
  bytes_ -= sums->columns[kKeys].bytes() + sums->columns[kRows].bytes();
  tables_.erase(id);
}

Fault Sink::start(std::uint32_t member, const std::vector<ExtentOf>& extents) {
  if (Fault fault = checkExtents(extents)) return fault;
  Member& m = members_[member];
  m.started = true;
  for (auto& [id, share] : m.shares) {
    for (const ColumnKind kind : {kKeys, kRows}) exclude(m, id, share, kind, 0);
  }
  for (const ExtentOf& e : extents) {
    Sums& sums = *find(e.table);
    Share& share = m.shares[e.table];
    raise(sums, share, e.extent);
    for (const ColumnKind kind : {kKeys, kRows})
      exclude(m, e.table, share, kind, sums.shapes[kind].blocks(e.extent));
  }
  return {};
}

Fault Sink::learn(std::uint32_t member, const std::vector<ExtentOf>& extents) {
  if (Fault fault = checkExtents(extents)) return fault;
  for (const ExtentOf& e : extents) raise(*find(e.table), members_[member].shares[e.table], e.extent);
  return {};
}

Status Sink::checkDelta(const std::vector<DeltaTable>& delta) {
  if (tables_.size() + delta.size() > 2 * kMaxTables) return Status::BadFrame;
  for (const DeltaTable& d : delta) {
    const Sums* sums = find(d.table);
    if (sums && sums->shapes[kRows].stride != d.stride) return Status::DimMismatch;
  }
  for (const DeltaTable& d : delta) {
    if (!obtain(d.table, d.stride)->makeRoom(d.extent)) return Status::MemoryLimit;
  }
  return Status::Applied;
}

// Rule 14. XOR makes the same call with the same delta its own inverse, which is how rule 13 rolls back.
Status Sink::apply(std::uint32_t member, View delta, BlockPairs& again) {
  if (!members_[member].started || !parseDelta(delta, delta_)) return Status::BadFrame;
  if (const Status status = checkDelta(delta_); status != Status::Applied) return status;
  for (const DeltaTable& d : delta_) {
    raise(*find(d.table), members_[member].shares[d.table], d.extent);
    applyColumn(member, d, kKeys, again);
    applyColumn(member, d, kRows, again);
  }
  return Status::Applied;
}

void Sink::applyColumn(std::uint32_t member, const DeltaTable& d, ColumnKind kind, BlockPairs& again) {
  Sums& sums = *find(d.table);
  const BlockSet& excludedSet = members_[member].shares[d.table].excluded[kind];
  const ColumnShape& shape = sums.shapes[kind];
  const std::uint8_t* slots = kind == kKeys ? d.keySlots : d.rowSlots;
  const std::uint8_t* bytes = kind == kKeys ? d.keyXor : d.rowXor;
  const std::uint32_t count = kind == kKeys ? d.keyCount : d.rowCount;
  const std::uint8_t c = coefficient(parity_, member);
  const Kernels& kernel = kernels();
  std::uint8_t* sum = sums.columns[kind].data();
  if (!count) return;
  if (!excludedSet.count() && accumulators_.empty())
    return kernel.mulAddRows(sum, shape.stride, slots, count, bytes, c);
  for (std::uint32_t i = 0; i < count; i++) {
    const std::uint32_t slot = loadAt<std::uint32_t>(slots, i);
    const BlockRef block{d.table * 2 + kind, shape.blockOfSlot(slot)};
    const std::uint8_t* change = bytes + std::size_t{i} * shape.stride;
    const bool included = !excludedSet.has(block.index);
    Accumulator* a = accumulators_.find(block.id());
    if (included) {
      kernel.mulAdd(sum + std::size_t{slot} * shape.stride, change, shape.stride, c);
      if (a && !a->done(member)) {
        const std::size_t offset = std::size_t{slot % shape.slotsPerBlock} * shape.stride;
        kernel.mulAdd(a->bytes.data() + offset, change, shape.stride, c);
      }
    }
    if (a && (a->lacking >> member & 1)) {
      a->lacking ^= 1u << member;
      a->pending |= 1u << member;
      append(again, block);
    }
  }
}

Fault Sink::checkList(BlockList blocks, std::size_t* bytes) const {
  *bytes = 0;
  for (std::size_t i = 0; i < blocks.count; i++) {
    const Sums* sums = find(blocks[i].table());
    if (!sums) return badFrame("a block of a table that this sink does not know");
    const ColumnShape& shape = sums->shapes[blocks[i].kind()];
    if (blocks[i].index >= shape.blocks(maxSlots(sums->shapes[kRows].stride)))
      return badFrame("impossible block");
    *bytes += shape.blockBytes;
  }
  return {};
}

bool Sink::excluded(std::uint32_t member, BlockRef block) const {
  const auto share = members_[member].shares.find(block.table());
  return share != members_[member].shares.end() && share->second.excluded[block.kind()].has(block.index);
}

// Rule 15.
Fault Sink::content(std::uint32_t member, BlockList blocks, View bytes, std::uint32_t& included) {
  if (!members_[member].started) return badFrame("content of a member whose stream has not started");
  std::size_t expected;
  if (Fault fault = checkList(blocks, &expected)) return fault;
  if (expected != bytes.size) return badFrame("bytes do not fit the list of blocks");
  const std::uint8_t c = coefficient(parity_, member);
  const std::uint8_t* from = bytes.data;
  for (std::size_t i = 0; i < blocks.count; i++) {
    const BlockRef block = blocks[i];
    const Sums& sums = *find(block.table());
    const std::size_t size = sums.shapes[block.kind()].blockBytes;
    const bool outside = excluded(member, block);
    Accumulator* a = accumulators_.find(block.id());
    if (a && !a->done(member)) {
      if (!outside) kernels().mulAdd(a->bytes.data(), from, size, c);
      a->pending &= ~(1u << member);
      a->lacking &= ~(1u << member);
    }
    if (outside) {
      kernels().mulAdd(sums.columns[block.kind()].data() + block.index * size, from, size, c);
      BlockSet& set = members_[member].shares[block.table()].excluded[block.kind()];
      set.remove(block.index);
      members_[member].excluded[block.kind()].changed(block.column, set, set.count() + 1);
      included++;
    }
    if (a) settle(*a);
    from += size;
  }
  return {};
}

}  // namespace kintsugi
