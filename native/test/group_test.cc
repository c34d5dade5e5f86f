// Random operations on a whole group: k owners, r parities, lost members that are recovered while others go
// on pushing, lost parities that are rebuilt under traffic, deltas that are taken back and applied again.
// After each story every row is compared bit for bit with the model, and every parity block with the sum of
// its members.
#include <algorithm>
#include <memory>

#include "engine/sink.h"
#include "test/support.h"

namespace kintsugi::test {
namespace {

constexpr std::uint32_t kKeySpace = 3000;

struct Member {
  std::unique_ptr<Shard> shard;
  std::vector<TableModel> models;
};

class Group {
 public:
  Group(std::uint64_t seed, std::uint32_t k, std::uint32_t r)
      : random_(seed), k_(k), r_(r), memory_(std::make_shared<Memory>(0)) {
    specs_ = {tableSpec(0, 5, OptimizerKind::Adagrad, InitializerKind::Uniform),
              tableSpec(3, 16, OptimizerKind::Adam, InitializerKind::Normal),
              tableSpec(7, 1200, OptimizerKind::Sgd, InitializerKind::Zeros)};
    for (std::uint32_t m = 0; m < k; m++) members_.push_back(birth(m));
    for (std::uint32_t j = 0; j < r; j++) sinks_.push_back(std::make_unique<Sink>(memory_, k, j, true));
  }

  void run(int steps) {
    for (int step = 0; step < steps; step++) {
      const std::uint32_t what = random_.below(100), m = random_.below(k_);
      if (what < 60) {
        push(m);
      } else if (what < 85) {
        flush(m);
      } else if (what < 90) {
        rebuildSink(random_.below(r_));
      } else if (what < 97) {
        recover(1 + random_.below(std::min(r_, k_)));
      } else {
        checkParity();
      }
    }
    for (std::uint32_t m = 0; m < k_; m++) compare(m);
    checkParity();
  }

 private:
  Member birth(std::uint32_t m) {
    Member member;
    member.shard = std::make_unique<Shard>(memory_, m, k_, r_);
    for (const TableSpec& spec : specs_) {
      CHECK(!member.shard->addTable(spec));
      member.models.emplace_back(spec);
    }
    return member;
  }

  PartData randomPart(const TableSpec& spec, std::uint32_t mode) {
    PartData part;
    part.table = spec.id;
    part.width = mode ? spec.width() : spec.dim;
    const std::uint32_t count = random_.below(spec.dim > 1000 ? 4 : 60);
    for (std::uint32_t i = 0; i < count; i++) {
      part.keys.push_back(random_.chance(10) && i ? part.keys[random_.below(i)]
                                                  : random_.below(spec.dim > 1000 ? 40 : kKeySpace));
      for (std::uint32_t x = 0; x < part.width; x++) part.rows.push_back(random_.real());
    }
    return part;
  }

  /** False if blocks are missing; then nothing may have changed. */
  bool push(std::uint32_t m) {
    Member& member = members_[m];
    const std::uint32_t mode = random_.chance(15) ? 1 : 0;
    std::vector<PartData> parts;
    for (const TableSpec& spec : specs_) {
      if (random_.chance(60)) parts.push_back(randomPart(spec, mode));
    }
    const Bytes section = encode(mode, parts, true);
    const std::size_t open = member.shard->openBytes();
    const Status status = member.shard->push(view(section));
    if (status == Status::Absent) {
      CHECK_EQ(member.shard->openBytes(), open);
      CHECK(!member.shard->missing().empty());
      BlockPairs absent;
      CHECK(!member.shard->filterAbsent(list(member.shard->missing()), absent));
      CHECK(absent == member.shard->missing());
      return false;
    }
    CHECK(status == Status::Applied);
    for (const PartData& part : parts) {
      for (TableModel& model : member.models) {
        if (model.spec().id == part.table) model.push(mode, part);
      }
    }
    return true;
  }

