// Shards whose policies change: how they are set, taken over and looked at.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "test/living.h"

namespace kintsugi::test {

inline std::vector<std::uint64_t> keysOf(const Shard& shard, const TableSpec& spec) {
  std::uint32_t slot = 0;
  std::vector<std::uint64_t> keys = shard.table(spec.id)->keysBySlot(slot, 1u << 20);
  std::sort(keys.begin(), keys.end());
  return keys;
}

inline void set(Shard& shard, TableSpec& spec, const LifePolicy& policy) {
  spec.policy = policy;
  CHECK(!shard.addTable(spec));
}

/** The shard as its next owner has it: from its blocks, with the specification of today. */
inline std::unique_ptr<Shard> recovered(Shard& shard, const TableSpec& spec) {
  flushed(shard);
  auto next = shardWith(spec);
  for (const ExtentOf& e : shard.extents()) CHECK(!next->adopt(e.table, e.extent));
  for (const ColumnKind kind : {kRows, kKeys}) {
    BlockPairs blocks;
    next->nextAbsent(kind, 1u << 20, blocks);
    ReadResult read;
    const Bytes bytes =
        answerOf([&](const Allocate& allocate) { CHECK(!shard.read(list(blocks), read, allocate)); });
    std::uint32_t installed = 0;
    CHECK(!next->install(list(blocks), view(bytes), installed));
  }
  return next;
}

inline bool isNew(Shard& shard, const TableSpec& spec, std::uint64_t key) {
  auto empty = shardWith(spec);
  return rowOf(shard, spec, key) == rowOf(*empty, spec, key);
}

inline std::size_t rowsIn(const Shard& shard, const TableSpec& spec) {
  return shard.table(spec.id)->index().size();
}

}  // namespace kintsugi::test
