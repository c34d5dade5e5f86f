// Tables, blocks and the stream; requests are in requests.cc.
#include "engine/shard.h"

#include <algorithm>
#include <bit>
#include <set>

#include "kernels/gf256.h"

namespace kintsugi {

Fault Shard::addTable(const TableSpec& spec) {
  if (spec.id >> 31) return badArgument("table id must be below 2^31");
  if (spec.dim < 1 || spec.dim > kMaxDim) return badArgument("dim must be 1 to 65536");
  const Filter& filter = spec.policy.filter;
  if (filter.admitAt && (!filter.slots || !filter.hashes || !filter.capacity || !filter.line))
    return badArgument("a filter needs slots, hashes, a capacity and a line");
  if (filter.admitAt && std::uint64_t{filter.slots} + reservedSlots(spec) >= maxSlots(spec.stride()))
    return badArgument("the filter is beyond the largest table");
  if (Table* there = find(spec.id)) {
    if (!there->spec().isSameTable(spec)) return badArgument("the table exists with another specification");
    const Change change(*this, *there);
    there->set(spec);
    return {};
  }
  if (tables_.size() >= kMaxTables) return badArgument("too many tables");
  tables_.emplace(spec.id, std::make_unique<Table>(*memory_, spec)).first->second->tell(seconds_);
  return {};
}

void Shard::dropTable(std::uint32_t id) {
  const auto found = tables_.find(id);
  if (found == tables_.end()) return;
  const Table& t = *found->second;
  const Figures gone = figuresOf(t);
  totals_.rows -= gone.rows;
  totals_.bytes -= gone.bytes;
  totals_.openBytes -= gone.openBytes;
  std::erase(dirty_, &t);
  for (const ColumnKind kind : {kKeys, kRows}) absent_[kind].changed(id * 2 + kind, {}, gone.absent[kind]);
  if (snapshot_) snapshot_->drop(t);
  equations_.clear();
  missing_.clear();
  tables_.erase(found);
}

Fault Shard::adopt(std::uint32_t id, std::uint32_t extent) {
  Table* t = find(id);
  if (!t) return {"UNKNOWN_TABLE", "no such table in this shard"};
  const Change change(*this, *t);
  return t->adopt(extent);
}

Fault Shard::checkExtents(const std::vector<ExtentOf>& extents) const {
  for (const ExtentOf& e : extents) {
    const Table* t = table(e.table);
    if (!t) return badFrame("an extent of a table that this shard does not have");
    if (e.stride != t->spec().stride()) return badFrame("an extent with another size of rows");
    if (e.extent > maxSlots(e.stride)) return badFrame("extent is beyond the address space of a table");
  }
  return {};
}

const Table* Shard::table(std::uint32_t id) const {
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : found->second.get();
}

Shard::Figures Shard::figuresOf(const Table& table) {
  const OpenBatch& batch = table.batch();
  return {table.index().size(),
          table.bytes(),
          batch.empty() ? 0 : kDeltaTableBytes + batch.bytes(),
          {table.absent(kKeys).count(), table.absent(kRows).count()}};
}

void Shard::count(Table& table, const Figures& before) {
  const Figures now = figuresOf(table);
  totals_.rows += now.rows - before.rows;
  totals_.bytes += now.bytes - before.bytes;
  totals_.openBytes += now.openBytes - before.openBytes;
  if (now.openBytes && !before.openBytes) dirty_.push_back(&table);
  for (const ColumnKind kind : {kKeys, kRows}) {
    if (now.absent[kind] != before.absent[kind])
      absent_[kind].changed(table.spec().id * 2 + kind, table.absent(kind), before.absent[kind]);
  }
}

bool Shard::totalsAreRight() const {
  Figures sum;
  ColumnSets absent[2];
  std::vector<const Table*> dirty;
  for (const auto& [id, t] : tables_) {
    const Figures f = figuresOf(*t);
    sum.rows += f.rows;
    sum.bytes += f.bytes;
    sum.openBytes += f.openBytes;
    if (!t->batch().empty()) dirty.push_back(t.get());
    for (const ColumnKind kind : {kKeys, kRows}) {
      if (f.absent[kind]) absent[kind].changed(id * 2 + kind, t->absent(kind), 0);
    }
    if (t->ready() != (f.absent[kKeys] == 0)) return false;
  }
  return sum.rows == totals_.rows && sum.bytes == totals_.bytes && sum.openBytes == totals_.openBytes &&
         std::is_permutation(dirty.begin(), dirty.end(), dirty_.begin(), dirty_.end()) &&
         absent[kKeys] == absent_[kKeys] && absent[kRows] == absent_[kRows];
}

// Tables are in the order of their ids in a delta.
void Shard::flush(const Allocate& allocate) {
  std::uint8_t* out = allocate(openBytes());
  if (!out) return;
  std::sort(dirty_.begin(), dirty_.end(),
            [](const Table* a, const Table* b) { return a->spec().id < b->spec().id; });
  storeAt<std::uint32_t>(out, 0, static_cast<std::uint32_t>(dirty_.size()));
  storeAt<std::uint32_t>(out, 1, 0);
  std::uint8_t* head = out + 8;
  std::uint8_t* arrays = head + dirty_.size() * kDeltaTableBytes;
  for (const Table* t : dirty_) {
    arrays = t->batch().write(head, arrays, t->spec().id, t->extent());
    head += kDeltaTableBytes;
  }
  closeBatches();
}

void Shard::dropBatch() { closeBatches(); }

void Shard::watch(std::uint32_t id, bool on) {
  if (Table* t = find(id)) t->watch(on);
}

// A row that leaves is in the delta of its table.
std::vector<std::pair<std::uint32_t, Evicted>> Shard::takeEvicted() {
  std::vector<std::pair<std::uint32_t, Evicted>> all;
  for (Table* t : dirty_) {
    Evicted some = t->takeEvicted();
    if (!some.keys.empty()) all.emplace_back(t->spec().id, std::move(some));
  }
  return all;
}

// Rows get their stamps once per batch, not once per push. No snapshot begins between a push and this.
void Shard::closeBatches() {
  for (Table* t : dirty_) {
    if (snapshots_) t->stamps().mark(t->batch().slots());
    t->closeBatch();
  }
  dirty_.clear();
  totals_.openBytes = 0;
}

Fault Shard::checkList(BlockList blocks, std::size_t* bytes) const {
  *bytes = 0;
  for (std::size_t i = 0; i < blocks.count; i++) {
    const Table* t = table(blocks[i].table());
    if (!t) return badFrame("a block of a table that this shard does not have");
    *bytes += t->shape(blocks[i].kind()).blockBytes;
  }
  return {};
}

Fault Shard::read(BlockList blocks, ReadResult& result, const Allocate& allocate) const {
  std::size_t bytes;
  if (Fault fault = checkList(blocks, &bytes)) return fault;
  if (bytes > kMaxAnswerBytes) return {"LIMIT", "too many blocks in one call"};
  bytes = 0;
  for (std::size_t i = 0; i < blocks.count; i++) {
    const Table* t = table(blocks[i].table());
    const bool absent = t->absent(blocks[i].kind()).has(blocks[i].index);
    append(absent ? result.lacking : result.present, blocks[i]);
    if (!absent) bytes += t->shape(blocks[i].kind()).blockBytes;
  }
  std::uint8_t* out = allocate(bytes);
  if (!out) return {};
  const BlockList present{result.present.data(), result.present.size() / 2};
  for (std::size_t i = 0; i < present.count; i++) {
    const Table* t = table(present[i].table());
    t->read(present[i].kind(), present[i].index, out);
    out += t->shape(present[i].kind()).blockBytes;
  }
  return {};
}

Fault Shard::install(BlockList blocks, View bytes, std::uint32_t& installed) {
  std::size_t expected;
  if (Fault fault = checkList(blocks, &expected)) return fault;
  if (expected != bytes.size) return badFrame("bytes do not fit the list of blocks");
  const std::uint8_t* from = bytes.data;
  for (std::size_t i = 0; i < blocks.count; i++) {
    installed += installBlock(blocks[i], from);
    from += table(blocks[i].table())->shape(blocks[i].kind()).blockBytes;
  }
  return {};
}

Fault Shard::filterAbsent(BlockList blocks, BlockPairs& out) const {
  std::size_t bytes;
  if (Fault fault = checkList(blocks, &bytes)) return fault;
  for (std::size_t i = 0; i < blocks.count; i++) {
    if (table(blocks[i].table())->absent(blocks[i].kind()).has(blocks[i].index)) append(out, blocks[i]);
  }
  return {};
}

void Shard::nextAbsent(ColumnKind kind, std::size_t max, BlockPairs& out) {
  absent_[kind].sweep(cursors_[kind], max, out);
}

bool Shard::installBlock(BlockRef block, const std::uint8_t* bytes) {
  Table& t = *find(block.table());
  const Change change(*this, t);
  return t.install(block.kind(), block.index, bytes);
}

static Fault checkLacking(const std::vector<std::uint32_t>& lacking, std::uint32_t k, std::uint32_t member,
                          std::uint32_t& mask) {
  for (std::size_t i = 0; i < lacking.size(); i++) {
    if (lacking[i] >= k || (i && lacking[i] <= lacking[i - 1]))
      return badArgument("lacking must be ascending members");
    mask |= 1u << lacking[i];
  }
  return mask >> member & 1 ? Fault{} : badArgument("lacking must include this member");
}

Fault Shard::addEquations(std::uint32_t parity, std::uint32_t parityCount,
                          const std::vector<std::uint32_t>& lacking, bool ok, BlockList blocks, View bytes,
                          EquationsResult& result) {
  if (parity >= r_ || parityCount < 1) return badArgument("no such parity");
  std::uint32_t mask = 0;
  if (Fault fault = checkLacking(lacking, k_, member_, mask)) return fault;
  std::size_t expected;
  if (Fault fault = checkList(blocks, &expected)) return fault;
  if (expected != bytes.size) return badFrame("bytes do not fit the list of blocks");
  const bool alone = ok && lacking.size() == 1;
  const std::uint8_t factor = gf::invert(coefficient(parity, member_));
  std::vector<std::uint8_t> content;
  const std::uint8_t* from = bytes.data;
  for (std::size_t i = 0; i < blocks.count; i++) {
    const Table* t = table(blocks[i].table());
    const std::size_t size = t->shape(blocks[i].kind()).blockBytes;
    const std::uint8_t* right = from;
    from += size;
    if (!t->absent(blocks[i].kind()).has(blocks[i].index)) {
      equations_.forget(blocks[i].id());
    } else if (alone) {
      content.assign(size, 0);
      kernels().mulAdd(content.data(), right, size, factor);
      result.installed += installBlock(blocks[i], content.data());
      equations_.forget(blocks[i].id());
    } else {
      Equation equation{mask, true, ok, {}};
      if (ok) equation.bytes.assign(right, right + size);
      takeEquation(blocks[i], parity, parityCount, std::move(equation), result);
    }
  }
  return {};
}

void Shard::takeEquation(BlockRef block, std::uint32_t parity, std::uint32_t parityCount, Equation equation,
                         EquationsResult& result) {
  const std::uint32_t mask = equation.lacking;
  const Outcome outcome = equations_.add(block.id(), parity, parityCount, std::move(equation));
  if (outcome == Outcome::Stuck) append(result.stuck, block);
  if (outcome != Outcome::Solvable) return;
  const auto contents = equations_.solve(block.id(), mask);
  std::size_t x = 0;
  for (std::uint32_t left = mask; left; left &= left - 1, x++) {
    const auto member = static_cast<std::uint32_t>(std::countr_zero(left));
    if (member == member_) {
      result.installed += installBlock(block, contents[x].data());
      continue;
    }
    auto other = result.others.begin();
    while (other != result.others.end() && other->member != member) ++other;
    if (other == result.others.end()) other = result.others.insert(other, {member, {}, {}});
    append(other->blocks, block);
    other->bytes.insert(other->bytes.end(), contents[x].begin(), contents[x].end());
  }
}

std::vector<ExtentOf> Shard::extents() const {
  std::vector<ExtentOf> list;
  for (const auto& [id, t] : tables_) list.push_back({id, t->spec().stride(), t->extent()});
  return list;
}

std::vector<ExtentOf> Shard::extentsOf(BlockList blocks) const {
  std::set<std::uint32_t> ids;
  for (std::size_t i = 0; i < blocks.count; i++) ids.insert(blocks[i].table());
  std::vector<ExtentOf> list;
  for (const std::uint32_t id : ids) {
    if (const Table* t = table(id)) list.push_back({id, t->spec().stride(), t->extent()});
  }
  return list;
}

std::vector<TableStats> Shard::stats() const {
  std::vector<TableStats> list;
  for (const auto& [id, t] : tables_) {
    list.push_back({id, t->index().size(), t->extent(), t->absent(kKeys).count(), t->absent(kRows).count(),
                    t->hasPolicy(), t->counts()});
  }
  return list;
}

}  // namespace kintsugi
