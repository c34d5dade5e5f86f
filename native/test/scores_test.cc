// Scores of rows: what a push says of its keys, and which rows go first for it.
#include <cmath>
#include <limits>

#include "test/living.h"

namespace kintsugi::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInfinite = std::numeric_limits<float>::infinity();

PartData withScores(const TableSpec& spec, std::vector<std::uint64_t> keys, std::vector<float> scores) {
  PartData part = gradients(spec, std::move(keys));
  part.scores = std::move(scores);
  return part;
}

float scoreOf(Shard& shard, const TableSpec& spec, std::uint64_t key) {
  const std::vector<float> row = rowOf(shard, spec, key);
  return row[row.size() - 3];
}

Status statusOf(Shard& shard, const PartData& part, std::uint32_t mode = 0) {
  return shard.push(view(encode(mode, {part}, true)));
}

std::size_t rowsOf(const Shard& shard, const TableSpec& spec) { return shard.table(spec.id)->index().size(); }

}  // namespace

TEST(a_row_has_the_score_of_the_last_push_that_brought_one) {
  const TableSpec spec = living(scored(1000));
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {7, 8}));
  CHECK(scoreOf(*shard, spec, 7) == 0);
  pushed(*shard, withScores(spec, {7, 9}, {5, -3}));
  pushed(*shard, gradients(spec, {7, 8, 9}));
  CHECK(scoreOf(*shard, spec, 7) == 5 && scoreOf(*shard, spec, 8) == 0 && scoreOf(*shard, spec, 9) == -3);
  pushed(*shard, withScores(spec, {7}, {2}));
  CHECK(scoreOf(*shard, spec, 7) == 2);
  // A key that comes twice has the highest, in any order.
  pushed(*shard, withScores(spec, {7, 8, 9, 8, 7, 9, 8}, {-9, 1, -8, 6, -5, -9, 2}));
  CHECK(scoreOf(*shard, spec, 7) == -5 && scoreOf(*shard, spec, 8) == 6 && scoreOf(*shard, spec, 9) == -8);
  // Values, ages and sightings are as without scores, and rows have a word less.
  LifePolicy same = scored(1000);
  same.score = false;
  const TableSpec less = living(same);
  CHECK_EQ(less.width() + 1, spec.width());
  auto plain = shardWith(less);
  for (const std::vector<std::uint64_t>& keys :
       std::vector<std::vector<std::uint64_t>>{{7, 8}, {7, 9}, {7, 8, 9}, {7}, {7, 8, 9, 8, 7, 9, 8}})
    pushed(*plain, gradients(less, keys));
  for (const std::uint64_t key : {7, 8, 9}) {
    std::vector<float> row = rowOf(*shard, spec, key);
    row.erase(row.end() - 3);
    CHECK(row == rowOf(*plain, less, key));
  }
  CHECK(shard->totalsAreRight());
}

TEST(both_zeros_are_one_score_and_have_the_same_bits) {
  const TableSpec spec = living(scored(1000));
  auto shard = shardWith(spec);
  const std::vector<float> pushes[] = {{-0.0f, 0.0f}, {0.0f, -0.0f}, {-0.0f, -0.0f}};
  for (const std::vector<float>& zeros : pushes) {
    pushed(*shard, withScores(spec, {7, 7}, zeros));
    CHECK(!std::signbit(scoreOf(*shard, spec, 7)));
  }
}

TEST(rows_of_the_lowest_score_make_room) {
  const TableSpec spec = living(scored(200));
  auto shard = shardWith(spec);
  Random random(seed);
  std::map<std::uint64_t, float> scores;
  std::vector<float> all;
  for (std::uint64_t key = 0; key < 200; key++) all.push_back(scores[key] = random.real());
  pushed(*shard, withScores(spec, range(0, 200), all));
  flushed(*shard);
  // Sightings and ages say the opposite: those that are to go are seen often.
  std::sort(all.begin(), all.end());
  std::vector<std::uint64_t> low;
  for (const auto& [key, score] : scores)
    if (score < all[100]) low.push_back(key);
  for (int i = 0; i < 5; i++) pushed(*shard, gradients(spec, low));
  flushed(*shard);
  // So many that the push looks at all rows.
  std::vector<std::uint64_t> fresh = range(1000, 50);
  pushed(*shard, withScores(spec, fresh, std::vector<float>(50, 10)));
  flushed(*shard);
  CHECK_EQ(rowsOf(*shard, spec), 200u);
  for (const auto& [key, score] : scores) CHECK_EQ(has(*shard, spec, key), score >= all[50]);
  for (const std::uint64_t key : fresh) CHECK(has(*shard, spec, key));
  CHECK_EQ(shard->stats()[0].counts.displaced, 50u);
}

