// The generator, the index, columns, block sets and scratch maps, against the simplest thing that does the
// same.
#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "engine/arena.h"
#include "engine/blocks.h"
#include "engine/bytes.h"
#include "engine/hash.h"
#include "engine/index.h"
#include "engine/matrix.h"
#include "engine/router.h"
#include "engine/scratch.h"
#include "kernels/gf256.h"
#include "test/harness.h"

namespace kintsugi::test {
namespace {

/** All ways to choose `size` of `n`. */
std::vector<std::vector<std::uint32_t>> choices(std::uint32_t n, std::uint32_t size) {
  std::vector<std::vector<std::uint32_t>> list;
  std::vector<std::uint32_t> chosen(size);
  for (std::uint32_t i = 0; i < size; i++) chosen[i] = i;
  while (true) {
    list.push_back(chosen);
    std::uint32_t at = size;
    while (at > 0 && chosen[at - 1] == n - size + at - 1) at--;
    if (!at) return list;
    chosen[at - 1]++;
    for (std::uint32_t i = at; i < size; i++) chosen[i] = chosen[i - 1] + 1;
  }
}

/** By expansion along the first row: independent of the elimination in the engine. */
std::uint8_t determinant(const std::uint8_t m[4][4], const std::uint32_t* columns, std::uint32_t row,
                         std::uint32_t n) {
  if (n == 1) return m[row][columns[0]];
  std::uint8_t sum = 0;
  for (std::uint32_t skip = 0; skip < n; skip++) {
    std::uint32_t rest[4];
    for (std::uint32_t i = 0, at = 0; i < n; i++) {
      if (i != skip) rest[at++] = columns[i];
    }
    sum ^= gf::multiply(m[row][columns[skip]], determinant(m, rest, row + 1, n - 1));
  }
  return sum;
}

TEST(generatorIsMds) {
  // Coefficients do not depend on k and r, so every smaller code is a part of the largest one.
  for (std::uint32_t i = 0; i < kMaxMembers; i++) CHECK_EQ(coefficient(0, i), 1);
  for (std::uint32_t j = 0; j < kMaxParities; j++) CHECK_EQ(coefficient(j, 0), 1);
  std::uint64_t minors = 0;
  for (std::uint32_t size = 1; size <= kMaxParities; size++) {
    for (const auto& parities : choices(kMaxParities, size)) {
      for (const auto& members : choices(kMaxMembers, size)) {
        std::uint8_t m[4][4];
        std::uint32_t columns[4] = {0, 1, 2, 3};
        for (std::uint32_t a = 0; a < size; a++) {
          for (std::uint32_t b = 0; b < size; b++) m[a][b] = coefficient(parities[a], members[b]);
        }
        CHECK(determinant(m, columns, 0, size) != 0);
        minors++;
      }
    }
  }
  CHECK_EQ(minors, 4 * 32 + 6 * 496 + 4 * 4960 + 35960);
}

TEST(inverseTimesMatrix) {
  Random random(seed);
  for (int round = 0; round < 500; round++) {
    const std::uint32_t n = 1 + random.below(4);
    std::vector<std::uint8_t> m(n * n);
    random.fill(m.data(), m.size());
    std::vector<std::uint8_t> inverse = m;
    if (!invertMatrix(inverse, n)) continue;
    for (std::uint32_t a = 0; a < n; a++) {
      for (std::uint32_t b = 0; b < n; b++) {
        std::uint8_t sum = 0;
        for (std::uint32_t x = 0; x < n; x++) sum ^= gf::multiply(m[a * n + x], inverse[x * n + b]);
        CHECK_EQ(sum, a == b ? 1 : 0);
      }
    }
  }
  std::vector<std::uint8_t> singular = {1, 2, 1, 2};
  CHECK(!invertMatrix(singular, 2));
}

TEST(indexAgainstMap) {
  Random random(seed);
  Memory memory(0);
  {
    Index index(memory);
    std::unordered_map<std::uint64_t, std::uint32_t> model;
    CHECK_EQ(index.find(1), kNone);
    for (std::uint32_t i = 0; i < 50000; i++) {
      const std::uint64_t tag = 1 + (random.chance(50) ? random.below(60000) : random.next() >> 1);
      if (model.count(tag)) continue;
      const std::size_t growth = index.growth(index.size() + 1), before = memory.used();
      index.insert(tag, i);
      CHECK_EQ(memory.used(), before + growth);
      model[tag] = i;
    }
    CHECK_EQ(index.size(), model.size());
    std::vector<std::uint64_t> tags;
    for (const auto& [tag, slot] : model) tags.push_back(tag);
    for (int i = 0; i < 50000; i++) tags.push_back(1 + random.below(120000));
    std::vector<std::uint32_t> slots(tags.size());
    index.findMany(tags.data(), tags.size(), slots.data());
    for (std::size_t i = 0; i < tags.size(); i++) {
      const auto found = model.find(tags[i]);
      CHECK_EQ(slots[i], found == model.end() ? kNone : found->second);
    }
  }
  CHECK_EQ(memory.used(), 0u);
}

TEST(indexWithoutSomeTags) {
  Random random(seed);
  Memory memory(0);
  for (int round = 0; round < 20; round++) {
    Index index(memory);
    std::map<std::uint64_t, std::uint32_t> model;
    index.reserve(2000);  // it does not grow, so full buckets stay full
    for (std::uint32_t i = 0; i < 20000; i++) {
      const std::uint64_t tag = 1 + random.below(4000);
      const auto found = model.find(tag);
      if (found == model.end()) {
        if (model.size() == 2600) continue;  // up to 65 %
        index.insert(tag, i);
        model[tag] = i;
      } else {
        index.remove(tag, found->second + 1);  // of another slot
        CHECK_EQ(index.find(tag), found->second);
        index.remove(tag, found->second);
        model.erase(found);
      }
      CHECK_EQ(index.size(), model.size());
      CHECK_EQ(index.find(tag), model.contains(tag) ? model[tag] : kNone);
    }
    for (std::uint64_t tag = 1; tag <= 4000; tag++) {
      const auto found = model.find(tag);
      CHECK_EQ(index.find(tag), found == model.end() ? kNone : found->second);
    }
  }
}

TEST(indexBuiltFromColumn) {
  Memory memory(0);
  Index index(memory);
  const std::uint64_t tags[] = {7, 0, 9, 7, 0, 1};
  index.build(tags, 6);
  CHECK_EQ(index.size(), 3u);
  CHECK_EQ(index.find(7), 0u);
  CHECK_EQ(index.find(9), 2u);
  CHECK_EQ(index.find(1), 5u);
}

TEST(blockSetsAndSweeps) {
  Random random(seed);
  for (const std::uint32_t size : {0u, 1u, 63u, 64u, 65u, 200u}) {
    BlockSet a, b;
    a.fill(size);
    b.fill(10);
    std::vector<bool> model(size, true);
    for (std::uint32_t i = 0; i < size; i++) {
      const std::uint32_t at = random.below(size);
      CHECK_EQ(a.remove(at), model[at]);
      model[at] = false;
    }
    CHECK(!a.has(size) && !a.remove(size));
    std::uint64_t count = 0;
    for (std::uint32_t i = 0; i < size; i++) {
      CHECK_EQ(a.has(i), model[i]);
      count += model[i];
    }
    CHECK_EQ(a.count(), count);
    // Sweeps of three visit everything once before anything twice.
    Cursor cursor;
    BlockPairs all;
    ColumnSets columns;
    columns.changed(4, a, 0);
    columns.changed(6, b, 0);
    CHECK_EQ(columns.count(), count + 10);
    for (std::uint64_t left = count + 10; left;) {
      const std::size_t step = std::min<std::uint64_t>(3, left);
      columns.sweep(cursor, step, all);
      left -= step;
    }
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < all.size(); i += 2) ids.push_back(BlockRef{all[i], all[i + 1]}.id());
    std::sort(ids.begin(), ids.end());
    CHECK(std::unique(ids.begin(), ids.end()) == ids.end());
    CHECK_EQ(ids.size(), count + 10);
    BlockPairs once;
    columns.sweep(cursor, 1000, once);
    CHECK_EQ(once.size(), 2 * (count + 10));
  }
}

TEST(columnsAreZeroAndCharged) {
  Memory memory(1000);
  {
    Column column(memory);
    CHECK(column.data() == nullptr && column.makeRoom(0));
    CHECK(column.makeRoom(10 << 20));
    CHECK_EQ(memory.used(), 0u);
    column.grow(10 << 20);
    CHECK_EQ(memory.used(), 10u << 20);
    CHECK(!memory.allows(1));
    for (std::size_t i = 0; i < 10 << 20; i += 4096) CHECK_EQ(column.data()[i], 0);
    column.grow(9 << 20);
    CHECK_EQ(column.bytes(), 10u << 20);
  }
  CHECK_EQ(memory.used(), 0u);
}

// From the heap to mappings, with and without free addresses behind: what was written stays, the rest is
// zero.
TEST(columnsKeepTheirBytesWhenTheyGrow) {
  Random random(seed);
  Memory memory(0);
  constexpr std::size_t kColumns = 3, kLargest = std::size_t{24} << 20;
  std::unique_ptr<Column> columns[kColumns];
  for (auto& column : columns) column = std::make_unique<Column>(memory);
  const auto expected = [](std::size_t at, std::size_t c) {
    return at / 512 % 3 ? mix64(at + c) : 0;  // a third is never written
  };
  for (std::size_t size = 64; size < kLargest;) {
    const std::size_t before = columns[0]->bytes();
    for (std::size_t c = 0; c < kColumns; c++) {
      CHECK(columns[c]->makeRoom(size));
      columns[c]->grow(size);
      std::uint8_t* data = columns[c]->data();
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
      for (std::size_t at = 0; at + 8 <= size; at += 8) {
        CHECK_EQ(loadAt<std::uint64_t>(data + at), at < before ? expected(at, c) : 0);
        if (at >= before && expected(at, c)) storeAt(data + at, 0, expected(at, c));
      }
    }
    size = size + 8 + random.below(static_cast<std::uint32_t>(size * 2)) / 64 * 64;
    size = size / 8 * 8;
  }
}

TEST(scratchMapNumbers) {
  Random random(seed);
  ScratchMap<std::uint64_t> map;
  for (int round = 0; round < 30; round++) {
    std::unordered_map<std::uint64_t, std::uint32_t> model;
    map.reset(round % 3 ? 0 : 100);
    for (int i = 0; i < 200; i++) {
      const std::uint64_t key = random.below(100);
      bool added;
      const std::uint32_t value = map.add(key, added);
      const auto [place, inserted] = model.try_emplace(key, static_cast<std::uint32_t>(model.size()));
      CHECK_EQ(added, inserted);
      CHECK_EQ(value, place->second);
    }
  }
}

TEST(partitionGroupsInOrder) {
  Random random(seed);
  std::vector<std::uint64_t> keys(5000);
  for (auto& key : keys) key = random.next();
  const std::uint32_t shards = 12;
  std::vector<std::uint32_t> order(keys.size()), starts(shards + 1);
  partition(keys.data(), keys.size(), shards, order.data(), starts.data());
  CHECK_EQ(starts[shards], keys.size());
  for (std::uint32_t s = 0; s < shards; s++) {
    CHECK(starts[s + 1] - starts[s] > 300);  // of about 417
    for (std::uint32_t i = starts[s]; i < starts[s + 1]; i++) {
      CHECK_EQ(shardOf(keys[order[i]], shards), s);
      if (i > starts[s]) CHECK(order[i] > order[i - 1]);
    }
  }
}

}  // namespace
}  // namespace kintsugi::test
