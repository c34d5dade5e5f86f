// Policies that change while a shard serves: from which push on the new one holds, and what stays gone.
#include "test/ruled.h"

namespace kintsugi::test {
namespace {

/** Many rows that are gone and wait to be evicted: a push of few keys evicts few. Key 1 lives. */
std::unique_ptr<Shard> waiting(const TableSpec& spec, int steps) {
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, range(100, 500)));
  for (int step = 0; step < steps; step++) pushed(*shard, gradients(spec, {1}));
  CHECK(shard->table(spec.id)->index().size() > 100);
  return shard;
}

}  // namespace

TEST(rows_that_were_gone_do_not_come_back_under_a_longer_ttl) {
  TableSpec spec = living({3, 0, 0, 0});
  auto shard = waiting(spec, 4);
  CHECK(keysOf(*shard, spec) == std::vector<std::uint64_t>{1});
  set(*shard, spec, {1000, 0, 0, 0});
  CHECK(keysOf(*shard, spec) == std::vector<std::uint64_t>{1});
  CHECK(isNew(*shard, spec, 599));
  for (int step = 0; step < 40; step++) {
    pushed(*shard, gradients(spec, {1}));
    CHECK(keysOf(*shard, spec) == std::vector<std::uint64_t>{1});
    CHECK(isNew(*shard, spec, 599));
    if (step == 2) shard = recovered(*shard, spec);
  }
  // All of them are evicted, and counted as what they were.
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{1});
  pushed(*shard, gradients(spec, {599}));
  for (int step = 0; step < 900; step++) pushed(*shard, gradients(spec, {1}));
  CHECK(!isNew(*shard, spec, 599));
}

TEST(a_policy_holds_from_the_first_push_on_that_brings_rows) {
  TableSpec spec = living({5, 0, 0, 0});
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {7}));
  for (int step = 0; step < 3; step++) pushed(*shard, gradients(spec, {1}));
  set(*shard, spec, {2, 0, 0, 0});
  // Neither a read, nor an owner that is told before the push, nor a deletion begins with it.
  shard = recovered(*shard, spec);
  CHECK(!isNew(*shard, spec, 7));
  pushed(*shard, {spec.id, 0, {50}, {}});
  CHECK(!isNew(*shard, spec, 7));
  pushed(*shard, gradients(spec, {1}));
  CHECK(isNew(*shard, spec, 7));
  // An owner that does not know of it yet goes by what it finds.
  TableSpec before = spec;
  before.policy = {5, 0, 0, 0};
  auto late = recovered(*shard, before);
  CHECK(isNew(*late, spec, 7));
}

TEST(a_row_that_lives_gets_the_new_ttl_at_once) {
  TableSpec spec = living({4, 0, 0, 0});
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {7}));
  for (int step = 0; step < 4; step++) pushed(*shard, gradients(spec, {1}));
  CHECK(!isNew(*shard, spec, 7));
  set(*shard, spec, {10, 0, 0, 0});
  for (int step = 4; step < 10; step++) {
    pushed(*shard, gradients(spec, {1}));
    CHECK(!isNew(*shard, spec, 7));
  }
  pushed(*shard, gradients(spec, {1}));
  CHECK(isNew(*shard, spec, 7));
}

TEST(rows_of_several_former_policies_stay_gone) {
  // Rows that were seen once, thrice, and six times, all in the first step.
  TableSpec spec = living({50, 2, 4, 0});
  auto shard = shardWith(spec);
  std::vector<std::uint64_t> keys;
  for (const std::uint64_t key : range(1000, 300)) keys.push_back(key);
  for (int i = 0; i < 3; i++)
    for (const std::uint64_t key : range(2000, 300)) keys.push_back(key);
  for (int i = 0; i < 6; i++)
    for (const std::uint64_t key : range(3000, 300)) keys.push_back(key);
  pushed(*shard, gradients(spec, keys));
  const auto step = [&](int count) {
    for (; count; count--) pushed(*shard, gradients(spec, {1}));
  };
  const auto gone = [&] {
    return std::array{isNew(*shard, spec, 1299), isNew(*shard, spec, 2299), isNew(*shard, spec, 3299)};
  };
  step(5);
  CHECK((gone() == std::array{true, false, false}));
  // Rows that were seen seldom go later now; those that went stay gone.
  set(*shard, spec, {50, 4, 6, 0});
  step(1);
  CHECK((gone() == std::array{true, false, false}));
  step(1);
  CHECK((gone() == std::array{true, true, false}));
  set(*shard, spec, {0, 0, 0, 2});
  step(1);
  shard = recovered(*shard, spec);
  CHECK((gone() == std::array{true, true, false}));
  set(*shard, spec, {9, 0, 0, 0});
  step(1);
  CHECK((gone() == std::array{true, true, false}));
  step(1);
  CHECK((gone() == std::array{true, true, true}));
  set(*shard, spec, {kMostAge - 1, 0, 0, 0});
  for (int left = 100; left; left--) {
    step(1);
    CHECK((gone() == std::array{true, true, true}));
  }
  CHECK(keysOf(*shard, spec) == std::vector<std::uint64_t>{1});
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{1});
}

