// The keys of rows that leave a table, which are noted while somebody watches it.
#include <algorithm>
#include <map>
#include <set>

#include "test/living.h"

namespace kintsugi::test {
namespace {

constexpr std::uint64_t kKeys = 60;

Evicted taken(Shard& shard, const TableSpec& spec) {
  auto all = shard.takeEvicted();
  if (all.empty()) return {};
  CHECK_EQ(all.size(), 1u);
  CHECK_EQ(all[0].first, spec.id);
  CHECK_EQ(all[0].second.keys.size(), all[0].second.reasons.size());
  return std::move(all[0].second);
}

std::set<std::uint64_t> keysOf(const Shard& shard, const TableSpec& spec) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < kKeys; key++) {
    if (has(shard, spec, key)) keys.insert(key);
  }
  return keys;
}

/** Pushes of gradients, deletions and whole rows: a row that leaves is noted once, with the reason for which
 * it is counted; a key that has a row all the same came with the push. */
void checkRandom(const TableSpec& spec, std::uint32_t seed) {
  auto shard = shardWith(spec);
  shard->watch(spec.id, true);
  std::uint64_t state = seed;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  std::map<std::uint8_t, std::uint64_t> byReason;
  for (int step = 0; step < 400; step++) {
    const std::set<std::uint64_t> before = keysOf(*shard, spec);
    std::vector<std::uint64_t> keys(1 + random(4));
    for (std::uint64_t& key : keys) key = random(random(2) ? kKeys : 5);
    const std::uint64_t kind = random(8);
    if (kind == 0) {
      pushed(*shard, {spec.id, 0, keys, {}});
    } else if (kind == 1) {
      PartData rows{spec.id, spec.width(), keys, {}};
      rows.rows.assign(keys.size() * spec.width(), 0);
      pushed(*shard, rows, 1);
    } else {
      pushed(*shard, gradients(spec, keys));
    }
    const Evicted some = taken(*shard, spec);
    if (random(3) == 0) flushed(*shard);
    const std::set<std::uint64_t> after = keysOf(*shard, spec);
    std::multiset<std::uint64_t> left(some.keys.begin(), some.keys.end());
    for (const std::uint64_t key : before) CHECK(after.count(key) || left.count(key) == 1);
    for (const std::uint64_t key : left) {
      CHECK(before.count(key) && left.count(key) == 1);
      CHECK(!after.count(key) || std::find(keys.begin(), keys.end(), key) != keys.end());
    }
    for (const std::uint8_t reason : some.reasons) byReason[reason]++;
  }
  const LifeCounts& counts = shard->table(spec.id)->counts();
  const auto of = [&](Reason reason) { return byReason[static_cast<std::uint8_t>(reason)]; };
  CHECK_EQ(of(Reason::Expired), counts.expired);
  CHECK_EQ(of(Reason::Rare), counts.rare);
  CHECK_EQ(of(Reason::Faint), counts.faint);
  CHECK_EQ(of(Reason::Displaced), counts.displaced);
  CHECK_EQ(of(Reason::Deleted), counts.deleted);
  CHECK(counts.deleted > 0);
}

}  // namespace

TEST(keys_of_rows_that_leave_are_noted_with_their_reasons) {
  checkRandom(living({6, 0, 0, 0}), 1);
  checkRandom(living({20, 3, 4, 2}), 2);
  LifePolicy few{};
  few.maxRows = 9;
  checkRandom(living(few), 3);
  LifePolicy low{};
  low.faintBelow = 1.2f;
  low.faintTtl = 4;
  checkRandom(living(low), 5);
  checkRandom(tableSpec(3, 5, OptimizerKind::Adagrad, InitializerKind::Uniform), 4);
}

TEST(nothing_is_noted_of_a_table_that_nobody_watches) {
  const TableSpec spec = living({6, 0, 0, 0});
  auto shard = shardWith(spec);
  const auto deleted = [&](std::uint64_t key) {
    pushed(*shard, gradients(spec, {key}));
    pushed(*shard, {spec.id, 0, {key}, {}});
  };
  deleted(1);
  CHECK(taken(*shard, spec).keys.empty());
  shard->watch(spec.id, true);
  deleted(2);
  shard->watch(spec.id, false);
  shard->watch(spec.id, true);
  CHECK(taken(*shard, spec).keys.empty());
  deleted(3);
  deleted(4);
  const Evicted some = taken(*shard, spec);
  CHECK(some.keys == (std::vector<std::uint64_t>{3, 4}));
  CHECK_EQ(some.reasons[0], static_cast<std::uint8_t>(Reason::Deleted));
  CHECK(taken(*shard, spec).keys.empty());
  shard->watch(spec.id, false);
  deleted(5);
  CHECK(taken(*shard, spec).keys.empty());
  shard->watch(99, true);
}

}  // namespace kintsugi::test
