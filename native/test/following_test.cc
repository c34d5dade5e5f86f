// Shards that follow another one: random histories of a shard and of a second one that takes its deltas, gets
// the blocks that it lacks at any time, and takes deltas back. Both answer every pull alike, and so does a
// model where nothing was taken back.
#include <set>

#include "test/support.h"

namespace kintsugi::test {
namespace {

std::vector<TableSpec> specs() {
  return {tableSpec(1, 1, OptimizerKind::Sgd, InitializerKind::Uniform),
          scheduled(tableSpec(2, 7, OptimizerKind::Adagrad, InitializerKind::Normal)),
          withPolicy(tableSpec(4, 5, OptimizerKind::Adagrad, InitializerKind::Uniform), {6, 2, 3, 2}),
          withPolicy(tableSpec(8, 3, OptimizerKind::Adagrad, InitializerKind::Uniform),
                     filtered({2, 300, 3, 400}, 8)),
          withPolicy(tableSpec(11, 4, OptimizerKind::Adam, InitializerKind::Uniform), scored(1u << 30, 20)),
          tableSpec(9, 700, OptimizerKind::Adam, InitializerKind::Zeros)};  // rows wider than a block
}

Bytes pulled(Shard& shard, const std::vector<PartData>& parts, Status expected = Status::Applied) {
  const Bytes section = encode(1, parts, false);
  return answerOf([&](const Allocate& allocate) { CHECK(shard.pull(view(section), allocate) == expected); });
}

class Story {
 public:
  explicit Story(std::uint64_t seed) : random_(seed), memory_(std::make_shared<Memory>(0)) {
    leader_ = shard();
    follower_ = shard();
  }

  void run() {
    for (int step = 0; step < 120; step++) {
      const std::uint32_t what = random_.below(100);
      if (what < 60)
        push();
      else if (what < 75)
        fill(1 + random_.below(4));
      else if (what < 85)
        takeBack(1 + random_.below(4));
      else if (what < 90)
        begin();
      else if (what < 95)
        setPolicy();
      CHECK(leader_->totalsAreRight() && follower_->totalsAreRight());
      if (complete()) compare();
    }
    fill(1u << 20);
    compare();
    takeBack(random_.below(20));
    compare();
  }

 private:
  struct Batch {
    Bytes delta;
    std::set<std::pair<std::uint32_t, std::uint64_t>> before;  // keys that were there before it
  };

  std::unique_ptr<Shard> shard() {
    auto made = std::make_unique<Shard>(memory_, 0, 1, 1);
    for (const TableSpec& spec : tables_) CHECK(!made->addTable(spec));
    return made;
  }

  /** Leader or follower is told, or both are. The follower goes by what it finds in the deltas. */
  void setPolicy() {
    TableSpec& spec = tables_[2];
    spec.policy = {random_.below(9), 1 + random_.below(4), 1 + random_.below(9), random_.below(3)};
    const std::uint32_t who = random_.below(3);
    if (who != 0) CHECK(!leader_->addTable(spec));
    if (who != 1) CHECK(!follower_->addTable(spec));
  }

  /** An empty follower, at the leader's position. */
  void begin() {
    follower_ = shard();
    log_.clear();
    for (const ExtentOf& e : leader_->extents()) CHECK(!follower_->adopt(e.table, e.extent));
  }

  bool complete() { return !follower_->absentBlocks(kKeys) && !follower_->absentBlocks(kRows); }

  void push() {
    Batch batch;
    batch.before = keys_;
    for (std::uint32_t pushes = 1 + random_.below(3); pushes; pushes--) {
      const std::uint32_t mode = random_.chance(30);
      std::vector<PartData> parts;
      for (const TableSpec& spec : tables_) {
        if (random_.chance(30)) continue;
        PartData part;
        part.table = spec.id;
        part.width = random_.chance(25) ? 0 : mode ? spec.width() : spec.dim;
        for (std::uint32_t n = 1 + random_.below(spec.dim > 100 ? 4 : 200); n; n--) {
          const std::uint64_t key = random_.below(2000);
          part.keys.push_back(key);
          if (!part.width) {
            keys_.erase({spec.id, key});
          } else {
            keys_.emplace(spec.id, key);
          }
        }
        for (std::size_t i = 0; i < part.keys.size() * part.width; i++)
          part.rows.push_back(static_cast<float>(random_.below(1000)) / 100 - 5);
        if (part.width && !mode && spec.policy.any() && random_.chance(50))
          for (std::size_t i = 0; i < part.keys.size(); i++) part.counts.push_back(1 + random_.below(3));
        if (part.width && !mode && spec.policy.score && random_.chance(50))
          for (std::size_t i = 0; i < part.keys.size(); i++) part.scores.push_back(random_.real());
        parts.push_back(part);
      }
      CHECK(leader_->push(view(encode(mode, parts, true))) == Status::Applied);
    }
    batch.delta = flushed(*leader_);
    CHECK(follower_->applyDelta(view(batch.delta)) == Status::Applied);
    log_.push_back(std::move(batch));
  }

