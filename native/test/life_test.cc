// Tables with a policy: rows that go by themselves, rows that are not admitted yet, and slots that are used
// again, against the model (support.h) and through snapshots.
#include <numeric>

#include "test/living.h"

namespace kintsugi::test {
namespace {

struct Saved {
  std::vector<std::uint64_t> keys;
  std::vector<float> values, state;
};

/** The rows of a snapshot; `since` becomes the number that it adds to. */
Saved saved(Shard& shard, const TableSpec& spec, std::uint32_t& since, std::uint32_t& stamp) {
  flushed(shard);
  SnapshotBegun begun;
  CHECK(!shard.beginSnapshot(since, begun));
  since = begun.since;
  stamp = begun.stamp;
  Saved all;
  for (bool more = true; more;) {
    more = false;
    Saved piece;
    CHECK(!shard.readSnapshot(1 << 20, [&](const Table&, std::size_t rows, RowArrays& to) {
      more = true;
      piece.keys.resize(rows);
      piece.values.resize(rows * spec.dim);
      piece.state.resize(rows * (spec.width() - spec.dim));
      to = {piece.keys.data(), reinterpret_cast<std::uint8_t*>(piece.values.data()),
            reinterpret_cast<std::uint8_t*>(piece.state.data())};
      return true;
    }));
    all.keys.insert(all.keys.end(), piece.keys.begin(), piece.keys.end());
    all.values.insert(all.values.end(), piece.values.begin(), piece.values.end());
    all.state.insert(all.state.end(), piece.state.begin(), piece.state.end());
  }
  CHECK_EQ(begun.rows, all.keys.size());
  return all;
}

/** The keys that the table lists, in the order of slots. */
std::vector<std::uint64_t> listed(const Shard& shard, const TableSpec& spec) {
  std::uint32_t slot = 0;
  const std::vector<std::uint64_t> keys = shard.table(spec.id)->keysBySlot(slot, 1u << 20);
  bool more;
  std::vector<std::uint64_t> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  CHECK(shard.table(spec.id)->keysInOrder(0, 1u << 20, more) == sorted);
  return keys;
}

}  // namespace

TEST(a_row_is_gone_when_its_ttl_has_passed) {
  const TableSpec spec = living({3, 0, 0, 0});
  auto shard = shardWith(spec);
  const std::vector<float> initial = rowOf(*shard, spec, 7);
  pushed(*shard, gradients(spec, {7}));
  const std::vector<float> once = rowOf(*shard, spec, 7);
  CHECK(once != initial);
  for (int step = 0; step < 3; step++) {
    pushed(*shard, gradients(spec, {8}));
    const std::vector<float> row = rowOf(*shard, spec, 7);
    CHECK(std::memcmp(row.data(), once.data(), (spec.width() - kLifeWords) * 4) == 0);
    CHECK_EQ(std::bit_cast<std::uint32_t>(row[spec.width() - 2]), static_cast<std::uint32_t>(step) + 1);
    CHECK_EQ(listed(*shard, spec).size(), 2u);
  }
  pushed(*shard, gradients(spec, {8}));
  CHECK(rowOf(*shard, spec, 7) == initial);
  CHECK(listed(*shard, spec) == std::vector<std::uint64_t>{8});
  // A key that comes back starts from nothing: values, state and sightings are those of a first push.
  pushed(*shard, gradients(spec, {7}));
  std::vector<float> again = rowOf(*shard, spec, 7);
  CHECK(std::memcmp(again.data(), once.data(), (spec.width() - kLifeWords) * 4) == 0);
  CHECK_EQ(std::bit_cast<std::uint32_t>(again.back()), 1u);
}

TEST(a_key_that_comes_back_starts_from_nothing_before_it_is_evicted) {
  const TableSpec spec = living({3, 0, 0, 0});
  auto shard = shardWith(spec);
  std::vector<std::uint64_t> many(500);
  std::iota(many.begin(), many.end(), 100);
  pushed(*shard, gradients(spec, many));
  pushed(*shard, gradients(spec, many));
  for (int step = 0; step < 4; step++) pushed(*shard, gradients(spec, {1}));
  CHECK(shard->table(spec.id)->index().size() > 2);  // most rows wait
  const std::uint64_t last = many.back();
  pushed(*shard, gradients(spec, {last, last}));
  auto fresh = shardWith(spec);
  pushed(*fresh, gradients(spec, {last, last}));
  const std::vector<float> row = rowOf(*shard, spec, last), other = rowOf(*fresh, spec, last);
  CHECK(std::memcmp(row.data(), other.data(), (spec.width() - kLifeWords) * 4) == 0);
  CHECK_EQ(std::bit_cast<std::uint32_t>(row.back()), 2u);
}

TEST(slots_of_rows_that_are_gone_are_used_again) {
  const TableSpec spec = living({10, 0, 0, 0});
  auto shard = shardWith(spec);
  for (std::uint64_t step = 0; step < 1000; step++) {
    std::vector<std::uint64_t> keys(20);
    std::iota(keys.begin(), keys.end(), step * 20);
    pushed(*shard, gradients(spec, keys));
    flushed(*shard);
  }
  const TableStats stats = shard->stats()[0];
  CHECK_EQ(listed(*shard, spec).size(), 220u);  // of eleven steps
  CHECK(stats.extent < 320);
  CHECK(stats.rows < 320);
  CHECK_EQ(stats.counts.expired, 20000 - stats.rows);
  CHECK(shard->totalsAreRight());
}

TEST(rows_that_are_deleted_or_replaced_are_counted_by_what_they_were) {
  const TableSpec spec = living({3, 0, 0, 0});
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {1, 2, 3}));
  pushed(*shard, {spec.id, 0, {1, 1, 9}, {}});
  CHECK_EQ(shard->stats()[0].counts.deleted, 1u);
  // Without a sweep: whole rows bring no step, and the last gradients look at few slots.
  Table& t = const_cast<Table&>(*shard->table(spec.id));
  flushed(*shard);
  t.setLife(0, {t.clock() + 10, 0});
  CHECK(listed(*shard, spec).empty());
  pushed(*shard, {spec.id, 0, {2}, {}});
  const TableStats after = shard->stats()[0];
  CHECK_EQ(after.counts.deleted, 1u);
  CHECK_EQ(after.counts.expired, 1u);
  PartData whole{spec.id, spec.width(), {3, 3, 4}, {}};
  whole.rows.assign(3 * std::size_t{spec.width()}, 0);
  pushed(*shard, whole, 1);
  CHECK_EQ(shard->stats()[0].counts.expired, 2u);
}