TEST(a_change_waits_where_too_many_former_ones_are_not_swept) {
  TableSpec spec = living({0, 9, 90, 0});
  auto shard = shardWith(spec);
  // So many slots that a push of one key does not look at all of them.
  pushed(*shard, gradients(spec, range(1000, 3000)));
  const auto step = [&] { pushed(*shard, gradients(spec, {1})); };
  const auto holds = [&] { return shard->table(spec.id)->rule().isOf(spec.policy); };
  for (const std::uint32_t below : {8u, 7u, 6u}) {
    set(*shard, spec, {0, below, 90 - 10 * (9 - below), 0});
    step();
  }
  CHECK(!holds());
  shard = recovered(*shard, spec);
  int steps = 0;
  for (; !holds() && steps < 200; steps++) step();
  CHECK(holds());
  CHECK(steps < 100);
}

TEST(what_is_assigned_after_a_change_lives_by_the_policy_of_then) {
  TableSpec spec = living({3, 0, 0, 0});
  auto shard = waiting(spec, 4);
  set(*shard, spec, {1000, 0, 0, 0});
  PartData whole{spec.id, spec.width(), {50, 599}, std::vector<float>(2 * std::size_t{spec.width()}, 1)};
  for (std::size_t i = 1; i <= 2; i++) {
    whole.rows[i * spec.width() - 2] = std::bit_cast<float>(std::uint32_t{500});
    whole.rows[i * spec.width() - 1] = std::bit_cast<float>(std::uint32_t{1});
  }
  pushed(*shard, whole, 1);
  CHECK(!isNew(*shard, spec, 50) && !isNew(*shard, spec, 599));
  for (int step = 0; step < 40; step++) pushed(*shard, gradients(spec, {1}));
  CHECK(!isNew(*shard, spec, 50) && !isNew(*shard, spec, 599));
  CHECK(isNew(*shard, spec, 598));
  // When all slots were looked at, it has the age that it is given.
  pushed(*shard, whole, 1);
  CHECK_EQ(std::bit_cast<std::uint32_t>(rowOf(*shard, spec, 50)[spec.width() - 2]), 500u);
}

TEST(rows_that_are_loaded_go_by_the_policy_of_then) {
  TableSpec spec = living({3, 0, 0, 0});
  auto shard = shardWith(spec);
  LoadedRows rows;
  rows.table = spec.id;
  const std::vector<std::uint64_t> keys{7, 8};
  std::vector<float> values(2 * spec.dim, 1), state(2 * (spec.width() - spec.dim), 1);
  for (std::size_t i = 1; i <= 2; i++) {
    const std::size_t end = i * (spec.width() - spec.dim);
    state[end - 2] = std::bit_cast<float>(i == 1 ? std::uint32_t{50} : std::uint32_t{2});
    state[end - 1] = std::bit_cast<float>(std::uint32_t{1});
  }
  rows.keys = keys.data();
  rows.values = values.data();
  rows.state = state.data();
  rows.keyCount = 2;
  rows.valueCount = values.size();
  rows.stateCount = state.size();
  Status status;
  CHECK(!shard->loadRows(rows, status));
  CHECK(status == Status::Applied);
  set(*shard, spec, {100, 0, 0, 0});
  shard = recovered(*shard, spec);
  CHECK(isNew(*shard, spec, 7) && !isNew(*shard, spec, 8));
  for (int step = 0; step < 20; step++) {
    pushed(*shard, gradients(spec, {1}));
    CHECK(isNew(*shard, spec, 7) && !isNew(*shard, spec, 8));
  }
}

TEST(increments_of_what_readers_get_are_whole_after_a_change) {
  TableSpec spec = living({30, 0, 0, 2});
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {1, 2, 2, 3, 3, 3}));
  const auto begun = [&](std::uint32_t since) {
    flushed(*shard);
    SnapshotBegun begun;
    CHECK(!shard->beginSnapshot(since, begun, {true, 0, 0}));
    shard->endSnapshot();
    return begun;
  };
  const std::uint32_t first = begun(0).stamp;
  pushed(*shard, gradients(spec, {9}));
  CHECK_EQ(begun(first).since, first);
  set(*shard, spec, {30, 0, 0, 3});
  pushed(*shard, gradients(spec, {9}));
  const SnapshotBegun second = begun(first);
  CHECK_EQ(second.since, 0u);
  CHECK_EQ(second.rows, 1u);
  CHECK_EQ(begun(second.stamp).since, second.stamp);
  // Other tables of the shard begin without such a word.
  TableSpec other = spec;
  other.id = 77;
  CHECK(!shard->addTable(other));
  pushed(*shard, gradients(other, {5}));
  CHECK_EQ(begun(second.stamp).since, second.stamp);
}

