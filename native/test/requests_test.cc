// One shard and one sink: what they refuse, and that a refusal changes nothing. Hostile sections are copied
// to buffers of exactly their size at odd addresses, so that the address sanitizer sees every byte read too
// many.
#include <algorithm>
#include <memory>

#include "engine/sections.h"
#include "engine/sink.h"
#include "test/support.h"

namespace kintsugi::test {
namespace {

PartData part(std::uint32_t table, std::uint32_t width, std::vector<std::uint64_t> keys, float value) {
  PartData data{table, width, std::move(keys), {}};
  data.rows.assign(data.keys.size() * width, value);
  return data;
}

struct Fixture {
  explicit Fixture(std::size_t limit = 0) : memory(std::make_shared<Memory>(limit)), shard(memory, 0, 2, 1) {
    CHECK(!shard.addTable(tableSpec(1, 8, OptimizerKind::Adagrad, InitializerKind::Uniform)));
    CHECK(!shard.addTable(tableSpec(2, 3, OptimizerKind::Momentum, InitializerKind::Constant)));
  }
  Status push(std::uint32_t mode, const std::vector<PartData>& parts) {
    const Bytes section = encode(mode, parts, true);
    return shard.push(view(section));
  }
  Bytes state() {
    Bytes all;
    for (const ExtentOf& e : shard.extents()) {
      all.insert(all.end(), reinterpret_cast<const std::uint8_t*>(&e),
                 reinterpret_cast<const std::uint8_t*>(&e + 1));
      BlockPairs blocks;
      for (std::uint32_t b = 0; b < 4; b++) {
        append(blocks, {e.table * 2, b});
        append(blocks, {e.table * 2 + 1, b});
      }
      ReadResult result;
      const Bytes bytes = answerOf([&](const Allocate& a) { CHECK(!shard.read(list(blocks), result, a)); });
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  std::shared_ptr<Memory> memory;
  Shard shard;
};

TEST(refusalsChangeNothing) {
  Fixture f;
  CHECK(f.push(0, {part(1, 8, {1, 2, 3}, 0.5f)}) == Status::Applied);
  flushed(f.shard);
  const Bytes before = f.state();
  const std::size_t used = f.memory->used();
  CHECK(f.push(0, {part(1, 8, {9}, 1), part(5, 8, {1}, 1)}) == Status::UnknownTable);
  CHECK(f.push(0, {part(1, 8, {9}, 1), part(2, 8, {1}, 1)}) == Status::DimMismatch);
  CHECK(f.push(1, {part(1, 8, {9}, 1)}) == Status::DimMismatch);
  CHECK(f.push(0, {part(1, 8, {9, ~std::uint64_t{0}}, 1)}) == Status::KeyReserved);
  CHECK(f.push(0, {part(1, 8, {9}, 1), part(1, 8, {10}, 1)}) == Status::BadFrame);
  CHECK(f.state() == before);
  CHECK_EQ(f.memory->used(), used);
  CHECK(!f.shard.dirty());
  CHECK(f.push(0, {part(1, 8, {0, ~std::uint64_t{0} - 1}, 1)}) == Status::Applied);
}

TEST(memoryLimitIsAllOrNothing) {
  Fixture f(40000);
  std::vector<std::uint64_t> keys;
  Status status = Status::Applied;
  Bytes before;
  std::size_t used = 0;
  for (std::uint64_t next = 0; status == Status::Applied; next += 10) {
    CHECK(next < 10000);
    before = f.state();
    used = f.memory->used();
    keys.clear();
    for (std::uint64_t k = 0; k < 10; k++) keys.push_back(next + k);
    flushed(f.shard);
    status = f.push(0, {part(2, 3, {next}, 1), part(1, 8, keys, 1)});
  }
  CHECK(status == Status::MemoryLimit);
  CHECK(f.state() == before);
  CHECK_EQ(f.memory->used(), used);
  CHECK(used <= 40000);
  CHECK(!f.shard.dirty());
  CHECK(f.push(0, {part(1, 8, {0, 1}, 1)}) == Status::Applied);  // rows that exist need no memory
}

TEST(memoryIsReturned) {
  auto memory = std::make_shared<Memory>(0);
  {
    Shard shard(memory, 0, 1, 1);
    Sink sink(memory, 1, 0, true);
    CHECK(!shard.addTable(tableSpec(1, 8, OptimizerKind::Sgd, InitializerKind::Zeros)));
    const Bytes section = encode(0, {part(1, 8, {1, 2, 3}, 1)}, true);
    CHECK(shard.push(view(section)) == Status::Applied);
    BlockPairs again, created;
    CHECK(sink.apply(0, view(flushed(shard)), again) == Status::Applied);
    BlockPairs blocks;
    sink.allBlocks(0, 100, blocks);
    CHECK(!sink.check(list(blocks), created));
    CHECK_EQ(memory->used(), shard.bytes() + sink.bytes());
  }
  CHECK_EQ(memory->used(), 0u);
}

TEST(adoptedTableWaitsForItsKeys) {
  Fixture from;
  std::vector<std::uint64_t> keys;
  for (std::uint64_t k = 0; k < 700; k++) keys.push_back(k * 3);
  CHECK(from.push(0, {part(1, 8, keys, 1)}) == Status::Applied);
  Fixture to;
  const std::uint32_t stride = to.shard.table(1)->spec().stride();
  CHECK(!to.shard.checkExtents({{1, stride, 700}}));
  CHECK(to.shard.checkExtents({{9, stride, 1}}));
  CHECK(to.shard.checkExtents({{1, stride + 16, 1}}));
  CHECK(!to.shard.checkExtents({{1, stride, maxSlots(stride)}}));
  CHECK(to.shard.checkExtents({{1, stride, maxSlots(stride) + 1}}));
  CHECK(!to.shard.adopt(1, 700));
  CHECK(!to.shard.adopt(2, 0));
  CHECK(to.shard.adopt(1, 700));
  CHECK(to.shard.adopt(9, 1));
  CHECK(!to.shard.table(1)->ready() && to.shard.table(2)->ready() && !to.shard.keysReady());
  CHECK(to.push(0, {part(1, 8, {3}, 1)}) == Status::Absent);
  CHECK((to.shard.missing() == BlockPairs{2, 0, 2, 1}));
  CHECK(to.push(0, {part(2, 3, {3}, 1)}) == Status::Applied);  // the other table is not affected
  // Install the keys with two of them never used: their slots are given out first, lowest first.
  BlockPairs blocks = {2, 0, 2, 1};
  ReadResult result;
  Bytes bytes = answerOf([&](const Allocate& a) { CHECK(!from.shard.read(list(blocks), result, a)); });
  std::memset(bytes.data() + 8 * 5, 0, 8);
  std::memset(bytes.data() + 8 * 600, 0, 8);
  std::uint32_t installed = 0;
  CHECK(to.shard.install(list(blocks), {bytes.data(), bytes.size() - 1}, installed));
  CHECK_EQ(installed, 0u);
  CHECK(!to.shard.install(list(blocks), view(bytes), installed));
  CHECK_EQ(installed, 2u);
  CHECK(!to.shard.install(list(blocks), view(bytes), installed));
  CHECK_EQ(installed, 2u);
  CHECK(to.shard.keysReady());
  CHECK_EQ(to.shard.stats()[0].rows, 698u);
  const std::uint32_t perBlock = 4096 / 64;
  CHECK(to.push(0, {part(1, 8, {3, 100000, 100001, 100002}, 1)}) == Status::Absent);
  CHECK((to.shard.missing() == BlockPairs{3, 0, 3, 600 / perBlock, 3, 700 / perBlock}));
  std::uint32_t rest = 0;
  for (std::uint32_t b = 0; b <= 700 / perBlock; b++) {
    const BlockPairs one = {3, b};
    const Bytes row = answerOf([&](const Allocate& a) {
      ReadResult ignored;
      CHECK(!from.shard.read(list(one), ignored, a));
    });
    CHECK(!to.shard.install(list(one), view(row), rest));
  }
  CHECK_EQ(to.shard.absentBlocks(kRows), 0u);
  CHECK(to.push(0, {part(1, 8, {3, 100000, 100001, 100002}, 1)}) == Status::Applied);
  CHECK_EQ(to.shard.table(1)->index().find(100001), 5u);
  CHECK_EQ(to.shard.table(1)->index().find(100002), 600u);
  CHECK_EQ(to.shard.table(1)->index().find(100003), 700u);
}

TEST(equationsGetStuckOrStartOver) {
  auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 1, 4, 2);
  CHECK(!shard.addTable(tableSpec(1, 8, OptimizerKind::Sgd, InitializerKind::Zeros)));
  CHECK(!shard.adopt(1, 10));
  const BlockPairs block = {2, 0};
  const Bytes bytes(4096, 7);
  const auto add = [&](std::uint32_t parity, const std::vector<std::uint32_t>& lacking, bool ok) {
    EquationsResult result;
    CHECK(!shard.addEquations(parity, 2, lacking, ok, list(block), view(bytes), result));
    return result;
  };
  CHECK(add(0, {1, 2}, true).stuck.empty());
  CHECK(add(1, {1, 2}, false).stuck == block);   // both answered, one usable
  CHECK(add(1, {1, 2, 3}, true).stuck.empty());  // after that it starts from nothing
  CHECK(add(0, {1, 2}, true).stuck.empty());     // both answered, different sets: start over
  CHECK(add(0, {1, 2, 3}, true).stuck.empty());
  CHECK(add(1, {1, 2, 3}, true).stuck == block);  // three unknowns, two equations
  CHECK(add(0, {1}, false).stuck.empty());
  CHECK(add(1, {1}, false).stuck == block);
  CHECK(add(0, {1, 2}, true).stuck.empty());
  shard.dropEquations();
  CHECK(add(1, {1, 2}, true).stuck.empty());
  CHECK_EQ(add(0, {0, 1}, true).installed, 0u);  // replaces nothing of parity 1; both answered, start over
  CHECK(add(1, {1, 3}, true).others.empty());
  const EquationsResult solved = add(0, {1, 3}, true);
  CHECK_EQ(solved.installed, 1u);
  CHECK_EQ(solved.others.size(), 1u);
  CHECK_EQ(solved.others[0].member, 3u);
  CHECK_EQ(add(0, {1}, true).installed, 0u);  // present now
  EquationsResult result;
  CHECK(shard.addEquations(2, 2, {1}, true, list(block), view(bytes), result));
  CHECK(shard.addEquations(0, 2, {2}, true, list(block), view(bytes), result));
  CHECK(shard.addEquations(0, 2, {2, 1}, true, list(block), view(bytes), result));
  CHECK(shard.addEquations(0, 2, {1, 4}, true, list(block), view(bytes), result));
}

TEST(lackingMemberThatPushesIsAskedAgain) {
  auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 0, 2, 1);
  Sink sink(memory, 2, 0, true);
  CHECK(!shard.addTable(tableSpec(1, 8, OptimizerKind::Sgd, InitializerKind::Zeros)));
  const Bytes section = encode(0, {part(1, 8, {1}, 1)}, true);
  CHECK(shard.push(view(section)) == Status::Applied);
  const Bytes delta = flushed(shard);
  BlockPairs again, created;
  CHECK(sink.apply(0, view(delta), again) == Status::Applied);
  const BlockPairs block = {3, 0};
  CHECK(!sink.recover(1, list(block), created));
  CHECK(created == block);
  created.clear();
  CHECK(!sink.recover(0, list(block), created));  // both lack it: complete with nothing pending
  CHECK(created.empty());
  CHECK_EQ(sink.takeCompleted()[0].lacking, 3u);
  CHECK(!sink.check(list(block), created));
  CHECK(!sink.lacking(0, list(block)));
  CHECK(sink.apply(0, view(delta), again) == Status::Applied);
  CHECK(again == block);
  BlockPairs pending;
  sink.nextPending(0, 10, pending);
  CHECK(pending == block);
}

TEST(equationIsNotUsableWhenContentIsExcluded) {
  auto memory = std::make_shared<Memory>(0);
  Sink sink(memory, 2, 0, false);
  BlockPairs created;
  const BlockPairs block = {3, 0};
  CHECK(sink.recover(0, list(block), created));  // a table that the sink does not know
  CHECK(!sink.start(0, {{1, 32, 5}}));
  CHECK(!sink.start(1, {{1, 32, 5}}));
  CHECK(!sink.recover(0, list(block), created));
  const Bytes bytes(4096, 9);
  std::uint32_t included = 0;
  CHECK(!sink.content(1, list(block), view(bytes), included));
  CHECK_EQ(included, 1u);
  auto groups = sink.takeCompleted();
  CHECK_EQ(groups.size(), 1u);
  CHECK(!groups[0].ok && groups[0].lacking == 1 && groups[0].requesters == 1);
  CHECK(!sink.content(0, list(block), view(bytes), included));
  CHECK(!sink.recover(0, list(block), created));
  CHECK(!sink.content(1, list(block), view(bytes), included));
  CHECK_EQ(included, 2u);
  groups = sink.takeCompleted();
  CHECK(groups[0].ok && groups[0].bytes() == bytes);
}

/** A copy at an odd address whose end is the end of its allocation. */
class Exact {
 public:
  explicit Exact(const Bytes& bytes) : store_(new std::uint8_t[bytes.size() + 1]), size_(bytes.size()) {
    if (size_) std::memcpy(store_.get() + 1, bytes.data(), size_);
  }
  View view() const { return {store_.get() + 1, size_}; }