// Pushes look at all rows of tables that are so small.
TEST(pushes_in_any_order_displace_the_rows_of_the_lowest_score) {
  struct Row {
    float score = 0;
    std::uint32_t last = 0, seen = 0;
  };
  constexpr std::size_t kMost = 30;
  std::size_t displaced = 0;
  for (std::uint64_t round = 0; round < 30; round++) {
    const TableSpec spec = living(scored(kMost));
    auto shard = shardWith(spec);
    Random random(seed * 1000 + round);
    std::map<std::uint64_t, Row> rows;
    for (std::uint32_t step = 1; step <= 150; step++) {
      PartData part = gradients(spec, {});
      const bool brings = random.chance(70);
      std::map<std::uint64_t, float> scores;
      for (std::uint32_t n = 1 + random.below(6); n; n--) {
        const std::uint64_t key = random.below(80);
        // Few scores, so that many are equal.
        const float score = static_cast<float>(random.below(7)) - 3;
        part.keys.push_back(key);
        if (brings) part.scores.push_back(score);
        const auto [at, isFirst] = scores.try_emplace(key, score);
        at->second = std::max(at->second, score);
        rows[key].last = step;
        rows[key].seen++;
      }
      for (const auto& [key, score] : scores)
        if (brings) rows[key].score = score;
      part.rows.assign(part.keys.size() * spec.dim, 0.5f);
      pushed(*shard, part);
      const auto idle = [&](const Row& row) {
        return static_cast<float>(step - row.last) / static_cast<float>(row.seen);
      };
      std::vector<Row> gone;
      const std::size_t before = rows.size();
      for (auto at = rows.begin(); at != rows.end();) {
        const auto each = at++;
        if (has(*shard, spec, each->first)) continue;
        CHECK(each->second.last < step);
        gone.push_back(each->second);
        rows.erase(each);
      }
      CHECK_EQ(gone.size(), before > kMost ? before - kMost : 0);
      for (const auto& [key, row] : rows) {
        CHECK(scoreOf(*shard, spec, key) == row.score);
        for (const Row& other : gone)
          CHECK(row.last == step || row.score > other.score ||
                (row.score == other.score && idle(row) <= idle(other)));
      }
      displaced += gone.size();
      if (random.chance(70)) flushed(*shard);
    }
  }
  CHECK(displaced > 2000);
}

TEST(of_equal_scores_the_row_goes_that_was_not_seen_for_long) {
  const TableSpec spec = living(scored(60));
  auto shard = shardWith(spec);
  for (std::uint64_t key = 0; key < 60; key++)
    pushed(*shard, withScores(spec, {key}, {key % 2 ? -0.0f : 0.0f}));
  for (std::uint64_t key = 0; key < 60; key++) {
    pushed(*shard, withScores(spec, {1000 + key}, {1}));
    flushed(*shard);
    for (std::uint64_t other = 0; other < 60; other++) CHECK_EQ(has(*shard, spec, other), other > key);
  }
}

TEST(a_row_of_a_low_score_has_its_push_and_goes_with_the_next) {
  const TableSpec spec = living(scored(40));
  auto shard = shardWith(spec);
  pushed(*shard, withScores(spec, range(0, 40), std::vector<float>(40, 5)));
  for (std::uint64_t step = 0; step < 20; step++) {
    pushed(*shard, withScores(spec, {1000 + step}, {-1}));
    flushed(*shard);
    CHECK(has(*shard, spec, 1000 + step) && rowsOf(*shard, spec) == 40);
    CHECK_EQ(shard->stats()[0].rows, 40u);
  }
  // The first one took the place of a row with a score of 5, and each other one that of the one before.
  for (std::uint64_t key = 0; key < 40; key++) CHECK_EQ(has(*shard, spec, key), key > 0);
}

TEST(a_row_that_is_gone_makes_room_before_one_of_a_lower_score) {
  constexpr std::uint32_t kTtl = 300;
  const TableSpec spec = living(scored(551, kTtl));
  // The sweep may come to the rows in the same step, or not: it is somewhere else each time.
  for (int before = 0; before < 9; before++) {
    auto shard = shardWith(spec);
    for (int i = 0; i < before; i++) pushed(*shard, gradients(spec, {9999}));
    pushed(*shard, withScores(spec, range(0, 50), std::vector<float>(50, 100)));
    pushed(*shard, withScores(spec, range(1000, 500), std::vector<float>(500, -5)));
    for (std::uint32_t step = 2; step < kTtl + 1; step++) pushed(*shard, gradients(spec, {9999}));
    CHECK_EQ(rowsOf(*shard, spec), 551u);
    flushed(*shard);
    pushed(*shard, gradients(spec, {2000}));
    for (std::uint64_t key = 1000; key < 1500; key++) CHECK(has(*shard, spec, key));
    CHECK_EQ(shard->stats()[0].counts.displaced, 0u);
    CHECK(shard->stats()[0].counts.expired > 0);
  }
}

