// Keys that wait for a row, in tables with a chance or a filter: against plain models, and through what
// happens to shards. Losses and rollbacks of filters are in group_test.cc and following_test.cc.

#include "test/living.h"

namespace kintsugi::test {
namespace {

constexpr Filter kLarge{3, 4000, 8, 1 << 20};

std::uint32_t seen(Shard& shard, const TableSpec& spec, std::uint64_t key) {
  return std::bit_cast<std::uint32_t>(rowOf(shard, spec, key).back());
}

std::uint32_t highest(const Shard& shard, const TableSpec& spec) {
  const Table& t = *shard.table(spec.id);
  std::uint32_t most = 0;
  for (std::uint32_t slot = t.reserved(); slot < t.firstSlot(); slot++)
    for (std::uint32_t at = 0; at < spec.stride(); at++)
      most = std::max<std::uint32_t>(most, t.row(slot)[at]);
  return most;
}

std::uint64_t sumOfCounters(const Shard& shard, const TableSpec& spec) {
  const Table& t = *shard.table(spec.id);
  std::uint64_t sum = 0;
  for (std::uint32_t slot = t.reserved(); slot < t.firstSlot(); slot++)
    for (std::uint32_t at = 0; at < spec.stride(); at++) sum += t.row(slot)[at];
  return sum;
}

}  // namespace

TEST(a_key_has_no_row_before_it_was_seen_so_often) {
  const TableSpec spec = living(filtered(kLarge));
  auto shard = shardWith(spec);
  const std::vector<float> initial = rowOf(*shard, spec, 7);
  pushed(*shard, gradients(spec, {7, 8}));
  CHECK_EQ(shard->stats()[0].rows, 0u);
  CHECK(rowOf(*shard, spec, 7) == initial);
  pushed(*shard, gradients(spec, {7, 9, 9}));
  CHECK_EQ(shard->stats()[0].rows, 0u);
  CHECK_EQ(shard->stats()[0].counts.refused, 4u);
  flushed(*shard);
  pushed(*shard, gradients(spec, {9, 7}));
  CHECK_EQ(shard->stats()[0].rows, 2u);
  CHECK_EQ(seen(*shard, spec, 7), 3u);
  CHECK_EQ(seen(*shard, spec, 9), 3u);
  // Only the gradient of its third sighting has changed it; and what it counted is not in the filter any
  // more.
  auto fresh = shardWith(living({1000, 0, 0, 0}));
  pushed(*fresh, gradients(spec, {7}));
  CHECK(rowOf(*shard, spec, 7)[0] == rowOf(*fresh, living({1000, 0, 0, 0}), 7)[0]);
  auto other = shardWith(spec);
  pushed(*other, gradients(spec, {8}));
  const std::uint64_t left = sumOfCounters(*other, spec);
  CHECK(left > 0);
  CHECK_EQ(sumOfCounters(*shard, spec), left);
  // A key that is seen often enough in one push needs no counters.
  pushed(*shard, gradients(spec, {20, 20, 20}));
  CHECK_EQ(seen(*shard, spec, 20), 3u);
  CHECK_EQ(sumOfCounters(*shard, spec), left);
  CHECK(shard->totalsAreRight());
}

TEST(a_key_whose_row_went_waits_again) {
  const TableSpec spec = living(filtered(kLarge, 4));
  auto shard = shardWith(spec);
  for (int i = 0; i < 3; i++) pushed(*shard, gradients(spec, {7}));
  CHECK(has(*shard, spec, 7));
  const std::vector<float> initial = rowOf(*shard, spec, 1);
  for (int i = 0; i < 5; i++) pushed(*shard, gradients(spec, {900}));
  for (int i = 0; i < 2; i++) {
    pushed(*shard, gradients(spec, {7}));
    CHECK_EQ(seen(*shard, spec, 7), 0u);
  }
  pushed(*shard, gradients(spec, {7}));
  CHECK_EQ(seen(*shard, spec, 7), 3u);
  pushed(*shard, {spec.id, 0, {7}, {}});
  flushed(*shard);
  pushed(*shard, gradients(spec, {7, 7}));
  CHECK(!has(*shard, spec, 7));
  // An assigned key has a row at once.
  PartData whole{spec.id, spec.width(), {50}, std::vector<float>(spec.width(), 0)};
  pushed(*shard, whole, 1);
  CHECK(has(*shard, spec, 50));
}

TEST(with_a_large_filter_keys_are_admitted_as_by_exact_counts) {
  const TableSpec spec = living(filtered(kLarge));
  auto shard = shardWith(spec);
  std::map<std::uint64_t, std::uint32_t> counts;
  Random random(seed);
  for (int step = 0; step < 400; step++) {
    std::vector<std::uint64_t> keys;
    for (std::uint32_t i = random.below(20); i; i--) keys.push_back(random.below(2000));
    for (const std::uint64_t key : keys) counts[key]++;
    pushed(*shard, gradients(spec, keys));
    if (random.chance(30)) flushed(*shard);
  }
  for (const auto& [key, count] : counts) {
    CHECK_EQ(has(*shard, spec, key), count >= kLarge.admitAt);
    CHECK_EQ(seen(*shard, spec, key), count >= kLarge.admitAt ? count : 0u);
  }
  CHECK(shard->totalsAreRight());
}

TEST(full_counters_stay) {
  const TableSpec spec = living(filtered({255, 1, 2, 1u << 30}));
  auto shard = shardWith(spec);
  // Each of the many keys has two of few counters.
  for (int step = 0; step < 60; step++) pushed(*shard, gradients(spec, range(1000, 600)));
  CHECK_EQ(highest(*shard, spec), kMostCounter);
  const auto full = [&] {
    const Table& t = *shard->table(spec.id);
    return std::count(t.row(t.reserved()), t.row(t.reserved()) + spec.stride(), std::uint8_t{kMostCounter});
  };
  const auto before = full();
  CHECK(before > 0);
  for (int step = 0; step < 20; step++) pushed(*shard, gradients(spec, range(1000, 600)));
  CHECK(shard->stats()[0].rows > 0);
  CHECK(full() >= before);
}

TEST(a_filter_forgets_what_it_has_no_room_for) {
  const Filter filter{2, 50, 4, 200};
  const TableSpec spec = living(filtered(filter));
  auto shard = shardWith(spec);
  std::size_t early = 0;
  for (std::uint64_t step = 0; step < 2000; step++) {
    pushed(*shard, gradients(spec, range(10 * step, 10)));
    flushed(*shard);
    CHECK(sumOfCounters(*shard, spec) <= 200 * filter.hashes);
  }
  // Few of 20,000 keys that come once have got a row.
  early = shard->stats()[0].rows;
  CHECK(early < 400);
  // Keys that come again soon get theirs.
  std::size_t found = 0;
  for (std::uint64_t step = 0; step < 100; step++) {
    const std::vector<std::uint64_t> keys = range(1'000'000 + 10 * step, 10);
    pushed(*shard, gradients(spec, keys));
    pushed(*shard, gradients(spec, keys));
    for (const std::uint64_t key : keys) found += has(*shard, spec, key);
  }
  CHECK(found > 900);
}

TEST(each_sighting_of_a_key_without_a_row_has_its_chance) {
  const TableSpec spec = living(byChance(2));
  auto shard = shardWith(spec), other = shardWith(spec);
  std::size_t admitted = 0;
  for (int step = 0; step < 8; step++) {
    const std::size_t before = shard->stats()[0].rows;
    pushed(*shard, gradients(spec, range(0, 4000)));
    pushed(*other, gradients(spec, range(0, 4000)));
    admitted = shard->stats()[0].rows;
    // An eighth of those that are left, to within a fifth of it.
    const double part = static_cast<double>(admitted - before) / static_cast<double>(4000 - before);
    CHECK(part > 0.1 && part < 0.15);
  }
  for (std::uint64_t key = 0; key < 4000; key++) CHECK(rowOf(*shard, spec, key) == rowOf(*other, spec, key));
  CHECK_EQ(shard->stats()[0].counts.refused, other->stats()[0].counts.refused);
  // A key that is pushed twice in one call is seen twice.
  auto twice = shardWith(spec);
  std::vector<std::uint64_t> keys = range(0, 4000), more = keys;
  keys.insert(keys.end(), more.begin(), more.end());
  pushed(*twice, gradients(spec, keys));
  const double part = static_cast<double>(twice->stats()[0].rows) / 4000;
  CHECK(part > 0.21 && part < 0.26);  // 1 - (7/8)^2
  CHECK(twice->totalsAreRight());
}

TEST(steps_pass_where_no_key_is_admitted) {
  for (const LifePolicy& policy : {filtered(kLarge, 3), byChance(1, 3)}) {
    const TableSpec spec = living(policy);
    auto shard = shardWith(spec);
    const std::uint32_t before = shard->table(spec.id)->clock();
    pushed(*shard, gradients(spec, {1}));
    pushed(*shard, gradients(spec, {2}));
    CHECK_EQ(shard->table(spec.id)->clock(), before + 2);
    CHECK(shard->dirty());
    CHECK(flushed(*shard).size() > 8);
    CHECK(shard->totalsAreRight());
  }
}

TEST(a_snapshot_has_no_slots_of_a_filter) {
  const TableSpec spec = living(filtered(kLarge));
  auto shard = shardWith(spec);
  for (int i = 0; i < 3; i++) pushed(*shard, gradients(spec, {7}));
  pushed(*shard, gradients(spec, {8}));
  flushed(*shard);
  SnapshotBegun begun;
  CHECK(!shard->beginSnapshot(0, begun));
  CHECK_EQ(begun.rows, 1u);
  shard->endSnapshot();
}

TEST(a_filter_takes_no_rows_away_where_memory_is_short) {
  // Most of the memory is that of the filter, and a thousand rows have room.
  LifePolicy policy = filtered({2, 15'000, 4, 1 << 20});
  policy.forMemory = true;
  const TableSpec spec = living(policy);
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  for (std::uint64_t step = 0; step < 300; step++) {
    std::vector<std::uint64_t> keys = range(step * 20, 20);
    for (std::uint64_t key = step * 20; key < step * 20 + 20; key++) keys.push_back(key);
    pushed(shard, gradients(spec, keys));
    flushed(shard);
    CHECK(memory->used() <= memory->limit());
  }
  CHECK(shard.stats()[0].rows > 800);
  CHECK_EQ(shard.stats()[0].counts.refused, 0u);
  CHECK(shard.totalsAreRight());
}

TEST(a_push_forgets_no_more_than_a_frame_can_have) {
  const TableSpec spec = living(filtered({2, 400'000, 2, 200}));
  auto shard = shardWith(spec);
  std::uint64_t next = 0;
  for (int step = 0; step < 40; step++, next += 100) {
    pushed(*shard, gradients(spec, range(next, 100)));
    CHECK(shard->openBytes() < std::size_t{6} << 20);
    flushed(*shard);
  }
  // The filter forgets for 21 sightings of each push: what is in it is of the last two laps.
  CHECK(sumOfCounters(*shard, spec) < 2 * 2 * 1100);
  CHECK(shard->totalsAreRight());
}

TEST(a_deletion_opens_no_filter) {
  for (const LifePolicy& policy : {filtered(kLarge), byChance(1)}) {
    const TableSpec spec = living(policy);
    auto shard = shardWith(spec);
    pushed(*shard, {spec.id, 0, {7}, {}});
    CHECK(!shard->dirty());
    CHECK_EQ(shard->table(spec.id)->extent(), 0u);
    CHECK(shard->totalsAreRight());
  }
}

TEST(a_filter_without_sizes_is_no_filter) {
  auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 0, 1, 1);
  CHECK(shard.addTable(living(filtered({2, 0, 0, 0}))));
  CHECK(shard.addTable(living(filtered({2, kNone - 1, 4, 100}))));
  CHECK(!shard.addTable(living(filtered(kLarge))));
}

}  // namespace kintsugi::test
