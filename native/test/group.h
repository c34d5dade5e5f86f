// A whole group in one process: k owners with models, r parities, and what happens to them. The random test
// and the fuzz target tell different stories with it; what must hold is checked here, for both.
#pragma once
#include <memory>
#include <set>

#include "engine/sink.h"
#include "test/support.h"

namespace kintsugi::test {

class Group {
 public:
  struct Member {
    std::unique_ptr<Shard> shard;
    std::vector<TableModel> models;
    std::map<std::uint32_t, std::set<std::uint64_t>> keys;  // per table, all that a push ever named
  };

  Group(std::uint32_t k, std::uint32_t r, std::vector<TableSpec> specs)
      : k_(k), r_(r), memory_(std::make_shared<Memory>(0)), specs_(std::move(specs)) {
    for (std::uint32_t m = 0; m < k; m++) members_.push_back(birth(m));
    for (std::uint32_t j = 0; j < r; j++) sinks_.push_back(std::make_unique<Sink>(memory_, k, j, true));
  }
  virtual ~Group() = default;

 protected:
  /** How often a sink applies a delta; an odd number: applied again, it is taken back (rule 13). */
  virtual int timesOf(Sink&) { return 1; }

  /** False if blocks are missing; then nothing may have changed. */
  bool pushParts(std::uint32_t m, std::uint32_t mode, const std::vector<PartData>& parts) {
    Member& member = members_[m];
    for (const PartData& part : parts) member.keys[part.table].insert(part.keys.begin(), part.keys.end());
    const Bytes section = encode(mode, parts, true);
    const std::size_t open = member.shard->openBytes();
    const Status status = member.shard->push(view(section));
    CHECK(member.shard->totalsAreRight());
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

  /** Every owner of today and tomorrow is told another policy of a table. */
  void setPolicy(TableSpec& spec, const LifePolicy& policy) {
    spec.policy = policy;
    for (Member& member : members_) {
      CHECK(!member.shard->addTable(spec));
      for (TableModel& model : member.models) {
        if (model.spec().id == spec.id) model.set(policy);
      }
    }
  }

  /** The owner hears of a second of the job, and may evict what is gone by then. */
  void tell(std::uint32_t m, std::uint32_t second, std::size_t maxDelta) {
    Member& member = members_[m];
    member.shard->tell(second, maxDelta);
    for (TableModel& model : member.models) {
      model.tell(second);
      const Table* t = member.shard->table(model.spec().id);
      if (model.spec().policy.seconds && t->extent() && t->keysAreKnown())
        model.pass(t->clock(), t->rule().isOf(t->spec().policy));
    }
    CHECK(member.shard->totalsAreRight());
  }

  void flush(std::uint32_t m) {
    Member& member = members_[m];
    const Bytes delta = flushed(*member.shard);
    for (TableModel& model : member.models) model.send();
    CHECK(!member.shard->dirty() && member.shard->totalsAreRight());
    for (auto& sink : sinks_) {
      for (int times = timesOf(*sink); times; times--) apply(*sink, m, delta);
    }
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
    CHECK(sink.totalsAreRight());
  }

  std::uint64_t absent(std::uint32_t m) const {
    return members_[m].shard->absentBlocks(kKeys) + members_[m].shard->absentBlocks(kRows);
  }

  /** The owner is gone with all that it did not send; an empty one takes its place. */
  void replaceMember(std::uint32_t m) {
    Member fresh = birth(m);
    fresh.models = std::move(members_[m].models);
    fresh.keys = std::move(members_[m].keys);
    for (TableModel& model : fresh.models) model.lose();
    // Any parity knows the extents; a new one has them from the owner's Start.
    for (const ExtentOf& e : sinks_[0]->extents(m)) CHECK(!fresh.shard->adopt(e.table, e.extent));
    CHECK(fresh.shard->totalsAreRight());
    members_[m] = std::move(fresh);
    for (auto& sink : sinks_) sink->dropAccumulators();
  }

  /** An empty parity takes the place of one that is gone; nothing of anybody is included yet. */
  void replaceSink(std::uint32_t j) {
    for (std::uint32_t m = 0; m < k_; m++) flush(m);
    auto fresh = std::make_unique<Sink>(memory_, k_, j, false);
    for (std::uint32_t m = 0; m < k_; m++) {
      CHECK(!fresh->complete());
      CHECK(!fresh->start(m, members_[m].shard->extents()));
      CHECK(fresh->totalsAreRight());
    }
    sinks_[j] = std::move(fresh);
  }

  /** Up to `max` blocks of a member that a parity does not include. */
  void include(Sink& sink, std::uint32_t m, std::size_t max) {
    BlockPairs wanted;
    sink.nextExcluded(m, max, wanted);
    CHECK_EQ(wanted.empty(), sink.excludedBlocks(m) == 0);
    answerWant(sink, m, wanted);
  }

  /** Parity j gathers what the member needs for these blocks; `between(other)` happens before each answer. */
  template <class Between>
  void askParity(std::uint32_t j, std::uint32_t m, const BlockPairs& wanted, Between between) {
    BlockPairs created, still;
    CHECK(!members_[m].shard->filterAbsent(list(wanted), still));
    CHECK(!sinks_[j]->recover(m, list(still), created));
    for (std::uint32_t other = 0; other < k_; other++) {
      between(other);
      BlockPairs pending;
      sinks_[j]->nextPending(other, 1000, pending);
      answerWant(*sinks_[j], other, pending);
    }
  }

  /** Finished equations of parity j go to who asked, and what they solve for others to those. Returns how
   * many blocks are stuck. */
  std::size_t deliver(std::uint32_t j) {
    std::size_t stuck = 0;
    for (const CompletedGroup& group : sinks_[j]->takeCompleted()) {
      std::vector<std::uint32_t> lacking;
      for (std::uint32_t m = 0; m < k_; m++) {
        if (group.lacking >> m & 1) lacking.push_back(m);
      }
      for (const std::uint32_t m : lacking) {
        if (!(group.requesters >> m & 1)) continue;
        EquationsResult result;
        CHECK(!members_[m].shard->addEquations(j, r_, lacking, group.ok, list(group.blocks),
                                               view(group.bytes()), result));
        stuck += result.stuck.size() / 2;
        CHECK(members_[m].shard->totalsAreRight());
        for (const auto& other : result.others) {
          std::uint32_t installed = 0;
          CHECK(!members_[other.member].shard->install(list(other.blocks), view(other.bytes), installed));
        }
      }
    }
    return stuck;
  }

  /** Every row that was ever pushed, and `others`, bit for bit. */
  void compare(std::uint32_t m, const std::vector<std::uint64_t>& others) {
    for (const TableModel& model : members_[m].models) {
      PartData part;
      part.table = model.spec().id;
      part.width = model.spec().width();
      for (const std::uint64_t key : members_[m].keys[part.table]) part.keys.push_back(key);
      part.keys.insert(part.keys.end(), others.begin(), others.end());
      const Bytes section = encode(1, {part}, false);
      Status status = Status::Absent;
      const Bytes rows = answerOf(
          [&](const Allocate& allocate) { status = members_[m].shard->pull(view(section), allocate); });
      CHECK(status == Status::Applied);
      for (std::size_t i = 0; i < part.keys.size(); i++) {
        const std::vector<float> expected = model.row(part.keys[i]);
        CHECK(std::memcmp(rows.data() + i * part.width * 4, expected.data(), part.width * 4) == 0);
      }
      for (const TableStats& stats : members_[m].shard->stats()) {
        if (stats.table == part.table && !model.spec().policy.any()) CHECK_EQ(stats.rows, model.size());
      }
    }
  }

  /** Every parity block is the sum of its members'; `between(m)` happens before each answer. */
  template <class Between>
  void checkParity(Sink& sink, Between between) {
    BlockPairs blocks, created;
    sink.dropAccumulators();
    sink.allBlocks(0, 1u << 30, blocks);
    CHECK(!sink.check(list(blocks), created));
    CHECK(created == blocks);
    for (std::uint32_t m = 0; m < k_; m++) {
      between(m);
      BlockPairs pending;
      sink.nextPending(m, 1u << 30, pending);
      CHECK_EQ(pending.size(), blocks.size());
      answerWant(sink, m, pending);
    }
    std::size_t seen = 0;
    for (const CompletedGroup& group : sink.takeCompleted()) {
      CHECK(group.checked && group.ok && !group.lacking && !group.requesters);
      CHECK_EQ(group.nonZero, 0u);
      seen += group.blocks.size();
    }
    CHECK_EQ(seen, blocks.size());
    CHECK_EQ(sink.accumulators(), 0u);
  }

  std::uint32_t k_, r_;
  std::shared_ptr<Memory> memory_;
  std::vector<TableSpec> specs_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Sink>> sinks_;

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

  void apply(Sink& sink, std::uint32_t m, const Bytes& delta) {
    BlockPairs again;
    CHECK(sink.apply(m, view(delta), again) == Status::Applied);
    CHECK(sink.totalsAreRight());
    if (!again.empty()) answerWant(sink, m, again);
  }
};

}  // namespace kintsugi::test