TEST(a_slot_that_is_used_again_begins_with_no_score) {
  const TableSpec spec = living(scored(4, 3));
  auto shard = shardWith(spec);
  pushed(*shard, withScores(spec, {1, 2, 3, 4}, {7, 8, 9, 10}));
  // Deleted, displaced, and gone by itself.
  pushed(*shard, PartData{spec.id, 0, {2}, {}});
  flushed(*shard);
  pushed(*shard, gradients(spec, {2}));
  CHECK(scoreOf(*shard, spec, 2) == 0);
  pushed(*shard, gradients(spec, {5}));
  flushed(*shard);
  CHECK(!has(*shard, spec, 2));
  pushed(*shard, gradients(spec, {6}));
  flushed(*shard);
  pushed(*shard, gradients(spec, {2}));
  CHECK(scoreOf(*shard, spec, 5) == 0 && scoreOf(*shard, spec, 2) == 0);
  auto other = shardWith(living(scored(100, 3)));
  const TableSpec wide = living(scored(100, 3));
  pushed(*other, withScores(wide, {1}, {7}));
  for (int i = 0; i < 4; i++) pushed(*other, gradients(wide, {2}));
  CHECK(scoreOf(*other, wide, 1) == 0);
  pushed(*other, gradients(wide, {1}));
  CHECK(scoreOf(*other, wide, 1) == 0);
}

