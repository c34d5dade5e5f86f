// Filters on their way to files and back: as they were when a snapshot began, and the sum of several shards.

#include <map>

#include "test/living.h"

namespace kintsugi::test {
namespace {

constexpr Filter kSmall{3, 60, 4, 4000};

struct Slots {
  std::vector<std::uint64_t> slots;
  std::vector<std::uint8_t> counters;
};

/** Reads the open snapshot to its end, and gives its rows away. `between` is called after each piece. */
template <class Between>
Slots readAll(Shard& shard, std::uint32_t maxBytes, Between between) {
  Slots all;
  bool more = true;
  while (more) {
    more = false;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint8_t> values, state;
    bool areCounters = false;
    std::size_t count = 0;
    CHECK(!shard.readSnapshot(maxBytes, [&](const Table& t, std::size_t rows, RowArrays& to) {
      more = true;
      areCounters = to.areCounters;
      count = rows;
      keys.resize(rows + 1);
      values.resize(rows * (areCounters ? t.spec().stride() : t.spec().dim * 4) + 1);
      state.resize(rows * (t.spec().width() - t.spec().dim) * 4 + 1);
      to.keys = keys.data();
      to.values = values.data();
      to.state = areCounters ? nullptr : state.data();
      return true;
    }));
    if (areCounters) {
      CHECK(count <= std::max<std::size_t>(1, maxBytes / 40));
      all.slots.insert(all.slots.end(), keys.begin(), keys.end() - 1);
      all.counters.insert(all.counters.end(), values.begin(), values.end() - 1);
    }
    between();
  }
  return all;
}

std::map<std::uint64_t, Bytes> bySlot(const Slots& from, std::size_t stride) {
  std::map<std::uint64_t, Bytes> slots;
  for (std::size_t i = 0; i < from.slots.size(); i++) {
    const auto at = from.counters.begin() + static_cast<std::ptrdiff_t>(i * stride);
    CHECK(slots.emplace(from.slots[i], Bytes(at, at + static_cast<std::ptrdiff_t>(stride))).second);
  }
  return slots;
}

Status loaded(Shard& shard, const TableSpec& spec, const Slots& from, std::uint32_t waiting) {
  const LoadedFilter filter{spec.id,           from.slots.data(),    from.counters.data(),
                            from.slots.size(), from.counters.size(), waiting};
  Status status = Status::BadFrame;
  CHECK(!shard.loadFilter(filter, status));
  return status;
}

Bytes filterBytes(const Shard& shard, const TableSpec& spec) {
  const Table& t = *shard.table(spec.id);
  if (!t.extent()) return {};
  return Bytes(t.row(t.reserved()), t.row(t.firstSlot()));
}

void pushSome(Random& random, const TableSpec& spec, std::vector<Shard*> shards) {
  std::vector<std::uint64_t> keys;
  for (std::uint32_t i = 1 + random.below(40); i; i--) keys.push_back(random.below(3000));
  for (Shard* shard : shards) pushed(*shard, gradients(spec, keys));
}

}  // namespace

TEST(a_snapshot_has_the_filter_as_it_was_when_it_began) {
  Filter filter = kSmall;
  filter.line = 1000;
  filter.first = 500;
  const TableSpec spec = living(filtered(filter));
  for (int round = 0; round < 10; round++) {
    auto shard = shardWith(spec), twin = shardWith(spec), restored = shardWith(spec);
    Random random(seed + static_cast<std::uint64_t>(round));
    // Beyond the capacity it forgets, also in the middle of a snapshot.
    for (int step = random.below(400); step >= 0; step--) pushSome(random, spec, {shard.get(), twin.get()});
    flushed(*shard);
    flushed(*twin);
    SnapshotBegun begun;
    CHECK(!shard->beginSnapshot(0, begun));
    const std::vector<FilterState> states = shard->filters();
    CHECK_EQ(states.size(), 1u);
    const std::uint32_t waiting = states[0].waiting;
    const Slots slots = readAll(*shard, 1 + random.below(3000), [&] {
      if (random.chance(70)) pushSome(random, spec, {shard.get()});
    });
    flushed(*shard);
    for (const std::uint64_t slot : slots.slots) CHECK(slot >= 500 && slot < 560);
    CHECK(loaded(*restored, spec, slots, waiting) == Status::Applied);
    CHECK(filterBytes(*restored, spec) == filterBytes(*twin, spec));
    CHECK_EQ(restored->filters()[0].waiting, waiting);
    CHECK(restored->totalsAreRight());
    CHECK(shard->totalsAreRight());
    // Keys without a row are admitted alike from here on.
    for (int step = 0; step < 200; step++) {
      std::vector<std::uint64_t> keys = range(10'000 + random.below(500), 20);
      pushed(*restored, gradients(spec, keys));
      pushed(*twin, gradients(spec, keys));
      for (const std::uint64_t key : keys) CHECK_EQ(has(*restored, spec, key), has(*twin, spec, key));
    }
    CHECK(filterBytes(*restored, spec) == filterBytes(*twin, spec));
  }
}

TEST(a_snapshot_has_no_empty_slots_and_those_of_readers_none) {
  const TableSpec spec = living(filtered(kSmall));
  auto shard = shardWith(spec);
  pushed(*shard, gradients(spec, {1}));
  flushed(*shard);
  SnapshotBegun begun;
  CHECK(!shard->beginSnapshot(0, begun));
  CHECK_EQ(begun.rows, 0u);
  const Slots slots = readAll(*shard, 1 << 20, [] {});
  CHECK_EQ(bySlot(slots, spec.stride()).size(), 1u);
  CHECK(!shard->beginSnapshot(0, begun, Serving{true, 0, 0}));
  CHECK(readAll(*shard, 1 << 20, [] {}).slots.empty());
  CHECK(!shard->beginSnapshot(0, begun));
  shard->dropTable(spec.id);
  CHECK(readAll(*shard, 1 << 20, [] {}).slots.empty());
  CHECK(shard->totalsAreRight());
}

TEST(loaded_filters_add_up_and_full_counters_stay_full) {
  Filter filter = kSmall;
  filter.line = 100;
  filter.first = 30;
  const TableSpec spec = living(filtered(filter));
  auto shard = shardWith(spec);
  const std::size_t stride = spec.stride();
  Slots slots{{29, 30, 89, 90}, Bytes(4 * stride, 2)};
  slots.counters[stride] = 200;
  for (int i = 0; i < 2; i++) CHECK(loaded(*shard, spec, slots, 7) == Status::Applied);
  const Bytes found = filterBytes(*shard, spec);
  CHECK_EQ(found[0], kMostCounter);
  CHECK_EQ(found[1], 4u);
  CHECK_EQ(found[59 * stride], 4u);
  CHECK_EQ(std::count(found.begin(), found.end(), 0), static_cast<std::ptrdiff_t>(58 * stride));
  CHECK_EQ(shard->filters()[0].waiting, 7u);
  slots.counters.pop_back();
  CHECK(loaded(*shard, spec, slots, 7) == Status::DimMismatch);
  CHECK(filterBytes(*shard, spec) == found);
  // Rows that are loaded lie behind it.
  pushed(*shard, gradients(spec, {7, 7, 7}));
  CHECK(has(*shard, spec, 7));
  CHECK(shard->totalsAreRight());
  const TableSpec other = living({9, 0, 0, 0});
  CHECK(loaded(*shardWith(other), other, {}, 0) == Status::UnknownTable);
  Shard small(std::make_shared<Memory>(1), 0, 1, 1);
  CHECK(!small.addTable(spec));
  CHECK(loaded(small, spec, {}, 0) == Status::MemoryLimit);
  CHECK_EQ(small.table(spec.id)->extent(), 0u);
}

}  // namespace kintsugi::test
