// Room that a push needs: slots for its new keys where memory is short, and a frame for its delta.

#include "engine/batch.h"
#include "test/living.h"

namespace kintsugi::test {
namespace {

LifePolicy byMemory() {
  LifePolicy policy;
  policy.forMemory = true;
  return policy;
}

LifePolicy counting(std::uint32_t slots) {
  LifePolicy policy;
  policy.filter = {2, slots, 3, 1u << 24, slots};
  return policy;
}

}  // namespace

TEST(pushes_of_one_batch_find_slots_where_memory_is_short) {
  const TableSpec spec = living(byMemory());
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  std::uint64_t next = 0;
  int ended = 0;
  for (int batch = 0; batch < 300; batch++) {
    for (int push = 0; push < 1 + batch % 8; push++, next += 150) {
      ended += pushed(shard, gradients(spec, range(next, 150)));
      CHECK(memory->used() <= memory->limit());
    }
    flushed(shard);
  }
  const TableStats stats = shard.stats()[0];
  CHECK_EQ(stats.counts.refused, 0u);
  CHECK_EQ(stats.counts.displaced, next - stats.rows);
  // As many slots are free as a batch takes, so few batches end early.
  CHECK(ended < 10);
  CHECK(shard.totalsAreRight());
}

TEST(rows_go_in_a_batch_of_their_own_for_a_push_with_more_new_keys_than_free_slots) {
  const TableSpec spec = living(byMemory());
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  std::uint64_t next = 0;
  for (; !shard.stats()[0].counts.displaced; next += 20) {
    pushed(shard, gradients(spec, range(next, 20)));
    flushed(shard);
  }
  memory->charge(memory->limit() - memory->used());
  const std::size_t before = shard.stats()[0].rows;
  // Some of its keys have rows: these stay.
  std::vector<std::uint64_t> keys = range(next - 100, 100);
  for (std::uint64_t i = 0; i < before / 2; i++) keys.push_back(next + i);
  const Bytes section = encode(0, {gradients(spec, keys)}, true);
  CHECK(shard.push(view(section)) == Status::BatchFull);
  for (std::uint64_t i = 0; i < 100; i++) CHECK(has(shard, spec, next - 100 + i));
  CHECK(!has(shard, spec, next) && shard.totalsAreRight());
  // The delta has what went.
  CHECK(flushed(shard).size() > before / 3 * spec.stride());
  CHECK(shard.push(view(section)) == Status::Applied);
  for (const std::uint64_t key : keys) CHECK(has(shard, spec, key));
  CHECK_EQ(shard.stats()[0].counts.refused, 0u);
  CHECK(memory->used() <= memory->limit() && shard.totalsAreRight());
}

TEST(no_push_makes_a_delta_that_is_larger_than_a_frame) {
  const TableSpec spec =
      withPolicy(tableSpec(3, 1, OptimizerKind::Adam, InitializerKind::Zeros), counting(1 << 16));
  // All sizes are a 16th of the largest ones.
  const std::size_t most = kMaxDeltaBytes / 16;
  const auto held = shardWith(spec);
  Shard& shard = *held;
  // Each key of the second push gets a row, and takes what it counted out of the filter.
  const auto sections = [&](std::size_t count) {
    return encode(0, {gradients(spec, range(0, count))}, true);
  };
  const Bytes whole = sections(1 << 16);
  CHECK(whole.size() < (std::size_t{12} << 16) + 4096);
  CHECK(shard.push(view(whole), most) == Status::Applied);
  CHECK(shard.push(view(whole), most) == Status::BatchFull);
  CHECK(flushed(shard).size() <= most);
  CHECK(shard.push(view(whole), most) == Status::DeltaLimit);
  CHECK(!shard.dirty() && shard.rows() == 0);
  CHECK(shard.push(view(sections(31'000)), most) == Status::Applied);
  CHECK_EQ(shard.rows(), 31'000u);
  CHECK(flushed(shard).size() <= most);
}

TEST(a_delta_is_never_larger_than_its_limit) {
  for (const std::uint32_t dim : {1, 5, 200}) {
    LifePolicy policy = counting(300);
    policy.ttl = 20;
    policy.maxRows = 100;
    const TableSpec spec =
                        withPolicy(tableSpec(3, dim, OptimizerKind::Adam, InitializerKind::Uniform), policy),
                    plain = tableSpec(4, 2, OptimizerKind::Adagrad, InitializerKind::Uniform);
    const auto held = shardWith(spec);
    Shard& shard = *held;
    CHECK(!shard.addTable(plain));
    const std::size_t limit = 40 * spec.stride() + 8000;
    Random random(seed + dim);
    std::size_t full = 0, refused = 0, applied = 0;
    for (int step = 0; step < 4000; step++) {
      PartData part = gradients(spec, {}), other = gradients(plain, {});
      for (std::uint32_t left = random.below(random.chance(10) ? 200 : 30); left; left--)
        (random.chance(80) ? part : other).keys.push_back(random.below(600));
      for (PartData* each : {&part, &other}) {
        if (random.chance(10)) each->width = 0;
        each->rows.assign(each->keys.size() * each->width, 0.25f);
      }
      const Bytes section = encode(0, {part, other}, true);
      Status status = shard.push(view(section), limit);
      if (status == Status::BatchFull) {
        full++;
        CHECK(shard.dirty());
        CHECK(flushed(shard).size() <= limit);
        status = shard.push(view(section), limit);
      }
      if (status == Status::DeltaLimit) {
        CHECK(!shard.dirty());
        refused++;
      } else {
        CHECK(status == Status::Applied);
        applied++;
      }
      CHECK(shard.openBytes() <= limit);
      CHECK(shard.totalsAreRight());
    }
    CHECK(full > 50 && refused > 5 && applied > 1000);
    const LifeCounts counts = shard.table(spec.id)->counts();
    CHECK(counts.displaced > 100 && counts.expired > 100);
  }
}

/** Bytes of a delta of `rows` wide rows and the clock, of which `gone` leave. */
std::size_t deltaOf(const TableSpec& spec, std::size_t rows, std::size_t gone) {
  const OpenBatch batch(spec.stride());
  return 8 + kDeltaTableBytes + batch.bytesOf(0, rows + 1) + gone * (spec.stride() + kSlotBytes);
}

TEST(rows_that_go_leave_room_for_the_padding_of_a_delta) {
  LifePolicy policy;
  policy.ttl = 2;
  const TableSpec spec = withPolicy(tableSpec(3, 40, OptimizerKind::Sgd, InitializerKind::Uniform), policy);
  for (const std::size_t gone : {2, 3, 4, 9}) {
    const auto held = shardWith(spec);
    pushed(*held, gradients(spec, range(0, 20)));
    flushed(*held);
    for (int step = 0; step < 2; step++) {
      pushed(*held, gradients(spec, range(20, 1)));
      flushed(*held);
    }
    const std::size_t limit = deltaOf(spec, 1, gone);
    CHECK(held->push(view(encode(0, {gradients(spec, range(20, 1))}, true)), limit) == Status::Applied);
    CHECK(held->rows() < 21);
    CHECK(flushed(*held).size() <= limit);
  }
}

TEST(new_keys_that_have_slots_are_not_dropped_for_another_table) {
  TableSpec spec = living(byMemory()), other = spec;
  other.id = 4;
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec) && !shard.addTable(other));
  // Slots that are free are more than the index takes without growing.
  const std::size_t capacity = 4 * 8 * 65 / 100;
  pushed(shard, gradients(spec, range(0, capacity)));
  flushed(shard);
  const auto erase = [&](std::uint64_t from, std::size_t count) {
    PartData deletion{spec.id, 0, range(from, count), {}};
    CHECK(shard.push(view(encode(0, {deletion}, true))) == Status::Applied);
  };
  erase(0, 10);
  pushed(shard, gradients(spec, range(100, 10)));
  flushed(shard);
  erase(10, 5);
  flushed(shard);
  const Table& t = *shard.table(spec.id);
  CHECK(t.fitting() > 0 && t.fitting() < t.freeSlots().size());
  pushed(shard, gradients(other, range(0, 1)));
  flushed(shard);
  memory->charge(memory->limit() - memory->used());
  const Bytes section = encode(0, {gradients(spec, {200}), gradients(other, range(1, 40))}, true);
  while (shard.push(view(section)) == Status::BatchFull) flushed(shard);
  CHECK(has(shard, spec, 200));
}

TEST(a_row_that_makes_room_before_it_goes_by_itself_goes_for_room) {
  LifePolicy policy = byMemory();
  policy.faintBelow = 1e30f;
  policy.faintTtl = 400;
  const TableSpec spec = living(policy);
  const auto memory = std::make_shared<Memory>(1 << 20);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  pushed(shard, gradients(spec, range(1, 100)));
  // Rows that were seen once in the first step are as old as rows may be, and no older.
  for (int step = 0; step < 400; step++) {
    pushed(shard, gradients(spec, {0}));
    flushed(shard);
  }
  memory->charge(memory->limit() - memory->used());
  const Bytes section = encode(0, {gradients(spec, range(1000, shard.table(spec.id)->fitting() + 50))}, true);
  CHECK(shard.push(view(section)) == Status::BatchFull);
  const LifeCounts counts = shard.stats()[0].counts;
  CHECK_EQ(counts.expired + counts.faint, 0u);
  CHECK(counts.displaced > 0);
}

TEST(no_turn_of_a_sweep_goes_to_slots_of_a_filter) {
  LifePolicy policy = counting(64 * 200);
  policy.ttl = 20;
  const TableSpec spec = living(policy);
  const auto held = shardWith(spec);
  Shard& shard = *held;
  const auto push = [&](std::uint64_t key) {
    pushed(shard, gradients(spec, {key}));
    flushed(shard);
  };
  push(1);
  push(1);
  CHECK_EQ(shard.rows(), 1u);
  for (int step = 0; step < 25; step++) push(2);
  CHECK(!has(shard, spec, 1) && has(shard, spec, 2));
}

}  // namespace kintsugi::test