  void flush(std::uint32_t m) {
    Member& member = members_[m];
    const Bytes delta = flushed(*member.shard);
    for (TableModel& model : member.models) model.send();
    CHECK(!member.shard->dirty());
    for (auto& sink : sinks_) {
      apply(*sink, m, delta);
      // A delta taken back and applied again (rule 13); with accumulators in flight this is not done.
      if (sink->accumulators() || !random_.chance(20)) continue;
      apply(*sink, m, delta);
      apply(*sink, m, delta);
    }
  }

  void apply(Sink& sink, std::uint32_t m, const Bytes& delta) {
    BlockPairs again;
    CHECK(sink.apply(m, view(delta), again) == Status::Applied);
    if (!again.empty()) answerWant(sink, m, again);
  }

  /** Rule 18: flush first, then content or lacking. */
  void answerWant(Sink& sink, std::uint32_t m, const BlockPairs& blocks) {
    flush(m);
    ReadResult result;
    const Bytes bytes = answerOf(
        [&](const Allocate& allocate) { CHECK(!members_[m].shard->read(list(blocks), result, allocate)); });
    std::uint32_t included = 0;
    CHECK(!sink.content(m, list(result.present), view(bytes), included));
    CHECK(!sink.lacking(m, list(result.lacking)));
  }

  /** An empty parity takes the place of one that is gone; nothing of anybody is included yet. */
  void replaceSink(std::uint32_t j) {
    auto fresh = std::make_unique<Sink>(memory_, k_, j, false);
    for (std::uint32_t m = 0; m < k_; m++) {
      flush(m);
      CHECK(!fresh->full());
      CHECK(!fresh->start(m, members_[m].shard->extents()));
    }
    sinks_[j] = std::move(fresh);
  }

  void fillSink(Sink& sink) {
    push(random_.below(k_));
    flush(random_.below(k_));
    for (std::uint32_t m = 0; m < k_; m++) {
      BlockPairs wanted;
      sink.nextExcluded(m, 1 + random_.below(5), wanted);
      CHECK_EQ(wanted.empty(), sink.excludedBlocks(m) == 0);
      answerWant(sink, m, wanted);
    }
  }

  void rebuildSink(std::uint32_t j) {
    replaceSink(j);
    while (!sinks_[j]->full()) fillSink(*sinks_[j]);
  }

  /** Loses `count` members at once and brings them back while everybody goes on pushing. */
  void recover(std::uint32_t count) {
    std::vector<std::uint32_t> lost;
    while (lost.size() < count) {
      const std::uint32_t m = random_.below(k_);
      if (std::find(lost.begin(), lost.end(), m) == lost.end()) lost.push_back(m);
    }
    // With a parity to spare, one of them is half rebuilt when the members are lost.
    Sink* partial = nullptr;
    if (count < r_) {
      const std::uint32_t j = random_.below(r_);
      replaceSink(j);
      partial = sinks_[j].get();
      for (std::uint32_t i = random_.below(4); i; i--) fillSink(*partial);
    }
    for (const std::uint32_t m : lost) {
      Member fresh = birth(m);
      fresh.models = std::move(members_[m].models);
      for (TableModel& model : fresh.models) model.lose();
      for (const ExtentOf& e : sinks_[0]->extents(m)) CHECK(!fresh.shard->adopt(e.table, e.extent));
      members_[m] = std::move(fresh);
    }
    for (auto& sink : sinks_) sink->dropAccumulators();
    for (bool left = true; left;) {
      left = false;
      push(random_.below(k_));
      if (random_.chance(30)) flush(random_.below(k_));
      for (const std::uint32_t m : lost) left |= recoverSome(m);
      if (partial) fillSink(*partial);
    }
    while (partial && !partial->full()) fillSink(*partial);
    for (const std::uint32_t m : lost) CHECK(members_[m].shard->keysReady());
  }

