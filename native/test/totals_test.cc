// Sums that a shard and a sink keep over all their tables, against a walk over the tables: random histories
// of many tables, of which each step touches few.
#include <algorithm>

#include "engine/sink.h"
#include "test/support.h"

namespace kintsugi::test {
namespace {

constexpr std::uint32_t kTables = 150;

/** An owner, its parity, and a second one that replaces either of them now and then. */
class Story {
 public:
  explicit Story(std::uint64_t seed) : random_(seed), memory_(std::make_shared<Memory>(0)) {
    for (std::uint32_t i = 0; i < kTables; i++) {
      // The ids of tables are not consecutive. Rows share a block, or have one for themselves.
      const std::uint32_t dim = i % 10 ? 1 + i % 7 : 1500;
      specs_.push_back(tableSpec(1 + i * 3, dim, OptimizerKind::Adagrad, InitializerKind::Uniform));
    }
    owner_ = empty();
    sink_ = std::make_unique<Sink>(memory_, 1, 0, true);
  }

  void run(int steps) {
    for (int step = 0; step < steps; step++) {
      const std::uint32_t what = random_.below(100);
      if (what < 45) {
        push();
      } else if (what < 60) {
        flush();
      } else if (what < 65) {
        takeBack();
      } else if (what < 75) {
        save();
      } else if (what < 80) {
        load();
      } else if (what < 90) {
        replaceOwner();
      } else {
        replaceSink();
      }
      check(*owner_, *sink_);
    }
    flush();
    owner_.reset();
    sink_.reset();
    CHECK_EQ(memory_->used(), 0u);
  }

 private:
  std::unique_ptr<Shard> empty() {
    auto shard = std::make_unique<Shard>(memory_, 0, 1, 1);
    for (const TableSpec& spec : specs_) CHECK(!shard->addTable(spec));
    CHECK(shard->totalsAreRight() && shard->keysReady() && !shard->dirty() && !shard->rows());
    return shard;
  }

  /** The sums equal those of a walk, and those of the lists of tables. */
  void check(const Shard& shard, const Sink& sink) {
    CHECK(shard.totalsAreRight());
    CHECK(sink.totalsAreRight());
    std::uint64_t rows = 0, absent[2] = {};
    for (const TableStats& stats : shard.stats()) {
      rows += stats.rows;
      absent[kKeys] += stats.absentKeyBlocks;
      absent[kRows] += stats.absentRowBlocks;
    }
    CHECK_EQ(shard.rows(), rows);
    CHECK_EQ(shard.absentBlocks(kKeys), absent[kKeys]);
    CHECK_EQ(shard.absentBlocks(kRows), absent[kRows]);
    CHECK_EQ(sink.complete(), sink.excludedBlocks(0) == 0);
    CHECK_EQ(memory_->used(), shard.bytes() + sink.bytes());
  }

  std::vector<PartData> someRows(std::uint32_t mode, std::uint32_t tables) {
    std::vector<PartData> parts;
    const std::uint32_t first = random_.below(kTables);
    for (std::uint32_t i = 0; i < tables; i++) {
      const TableSpec& spec = specs_[(first + i * 7) % kTables];
      PartData part{spec.id, mode ? spec.width() : spec.dim, {}, {}};
      for (std::uint32_t n = random_.below(4); n; n--) part.keys.push_back(random_.below(20));
      part.rows.resize(part.keys.size() * part.width, random_.real());
      parts.push_back(part);
    }
    return parts;
  }

  void push() {
    const std::uint32_t mode = random_.chance(30);
    const std::vector<PartData> parts = someRows(mode, 1 + random_.below(4));
    const std::size_t open = owner_->openBytes();
    CHECK(owner_->push(view(encode(mode, parts, true))) == Status::Applied);
    CHECK(owner_->openBytes() >= open);
    // A request that is refused changes nothing, also where only its last table is wrong.
    std::vector<PartData> twice = someRows(mode, 3);
    twice.push_back(twice.front());
    const std::size_t before = owner_->openBytes();
    CHECK(owner_->push(view(encode(mode, twice, true))) == Status::BadFrame);
    CHECK_EQ(owner_->openBytes(), before);
  }

  void flush() {
    const std::size_t expected = owner_->openBytes();
    newest_ = flushed(*owner_);
    CHECK_EQ(newest_.size(), expected);
    CHECK(!owner_->dirty());
    apply();
  }

  void apply() {
    BlockPairs again;
    CHECK(sink_->apply(0, view(newest_), again) == Status::Applied);
  }

  /** Rule 13, and again. */
  void takeBack() {
    flush();
    apply();
    CHECK(sink_->totalsAreRight());
    apply();
  }