  /** Content of absent blocks, at the position where both are. */
  void fill(std::uint32_t max) {
    for (const ColumnKind kind : {kKeys, kRows}) {
      BlockPairs blocks;
      follower_->nextAbsent(kind, max, blocks);
      ReadResult read;
      const Bytes bytes =
          answerOf([&](const Allocate& allocate) { CHECK(!leader_->read(list(blocks), read, allocate)); });
      std::uint32_t installed = 0;
      CHECK(!follower_->install(list(blocks), view(bytes), installed));
      CHECK_EQ(installed, blocks.size() / 2);
    }
  }

  /** The owner of the shard died, and its newest batches with it: the follower takes them back, and the next
   * owner has the rest. */
  void takeBack(std::uint32_t count) {
    std::vector<Bytes> undone;
    for (; count && !log_.empty(); count--) {
      CHECK(follower_->applyDelta(view(log_.back().delta)) == Status::Applied);
      undone.push_back(log_.back().delta);
      keys_ = log_.back().before;
      log_.pop_back();
    }
    // The leader has its blocks with the deltas taken back, as recovery would find them.
    leader_ = copied();
    for (const Bytes& delta : undone) CHECK(leader_->applyDelta(view(delta)) == Status::Applied);
    // The leader serves pushes: its free slots are those of keys that are gone.
    leader_ = copied();
  }

  /** The leader as a new owner would have it: all blocks installed at once. */
  std::unique_ptr<Shard> copied() {
    auto next = shard();
    for (const ExtentOf& e : leader_->extents()) CHECK(!next->adopt(e.table, e.extent));
    for (const ColumnKind kind : {kKeys, kRows}) {
      BlockPairs blocks;
      next->nextAbsent(kind, 1u << 20, blocks);
      ReadResult read;
      const Bytes bytes =
          answerOf([&](const Allocate& allocate) { CHECK(!leader_->read(list(blocks), read, allocate)); });
      std::uint32_t installed = 0;
      CHECK(!next->install(list(blocks), view(bytes), installed));
    }
    return next;
  }

  void compare() {
    std::vector<PartData> parts;
    for (const TableSpec& spec : tables_) {
      PartData part;
      part.table = spec.id;
      part.width = spec.width();
      for (std::uint64_t key = 0; key<2010; key += spec.dim> 100 ? 97 : 1) part.keys.push_back(key);
      parts.push_back(part);
      if (spec.policy.any()) continue;  // rows that are gone wait to be evicted
      const Table& table = *follower_->table(spec.id);
      std::size_t known = 0;
      for (const auto& [id, key] : keys_) known += id == spec.id;
      CHECK_EQ(table.index().size(), known);
    }
    CHECK(pulled(*leader_, parts) == pulled(*follower_, parts));
  }

  Random random_;
  std::vector<TableSpec> tables_ = specs();
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<Shard> leader_, follower_;
  std::vector<Batch> log_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> keys_;
};

}  // namespace

TEST(a_follower_answers_as_the_shard_that_it_follows) {
  for (int i = 0; i < 40; i++) Story(seed * 1000 + static_cast<std::uint64_t>(i)).run();
}

TEST(a_delta_that_does_not_fit_changes_nothing) {
  auto memory = std::make_shared<Memory>(0);
  Shard leader(memory, 0, 1, 1), follower(memory, 0, 1, 1);
  const std::vector<TableSpec> tables = specs();
  for (const TableSpec& spec : tables) CHECK(!leader.addTable(spec));
  CHECK(!follower.addTable(tables[0]));
  PartData known{1, 1, {5}, {1.0f}}, unknown{2, 7, {5}, std::vector<float>(7, 1.0f)};
  CHECK(leader.push(view(encode(0, {known, unknown}, true))) == Status::Applied);
  const Bytes delta = flushed(leader);
  CHECK(follower.applyDelta(view(delta)) == Status::UnknownTable);
  CHECK_EQ(follower.table(1)->extent(), 0u);
  CHECK(!follower.addTable(tables[1]));
  CHECK(follower.applyDelta({delta.data(), delta.size() - 8}) == Status::BadFrame);
  CHECK(follower.applyDelta(view(delta)) == Status::Applied);
  CHECK_EQ(follower.table(1)->index().size(), std::size_t{1});
  CHECK(follower.applyDelta(view(delta)) == Status::Applied);
  CHECK_EQ(follower.table(1)->index().size(), std::size_t{0});
}

}  // namespace kintsugi::test