TEST(room_for_rows_changes_with_the_policy) {
  LifePolicy policy;
  policy.maxRows = 50;
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  std::uint64_t next = 0;
  // A slot is free from the next batch on.
  const auto push = [&](int pushes) {
    for (; pushes; pushes--, next += 10) {
      pushed(*shard, gradients(spec, range(next, 10)));
      flushed(*shard);
    }
  };
  push(20);
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{50});
  policy.maxRows = 80;
  set(*shard, spec, policy);
  push(20);
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{80});
  policy.maxRows = 20;
  set(*shard, spec, policy);
  push(1);
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{20});
}

TEST(short_rows_have_room_for_the_rule) {
  for (const std::uint32_t dim : {1u, 2u, 3u, 7u, 8u, 9u, 10u, 40u}) {
    TableSpec spec =
        withPolicy(tableSpec(3, dim, OptimizerKind::Sgd, InitializerKind::Uniform), {3, 2, 2, 0});
    auto shard = waiting(spec, 5);
    set(*shard, spec, {100, 2, 50, 0});
    for (int step = 0; step < 30; step++) {
      pushed(*shard, gradients(spec, {1}));
      CHECK(keysOf(*shard, spec) == std::vector<std::uint64_t>{1});
      if (step == 1) shard = recovered(*shard, spec);
    }
    CHECK_EQ(rowsIn(*shard, spec), std::size_t{1});
    CHECK(shard->totalsAreRight());
  }
}

TEST(a_table_that_filters_follows_its_policy_as_a_plain_model_does) {
  Random random(seed);
  for (const std::uint32_t dim : {1u, 8u}) {
    for (const bool isFilter : {true, false}) {
      LifePolicy policy = filtered({2, 3, 2, 40}, 6);
      if (!isFilter) policy = {6, 0, 0, 0};
      TableSpec spec =
          withPolicy(tableSpec(3, dim, OptimizerKind::Adagrad, InitializerKind::Uniform), policy);
      auto shard = shardWith(spec);
      TableModel model(spec);
      for (int step = 0; step < 600; step++) {
        if (random.chance(10)) {
          policy.ttl = random.chance(20) ? 0 : 1 + random.below(12);
          if (!isFilter) policy.chance = random.chance(30) ? 0 : random.below(1u << 31);
          if (!policy.ttl && !isFilter) policy.ttl = 20;
          set(*shard, spec, policy);
          model.set(policy);
        }
        std::vector<std::uint64_t> keys;
        for (std::uint32_t i = random.below(6); i; i--) keys.push_back(random.below(40));
        const PartData part = gradients(spec, keys);
        pushed(*shard, part);
        model.push(0, part);
        if (random.chance(20)) shard = recovered(*shard, spec);
        for (std::uint64_t key = 0; key < 40; key++) CHECK(rowOf(*shard, spec, key) == model.row(key));
        CHECK(shard->totalsAreRight());
      }
    }
  }
}

TEST(a_shard_whose_keys_all_wait_is_taken_over_under_another_policy) {
  for (const std::uint32_t dim : {1u, 5u}) {
    LifePolicy policy;
    policy.chance = 1;
    TableSpec spec = withPolicy(tableSpec(3, dim, OptimizerKind::Adagrad, InitializerKind::Uniform), policy);
    auto shard = shardWith(spec);
    pushed(*shard, gradients(spec, {7, 8}));
    CHECK_EQ(rowsIn(*shard, spec), std::size_t{0});
    CHECK_EQ(shard->table(spec.id)->extent(), shard->table(spec.id)->reserved());
    set(*shard, spec, {3, 0, 0, 0});
    shard = recovered(*shard, spec);
    CHECK(keysOf(*shard, spec).empty());
    pushed(*shard, gradients(spec, {7}));
    CHECK(keysOf(*shard, spec) == std::vector<std::uint64_t>{7});
    CHECK(shard->totalsAreRight());
  }
}

TEST(a_filter_stays_as_it_was) {
  TableSpec spec = living(filtered({2, 3, 2, 40}, 6));
  auto shard = shardWith(spec);
  CHECK(shard->addTable(living({6, 0, 0, 0})));
  CHECK(shard->addTable(living(filtered({3, 3, 2, 40}, 6))));
  CHECK(!shard->addTable(living(filtered({2, 3, 2, 40}, 9))));
}

TEST(a_table_has_a_policy_from_the_beginning_or_never) {
  TableSpec spec = living({3, 0, 0, 0});
  auto shard = shardWith(spec);
  CHECK(shard->addTable(withPolicy(spec, {})));
  TableSpec none = withPolicy(spec, {});
  none.id = 9;
  CHECK(!shard->addTable(none));
  CHECK(shard->addTable(withPolicy(none, {3, 0, 0, 0})));
}

}  // namespace kintsugi::test