  bool recoverSome(std::uint32_t m) {
    Shard& shard = *members_[m].shard;
    BlockPairs wanted;
    if (!push(m)) wanted = shard.missing();
    const ColumnKind kind = shard.absentBlocks(kKeys) ? kKeys : kRows;
    BlockPairs swept;
    shard.nextAbsent(kind, 1 + random_.below(8), swept);
    wanted.insert(wanted.end(), swept.begin(), swept.end());
    CHECK_EQ(wanted.empty(), shard.absentBlocks(kKeys) + shard.absentBlocks(kRows) == 0);
    for (std::uint32_t j = 0; j < r_; j++) {
      if (random_.chance(25)) continue;  // not every parity is asked in every round
      BlockPairs created, pending;
      BlockPairs still;
      CHECK(!shard.filterAbsent(list(wanted), still));
      CHECK(!sinks_[j]->recover(m, list(still), created));
      for (std::uint32_t other = 0; other < k_; other++) {
        if (random_.chance(30)) push(random_.below(k_));
        if (random_.chance(30)) flush(random_.below(k_));
        pending.clear();
        sinks_[j]->nextPending(other, 1000, pending);
        answerWant(*sinks_[j], other, pending);
      }
      deliver(j);
    }
    return shard.absentBlocks(kKeys) + shard.absentBlocks(kRows) > 0;
  }

  void deliver(std::uint32_t j) {
    for (const CompletedGroup& group : sinks_[j]->takeCompleted()) {
      std::vector<std::uint32_t> lacking;
      for (std::uint32_t m = 0; m < k_; m++) {
        if (group.lacking >> m & 1) lacking.push_back(m);
      }
      for (std::uint32_t m = 0; m < k_; m++) {
        if (!(group.requesters >> m & 1) || !(group.lacking >> m & 1)) continue;
        EquationsResult result;
        CHECK(!members_[m].shard->addEquations(j, r_, lacking, group.ok, list(group.blocks),
                                               view(group.bytes()), result));
        CHECK(result.stuck.empty());
        for (const auto& other : result.others) {
          std::uint32_t installed = 0;
          CHECK(!members_[other.member].shard->install(list(other.blocks), view(other.bytes), installed));
        }
      }
    }
  }

  void compare(std::uint32_t m) {
    for (const TableModel& model : members_[m].models) {
      PartData part;
      part.table = model.spec().id;
      part.width = model.spec().width();
      for (std::uint64_t key = 0; key < kKeySpace; key++) part.keys.push_back(key);
      const Bytes section = encode(1, {part}, false);
      Status status = Status::Absent;
      const Bytes rows = answerOf(
          [&](const Allocate& allocate) { status = members_[m].shard->pull(view(section), allocate); });
      CHECK(status == Status::Applied);
      for (std::uint64_t key = 0; key < kKeySpace; key++) {
        const std::vector<float> expected = model.row(key);
        CHECK(std::memcmp(rows.data() + key * part.width * 4, expected.data(), part.width * 4) == 0);
      }
    }
    const auto stats = members_[m].shard->stats();
    for (std::size_t t = 0; t < stats.size(); t++) CHECK_EQ(stats[t].rows, members_[m].models[t].size());
  }

  void checkParity() {
    for (auto& sink : sinks_) {
      BlockPairs blocks, created;
      sink->allBlocks(0, 1u << 30, blocks);
      CHECK(!sink->check(list(blocks), created));
      CHECK(created == blocks);
      for (std::uint32_t m = 0; m < k_; m++) {
        push(m);
        BlockPairs pending;
        sink->nextPending(m, 1u << 30, pending);
        CHECK_EQ(pending.size(), blocks.size());
        answerWant(*sink, m, pending);
      }
      std::size_t seen = 0;
      for (const CompletedGroup& group : sink->takeCompleted()) {
        CHECK(group.checked && group.ok && !group.lacking && !group.requesters);
        CHECK_EQ(group.nonZero, 0u);
        seen += group.blocks.size();
      }
      CHECK_EQ(seen, blocks.size());
      CHECK_EQ(sink->accumulators(), 0u);
    }
  }

  Random random_;
  std::uint32_t k_, r_;
  std::shared_ptr<Memory> memory_;
  std::vector<TableSpec> specs_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

TEST(groupSurvives) {
  const std::uint32_t codes[][2] = {{1, 1}, {2, 1}, {4, 2}, {3, 3}, {5, 4}};
  for (const auto& code : codes) Group(seed * 100 + code[0] * 10 + code[1], code[0], code[1]).run(120);
}

}  // namespace
}  // namespace kintsugi::test