  void save() {
    flush();
    SnapshotBegun begun;
    CHECK(!owner_->beginSnapshot(random_.below(3), begun));
    CHECK(owner_->totalsAreRight());
    push();
    std::vector<std::uint64_t> keys;
    std::vector<std::uint8_t> rest;
    const AllocateRows allocate = [&](const Table& table, std::size_t rows, RowArrays& to) {
      keys.resize(rows);
      rest.resize(rows * table.spec().width() * 4);
      to = {keys.data(), rest.data(), rest.data() + rows * table.spec().dim * 4};
      return true;
    };
    for (std::uint32_t pieces = random_.below(100); pieces; pieces--) {
      if (owner_->readSnapshot(1 + random_.below(3000), allocate)) break;  // it was over
    }
    owner_->endSnapshot();
  }

  void load() {
    flush();
    const PartData part = someRows(1, 1)[0];
    const TableSpec& spec = owner_->table(part.table)->spec();
    std::vector<float> values(part.keys.size() * spec.dim),
        state(part.keys.size() * (spec.width() - spec.dim));
    Status status;
    CHECK(!owner_->loadRows({part.table, part.keys.data(), values.data(), state.data(), part.keys.size(),
                             values.size(), state.size()},
                            status));
    CHECK(status == Status::Applied);
    // No delta says what was loaded: the parity begins anew.
    if (!part.keys.empty()) replaceSink();
  }

  /** Content of up to `max` blocks that the parity does not include. */
  void include(Sink& sink, const Shard& shard, std::size_t max) {
    BlockPairs wanted;
    sink.nextExcluded(0, max, wanted);
    CHECK(wanted.size() / 2 == std::min<std::uint64_t>(max, sink.excludedBlocks(0)));
    ReadResult result;
    const Bytes bytes =
        answerOf([&](const Allocate& allocate) { CHECK(!shard.read(list(wanted), result, allocate)); });
    std::uint32_t included = 0;
    CHECK(!sink.content(0, list(result.present), view(bytes), included));
    CHECK_EQ(included, wanted.size() / 2);
  }

  /** An empty parity, which is filled while pushes go on. */
  void replaceSink() {
    flush();
    sink_ = std::make_unique<Sink>(memory_, 1, 0, false);
    CHECK(!sink_->complete());
    CHECK(!sink_->start(0, owner_->extents()));
    if (random_.chance(30)) {  // and once more, from the beginning
      include(*sink_, *owner_, 5);
      CHECK(!sink_->start(0, owner_->extents()));
    }
    while (!sink_->complete()) {
      check(*owner_, *sink_);
      include(*sink_, *owner_, 1 + random_.below(60));
      push();
      flush();
    }
  }

  /** A new owner, which gets its blocks from the old one while it lacks the others. */
  void replaceOwner() {
    flush();
    auto next = empty();
    for (const ExtentOf& e : sink_->extents(0)) CHECK(!next->adopt(e.table, e.extent));
    for (const ColumnKind kind : {kKeys, kRows}) {
      while (const std::uint64_t absent = next->absentBlocks(kind)) {
        CHECK(next->totalsAreRight());
        CHECK_EQ(next->keysReady(), kind == kRows);
        const std::size_t max = 1 + random_.below(60);
        BlockPairs blocks;
        next->nextAbsent(kind, max, blocks);
        CHECK(blocks.size() / 2 == std::min<std::uint64_t>(max, absent));
        ReadResult result;
        const Bytes bytes =
            answerOf([&](const Allocate& allocate) { CHECK(!owner_->read(list(blocks), result, allocate)); });
        std::uint32_t installed = 0;
        CHECK(!next->install(list(blocks), view(bytes), installed));
        CHECK_EQ(installed, blocks.size() / 2);
        // A second time they are passed over.
        CHECK(!next->install(list(blocks), view(bytes), installed));
        CHECK_EQ(installed, blocks.size() / 2);
      }
    }
    CHECK_EQ(next->rows(), owner_->rows());
    owner_ = std::move(next);
  }

  Random random_;
  std::shared_ptr<Memory> memory_;
  std::vector<TableSpec> specs_;
  std::unique_ptr<Shard> owner_;
  std::unique_ptr<Sink> sink_;
  Bytes newest_;
};

}  // namespace

TEST(totalsAreWhatAWalkFinds) {
  for (std::uint64_t i = 0; i < 8; i++) Story(seed * 100 + i).run(60);
}

TEST(deltasNameTablesInTheOrderOfTheirIds) {
  auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 0, 1, 1);
  for (const std::uint32_t id : {7u, 2u, 5u})
    CHECK(!shard.addTable(tableSpec(id, 1, OptimizerKind::Sgd, InitializerKind::Zeros)));
  for (const std::uint32_t id : {5u, 7u, 2u, 5u})
    CHECK(shard.push(view(encode(0, {{id, 1, {id}, {1.0f}}}, true))) == Status::Applied);
  std::vector<DeltaTable> tables;
  const Bytes delta = flushed(shard);
  CHECK(parseDelta(view(delta), tables));
  CHECK_EQ(tables.size(), std::size_t{3});
  CHECK(tables[0].table == 2 && tables[1].table == 5 && tables[2].table == 7);
}

}  // namespace kintsugi::test