/** Keys that an increment of values says are gone, ascending. */
std::vector<std::uint64_t> removedSince(Shard& shard, std::uint32_t since, std::uint32_t& stamp,
                                        const Serving& serving = {true, 0, 0}) {
  flushed(shard);
  SnapshotBegun begun;
  CHECK(!shard.beginSnapshot(since, begun, serving));
  CHECK_EQ(begun.since, since);
  stamp = begun.stamp;
  std::vector<std::uint64_t> keys;
  for (bool more = true; more;) {
    more = false;
    std::vector<std::uint64_t> piece;
    // Few at a time, and rows are not asked for.
    CHECK(!shard.readSnapshot(24, [&](const Table&, std::size_t, RowArrays& to) {
      more = to.removedCount > 0;
      piece.resize(to.removedCount);
      to.removed = piece.data();
      return more;
    }));
    keys.insert(keys.end(), piece.begin(), piece.end());
  }
  shard.endSnapshot();
  std::sort(keys.begin(), keys.end());
  return keys;
}

/** Keys of the rows of a snapshot, ascending. */
std::vector<std::uint64_t> keysIn(Shard& shard, std::uint32_t since, const Serving& serving,
                                  std::uint32_t& stamp) {
  flushed(shard);
  SnapshotBegun begun;
  CHECK(!shard.beginSnapshot(since, begun, serving));
  stamp = begun.stamp;
  std::vector<std::uint64_t> keys;
  for (bool more = true; more;) {
    more = false;
    std::vector<std::uint64_t> piece, removed;
    std::vector<std::uint8_t> values, state;
    CHECK(!shard.readSnapshot(1 << 20, [&](const Table& table, std::size_t rows, RowArrays& to) {
      more = true;
      piece.resize(rows);
      removed.resize(to.removedCount);
      values.resize(rows * table.spec().dim * 4 + 4);
      state.resize(rows * table.spec().width() * 4 + 4);
      to.keys = piece.data();
      to.values = values.data();
      to.state = state.data();
      to.removed = removed.data();
      return true;
    }));
    keys.insert(keys.end(), piece.begin(), piece.end());
  }
  CHECK_EQ(begun.rows, keys.size());
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(an_increment_has_the_keys_that_went_and_did_not_come_back) {
  const TableSpec spec = living({3, 0, 0, 0});
  auto shard = shardWith(spec);
  std::vector<std::uint64_t> many(40);
  std::iota(many.begin(), many.end(), 100);
  pushed(*shard, gradients(spec, many));
  std::uint32_t first, second, third;
  CHECK(removedSince(*shard, 0, first).empty());
  pushed(*shard, {spec.id, 0, {100, 101, 102, 999}, {}});
  pushed(*shard, gradients(spec, {101}));
  CHECK(removedSince(*shard, first, second) == std::vector<std::uint64_t>({100, 102}));
  // All but 101 and 7 go by themselves, evicted or not.
  for (int step = 0; step < 4; step++) pushed(*shard, gradients(spec, {7, 101}));
  std::vector<std::uint64_t> rest(many.begin() + 3, many.end());
  CHECK(removedSince(*shard, second, third) == rest);
  rest.insert(rest.begin(), {100, 102});
  CHECK(removedSince(*shard, first, third) == rest);
  // A second shard loads what this one has saved.
  auto loaded = shardWith(spec);
  pushed(*loaded, gradients(spec, {100, 101}));
  flushed(*loaded);
  LoadedRows gone;
  gone.table = spec.id;
  gone.keys = rest.data();
  gone.keyCount = rest.size();
  Status status;
  CHECK(!loaded->unloadRows(gone, status));
  CHECK(status == Status::Applied);
  CHECK(listed(*loaded, spec) == std::vector<std::uint64_t>{101});
  CHECK(loaded->totalsAreRight());
  pushed(*loaded, gradients(spec, {100}));
  CHECK_EQ(loaded->stats()[0].extent, reservedSlots(spec) + 2);  // its slot is used again
}

TEST(readers_get_rows_that_are_admitted_seen_often_and_young_enough) {
  const TableSpec spec = living({9, 0, 0, 2});
  auto shard = shardWith(spec);
  const Serving often{true, 3, 0}, young{true, 0, 2};
  std::uint32_t a, b, c, d;
  pushed(*shard, gradients(spec, {1, 2, 2, 3, 3, 3}));
  CHECK(removedSince(*shard, 0, a).empty());
  const auto keysOf = [&](std::uint32_t since, const Serving& serving, std::uint32_t& stamp) {
    return keysIn(*shard, since, serving, stamp);
  };
  CHECK(keysOf(0, {true, 0, 0}, a) == std::vector<std::uint64_t>({2, 3}));
  CHECK(keysOf(0, often, b) == std::vector<std::uint64_t>{3});
  CHECK(keysOf(0, {}, c) == std::vector<std::uint64_t>({1, 2, 3}));
  CHECK(keysOf(0, young, c) == std::vector<std::uint64_t>({2, 3}));
  // An increment has what is admitted now, and no word about what never was.
  pushed(*shard, gradients(spec, {1, 4}));
  CHECK(keysOf(a, {true, 0, 0}, a) == std::vector<std::uint64_t>{1});
  CHECK(removedSince(*shard, b, b, often).empty());
  for (int step = 0; step < 2; step++) pushed(*shard, gradients(spec, {4}));
  // 2 and 3 are three steps old, 1 is two.
  CHECK(removedSince(*shard, c, d, young) == std::vector<std::uint64_t>({2, 3}));
  CHECK(removedSince(*shard, d, d, young).empty());
  pushed(*shard, gradients(spec, {4}));
  CHECK(removedSince(*shard, d, d, young) == std::vector<std::uint64_t>{1});
  // A key that begins again is not admitted yet, whether its old row was evicted before or not.
  for (int step = 0; step < 7; step++) pushed(*shard, gradients(spec, {4}));
  CHECK(removedSince(*shard, a, a) == std::vector<std::uint64_t>({1, 2, 3}));
  pushed(*shard, gradients(spec, {1, 2}));
  CHECK(removedSince(*shard, a, a).empty());
  pushed(*shard, gradients(spec, {1}));
  CHECK(keysOf(a, {true, 0, 0}, a) == std::vector<std::uint64_t>{1});
  Table& t = const_cast<Table&>(*shard->table(spec.id));
  t.setLife(0, {t.clock() + 10, 0});
  pushed(*shard, gradients(spec, {1, 4}));
  CHECK(removedSince(*shard, a, a) == std::vector<std::uint64_t>({1, 4}));
}

TEST(an_increment_has_the_keys_whose_sightings_decayed) {
  LifePolicy policy{0, 1, 1000, 0};
  policy.decay = {1u << 15, 10};
  TableSpec spec = living(policy);
  auto shard = shardWith(spec);
  const Serving often{true, 3, 0};
  std::uint32_t a, b;
  for (int step = 0; step < 8; step++) pushed(*shard, gradients(spec, {7}));
  CHECK(keysIn(*shard, 0, often, a) == std::vector<std::uint64_t>{7});
  for (int step = 0; step < 30; step++) pushed(*shard, gradients(spec, {1}));
  CHECK(removedSince(*shard, a, b, often) == std::vector<std::uint64_t>{7});
  // The rule of the shard is the former one until the next push, whatever the policy says.
  spec.policy.decay = {};
  CHECK(!shard->addTable(spec));
  CHECK(removedSince(*shard, a, b, often) == std::vector<std::uint64_t>{7});
}

TEST(too_many_removed_keys_make_a_snapshot_whole) {
  TableSpec spec = living({0, 0, 0, 0});
  auto shard = shardWith(spec);
  std::vector<std::uint64_t> many(2000);
  std::iota(many.begin(), many.end(), 0);
  pushed(*shard, gradients(spec, many));
  std::uint32_t since = 0, stamp;
  saved(*shard, spec, since, stamp);
  const std::uint32_t first = stamp;
  many.resize(600);
  pushed(*shard, {spec.id, 0, many, {}});
  since = first;
  CHECK_EQ(saved(*shard, spec, since, stamp).keys.size(), 0u);
  CHECK_EQ(since, first);
  const std::uint32_t second = stamp;
  std::iota(many.begin(), many.end(), 1000);
  pushed(*shard, {spec.id, 0, many, {}});
  // The oldest keys are forgotten, so only the newer snapshot can be added to.
  since = second;
  CHECK_EQ(saved(*shard, spec, since, stamp).keys.size(), 0u);
  CHECK_EQ(since, second);
  since = first;
  CHECK_EQ(saved(*shard, spec, since, stamp).keys.size(), 800u);
  CHECK_EQ(since, 0u);
}

TEST(rare_rows_go_sooner) {
  const TableSpec spec = living({8, 3, 2, 0});
  auto shard = shardWith(spec);
  for (int step = 0; step < 3; step++) pushed(*shard, gradients(spec, {1}));
  pushed(*shard, gradients(spec, {2, 2}));
  for (int step = 0; step < 3; step++) pushed(*shard, gradients(spec, {9}));
  CHECK(listed(*shard, spec) == (std::vector<std::uint64_t>{1, 9}));
  for (int step = 0; step < 6; step++) pushed(*shard, gradients(spec, {9}));
  CHECK(listed(*shard, spec) == std::vector<std::uint64_t>{9});
  const LifeCounts& counts = shard->table(spec.id)->counts();
  CHECK_EQ(counts.rare, 1u);
  CHECK_EQ(counts.expired, 1u);
}

TEST(gradients_change_a_row_from_the_nth_sighting_on) {
  const TableSpec spec = living({0, 0, 0, 3});
  auto shard = shardWith(spec);
  const std::vector<float> initial = rowOf(*shard, spec, 7);
  const auto isInitial = [&] {
    const std::vector<float> row = rowOf(*shard, spec, 7);
    return std::memcmp(row.data(), initial.data(), (spec.width() - kLifeWords) * 4) == 0;
  };
  pushed(*shard, gradients(spec, {7, 1}));
  pushed(*shard, gradients(spec, {2, 7, 2, 2}));
  CHECK(isInitial());
  CHECK_EQ(shard->table(spec.id)->counts().refused, 3u);
  pushed(*shard, gradients(spec, {1, 7}));
  CHECK(!isInitial());
  auto fresh = shardWith(living({1000, 0, 0, 0}));
  pushed(*fresh, gradients(spec, {7}));
  CHECK(rowOf(*shard, spec, 7)[0] == rowOf(*fresh, spec, 7)[0]);
  // A row that is given as a whole is admitted.
  PartData whole{spec.id, spec.width(), {50}, std::vector<float>(spec.width(), 0)};
  pushed(*shard, whole, 1);
  pushed(*shard, gradients(spec, {50}));
  CHECK(rowOf(*shard, spec, 50)[0] != 0);
}

TEST(a_snapshot_has_no_row_that_is_gone) {
  const TableSpec spec = living({5, 0, 0, 2});
  auto shard = shardWith(spec);
  std::vector<std::uint64_t> many(400);
  std::iota(many.begin(), many.end(), 100);
  pushed(*shard, gradients(spec, many));
  std::uint32_t since = 0, first = 0, second = 0;
  CHECK_EQ(saved(*shard, spec, since, first).keys.size(), 400u);
  for (int step = 0; step < 6; step++) pushed(*shard, gradients(spec, {1}));
  since = first;
  const Saved all = saved(*shard, spec, since, second);
  CHECK(all.keys == std::vector<std::uint64_t>{1});
  CHECK_EQ(since, 0u);  // an increment could not say that rows are gone
  CHECK_EQ(std::bit_cast<std::uint32_t>(all.state[all.state.size() - 2]), 0u);
  CHECK_EQ(std::bit_cast<std::uint32_t>(all.state.back()), 6u);
  // Loaded elsewhere, rows go on with their lives.
  auto loaded = shardWith(spec);
  Status status;
  CHECK(!loaded->loadRows(
      {spec.id, all.keys.data(), all.values.data(), all.state.data(), 1, spec.dim, all.state.size()},
      status));
  CHECK(status == Status::Applied);
  for (int step = 0; step < 9; step++) {
    const std::uint64_t key = step < 3 ? 200 : 300;
    for (Shard* each : {shard.get(), loaded.get()}) pushed(*each, gradients(spec, {key}));
    for (const std::uint64_t asked : {1, 200, 300})
      CHECK(rowOf(*shard, spec, asked) == rowOf(*loaded, spec, asked));
  }
}

TEST(a_push_of_many_new_keys_evicts_no_more_than_it_has_room_for) {
  const TableSpec spec = living({80, 0, 0, 0});
  auto shard = shardWith(spec);
  std::vector<std::uint64_t> old(100), fresh(1000);
  std::iota(old.begin(), old.end(), 10);
  std::iota(fresh.begin(), fresh.end(), 5000);
  pushed(*shard, gradients(spec, old));
  flushed(*shard);
  for (int step = 0; step < 80; step++) {
    pushed(*shard, gradients(spec, {1}));
    flushed(*shard);
  }
  // All old rows are gone in the step of this push, and its keys make the table eleven times as large.
  pushed(*shard, gradients(spec, fresh));
  flushed(*shard);
  const auto seen = [&](std::uint64_t key) {
    return std::bit_cast<std::uint32_t>(rowOf(*shard, spec, key).back());
  };
  for (const std::uint64_t key : old) CHECK_EQ(seen(key), 0u);
  for (const std::uint64_t key : fresh) CHECK_EQ(seen(key), 1u);
}

TEST(a_policy_is_part_of_what_a_table_is) {
  auto shard = shardWith(living({5, 0, 0, 0}));
  CHECK(shard->addTable(living({0, 0, 0, 0})));
  CHECK(!shard->addTable(living({5, 0, 0, 0})));
}

}  // namespace kintsugi::test
