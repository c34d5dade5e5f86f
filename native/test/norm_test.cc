// Rows that go because their norm is low, under policies that change, too.
#include <array>
#include <limits>

#include "test/ruled.h"

namespace kintsugi::test {
namespace {

/** Rows with values below this norm go after so many steps. */
LifePolicy faint(float below, std::uint32_t ttl) {
  LifePolicy policy;
  policy.faintBelow = below;
  policy.faintTtl = ttl;
  return policy;
}

/** Assigns rows all of whose values are these, of an age. */
void assigned(Shard& shard, const TableSpec& spec, const std::vector<std::uint64_t>& keys, float value,
              std::uint32_t age = 0) {
  PartData whole{spec.id, spec.width(), keys, std::vector<float>(keys.size() * spec.width(), value)};
  for (std::size_t end = spec.width(); end <= whole.rows.size(); end += spec.width()) {
    whole.rows[end - 2] = std::bit_cast<float>(age);
    whole.rows[end - 1] = std::bit_cast<float>(std::uint32_t{1});
  }
  pushed(shard, whole, 1);
}

}  // namespace

TEST(rows_with_a_low_norm_go) {
  // Five values of 0.4 have a norm of 0.894.
  TableSpec spec = living(faint(0.9f, 3));
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {1}));
  assigned(*shard, spec, {7}, 0.4f);
  assigned(*shard, spec, {8}, 0.41f);
  assigned(*shard, spec, {9}, std::numeric_limits<float>::quiet_NaN());
  for (int step = 0; step < 3; step++) {
    pushed(*shard, gradients(spec, {1}));
    CHECK(!isNew(*shard, spec, 7));
  }
  pushed(*shard, gradients(spec, {1}, 100));
  CHECK(isNew(*shard, spec, 7));
  CHECK(keysOf(*shard, spec) == (std::vector<std::uint64_t>{1, 8, 9}));
  CHECK_EQ(shard->table(spec.id)->counts().faint, 1u);
  CHECK_EQ(shard->table(spec.id)->counts().expired, 0u);
  // A row that was kept goes when a push has made its norm low, also if it was looked at in between.
  for (int step = 0; step < 9; step++) pushed(*shard, gradients(spec, {2}, 100));
  assigned(*shard, spec, {8}, 0.1f);
  for (int step = 0; step < 4; step++) pushed(*shard, gradients(spec, {2}, 100));
  CHECK(keysOf(*shard, spec) == (std::vector<std::uint64_t>{1, 2, 9}));
}

TEST(rows_whose_norm_was_low_stay_gone) {
  TableSpec spec = living(faint(2, 3));
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {1}, 100));
  assigned(*shard, spec, range(1000, 1500), 0.1f);
  assigned(*shard, spec, range(5000, 1500), 0.5f);
  assigned(*shard, spec, range(8000, 1500), 1);
  const auto step = [&](int count) {
    for (; count; count--) pushed(*shard, gradients(spec, {1}, 100));
  };
  const auto gone = [&] {
    return std::array{isNew(*shard, spec, 2499), isNew(*shard, spec, 6499), isNew(*shard, spec, 9499)};
  };
  const auto holds = [&] { return shard->table(spec.id)->rule().isOf(spec.policy); };
  step(4);
  CHECK((gone() == std::array{true, true, false}));
  set(*shard, spec, faint(0.5f, 1000));
  step(1);
  CHECK(holds());
  shard = recovered(*shard, spec);
  CHECK((gone() == std::array{true, true, false}));
  // A line that covers the former one takes its place at once.
  set(*shard, spec, faint(3, 1));
  step(1);
  set(*shard, spec, {1000, 0, 0, 0});
  step(1);
  CHECK(holds());
  CHECK((gone() == std::array{true, true, true}));
  step(100);
  CHECK((gone() == std::array{true, true, true}));
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{1});
  const LifeCounts& counts = shard->table(spec.id)->counts();
  CHECK(counts.faint > 3000 && !counts.expired && !counts.rare);
}

TEST(a_change_of_the_norm_waits_where_a_former_one_is_not_swept) {
  TableSpec spec = living(faint(1, 2));
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {1}, 100));
  assigned(*shard, spec, range(1000, 6000), 1);
  assigned(*shard, spec, range(8000, 20), 0.1f);
  const auto step = [&] { pushed(*shard, gradients(spec, {1}, 100)); };
  const auto holds = [&] { return shard->table(spec.id)->rule().isOf(spec.policy); };
  for (int steps = 0; steps < 5; steps++) step();
  set(*shard, spec, faint(9, 40));
  step();
  CHECK(holds());
  // The line of the first rule says more of the time, that of the second one more of the norm.
  set(*shard, spec, faint(2, 90));
  step();
  CHECK(!holds());
  int steps = 0;
  for (; !holds() && steps < 500; steps++) step();
  CHECK(holds());
}

TEST(rows_go_by_their_norm_as_in_a_plain_model) {
  Random random(seed);
  for (const std::uint32_t dim : {1u, 8u}) {
    const auto drawn = [&] {
      LifePolicy policy = faint(0.05f * static_cast<float>(1 + random.below(20)), 1 + random.below(8));
      if (random.chance(50)) policy.ttl = 1 + random.below(12);
      if (random.chance(30)) policy.rareBelow = 1 + random.below(4);
      if (policy.rareBelow) policy.rareTtl = 1 + random.below(6);
      return policy;
    };
    LifePolicy policy = drawn();
    TableSpec spec = withPolicy(tableSpec(3, dim, OptimizerKind::Adagrad, InitializerKind::Uniform), policy);
    auto shard = shardWith(spec);
    TableModel model(spec);
    std::uint64_t faintRows = 0;
    for (int step = 0; step < 1500; step++) {
      // A change would wait where a former one is not swept, and the model waits for nothing.
      if (random.chance(10) && !shard->table(spec.id)->rule().hasLines()) {
        policy = drawn();
        set(*shard, spec, policy);
        model.set(policy);
      }
      std::vector<std::uint64_t> keys;
      for (std::uint32_t i = random.below(6); i; i--) keys.push_back(random.below(40));
      const PartData part = gradients(spec, keys, 0.1f * static_cast<float>(random.below(9)) - 0.4f);
      pushed(*shard, part);
      model.push(0, part);
      faintRows = std::max(faintRows, shard->table(spec.id)->counts().faint);
      if (random.chance(20)) shard = recovered(*shard, spec);
      for (std::uint64_t key = 0; key < 40; key++) CHECK(rowOf(*shard, spec, key) == model.row(key));
      CHECK(shard->totalsAreRight());
    }
    CHECK(faintRows > 0);
  }
}

}  // namespace kintsugi::test