TEST(keys_that_get_no_row_take_their_scores_with_them) {
  LifePolicy policy = filtered({3, 1000, 4, 1 << 20});
  policy.maxRows = 1000;
  policy.score = true;
  const TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  PartData part = withScores(spec, {1, 7, 2, 8, 3}, {1, 2, 3, 4, 5});
  part.counts = {1, 3, 2, 4, 1};
  pushed(*shard, part);
  CHECK_EQ(rowsOf(*shard, spec), 2u);
  CHECK(scoreOf(*shard, spec, 7) == 2 && scoreOf(*shard, spec, 8) == 4);
  pushed(*shard, gradients(spec, {2, 1}));
  CHECK(has(*shard, spec, 2) && scoreOf(*shard, spec, 2) == 0);
  // Where memory is short, too.
  LifePolicy tight = byChance(16);
  tight.forMemory = true;
  tight.score = true;
  const TableSpec second = living(tight);
  Shard small(std::make_shared<Memory>(1 << 18), 0, 1, 1);
  CHECK(!small.addTable(second));
  const std::vector<std::uint64_t> keys = range(0, 6000);
  pushed(small, gradients(second, range(100'000, 300)));
  for (int step = 0; step < 4; step++) {
    pushed(small, withScores(second, keys, std::vector<float>(keys.begin(), keys.end())));
    flushed(small);
  }
  CHECK(small.stats()[0].counts.refused > 1000);
  std::size_t found = 0;
  for (const std::uint64_t key : keys) {
    if (!has(small, second, key)) continue;
    CHECK(scoreOf(small, second, key) == static_cast<float>(key));
    found++;
  }
  CHECK(found > 200);
}

TEST(rows_of_a_high_score_stay_where_memory_is_short) {
  LifePolicy policy;
  policy.forMemory = true;
  policy.score = true;
  const TableSpec spec = living(policy);
  Shard shard(std::make_shared<Memory>(1 << 20), 0, 1, 1);
  CHECK(!shard.addTable(spec));
  const std::vector<std::uint64_t> dear = range(0, 500);
  pushed(shard, withScores(spec, dear, std::vector<float>(dear.size(), 1)));
  std::uint64_t next = 1000;
  // Some pushes have so many new keys that they end the batch, with the rows that go for them.
  int ended = 0;
  for (int step = 0; step < 1500; step++) {
    const std::size_t count = step % 10 ? 15u : 300u + static_cast<std::uint32_t>(step) * 37 % 3000;
    std::vector<float> scores(count, -1);
    ended += pushed(shard, withScores(spec, range(next, count), scores));
    next += count;
    if (step % 3 == 0) flushed(shard);
  }
  CHECK(ended > 0);
  CHECK(shard.stats()[0].counts.displaced > 50'000);
  CHECK_EQ(shard.stats()[0].counts.refused, 0u);
  for (const std::uint64_t key : dear) CHECK(scoreOf(shard, spec, key) == 1);
}

TEST(a_row_that_is_given_as_a_whole_brings_its_score) {
  const TableSpec spec = living(scored(100));
  auto shard = shardWith(spec);
  const auto given = [&](std::uint64_t key, float score) {
    PartData part{spec.id, spec.width(), {key}, std::vector<float>(spec.width(), 1)};
    part.rows[part.rows.size() - 3] = score;
    part.rows[part.rows.size() - 2] = part.rows.back() = 0;
    return part;
  };
  pushed(*shard, given(1, 42), 1);
  pushed(*shard, given(2, kNaN), 1);
  pushed(*shard, given(3, -kInfinite), 1);
  CHECK(scoreOf(*shard, spec, 1) == 42 && scoreOf(*shard, spec, 2) == 0 && scoreOf(*shard, spec, 3) == 0);
  // Rows that are loaded do, too.
  auto loaded = shardWith(spec);
  const std::vector<float> row = given(1, kNaN).rows, other = given(1, 8).rows;
  const std::uint64_t keys[] = {4, 5};
  std::vector<float> values(2 * spec.dim, 1), state(row.begin() + spec.dim, row.end());
  state.insert(state.end(), other.begin() + spec.dim, other.end());
  LoadedRows rows;
  rows.table = spec.id;
  rows.keys = keys;
  rows.values = values.data();
  rows.state = state.data();
  rows.keyCount = 2;
  rows.valueCount = values.size();
  rows.stateCount = state.size();
  Status status = Status::Absent;
  CHECK(!loaded->loadRows(rows, status) && status == Status::Applied);
  CHECK(scoreOf(*loaded, spec, 4) == 0 && scoreOf(*loaded, spec, 5) == 8);
}

TEST(scores_that_say_nothing_are_refused) {
  const TableSpec spec = living(scored(100)),
                  plain = tableSpec(4, 5, OptimizerKind::Sgd, InitializerKind::Zeros);
  TableSpec ageing = living({1000, 0, 0, 0});
  ageing.id = 5;
  auto shard = shardWith(spec);
  CHECK(!shard->addTable(plain) && !shard->addTable(ageing));
  pushed(*shard, gradients(spec, {1}));
  flushed(*shard);
  for (const float wrong : {kNaN, -kNaN, kInfinite, -kInfinite})
    CHECK(statusOf(*shard, withScores(spec, {1, 2}, {1, wrong})) == Status::BadFrame);
  CHECK(statusOf(*shard, withScores(plain, {1}, {1})) == Status::BadArgument);
  CHECK(statusOf(*shard, withScores(ageing, {1}, {1})) == Status::BadArgument);
  PartData whole{spec.id, spec.width(), {1}, std::vector<float>(spec.width(), 1)};
  whole.scores = {1};
  CHECK(statusOf(*shard, whole, 1) == Status::BadFrame);
  PartData deletion{spec.id, 0, {1}, {}};
  deletion.scores = {1};
  CHECK(statusOf(*shard, deletion) == Status::BadFrame);
  PartData both = withScores(spec, {1, 2, 3}, {1, 2, 3});
  both.counts = {4, 5, 6};
  const Bytes section = encode(0, {both}, true);
  for (std::size_t size = 0; size < section.size(); size++)
    CHECK(shard->push({section.data(), size}) == Status::BadFrame);
  Status pulled = Status::Applied;
  answerOf([&](const Allocate& allocate) { pulled = shard->pull(view(section), allocate); });
  CHECK(pulled == Status::BadFrame);
  CHECK(!shard->dirty());
  CHECK(shard->push(view(section)) == Status::Applied);
  CHECK(scoreOf(*shard, spec, 3) == 3);
}

TEST(a_table_has_scores_from_its_creation_on_or_never) {
  const TableSpec spec = living(scored(100));
  auto shard = shardWith(spec);
  TableSpec without = spec, longer = spec, memory = spec;
  without.policy.score = false;
  longer.policy.maxRows = 1000;
  memory.policy.maxRows = 0;
  memory.policy.forMemory = true;
  CHECK(shard->addTable(without));
  CHECK(!shard->addTable(longer) && !shard->addTable(memory));
  auto second = shardWith(without);
  CHECK(second->addTable(spec));
}

}  // namespace kintsugi::test
