// The memory of tables that have no rows, and the behaviour when the system gives no more memory: a child
// process lowers its limit of addresses, so that the refusals are real ones.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "engine/sink.h"
#include "test/support.h"

/** An allocator that ends the process where it cannot allocate would hide how the engine takes a refusal. */
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace kintsugi::test {
namespace {

/** Bytes of a line of /proc/self/status. */
std::size_t processBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::size_t kib = 0;
  while (status >> word) {
    if (word == name + ":") status >> kib;
  }
  return kib << 10;
}

/** Runs `story` in a process of its own, which must end well. */
void inChild(void (*story)()) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    story();
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/** Addresses end `more` bytes from here, as long as this lives. */
class AddressLimit {
 public:
  explicit AddressLimit(std::size_t more) {
    CHECK_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    rlimit now = before_;
    now.rlim_cur = processBytes("VmSize") + more;
    CHECK_EQ(setrlimit(RLIMIT_AS, &now), 0);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

PartData rowsOf(const TableSpec& spec, std::uint64_t from, std::uint64_t count) {
  PartData part{spec.id, spec.dim, {}, {}};
  for (std::uint64_t key = from; key < from + count; key++) part.keys.push_back(key);
  part.rows.assign(count * spec.dim, 1);
  return part;
}

Status push(Shard& shard, const TableSpec& spec, std::uint64_t from, std::uint64_t count) {
  const Bytes section = encode(0, {rowsOf(spec, from, count)}, true);
  return shard.push(view(section));
}

/** A push that needs `newRows` more is refused while addresses are short, changes nothing, and is applied
 * when they are back. */
void refusedAndRepeated(const TableSpec& spec, std::uint64_t rows, std::uint64_t newRows, std::size_t limit) {
  auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(spec));
  for (std::uint64_t from = 0; from < rows;) {
    const std::uint64_t count = std::min<std::uint64_t>(rows - from, (1 << 20) / spec.dim);
    CHECK(push(shard, spec, from, count) == Status::Applied);
    shard.dropBatch();
    from += count;
  }
  const Bytes section = encode(0, {rowsOf(spec, rows, newRows)}, true);
  const std::size_t used = memory->used();
  {
    const AddressLimit short_(limit);
    for (int i = 0; i < 3; i++) CHECK(shard.push(view(section)) == Status::MemoryLimit);
  }
  CHECK_EQ(memory->used(), used);
  CHECK(!shard.dirty());
  CHECK_EQ(shard.stats()[0].rows, rows);
  CHECK(shard.push(view(section)) == Status::Applied);
  CHECK_EQ(shard.stats()[0].rows, rows + newRows);
}

TEST(refusedColumnIsAMemoryLimit) {
  // 256 rows of 256 KiB fill 64 MiB; one more takes addresses for another 64.
  inChild([] {
    refusedAndRepeated(tableSpec(1, 65536, OptimizerKind::Sgd, InitializerKind::Zeros), 256, 1, 32 << 20);
  });
}

TEST(refusedIndexIsAMemoryLimit) {
  // 65 % of 2^15 buckets are full; the next key takes twice as many, 6 MiB.
  inChild([] {
    refusedAndRepeated(tableSpec(1, 1, OptimizerKind::Sgd, InitializerKind::Zeros), (1 << 18) * 65 / 100, 1,
                       1 << 20);
  });
}

TEST(refusedBatchIsAMemoryLimit) {
  // No new rows: only the deltas of 512 rows of 64 KiB need memory.
  inChild([] {
    const TableSpec spec = tableSpec(1, 16384, OptimizerKind::Sgd, InitializerKind::Zeros);
    auto memory = std::make_shared<Memory>(0);
    Shard shard(memory, 0, 1, 1);
    CHECK(!shard.addTable(spec));
    for (std::uint64_t from = 0; from < 512; from += 64) {
      CHECK(push(shard, spec, from, 64) == Status::Applied);
      shard.dropBatch();
    }
    const Bytes section = encode(0, {rowsOf(spec, 0, 512)}, true);
    {
      const AddressLimit short_(16 << 20);
      CHECK(shard.push(view(section)) == Status::MemoryLimit);
    }
    CHECK(!shard.dirty());
    CHECK(shard.push(view(section)) == Status::Applied);
  });
}

TEST(refusedAdoptionIsAMemoryLimit) {
  inChild([] {
    auto memory = std::make_shared<Memory>(0);
    Shard shard(memory, 0, 1, 1);
    CHECK(!shard.addTable(tableSpec(1, 16, OptimizerKind::Sgd, InitializerKind::Zeros)));
    {
      const AddressLimit short_(std::size_t{1} << 30);
      CHECK(shard.adopt(1, 1 << 26).isMemoryLimit());
    }
    CHECK_EQ(memory->used(), 0u);
    CHECK_EQ(shard.table(1)->extent(), 0u);
    CHECK(!shard.adopt(1, 1 << 26));
  });
}

TEST(refusedKeepingLosesTheSnapshotAndNotThePush) {
  // 96 rows of 64 KiB: they are pushed once, so that the batch has its memory; keeping them takes 6 MiB.
  inChild([] {
    const TableSpec spec = tableSpec(1, 16384, OptimizerKind::Sgd, InitializerKind::Zeros);
    auto memory = std::make_shared<Memory>(0);
    Shard shard(memory, 0, 1, 1);
    CHECK(!shard.addTable(spec));
    const Bytes section = encode(0, {rowsOf(spec, 0, 96)}, true);
    for (int i = 0; i < 2; i++) {
      CHECK(shard.push(view(section)) == Status::Applied);
      shard.dropBatch();
    }
    SnapshotBegun begun;
    const auto allocate = [](const Table&, std::size_t, RowArrays&) { return false; };
    CHECK(!shard.beginSnapshot(0, begun));
    const std::size_t used = memory->used();
    {
      const AddressLimit short_(0);
      CHECK(shard.push(view(section)) == Status::Applied);
    }
    shard.dropBatch();
    CHECK(shard.readSnapshot(1000, allocate).isMemoryLimit());
    CHECK(memory->used() < used && shard.snapshotBytes() == 0);
    shard.endSnapshot();
    // No change was lost: the next snapshot has all of them.
    CHECK(!shard.beginSnapshot(begun.stamp, begun));
    CHECK_EQ(begun.rows, 96u);
  });
}

/** A delta without rows of a member whose table 1 has this extent, of rows of 64 bytes. */
Bytes deltaOf(std::uint32_t extent) {
  const std::uint32_t words[] = {1, 0, 1, 64, extent, 0, 0, 0};
  Bytes delta(sizeof words);
  std::memcpy(delta.data(), words, sizeof words);
  return delta;
}

TEST(refusedSinkIsAMemoryLimit) {
  inChild([] {
    auto memory = std::make_shared<Memory>(0);
    Sink sink(memory, 2, 0, true);
    BlockPairs again;
    const Bytes first = deltaOf(10), later = deltaOf(1 << 26);
    const std::vector<ExtentOf> extents = {{1, 64, 1 << 26}};
    CHECK(sink.apply(0, view(first), again) == Status::Applied);
    const std::size_t used = memory->used();
    {
      const AddressLimit short_(std::size_t{1} << 30);
      CHECK(sink.apply(0, view(later), again) == Status::MemoryLimit);
      CHECK(sink.start(1, extents).isMemoryLimit());
      CHECK(sink.learn(1, extents).isMemoryLimit());
      CHECK(sink.apply(0, view(first), again) == Status::Applied);  // what fits goes on
    }
    CHECK_EQ(memory->used(), used);
    CHECK_EQ(sink.extents(0)[0].extent, 10u);
    CHECK(sink.extents(1).empty() && sink.complete());
    CHECK(sink.apply(0, view(later), again) == Status::Applied);
    CHECK(!sink.start(1, extents));
    CHECK_EQ(sink.extents(1)[0].extent, std::uint32_t{1} << 26);
  });
}

TEST(refusedAccumulatorsAreAMemoryLimit) {
  // Blocks of one row of 768 KiB: 512 of them are more than there is.
  inChild([] {
    auto memory = std::make_shared<Memory>(0);
    Sink sink(memory, 2, 0, true);
    CHECK(!sink.learn(0, {{1, kMaxStride, 600}}));
    BlockPairs blocks, created;
    for (std::uint32_t b = 0; b < 512; b++) append(blocks, {1 * 2 + kRows, b});
    {
      const AddressLimit short_(64 << 20);
      CHECK(sink.recover(1, list(blocks), created).isMemoryLimit());
      CHECK(created.size() / 2 > 0 && created.size() / 2 < 512);
      CHECK_EQ(sink.accumulators(), created.size() / 2);
      CHECK(sink.check(list(blocks), created).isMemoryLimit());
    }
    sink.dropAccumulators();
    created.clear();
    CHECK(!sink.recover(1, list(blocks), created));
    CHECK(created == blocks);
  });
}

TEST(tablesWithoutRowsCostLittle) {
  inChild([] {
    constexpr std::uint32_t kShards = 20, kPairs = kShards * kMaxTables;
    const std::size_t resident = processBytes("VmRSS"), addresses = processBytes("VmSize");
    auto memory = std::make_shared<Memory>(0);
    std::vector<std::unique_ptr<Shard>> shards;
    for (std::uint32_t s = 0; s < kShards; s++) {
      shards.push_back(std::make_unique<Shard>(memory, 0, 1, 1));
      for (std::uint32_t t = 0; t < kMaxTables; t++) {
        CHECK(!shards[s]->addTable(tableSpec(t, 64, OptimizerKind::Adagrad, InitializerKind::Uniform)));
      }
    }
    CHECK_EQ(memory->used(), 0u);
    CHECK(processBytes("VmRSS") < resident + std::size_t{kPairs} * 4096);
    CHECK(processBytes("VmSize") < addresses + std::size_t{kPairs} * 8192);
    // A row in every table of one shard: a block of each column, a small index and the batch.
    const std::size_t before = processBytes("VmRSS");
    for (std::uint32_t t = 0; t < kMaxTables; t++) {
      CHECK(push(*shards[7], shards[7]->table(t)->spec(), t, 1) == Status::Applied);
    }
    // A sanitizer may give memory back meanwhile, so that there is less than before.
    CHECK(processBytes("VmRSS") < before + std::size_t{kMaxTables} * 32768);
    Sink sink(memory, 1, 0, true);
    BlockPairs again;
    CHECK(sink.apply(0, view(flushed(*shards[7])), again) == Status::Applied);
    CHECK_EQ(memory->used(), shards[7]->bytes() + sink.bytes());
  });
}

}  // namespace
}  // namespace kintsugi::test
