// Tables that are dropped from shards and sinks, with all that hangs on them.
#include <memory>

#include "engine/sink.h"
#include "test/support.h"

namespace kintsugi::test {
namespace {

PartData part(std::uint32_t table, std::vector<std::uint64_t> keys, float value) {
  PartData data{table, 8, std::move(keys), {}};
  data.rows.assign(data.keys.size() * 8, value);
  return data;
}

Bytes both(std::uint32_t a, std::uint32_t b) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < 3000; key++) keys.push_back(key);
  return encode(0, {part(a, keys, 1), part(b, keys, 2)}, true);
}

struct Pair {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>(0);
  Shard shard{memory, 0, 1, 1};
  Sink sink{memory, 1, 0, true};

  Pair() {
    for (const std::uint32_t id : {1, 2, 3})
      CHECK(!shard.addTable(tableSpec(id, 8, OptimizerKind::Adagrad, InitializerKind::Uniform)));
  }
  void send() {
    BlockPairs again;
    CHECK(sink.apply(0, view(flushed(shard)), again) == Status::Applied);
  }
  void drop(std::uint32_t id) {
    shard.dropTable(id);
    sink.dropTable(id);
    CHECK(shard.totalsAreRight() && sink.totalsAreRight());
  }
};

TEST(aDroppedTableLeavesNothing) {
  Pair pair;
  const Bytes one = both(1, 3);
  CHECK(pair.shard.push(view(one)) == Status::Applied);
  pair.send();
  const std::size_t shard = pair.shard.bytes(), sink = pair.sink.bytes();
  CHECK(pair.shard.push(view(both(2, 1))) == Status::Applied);
  pair.send();
  CHECK(pair.shard.bytes() > shard && pair.sink.bytes() > sink);
  // With an open batch, too.
  CHECK(pair.shard.push(view(both(2, 1))) == Status::Applied);
  pair.drop(2);
  pair.drop(2);
  pair.drop(99);
  CHECK_EQ(pair.shard.bytes(), shard);
  CHECK_EQ(pair.sink.bytes(), sink);
  pair.send();
  CHECK_EQ(pair.sink.bytes(), sink);
  CHECK(pair.shard.push(view(both(2, 1))) == Status::UnknownTable);
  CHECK(!pair.shard.table(2) && pair.shard.extents().size() == 2);
  pair.drop(1);
  pair.drop(3);
  CHECK_EQ(pair.shard.rows(), 0u);
  CHECK_EQ(pair.sink.bytes(), 0u);
}

TEST(aDroppedTableWithAbsentBlocksIsWhole) {
  Pair pair;
  CHECK(!pair.shard.adopt(1, 100) && !pair.shard.adopt(2, 5000));
  CHECK(!pair.sink.start(0, pair.shard.extents()));
  BlockPairs created, some;
  pair.sink.nextExcluded(0, 4, some);
  CHECK(!pair.sink.check({some.data(), some.size() / 2}, created));
  CHECK(pair.sink.accumulators() > 0);
  pair.drop(2);
  CHECK_EQ(pair.sink.accumulators(), 0u);
  BlockPairs absent;
  pair.shard.nextAbsent(kRows, 1000, absent);
  for (std::size_t i = 0; i < absent.size(); i += 2) CHECK_EQ(absent[i], 1u * 2 + kRows);
  pair.drop(1);
  CHECK(pair.shard.keysReady() && pair.shard.absentBlocks(kRows) == 0);
  CHECK(pair.sink.complete());
}

TEST(aSnapshotGoesOnWithoutADroppedTable) {
  for (const std::uint32_t gone : {1u, 2u, 3u}) {
    for (const int before : {0, 1, 3}) {
      Pair pair;
      CHECK(pair.shard.push(view(both(1, 2))) == Status::Applied);
      CHECK(pair.shard.push(view(encode(0, {part(3, {1, 2, 3}, 1)}, true))) == Status::Applied);
      pair.send();
      SnapshotBegun begun;
      CHECK(!pair.shard.beginSnapshot(0, begun));
      // Rows are kept, because these pushes change them.
      CHECK(pair.shard.push(view(both(1, 2))) == Status::Applied);
      pair.send();
      std::vector<std::uint64_t> keys(1 << 16);
      std::vector<float> values(1 << 20), state(1 << 20);
      std::size_t seen[4] = {0, 0, 0, 0};
      bool more = true;
      const auto read = [&] {
        more = false;
        CHECK(!pair.shard.readSnapshot(20'000, [&](const Table& table, std::size_t rows, RowArrays& to) {
          CHECK(pair.shard.table(table.spec().id) == &table);
          seen[table.spec().id] += rows;
          to = {keys.data(), reinterpret_cast<std::uint8_t*>(values.data()),
                reinterpret_cast<std::uint8_t*>(state.data())};
          return more = true;
        }));
      };
      for (int i = 0; i < before; i++) read();
      const std::size_t had = seen[gone];
      pair.drop(gone);
      while (more) read();
      for (const std::uint32_t id : {1u, 2u, 3u}) CHECK_EQ(seen[id], id == gone ? had : id == 3 ? 3u : 3000u);
      CHECK_EQ(pair.shard.snapshotBytes(), 0u);
    }
  }
}

}  // namespace
}  // namespace kintsugi::test
