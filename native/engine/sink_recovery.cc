// Recoveries and checks of a sink, and what it reports: which blocks are pending, excluded, or exist at all.
#include <algorithm>
#include <tuple>

#include "engine/sink.h"
#include "kernels/kernels.h"

namespace kintsugi {

Accumulator* Sink::createAccumulator(BlockRef block) {
  const Sums& sums = *find(block.table());
  const std::size_t size = sums.shapes[block.kind()].blockBytes;
  const Column& column = sums.columns[block.kind()];
  const std::size_t offset = block.index * size;
  const bool inside = offset + size <= column.bytes();
  Accumulator* a =
      accumulators_.create(block.id(), inside ? View{column.data() + offset, size} : View{}, size);
  if (a) a->pending = static_cast<std::uint32_t>((std::uint64_t{1} << members_.size()) - 1);
  return a;
}

// Rule 16.
Fault Sink::lacking(std::uint32_t member, BlockList blocks) {
  std::size_t bytes;
  if (Fault fault = checkList(blocks, &bytes)) return fault;
  for (std::size_t i = 0; i < blocks.count; i++) {
    Accumulator* a = accumulators_.find(blocks[i].id());
    if (!a || !(a->pending >> member & 1)) continue;
    a->pending ^= 1u << member;
    a->lacking |= 1u << member;
    settle(*a);
  }
  return {};
}

std::uint32_t Sink::startedBits() const {
  std::uint32_t bits = 0;
  for (std::uint32_t m = 0; m < members(); m++) bits |= std::uint32_t{members_[m].started} << m;
  return bits;
}

// Rule 23. P includes nothing of a member whose stream has not started, so nothing of that member has to be
// subtracted, and the accumulator does not wait for it. The member may be lost and never answer.
Fault Sink::recover(std::uint32_t member, BlockList blocks, BlockPairs& created) {
  std::size_t bytes;
  if (Fault fault = checkList(blocks, &bytes)) return fault;
  const std::uint32_t bit = 1u << member;
  const std::uint32_t started = startedBits();
  for (std::size_t i = 0; i < blocks.count; i++) {
    Accumulator* a = accumulators_.find(blocks[i].id());
    if (a && a->done(member)) continue;
    if (!a) {
      a = createAccumulator(blocks[i]);
      if (!a) return kNoMemory;
      append(created, blocks[i]);
    }
    a->pending &= started & ~bit;
    a->lacking |= bit;
    a->requesters |= bit;
    settle(*a);
  }
  return {};
}

Fault Sink::check(BlockList blocks, BlockPairs& created) {
  std::size_t bytes;
  if (Fault fault = checkList(blocks, &bytes)) return fault;
  for (std::size_t i = 0; i < blocks.count; i++) {
    if (accumulators_.find(blocks[i].id())) continue;
    Accumulator* a = createAccumulator(blocks[i]);
    if (!a) return kNoMemory;
    a->checked = true;
    append(created, blocks[i]);
  }
  return {};
}

// Whether the equation is usable is decided at this moment: content that is included later is not in these
// bytes.
void Sink::settle(Accumulator& a) {
  if (a.pending) return;
  a.ok = true;
  for (std::uint32_t m = 0; m < members(); m++) {
    if ((a.lacking >> m & 1) && (!members_[m].started || excluded(m, blockOf(a.block)))) a.ok = false;
  }
  accumulators_.complete(a);
}

void CompletedGroup::copyTo(std::uint8_t* out) const {
  for (const Accumulator& a : parts) {
    out = std::copy(a.bytes.begin(), a.bytes.end(), out);
  }
}

std::vector<std::uint8_t> CompletedGroup::bytes() const {
  std::vector<std::uint8_t> all(size);
  copyTo(all.data());
  return all;
}

// Rule 24. One group per lacking set, requesters and usability, so that each becomes one message.
std::vector<CompletedGroup> Sink::takeCompleted() {
  std::vector<CompletedGroup> groups;
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool, bool>, std::size_t> places;
  for (Accumulator& a : accumulators_.takeCompleted()) {
    const auto [place, added] = places.try_emplace({a.lacking, a.requesters, a.ok, a.checked}, groups.size());
    if (added) groups.push_back({a.lacking, a.requesters, a.ok, a.checked, {}, {}, 0, 0});
    CompletedGroup& group = groups[place->second];
    append(group.blocks, blockOf(a.block));
    group.size += a.bytes.size();
    group.nonZero += std::any_of(a.bytes.begin(), a.bytes.end(), [](std::uint8_t b) { return b != 0; });
    group.parts.push_back(std::move(a));
  }
  return groups;
}

// Keys come first: without them a new owner cannot serve at all.
void Sink::nextExcluded(std::uint32_t member, std::size_t max, BlockPairs& out) {
  Member& m = members_[member];
  for (const ColumnKind kind : {kKeys, kRows})
    m.excluded[kind].sweep(m.cursors[kind], max - out.size() / 2, out);
}

bool Sink::complete() const {
  for (std::uint32_t m = 0; m < members(); m++) {
    if (!members_[m].started || excludedBlocks(m)) return false;
  }
  return true;
}

std::vector<ExtentOf> Sink::extents(std::uint32_t member) const {
  std::vector<ExtentOf> list;
  for (const auto& [id, share] : members_[member].shares) {
    list.push_back({id, find(id)->shapes[kRows].stride, share.extent});
  }
  return list;
}

void Sink::allBlocks(std::uint64_t from, std::size_t max, BlockPairs& out) const {
  for (const ColumnKind kind : {kKeys, kRows}) {
    for (const auto& [id, sums] : tables_) {
      const std::uint32_t count = sums->shapes[kind].blocks(sums->extent);
      for (std::uint64_t i = from; i < count && max; i++, max--)
        append(out, {id * 2 + kind, static_cast<std::uint32_t>(i)});
      from -= std::min<std::uint64_t>(from, count);
    }
  }
}

bool Sink::totalsAreRight() const {
  std::size_t bytes = 0;
  for (const auto& [id, sums] : tables_) bytes += sums->columns[kKeys].bytes() + sums->columns[kRows].bytes();
  for (const Member& m : members_) {
    for (const ColumnKind kind : {kKeys, kRows}) {
      ColumnSets excluded;
      for (const auto& [id, share] : m.shares) {
        if (share.excluded[kind].count()) excluded.changed(id * 2 + kind, share.excluded[kind], 0);
      }
      if (!(excluded == m.excluded[kind])) return false;
    }
  }
  return bytes == bytes_;
}

}  // namespace kintsugi
