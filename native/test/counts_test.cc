// Counts beside the keys of a push: a key with a count is seen as often as one that comes as often.
#include "test/living.h"

namespace kintsugi::test {
namespace {

constexpr Filter kLarge{6, 4000, 8, 1 << 20};

LifePolicy counting(std::uint32_t admitAt = 0) { return {1000, 0, 0, admitAt}; }

PartData counted(const TableSpec& spec, std::vector<std::uint64_t> keys, std::vector<std::uint32_t> counts) {
  PartData part = gradients(spec, std::move(keys));
  part.counts = std::move(counts);
  return part;
}

std::uint32_t seen(Shard& shard, const TableSpec& spec, std::uint64_t key) {
  return std::bit_cast<std::uint32_t>(rowOf(shard, spec, key).back());
}

Status statusOf(Shard& shard, const PartData& part, std::uint32_t mode = 0) {
  return shard.push(view(encode(mode, {part}, true)));
}

}  // namespace

TEST(a_row_is_seen_as_often_as_its_count_says) {
  const TableSpec spec = living(counting());
  auto shard = shardWith(spec);
  pushed(*shard, counted(spec, {7, 8}, {5, 1}));
  pushed(*shard, gradients(spec, {7}));
  CHECK_EQ(seen(*shard, spec, 7), 6u);
  CHECK_EQ(seen(*shard, spec, 8), 1u);
  // Counts of a key that comes several times are summed, as its gradients are; a step has passed for each.
  pushed(*shard, counted(spec, {8, 7, 8}, {10, 1, 20}));
  CHECK_EQ(seen(*shard, spec, 7), 7u);
  CHECK_EQ(seen(*shard, spec, 8), 31u);
  CHECK_EQ(shard->table(spec.id)->clock(), kFirstStep + 3);
  // Values change as without counts.
  auto plain = shardWith(spec);
  pushed(*plain, gradients(spec, {7, 8}));
  pushed(*plain, gradients(spec, {7}));
  pushed(*plain, gradients(spec, {8, 7, 8}));
  for (const std::uint64_t key : {7, 8})
    for (std::uint32_t x = 0; x < spec.dim; x++)
      CHECK(rowOf(*plain, spec, key)[x] == rowOf(*shard, spec, key)[x]);
  CHECK(shard->totalsAreRight());
}

TEST(counts_end_where_sightings_do) {
  const TableSpec spec = living(counting(3));
  auto shard = shardWith(spec);
  pushed(*shard, counted(spec, {7, 7, 8}, {~0u, ~0u, ~0u}));
  CHECK_EQ(seen(*shard, spec, 7), kMostSteps);
  pushed(*shard, counted(spec, {7, 8}, {~0u, 1}));
  CHECK_EQ(seen(*shard, spec, 7), kMostSteps);
  CHECK_EQ(seen(*shard, spec, 8), kMostSteps);
}

TEST(a_count_admits_as_so_many_sightings) {
  for (const LifePolicy& policy : {counting(6), filtered(kLarge)}) {
    const TableSpec spec = living(policy);
    auto shard = shardWith(spec), twin = shardWith(spec);
    const auto isInitial = [&](std::uint64_t key) { return rowOf(*shard, spec, key)[0]; };
    const float before = isInitial(7), others = isInitial(8);
    pushed(*shard, counted(spec, {7, 8}, {3, 5}));
    CHECK(isInitial(7) == before && isInitial(8) == others);
    pushed(*shard, counted(spec, {7, 8}, {2, 1}));
    CHECK(isInitial(7) == before && isInitial(8) != others);
    pushed(*shard, counted(spec, {7}, {1}));
    CHECK(isInitial(7) != before);
    CHECK_EQ(seen(*shard, spec, 7), 6u);
    CHECK_EQ(seen(*shard, spec, 8), 6u);
    // The same keys, as often as they come.
    pushed(*twin, gradients(spec, {7, 8, 7, 8, 7, 8, 8, 8}));
    pushed(*twin, gradients(spec, {7, 8, 7}));
    pushed(*twin, gradients(spec, {7}));
    for (const std::uint64_t key : {7, 8}) CHECK_EQ(seen(*twin, spec, key), seen(*shard, spec, key));
    CHECK_EQ(shard->stats()[0].counts.refused, twin->stats()[0].counts.refused);
    CHECK(shard->totalsAreRight());
  }
}

TEST(a_count_draws_so_many_times) {
  const TableSpec spec = living(byChance(1));
  auto shard = shardWith(spec), twin = shardWith(spec);
  for (const std::uint32_t times : {2u, 9u, 64u}) {
    // The same draws as of keys that come as often.
    std::vector<std::uint64_t> keys = range(times * 10'000, 500), all;
    for (std::uint32_t i = 0; i < times; i++) all.insert(all.end(), keys.begin(), keys.end());
    pushed(*shard, counted(spec, keys, std::vector<std::uint32_t>(keys.size(), times)));
    pushed(*twin, gradients(spec, all));
    for (const std::uint64_t key : keys) CHECK_EQ(has(*shard, spec, key), has(*twin, spec, key));
  }
  // Many are drawn at once: 1 - (1 - p)^n of the keys are admitted.
  LifePolicy rare;
  rare.chance = 1 << 20;  // of 2^32
  const TableSpec second = living(rare);
  auto many = shardWith(second);
  pushed(*many, counted(second, range(0, 4000), std::vector<std::uint32_t>(4000, 4096)));
  const double part = static_cast<double>(many->stats()[0].rows) / 4000;
  CHECK(part > 0.60 && part < 0.66);
  pushed(*many, counted(second, range(0, 4000), std::vector<std::uint32_t>(4000, ~0u)));
  CHECK_EQ(many->stats()[0].rows, 4000u);
}

TEST(a_filter_counts_each_sighting_of_a_count) {
  const TableSpec spec = living(filtered({255, 1000, 4, 1 << 20}));
  auto shard = shardWith(spec);
  pushed(*shard, counted(spec, {7}, {254}));
  CHECK_EQ(shard->stats()[0].rows, 0u);
  pushed(*shard, gradients(spec, {7}));
  CHECK_EQ(seen(*shard, spec, 7), 255u);
  // Keys that are dropped take their counts with them: the others keep theirs.
  pushed(*shard, counted(spec, {1, 7, 2, 8, 3}, {2, 3, 4, 300, 6}));
  CHECK_EQ(shard->stats()[0].rows, 2u);
  CHECK_EQ(seen(*shard, spec, 7), 258u);
  CHECK_EQ(seen(*shard, spec, 8), 300u);
  pushed(*shard, counted(spec, {1, 2, 3}, {253, 251, 248}));
  CHECK_EQ(seen(*shard, spec, 1), 255u);
  CHECK_EQ(seen(*shard, spec, 2), 255u);
  CHECK_EQ(seen(*shard, spec, 3), 0u);
}

TEST(keys_without_a_slot_take_their_counts_with_them) {
  LifePolicy policy = byChance(15);
  policy.forMemory = true;
  const TableSpec spec = living(policy);
  const auto memory = std::make_shared<Memory>(1 << 18);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  std::vector<std::uint64_t> keys = range(0, 6000);
  std::vector<std::uint32_t> counts;
  for (const std::uint64_t key : keys) counts.push_back(static_cast<std::uint32_t>(1 + key % 9));
  pushed(shard, gradients(spec, range(100'000, 300)));
  for (int step = 0; step < 6; step++) {
    pushed(shard, counted(spec, keys, counts));
    flushed(shard);
  }
  CHECK(shard.stats()[0].counts.refused > 20'000);
  std::size_t found = 0;
  for (const std::uint64_t key : keys) {
    if (!has(shard, spec, key)) continue;
    CHECK_EQ(seen(shard, spec, key) % counts[key], 0u);
    CHECK(seen(shard, spec, key) > 0);
    found++;
  }
  CHECK(found > 200);
}

TEST(counts_that_say_nothing_are_refused) {
  const TableSpec spec = living(counting()),
                  plain = tableSpec(4, 5, OptimizerKind::Sgd, InitializerKind::Zeros);
  auto shard = shardWith(spec);
  CHECK(!shard->addTable(plain));
  pushed(*shard, gradients(spec, {1}));
  flushed(*shard);
  CHECK(statusOf(*shard, counted(spec, {1, 2}, {1, 0})) == Status::BadArgument);
  CHECK(statusOf(*shard, counted(plain, {1}, {1})) == Status::BadArgument);
  PartData whole{spec.id, spec.width(), {1}, std::vector<float>(spec.width(), 1)};
  whole.counts = {1};
  CHECK(statusOf(*shard, whole, 1) == Status::BadFrame);
  PartData deletion{spec.id, 0, {1}, {}};
  deletion.counts = {1};
  CHECK(statusOf(*shard, deletion) == Status::BadFrame);
  CHECK(!shard->dirty());
  // A pull has none, and counts that are cut off are no frame.
  const Bytes section = encode(0, {counted(spec, {1, 2, 3}, {1, 2, 3})}, true);
  for (std::size_t size = 0; size < section.size(); size++)
    CHECK(shard->push({section.data(), size}) == Status::BadFrame);
  Status pulled = Status::Applied;
  answerOf([&](const Allocate& allocate) { pulled = shard->pull(view(section), allocate); });
  CHECK(pulled == Status::BadFrame);
  CHECK(!shard->dirty());
  CHECK(shard->push(view(section)) == Status::Applied);
  // No key, no count.
  PartData none = gradients(spec, {});
  Bytes empty = encode(0, {none}, true);
  storeAt(empty.data() + 8, 2, spec.dim | kHasCounts);
  CHECK(shard->push(view(empty)) == Status::Applied);
}

}  // namespace kintsugi::test
