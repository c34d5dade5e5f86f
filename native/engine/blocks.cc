#include "engine/blocks.h"

#include <algorithm>
#include <bit>

namespace kintsugi {

ColumnShape shapeOf(std::uint32_t stride) {
  const std::uint32_t slots = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(kBlockBytes / stride));
  return {stride, slots, slots * stride};
}

// One block less than the largest column. The limit is part of the protocol: a sink refuses extents above it.
std::uint32_t maxSlots(std::uint32_t rowStride) {
  const ColumnShape rows = shapeOf(rowStride);
  const std::size_t byRows = (kMaxRowsBytes / rows.blockBytes - 1) * rows.slotsPerBlock;
  const std::size_t byKeys = (kMaxKeysBytes / kBlockBytes - 1) * keysShape().slotsPerBlock;
  return static_cast<std::uint32_t>(std::min(byRows, byKeys));
}

void BlockSet::fill(std::uint32_t limit) {
  limit_ = limit;
  count_ = limit;
  words_.assign((std::size_t{limit} + 63) / 64, ~std::uint64_t{0});
  if (limit & 63) words_.back() = (std::uint64_t{1} << (limit & 63)) - 1;
}

bool BlockSet::remove(std::uint32_t index) {
  if (!has(index)) return false;
  words_[index >> 6] &= ~(std::uint64_t{1} << (index & 63));
  if (--count_ == 0) fill(0);
  return true;
}

void BlockSet::removeRange(std::uint32_t from, std::uint32_t to) {
  to = std::min(to, limit_);
  for (std::uint32_t at = from; at < to; at = (at | 63) + 1) {
    std::uint64_t mask = ~std::uint64_t{0} << (at & 63);
    if (to - at < 64 - (at & 63)) mask &= (std::uint64_t{1} << (to & 63)) - 1;
    std::uint64_t& word = words_[at >> 6];
    count_ -= static_cast<std::uint64_t>(std::popcount(word & mask));
    word &= ~mask;
  }
  if (count_ == 0) fill(0);
}

void BlockSet::list(std::uint32_t from, std::size_t max, std::vector<std::uint32_t>& out) const {
  for (std::size_t word = from >> 6; max && word < words_.size(); word++) {
    std::uint64_t bits = words_[word];
    if (word == from >> 6) bits &= ~std::uint64_t{0} << (from & 63);
    for (; bits && max; bits &= bits - 1, max--)
      out.push_back(static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits))));
  }
}

std::uint32_t BlockSet::next(std::uint32_t from) const {
  if (from >= limit_) return kNone;
  std::size_t word = from >> 6;
  std::uint64_t bits = words_[word] & (~std::uint64_t{0} << (from & 63));
  while (!bits) {
    if (++word == words_.size()) return kNone;
    bits = words_[word];
  }
  return static_cast<std::uint32_t>(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
}

void ColumnSets::changed(std::uint32_t column, const BlockSet& set, std::uint64_t before) {
  const std::uint64_t now = set.count();
  count_ += now - before;
  if (now && !before) columns_.emplace(column, &set);
  if (before && !now) columns_.erase(column);
}

void ColumnSets::sweep(Cursor& cursor, std::size_t max, BlockPairs& out) const {
  auto left = std::min<std::uint64_t>(count_, max);
  if (!left) return;
  auto at = columns_.lower_bound(cursor.column);
  std::uint32_t from = at != columns_.end() && at->first == cursor.column ? cursor.index : 0;
  while (left) {
    if (at == columns_.end()) at = columns_.begin(), from = 0;
    const std::uint32_t index = at->second->next(from);
    if (index == kNone) {
      ++at;
      from = 0;
      continue;
    }
    append(out, {at->first, index});
    from = index + 1;
    cursor = {at->first, from};
    left--;
  }
}

}  // namespace kintsugi
