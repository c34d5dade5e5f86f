// Policies whose clock counts seconds of the job, sightings that decay, and rows that `keep` holds.
#include <cmath>
#include <numeric>

#include "test/ruled.h"

namespace kintsugi::test {
namespace {

LifePolicy inSeconds(LifePolicy policy) {
  policy.seconds = true;
  return policy;
}

std::uint32_t ageIn(Shard& shard, const TableSpec& spec, std::uint64_t key) {
  return std::bit_cast<std::uint32_t>(rowOf(shard, spec, key)[spec.width() - 2]);
}

/** A row that was given as a whole, of this age. */
PartData given(const TableSpec& spec, std::uint64_t key, std::uint32_t age, std::uint32_t sightings) {
  PartData part{spec.id, spec.width(), {key}, std::vector<float>(spec.width(), 1)};
  part.rows[spec.width() - 2] = std::bit_cast<float>(age);
  part.rows[spec.width() - 1] = std::bit_cast<float>(sightings);
  return part;
}

}  // namespace

TEST(a_row_goes_by_seconds_and_not_by_pushes) {
  TableSpec spec = living(inSeconds({10, 0, 0, 0}));
  auto shard = shardWith(spec);
  shard->tell(100, 0);
  pushed(*shard, gradients(spec, {7}));
  for (int push = 0; push < 50; push++) pushed(*shard, gradients(spec, {1}));
  CHECK(!isNew(*shard, spec, 7));
  CHECK_EQ(ageIn(*shard, spec, 7), 0u);
  shard->tell(110, 0);
  CHECK_EQ(ageIn(*shard, spec, 7), 0u);
  pushed(*shard, gradients(spec, {1}));
  CHECK_EQ(ageIn(*shard, spec, 7), 10u);
  // A second that is told late changes nothing.
  shard->tell(50, 0);
  pushed(*shard, gradients(spec, {1}));
  CHECK_EQ(ageIn(*shard, spec, 7), 10u);
  // The next owner has the clock of the stream, whatever it was told.
  shard = recovered(*shard, spec);
  CHECK_EQ(ageIn(*shard, spec, 7), 10u);
  pushed(*shard, gradients(spec, {1}));
  CHECK_EQ(ageIn(*shard, spec, 7), 10u);
  shard->tell(111, 0);
  pushed(*shard, gradients(spec, {1}));
  CHECK(isNew(*shard, spec, 7));
  CHECK_EQ(shard->stats()[0].counts.expired, 1u);
  CHECK(!isNew(*shard, spec, 1));
}

TEST(rows_of_a_table_that_nobody_pushes_to_go_by_seconds) {
  TableSpec spec = living(inSeconds({256, 0, 0, 0}));
  auto shard = shardWith(spec);
  shard->tell(1, kMaxDeltaBytes);
  CHECK(!shard->dirty());
  pushed(*shard, gradients(spec, range(100, 50'000)));
  flushed(*shard);
  shard->tell(2, kMaxDeltaBytes);
  CHECK(!shard->dirty());
  shard->tell(257, kMaxDeltaBytes);
  CHECK(shard->dirty());
  CHECK_EQ(keysOf(*shard, spec).size(), std::size_t{50'000});
  flushed(*shard);
  shard->tell(258, 1000);
  CHECK(!shard->dirty());
  shard->tell(260, 100'000);
  CHECK(shard->dirty() && shard->openBytes() <= 100'000);
  CHECK_EQ(keysOf(*shard, spec).size(), std::size_t{0});
  CHECK(rowsIn(*shard, spec) > 40'000);
  for (int second = 261; second < 268; second++) {
    flushed(*shard);
    shard->tell(second, kMaxDeltaBytes);
    CHECK(shard->totalsAreRight());
  }
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{0});
  CHECK_EQ(shard->stats()[0].counts.expired, std::uint64_t{50'000});
  flushed(*shard);
  shard->tell(269, kMaxDeltaBytes);
  CHECK(!shard->dirty());
}

// A shard has many pushes in a second, each with new keys: what goes keeps up with what comes.
TEST(rows_go_as_fast_as_many_pushes_of_a_second_bring_new_ones) {
  constexpr std::uint32_t kTtl = 150, kPushes = 10, kKeys = 400;
  TableSpec spec = living(inSeconds({kTtl, 0, 0, 0}));
  auto shard = shardWith(spec);
  std::uint64_t key = 1;
  for (std::uint32_t second = 1; second <= 4 * kTtl; second++) {
    shard->tell(second, kMaxDeltaBytes);
    for (std::uint32_t push = 0; push < kPushes; push++, key += kKeys)
      pushed(*shard, gradients(spec, range(key, kKeys)));
    flushed(*shard);
  }
  // Few rows are gone and not evicted.
  constexpr std::size_t kThere = std::size_t{kTtl + 1} * kPushes * kKeys;
  CHECK(rowsIn(*shard, spec) >= kThere && rowsIn(*shard, spec) < kThere + kThere / 20);
}

TEST(another_policy_begins_without_a_push_where_time_passes) {
  TableSpec spec = living(inSeconds({1'000'000, 0, 0, 0}));
  auto shard = shardWith(spec);
  shard->tell(1, kMaxDeltaBytes);
  pushed(*shard, gradients(spec, range(100, 20'000)));
  flushed(*shard);
  shard->tell(40, kMaxDeltaBytes);
  CHECK(!shard->dirty());
  // Each change waits for a second, and some for lines of former rules.
  for (const std::uint32_t rareBelow : {2, 1, 3, 2, 4}) {
    set(*shard, spec, inSeconds({100'000, rareBelow, 10'000, 0}));
    CHECK_EQ(keysOf(*shard, spec).size(), std::size_t{20'000});
  }
  shard->tell(501, kMaxDeltaBytes);
  CHECK(shard->dirty() && shard->table(spec.id)->rule().isOf(spec.policy));
  set(*shard, spec, inSeconds({400, 0, 0, 0}));
  shard->tell(502, kMaxDeltaBytes);
  CHECK_EQ(keysOf(*shard, spec).size(), std::size_t{0});
  shard = recovered(*shard, spec);
  CHECK_EQ(keysOf(*shard, spec).size(), std::size_t{0});
  for (int second = 503; second < 510; second++) {
    shard->tell(second, kMaxDeltaBytes);
    flushed(*shard);
    CHECK(shard->totalsAreRight());
  }
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{0});
}

TEST(rows_that_come_with_an_age_keep_it_in_seconds) {
  TableSpec spec = living(inSeconds({100, 0, 0, 0}));
  auto shard = shardWith(spec);
  shard->tell(5'000'000, 0);
  pushed(*shard, given(spec, 7, 60, 4), 1);
  CHECK_EQ(ageIn(*shard, spec, 7), 60u);
  std::vector<float> values(spec.dim, 1), state(spec.width() - spec.dim, 0);
  state[state.size() - 2] = std::bit_cast<float>(40u);
  state[state.size() - 1] = std::bit_cast<float>(2u);
  auto restored = shardWith(spec);
  restored->tell(5'000'000, 0);
  const std::uint64_t key = 9;
  Status status;
  CHECK(!restored->loadRows({spec.id, &key, values.data(), state.data(), 1, values.size(), state.size()},
                            status));
  CHECK(status == Status::Applied);
  CHECK_EQ(ageIn(*restored, spec, 9), 40u);
  restored->tell(5'000'060, 0);
  pushed(*restored, gradients(spec, {1}));
  CHECK_EQ(ageIn(*restored, spec, 9), 100u);
  restored->tell(5'000'061, 0);
  pushed(*restored, gradients(spec, {1}));
  CHECK(isNew(*restored, spec, 9));
}

TEST(a_clock_stays_what_it_was) {
  const TableSpec spec = living(inSeconds({10, 0, 0, 0}));
  auto shard = shardWith(spec);
  CHECK(shard->addTable(living({10, 0, 0, 0})));
  CHECK(!shard->addTable(living(inSeconds({20, 0, 0, 0}))));
}

TEST(each_push_of_a_second_draws_anew) {
  LifePolicy policy = inSeconds({100, 0, 0, 0});
  policy.chance = (std::uint64_t{1} << 32) / 4;
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  shard->tell(3, 0);
  std::size_t before = 0;
  for (int push = 0; push < 30; push++) {
    pushed(*shard, gradients(spec, range(1000, 200)));
    if (push == 3) {
      before = rowsIn(*shard, spec);
      // 1 - 0.75^4 of them.
      CHECK(before > 105 && before < 165);
      shard = recovered(*shard, spec);
    }
  }
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{200});
}

TEST(new_rows_find_room_within_a_second) {
  LifePolicy policy = inSeconds({1000, 0, 0, 0});
  policy.maxRows = 50;
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  shard->tell(3, 0);
  for (std::uint64_t push = 0; push < 40; push++) {
    pushed(*shard, gradients(spec, range(1000 * push, 20)));
    flushed(*shard);
  }
  CHECK_EQ(rowsIn(*shard, spec), std::size_t{50});
  // A push never makes its own rows go.
  for (const std::uint64_t key : range(39'000, 20)) CHECK(!isNew(*shard, spec, key));
}

TEST(sightings_decay_as_they_are_multiplied) {
  CHECK_EQ(decayed(1000, 1u << 15, 1), 500u);
  CHECK_EQ(decayed(2, 1u << 15, 1), 1u);
  CHECK_EQ(decayed(7, 1u << 15, 0), 7u);
  CHECK_EQ(decayed(1000, 1u << 15, 9), 2u);
  CHECK_EQ(decayed(1000, 1u << 15, 10), 1u);
  CHECK_EQ(decayed(1000, 1u << 15, 11), 0u);
  CHECK_EQ(decayed(kMostSteps, 1, 2), 0u);
  CHECK_EQ(decayed(kMostSteps, 65535, ~0u), 0u);
  Random random(seed);
  for (int i = 0; i < 2000; i++) {
    const std::uint32_t factor = 1 + random.below(65535), sightings = random.below(kMostSteps);
    std::uint32_t before = sightings;
    long double exact = sightings;
    for (std::uint32_t times = 0; times < 60; times++, exact *= factor / 65536.0L) {
      const std::uint32_t now = decayed(sightings, factor, times);
      CHECK(now <= before);
      CHECK(std::abs(static_cast<long double>(now) - exact) <= 0.5L + 1e-6L);
      before = now;
    }
  }
}

TEST(a_row_that_was_seen_often_goes_when_its_sightings_have_decayed) {
  LifePolicy policy{0, 5, 10, 0};
  policy.decay = {1u << 15, 100};
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  for (int push = 0; push < 40; push++) pushed(*shard, gradients(spec, {7}));
  std::uint32_t clock = shard->table(spec.id)->clock();
  const std::uint32_t passed = clock / 100;
  // 40, 20, 10, 5, and 3 after four multiples of 100.
  while ((clock = shard->table(spec.id)->clock()) / 100 < passed + 4) {
    CHECK(!isNew(*shard, spec, 7));
    pushed(*shard, gradients(spec, {1}));
    if (clock % 64 == 0) shard = recovered(*shard, spec);
  }
  CHECK(isNew(*shard, spec, 7));
  pushed(*shard, gradients(spec, {1}));
  CHECK_EQ(shard->stats()[0].counts.rare, 1u);
  // A key that was seen twice and is seen again counts from what was left.
  CHECK(!isNew(*shard, spec, 1));
}

TEST(rows_go_by_seconds_and_decay_as_in_a_plain_model) {
  Random random(seed);
  for (const bool seconds : {false, true}) {
    const auto drawn = [&] {
      LifePolicy policy{random.chance(50) ? 1 + random.below(20) : 0, 1 + random.below(6),
                        1 + random.below(8), 0};
      policy.decay = {1 + random.below(65535), 1 + random.below(9)};
      if (random.chance(20)) policy.decay = {};
      policy.seconds = seconds;
      return policy;
    };
    LifePolicy policy = drawn();
    TableSpec spec = withPolicy(tableSpec(3, 5, OptimizerKind::Adagrad, InitializerKind::Uniform), policy);
    auto shard = shardWith(spec);
    TableModel model(spec);
    std::uint32_t second = 0;
    std::uint64_t rare = 0;
    for (int step = 0; step < 3000; step++) {
      if (random.chance(10) && !shard->table(spec.id)->rule().hasLines()) {
        policy = drawn();
        set(*shard, spec, policy);
        model.set(policy);
      }
      if (random.chance(30)) {
        second += random.below(3);
        shard->tell(second, random.chance(50) ? kMaxDeltaBytes : 0);
        model.tell(second);
        const Table& t = *shard->table(spec.id);
        if (seconds) model.pass(t.clock(), t.rule().isOf(policy));
      }
      std::vector<std::uint64_t> keys;
      for (std::uint32_t i = random.below(6); i; i--) keys.push_back(random.below(40));
      const PartData part = gradients(spec, keys);
      pushed(*shard, part);
      model.push(0, part);
      rare = std::max(rare, shard->table(spec.id)->counts().rare);
      if (random.chance(20)) {
        shard = recovered(*shard, spec);
        shard->tell(second, 0);
      }
      for (std::uint64_t key = 0; key < 40; key++) CHECK(rowOf(*shard, spec, key) == model.row(key));
      CHECK(shard->totalsAreRight());
    }
    CHECK(rare > 0);
  }
}

TEST(what_a_decaying_rule_let_go_stays_gone) {
  LifePolicy policy{0, 5, 10, 0};
  policy.decay = {1u << 15, 100};
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  for (int push = 0; push < 8; push++) pushed(*shard, gradients(spec, range(100, 600)));
  pushed(*shard, gradients(spec, range(100, 500)));
  const std::uint32_t passed = shard->table(spec.id)->clock() / 100;
  while (shard->table(spec.id)->clock() / 100 < passed + 1) pushed(*shard, gradients(spec, {1}));
  CHECK(isNew(*shard, spec, 650));
  // The new rule lets no row go.
  set(*shard, spec, {1000, 0, 0, 0});
  for (int push = 0; push < 40; push++) {
    pushed(*shard, gradients(spec, {1}));
    CHECK(isNew(*shard, spec, 650));
    if (push == 2) shard = recovered(*shard, spec);
  }
  CHECK_EQ(keysOf(*shard, spec).size(), rowsIn(*shard, spec));
}

TEST(a_burst_does_not_pass_what_is_kept) {
  for (const bool seconds : {false, true}) {
    LifePolicy policy{10, 0, 0, 0};
    policy.seconds = seconds;
    policy.keep = 300;
    TableSpec spec = living(policy);
    auto shard = shardWith(spec);
    std::uint32_t second = 1;
    const auto step = [&](std::vector<std::uint64_t> keys) {
      shard->tell(second++, 0);
      pushed(*shard, gradients(spec, std::move(keys)));
    };
    // 800 rows of ten steps, those of a high key were seen last.
    for (std::uint64_t i = 0; i < 10; i++) step(range(100 + i * 80, 80));
    for (int i = 0; i < 200; i++) {
      step({1});
      // Rows that `keep` holds are there, and others past their ttl are until a sweep takes them.
      if (i == 50) shard = recovered(*shard, spec);
      CHECK(rowsIn(*shard, spec) >= 300);
      for (const std::uint64_t key : range(660, 240)) CHECK(!isNew(*shard, spec, key));
    }
    // The newest: key 1, and 299 of those before; of 80 that came together nobody is newer.
    CHECK(rowsIn(*shard, spec) >= 300 && rowsIn(*shard, spec) < 380);
    CHECK(isNew(*shard, spec, 100) && isNew(*shard, spec, 500));
    // New rows take the place of the oldest.
    for (std::uint64_t i = 0; i < 4; i++) step(range(2000 + i * 80, 80));
    for (int i = 0; i < 200; i++) step({1});
    CHECK(rowsIn(*shard, spec) >= 300 && rowsIn(*shard, spec) < 380);
    for (const std::uint64_t key : range(2000, 320)) CHECK(!isNew(*shard, spec, key));
    CHECK(isNew(*shard, spec, 660));
    // Without it they go.
    policy.keep = 0;
    set(*shard, spec, policy);
    for (int i = 0; i < 60; i++) step({1});
    CHECK_EQ(rowsIn(*shard, spec), std::size_t{1});
  }
}

TEST(many_rows_are_kept_about_by_their_age) {
  LifePolicy policy{100, 0, 0, 0};
  policy.keep = 20'000;
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  for (std::uint64_t i = 0; i < 100; i++) pushed(*shard, gradients(spec, range(1000 + i * 1000, 1000)));
  for (int i = 0; i < 2000; i++) pushed(*shard, gradients(spec, range(500'000, 50)));
  const std::size_t rows = rowsIn(*shard, spec);
  CHECK(rows >= 20'000 && rows < 24'000);
  // The newest of them are there.
  for (std::uint64_t key = 85'000; key < 101'000; key += 100) CHECK(!isNew(*shard, spec, key));
  CHECK(shard->totalsAreRight());
}

TEST(readers_have_thresholds_in_seconds_and_of_what_is_left) {
  LifePolicy policy = inSeconds({1000, 3, 500, 0});
  policy.decay = {1u << 15, 100};
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  shard->tell(1, 0);
  for (int push = 0; push < 8; push++) pushed(*shard, gradients(spec, {7}));
  pushed(*shard, gradients(spec, {8}));
  const auto served = [&](std::uint32_t minSightings, std::uint32_t maxAge, std::uint32_t maxSeconds) {
    const Serving serving{true, minSightings, maxAge, maxSeconds};
    std::vector<std::uint32_t> slots;
    for (const std::uint64_t key : {7, 8}) slots.push_back(shard->table(spec.id)->index().find(key + 1));
    shard->table(spec.id)->hideUnserved(slots, serving);
    return std::pair{slots[0] != kNone, slots[1] != kNone};
  };
  CHECK((served(0, 0, 0) == std::pair{true, true}));
  CHECK((served(5, 0, 0) == std::pair{true, false}));
  shard->tell(251, 0);
  pushed(*shard, gradients(spec, {1}));
  // Steps are none of this clock.
  CHECK((served(0, 1, 0) == std::pair{true, true}));
  CHECK((served(0, 0, 250) == std::pair{true, true}));
  CHECK((served(0, 0, 249) == std::pair{false, false}));
  CHECK((served(5, 0, 0) == std::pair{false, false}));
  CHECK((served(1, 0, 0) == std::pair{true, false}));
}

}  // namespace kintsugi::test