 private:
  std::unique_ptr<std::uint8_t[]> store_;
  std::size_t size_;
};

Bytes damaged(Random& random, Bytes bytes) {
  switch (random.below(4)) {
    case 0:
      bytes.resize(random.below(static_cast<std::uint32_t>(bytes.size()) + 1));
      return bytes;
    case 1:
      bytes.resize(bytes.size() + 1 + random.below(24));
      return bytes;
    default:
      break;
  }
  // Most of what matters is in the headers.
  for (std::uint32_t i = 0, n = 1 + random.below(3); i < n; i++) {
    const std::uint32_t reach = random.chance(80)
                                    ? std::min<std::uint32_t>(60, static_cast<std::uint32_t>(bytes.size()))
                                    : static_cast<std::uint32_t>(bytes.size());
    bytes[random.below(reach)] =
        static_cast<std::uint8_t>(random.chance(50) ? random.below(5) : random.next());
  }
  return bytes;
}

TEST(hostileRequests) {
  Random random(seed);
  int applied = 0, refused = 0;
  for (int round = 0; round < 3000; round++) {
    Fixture f;
    const Bytes good = encode(0, {part(1, 8, {1, 2, 1}, 1), part(2, 3, {4, 5, 6}, 2)}, true);
    const Exact bad(damaged(random, good));
    const Bytes before = f.state();
    const Status status = f.shard.push(bad.view());
    if (status == Status::Applied) {
      applied++;
    } else {
      refused++;
      CHECK(f.state() == before && !f.shard.dirty());
    }
    const Exact question(damaged(random, encode(0, {part(1, 8, {1, 2, 1}, 1), part(2, 3, {4}, 2)}, false)));
    answerOf([&](const Allocate& a) { (void)f.shard.pull(question.view(), a); });
    CHECK(f.shard.pull({}, [](std::size_t) { return nullptr; }) == Status::BadFrame);
  }
  CHECK(applied > 0 && refused > 1000);
}

TEST(hostileDeltas) {
  Random random(seed);
  Fixture f;
  CHECK(f.push(0, {part(1, 8, {1, 2, 3}, 1), part(2, 3, {4, 5, 6}, 2)}) == Status::Applied);
  const Bytes good = flushed(f.shard);
  int refused = 0;
  for (int round = 0; round < 3000; round++) {
    Sink sink(f.memory, 2, 0, true);
    BlockPairs again;
    const Exact bad(damaged(random, good));
    const Status status = sink.apply(0, bad.view(), again);
    if (status != Status::Applied) {
      refused++;
      CHECK(sink.extents(0).empty());
    }
    CHECK(sink.apply(1, view(good), again) == Status::Applied || status == Status::Applied ||
          status == Status::BadFrame);
  }
  CHECK(refused > 1000);
}

TEST(hostileBlockLists) {
  Random random(seed);
  Fixture f;
  CHECK(f.push(0, {part(1, 8, {1, 2, 3}, 1)}) == Status::Applied);
  Sink sink(f.memory, 2, 0, true);
  BlockPairs again;
  CHECK(sink.apply(0, view(flushed(f.shard)), again) == Status::Applied);
  for (int round = 0; round < 2000; round++) {
    BlockPairs blocks, out;
    const std::uint32_t columns[] = {2, 3, 2, 3, 4, 9, 0xFFFFFFFF};
    const std::uint32_t count = random.below(3);
    for (std::uint32_t i = 0; i < count; i++) {
      append(blocks, {columns[random.below(7)],
                      random.chance(50) ? random.below(3) : static_cast<std::uint32_t>(random.next())});
    }
    const Bytes bytes(random.chance(70) ? blocks.size() / 2 * 4096 : random.below(9000), 1);
    std::uint32_t n = 0;
    ReadResult read;
    answerOf([&](const Allocate& a) { (void)f.shard.read(list(blocks), read, a); });
    (void)f.shard.install(list(blocks), view(bytes), n);
    EquationsResult result;
    (void)f.shard.addEquations(0, 1, {0, 1}, random.chance(50), list(blocks), view(bytes), result);
    CHECK_EQ(n, 0u);  // nothing is absent here
    (void)sink.recover(random.below(2), list(blocks), out);
    (void)sink.check(list(blocks), out);
    (void)sink.lacking(random.below(2), list(blocks));
    (void)sink.content(random.below(2), list(blocks), view(bytes), n);
    sink.takeCompleted();
  }
  CHECK(sink.start(0, {{1, 64, 0xFFFFFFFF}}));
  CHECK(sink.start(0, {{1, 48, 1}}));
  CHECK(sink.start(0, {{1, 64, 1}, {1, 64, 1}}));
  CHECK(sink.start(0, {{8, 20, 1}}));
}

TEST(initialValuesArePinned) {
  // Part of the format: recovered and re-read rows must not depend on the machine or the build.
  TableSpec spec = tableSpec(1, 4, OptimizerKind::Sgd, InitializerKind::Uniform);
  spec.seed = 42;
  float row[4];
  std::uint32_t bits[4];
  initialValues(spec, 7, row);
  std::memcpy(bits, row, sizeof bits);
  std::uint64_t sum = 0;
  for (const std::uint32_t b : bits) sum = sum * 31 + b;
  for (const float x : row) CHECK(x >= -0.5f && x < 0.5f);
  CHECK_EQ(sum, 94871361232264ull);
  spec.initializer = {InitializerKind::Normal, 1, 0.5};
  initialValues(spec, 7, row);
  std::memcpy(bits, row, sizeof bits);
  sum = 0;
  for (const std::uint32_t b : bits) sum = sum * 31 + b;
  CHECK_EQ(sum, 32806848837421ull);
  double mean = 0, square = 0;
  const int draws = 20000;
  for (int key = 0; key < draws; key++) {
    initialValues(spec, static_cast<std::uint64_t>(key), row);
    mean += row[0] / draws;
    square += (row[0] - 1) * (row[0] - 1) / draws;
  }
  CHECK(mean > 0.98 && mean < 1.02 && square > 0.24 && square < 0.26);
}

/** Pages of a table of many keys, against a sorted list. */
TEST(keysComeInOrder) {
  Fixture f;
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 3000; i++) keys.push_back(i * 0x9e3779b97f4a7c15u);
  keys.back() = ~std::uint64_t{0} - 1;
  CHECK(f.push(0, {part(1, 8, keys, 0.5f)}) == Status::Applied);
  std::sort(keys.begin(), keys.end());
  const Table* table = f.shard.table(1);
  for (const std::size_t max : {std::size_t{7}, std::size_t{999}, std::size_t{3000}}) {
    std::vector<std::uint64_t> found;
    bool more = true;
    for (std::uint64_t least = 0; more; least = found.back() + 1) {
      const auto page = table->keysInOrder(least, max, more);
      CHECK(page.size() <= max);
      CHECK(!more || page.size() == max);
      found.insert(found.end(), page.begin(), page.end());
    }
    CHECK(found == keys);
  }
  std::vector<std::uint64_t> bySlot;
  for (std::uint32_t slot = 0; slot < table->extent();) {
    const auto page = table->keysBySlot(slot, 100);
    bySlot.insert(bySlot.end(), page.begin(), page.end());
  }
  std::sort(bySlot.begin(), bySlot.end());
  CHECK(bySlot == keys);
}

}  // namespace
}  // namespace kintsugi::test
