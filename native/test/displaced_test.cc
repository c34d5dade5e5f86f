// Tables whose new rows displace others: by a number of rows, and where memory is short.

#include "test/living.h"

namespace kintsugi::test {
namespace {

LifePolicy atMost(std::uint32_t rows) {
  LifePolicy policy;
  policy.maxRows = rows;
  return policy;
}

LifePolicy byMemory() {
  LifePolicy policy;
  policy.forMemory = true;
  return policy;
}

/** Keys and whole rows. */
std::map<std::uint64_t, std::vector<float>> contentOf(Shard& shard, const TableSpec& spec) {
  std::map<std::uint64_t, std::vector<float>> rows;
  std::uint32_t slot = 0;
  for (const std::uint64_t key : shard.table(spec.id)->keysBySlot(slot, 1u << 20))
    rows[key] = rowOf(shard, spec, key);
  return rows;
}

}  // namespace

TEST(new_rows_displace_those_that_were_not_seen_for_long) {
  const TableSpec spec = living(atMost(500));
  const auto held = shardWith(spec);
  Shard& shard = *held;
  for (std::uint64_t step = 0; step < 1000; step++) {
    std::vector<std::uint64_t> keys = range(1000 + step * 20, 20);
    // A hundred others come again every five steps.
    for (std::uint64_t i = 0; i < 20; i++) keys.push_back((step % 5) * 20 + i);
    pushed(shard, gradients(spec, keys));
    flushed(shard);
    CHECK(shard.table(spec.id)->index().size() <= 500);
  }
  const TableStats stats = shard.stats()[0];
  CHECK_EQ(stats.rows, 500u);
  CHECK_EQ(stats.counts.displaced, 20'100u - 500);
  // Slots are used again after the batch.
  CHECK(stats.extent <= reservedSlots(spec) + 520);
  for (std::uint64_t key = 0; key < 100; key++) CHECK(has(shard, spec, key));
  CHECK(shard.totalsAreRight());
}

TEST(a_push_displaces_none_of_its_own_rows) {
  const TableSpec spec = living(atMost(10));
  const auto held = shardWith(spec);
  Shard& shard = *held;
  pushed(shard, gradients(spec, range(0, 300)));
  CHECK_EQ(shard.table(spec.id)->index().size(), 300u);
  // A push takes away what is too much a few at a time.
  pushed(shard, gradients(spec, range(1000, 1)));
  CHECK(has(shard, spec, 1000));
  CHECK(shard.table(spec.id)->index().size() < 300);
  for (int step = 0; step < 10; step++) pushed(shard, gradients(spec, {1000}));
  CHECK_EQ(shard.table(spec.id)->index().size(), 10u);
  CHECK(has(shard, spec, 1000));
  CHECK(shard.totalsAreRight());
}

TEST(rows_so_wide_that_few_fit_a_frame_go_a_few_at_a_time) {
  for (const bool isOld : {true, false}) {
    LifePolicy policy = atMost(isOld ? 0 : 1);
    if (isOld) policy.ttl = 1;
    const TableSpec spec =
        withPolicy(tableSpec(3, kMaxDim, OptimizerKind::Adam, InitializerKind::Zeros), policy);
    const auto held = shardWith(spec);
    Shard& shard = *held;
    pushed(shard, gradients(spec, range(0, 60)));
    flushed(shard);
    for (int step = 0; step < 12; step++) {
      pushed(shard, gradients(spec, {1000}));
      CHECK(shard.openBytes() < std::size_t{12} << 20);
      flushed(shard);
    }
    CHECK_EQ(shard.table(spec.id)->index().size(), 1u);
  }
}

TEST(rows_that_are_gone_make_room_first) {
  LifePolicy policy = atMost(100);
  policy.ttl = 5;
  const TableSpec spec = living(policy);
  const auto held = shardWith(spec);
  Shard& shard = *held;
  pushed(shard, gradients(spec, range(0, 60)));
  for (int step = 0; step < 4; step++) pushed(shard, gradients(spec, range(100, 40)));
  CHECK_EQ(shard.stats()[0].counts.displaced, 0u);
  for (std::uint64_t step = 0; step < 60; step++) {
    std::vector<std::uint64_t> keys = range(100, 40);
    keys.push_back(1000 + step);
    pushed(shard, gradients(spec, keys));
  }
  const LifeCounts counts = shard.stats()[0].counts;
  CHECK(counts.expired >= 60);
  CHECK(counts.displaced <= 2);
  for (std::uint64_t key = 100; key < 140; key++) CHECK(has(shard, spec, key));
}

TEST(where_memory_is_short_a_table_does_not_grow) {
  // Wide rows, and rows so small that the index is half of the table.
  for (const bool isWide : {true, false}) {
    const TableSpec small = tableSpec(3, 1, OptimizerKind::Sgd, InitializerKind::Zeros);
    const TableSpec spec = isWide ? living(byMemory()) : withPolicy(small, byMemory());
    const auto memory = std::make_shared<Memory>(1 << 20);
    Shard shard(memory, 0, 1, 1);
    CHECK(!shard.addTable(spec));
    Random random(seed);
    std::uint64_t next = 0;
    for (int step = 0; step < 3000; step++) {
      const std::size_t count = 1 + random.below(random.chance(10) ? 200 : 20);
      pushed(shard, gradients(spec, range(next, count)));
      for (std::uint64_t i = 0; i < count; i++) CHECK(has(shard, spec, next + i));
      next += count;
      if (random.chance(25)) flushed(shard);
      CHECK(memory->used() <= memory->limit());
    }
    const TableStats stats = shard.stats()[0];
    CHECK_EQ(stats.counts.displaced, next - stats.rows);
    CHECK_EQ(stats.counts.refused, 0u);
    CHECK(memory->used() > memory->limit() / (isWide ? 2 : 4));
    CHECK(stats.rows > stats.extent * 3 / 4);
    CHECK(shard.totalsAreRight());
  }
}

TEST(rows_that_are_seen_often_stay_where_memory_is_short) {
  const TableSpec spec = living(byMemory());
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  for (std::uint64_t step = 0; step < 4000; step++) {
    std::vector<std::uint64_t> keys = range(1'000'000 + step * 20, 20);
    for (std::uint64_t i = 0; i < 20; i++) keys.push_back((step % 20) * 20 + i);
    pushed(shard, gradients(spec, keys));
    flushed(shard);
  }
  for (std::uint64_t key = 0; key < 400; key++) CHECK(has(shard, spec, key));
}

TEST(where_the_budget_is_used_up_new_keys_wait_for_a_slot) {
  const TableSpec spec = living(byMemory()),
                  other = tableSpec(5, 5, OptimizerKind::Sgd, InitializerKind::Zeros);
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec) && !shard.addTable(other));
  // The first keys of a table need memory.
  {
    const auto none = std::make_shared<Memory>(100);
    Shard full(none, 0, 1, 1);
    CHECK(!full.addTable(spec));
    CHECK(full.push(view(encode(0, {gradients(spec, {1})}, true))) == Status::MemoryLimit);
  }
  pushed(shard, gradients(spec, range(0, 300)));
  const PartData more = gradients(other, range(0, 100));
  for (std::uint64_t i = 0;; i++) {
    if (shard.push(view(encode(0, {gradients(other, range(i * 100, 100))}, true))) == Status::MemoryLimit)
      break;
  }
  flushed(shard);
  CHECK(shard.push(view(encode(0, {more}, true))) == Status::Applied);
  // More new keys than slots: the others make room, and come in later.
  const auto missing = [&] {
    std::size_t count = 0;
    for (std::uint64_t key = 50'000; key < 52'000; key++) count += !has(shard, spec, key);
    return count;
  };
  pushed(shard, gradients(spec, range(50'000, 2000)));
  flushed(shard);
  const std::size_t first = missing();
  CHECK(first > 1000);
  CHECK_EQ(shard.table(spec.id)->counts().refused, first);
  pushed(shard, gradients(spec, range(50'000, 2000)));
  flushed(shard);
  CHECK(missing() < first);
  std::uint64_t next = 1000;
  for (int step = 0; step < 100; step++) {
    // Rows that are there are changed in any case, also beside a table that needs no more.
    const std::uint64_t known = next - 1;
    const bool isThere = has(shard, spec, known);
    const std::vector<float> before = rowOf(shard, spec, known);
    PartData mine = gradients(spec, {next, known, next + 1, next, next + 2, next + 3});
    for (std::uint32_t x = 0; x < spec.dim; x++) mine.rows[spec.dim + x] = 2;
    CHECK(shard.push(view(encode(0, {mine, more}, true))) == Status::Applied);
    if (isThere) CHECK(rowOf(shard, spec, known) != before);
    next += 4;
    if (step % 5 == 4) flushed(shard);
    CHECK(memory->used() <= memory->limit());
    CHECK(shard.totalsAreRight());
  }
  const LifeCounts counts = shard.table(spec.id)->counts();
  CHECK(counts.displaced > 400);
  // Whole rows are not for such a policy to drop.
  const TableSpec& s = spec;
  PartData whole{s.id, s.width(), range(5000, 3000), std::vector<float>(3000 * s.width(), 1)};
  CHECK(shard.push(view(encode(1, {whole}, true))) == Status::MemoryLimit);
}

TEST(no_row_goes_while_slots_are_free_where_memory_is_short) {
  LifePolicy policy = byMemory();
  policy.ttl = 50;
  const TableSpec spec = living(policy);
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  std::uint64_t next = 1;
  for (; !shard.stats()[0].counts.displaced; next += 400) {
    pushed(shard, gradients(spec, range(next, 400)));
    flushed(shard);
  }
  // All of these go by themselves.
  while (shard.stats()[0].rows > 1) {
    pushed(shard, gradients(spec, {0}));
    flushed(shard);
  }
  memory->charge(memory->limit() - memory->limit() / 8 - memory->used());
  CHECK(memory->isTight());
  const std::uint64_t displaced = shard.stats()[0].counts.displaced;
  for (int step = 0; step < 20; step++, next += 100) {
    pushed(shard, gradients(spec, range(next, 100)));
    flushed(shard);
  }
  CHECK_EQ(shard.stats()[0].counts.displaced, displaced);
  CHECK_EQ(shard.stats()[0].rows, 2001u);
}

TEST(a_table_with_a_number_of_rows_is_refused_where_the_budget_is_used_up) {
  const TableSpec spec = living(atMost(100)),
                  other = tableSpec(5, 5, OptimizerKind::Sgd, InitializerKind::Zeros);
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec) && !shard.addTable(other));
  pushed(shard, gradients(spec, range(0, 100)));
  for (std::uint64_t i = 0;; i++) {
    if (shard.push(view(encode(0, {gradients(other, {i})}, true))) == Status::MemoryLimit) break;
  }
  flushed(shard);
  CHECK(shard.push(view(encode(0, {gradients(spec, range(1000, 5000))}, true))) == Status::MemoryLimit);
  CHECK_EQ(shard.stats()[0].counts.refused, 0u);
  CHECK_EQ(shard.stats()[0].rows, 100u);
}

TEST(rows_are_displaced_while_others_are_absent) {
  const TableSpec spec = living(atMost(300));
  const auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, range(0, 300)));
  flushed(*shard);
  const auto recovering = shardWith(spec);
  const Table& table = *shard->table(spec.id);
  CHECK(!recovering->adopt(spec.id, table.extent()));
  const std::uint32_t blocks = table.shape(kRows).blocks(table.extent());
  CHECK(blocks > 2);
  BlockPairs given;
  for (const ColumnKind kind : {kKeys, kRows}) {
    const std::uint32_t count = kind == kKeys ? table.shape(kKeys).blocks(table.extent()) : blocks;
    for (std::uint32_t i = 0; i < count; i++) {
      // The clock is in the first block, and new keys come to the last one.
      if (kind == kKeys || i != 1) append(given, {spec.id * 2 + kind, i});
    }
  }
  ReadResult result;
  const Bytes bytes =
      answerOf([&](const Allocate& allocate) { CHECK(!shard->read(list(given), result, allocate)); });
  std::uint32_t installed = 0;
  CHECK(!recovering->install(list(result.present), view(bytes), installed));
  CHECK(recovering->absentBlocks(kRows) == 1);
  for (std::uint64_t step = 0; step < 50; step++) {
    pushed(*recovering, gradients(spec, range(1000 + step * 4, 4)));
    CHECK_EQ(recovering->table(spec.id)->index().size(), 300u);
    CHECK(recovering->totalsAreRight());
    flushed(*recovering);
  }
  CHECK_EQ(recovering->table(spec.id)->counts().displaced, 200u);
}

TEST(a_snapshot_has_the_rows_that_were_there_when_it_began) {
  const TableSpec spec = living(atMost(400));
  const auto held = shardWith(spec);
  Shard& shard = *held;
  for (std::uint64_t step = 0; step < 20; step++) pushed(shard, gradients(spec, range(step * 20, 20)));
  flushed(shard);
  const auto before = contentOf(shard, spec);
  SnapshotBegun begun;
  CHECK(!shard.beginSnapshot(0, begun));
  CHECK_EQ(begun.rows, 400u);
  std::map<std::uint64_t, std::vector<float>> saved;
  std::uint64_t next = 1000;
  for (bool more = true; more;) {
    more = false;
    std::vector<std::uint64_t> keys;
    std::vector<float> values, state;
    CHECK(!shard.readSnapshot(4096, [&](const Table&, std::size_t rows, RowArrays& to) {
      more = true;
      keys.resize(rows);
      values.resize(rows * spec.dim);
      state.resize(rows * (spec.width() - spec.dim));
      to = {keys.data(), reinterpret_cast<std::uint8_t*>(values.data()),
            reinterpret_cast<std::uint8_t*>(state.data())};
      return true;
    }));
    for (std::size_t i = 0; i < keys.size(); i++) {
      auto& row = saved[keys[i]];
      row.assign(values.begin() + i * spec.dim, values.begin() + (i + 1) * spec.dim);
      const std::size_t rest = spec.width() - spec.dim;
      row.insert(row.end(), state.begin() + i * rest, state.begin() + (i + 1) * rest);
    }
    pushed(shard, gradients(spec, range(next, 30)));
    next += 30;
    if (next % 4 == 0) flushed(shard);
  }
  CHECK(saved == before);
  // An increment says what made room.
  flushed(shard);
  CHECK(!shard.beginSnapshot(begun.stamp, begun));
  std::size_t gone = 0;
  for (const auto& [key, row] : before) gone += !has(shard, spec, key);
  CHECK(gone > 0);
  CHECK_EQ(shard.table(spec.id)->removedSince(1, {}).size() >= gone, true);
  shard.endSnapshot();
}

TEST(a_follower_has_what_displaced_rows_leave_and_takes_it_back) {
  const TableSpec spec = living(atMost(50));
  const auto leader = shardWith(spec), follower = shardWith(spec);
  Random random(seed);
  std::vector<Bytes> deltas;
  std::vector<std::map<std::uint64_t, std::vector<float>>> contents{contentOf(*leader, spec)};
  for (int batch = 0; batch < 60; batch++) {
    for (std::uint32_t pushes = 1 + random.below(4); pushes; pushes--) {
      std::vector<std::uint64_t> keys(1 + random.below(20));
      for (std::uint64_t& key : keys) key = random.below(200);
      pushed(*leader, gradients(spec, keys, static_cast<float>(random.below(7)) / 3));
      for (const std::uint64_t key : keys) CHECK(has(*leader, spec, key));
    }
    deltas.push_back(flushed(*leader));
    CHECK(follower->applyDelta(view(deltas.back())) == Status::Applied);
    contents.push_back(contentOf(*leader, spec));
    CHECK(contents.back() == contentOf(*follower, spec));
    CHECK(leader->table(spec.id)->index().size() <= 50 + 80);
  }
  CHECK(leader->table(spec.id)->counts().displaced > 500);
  CHECK(leader->table(spec.id)->extent() <= 250);
  while (!deltas.empty()) {
    CHECK(follower->applyDelta(view(deltas.back())) == Status::Applied);
    deltas.pop_back();
    contents.pop_back();
    CHECK(contents.back() == contentOf(*follower, spec));
    CHECK(follower->totalsAreRight());
  }
}

TEST(the_bytes_of_runs_are_in_the_account) {
  LifePolicy policy;
  policy.ttl = 100;
  const auto memory = std::make_shared<Memory>(0), other = std::make_shared<Memory>(0);
  Shard shard(memory, 0, 1, 1), without(other, 0, 1, 1);
  const TableSpec spec = living(policy), crowd = living(atMost(1'000'000));
  CHECK(!shard.addTable(spec) && !without.addTable(crowd));
  pushed(shard, gradients(spec, range(0, 10'000)));
  pushed(without, gradients(crowd, range(0, 10'000)));
  CHECK_EQ(memory->used() - other->used(), 157u * 8);
  CHECK_EQ(shard.bytes() - without.bytes(), 157u * 8);
  // The bytes come with a policy that lets rows go by themselves, and go when none of these rows is left.
  CHECK(!shard.addTable(living(atMost(1'000'000))) && !without.addTable(living(policy)));
  CHECK_EQ(memory->used(), other->used());
  CHECK_EQ(shard.bytes(), without.bytes());
  for (int step = 0; step < 200; step++) {
    pushed(shard, gradients(spec, {1}));
    pushed(without, gradients(spec, {1}));
  }
  CHECK_EQ(other->used() - memory->used(), 157u * 8);
  CHECK(shard.totalsAreRight() && without.totalsAreRight());
}

}  // namespace kintsugi::test
