// Whole stories of a group, written by the fuzzer: k owners, r parities and a model that is a map from key to
// row. Every byte chooses what happens next: pushes, flushes, deltas taken back, lost members and parities
// that are rebuilt piece by piece in any order, with traffic in between. At the end everything is brought
// home, every row is compared with the model bit for bit, and every parity block with the sum of its members.
#include <set>

#include "engine/sink.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;
using test::PartData;
using test::TableModel;

constexpr std::uint32_t kKeySpace = 1200;

struct Member {
  std::unique_ptr<Shard> shard;
  std::vector<TableModel> models;
  std::map<std::uint32_t, std::set<std::uint64_t>> keys;  // per table, all that were ever pushed
};

class Story {
 public:
  explicit Story(Input& in) : in_(in), memory_(std::make_shared<Memory>(0)) {
    specs_ = {tableSpec(0, 4, OptimizerKind::Adagrad, InitializerKind::Uniform),
              tableSpec(5, 520, OptimizerKind::Momentum, InitializerKind::Zeros)};
    k_ = 1 + in_.below(3);
    r_ = 1 + in_.below(2);
    for (std::uint32_t m = 0; m < k_; m++) members_.push_back(birth(m));
    for (std::uint32_t j = 0; j < r_; j++) sinks_.push_back(std::make_unique<Sink>(memory_, k_, j, true));
  }

  void run() {
    for (int steps = 0; !in_.empty() && steps < 80; steps++) step();
    // The rest of the input is zero from here on: a plain order of events that must come to an end.
    for (int rounds = 0; !home(); rounds++) {
      CHECK(rounds < 10000);
      for (std::uint32_t m = 0; m < k_; m++) recoverSome(m, 64);
      for (auto& sink : sinks_) fill(*sink, 64);
    }
    for (std::uint32_t m = 0; m < k_; m++) flush(m);
    for (std::uint32_t m = 0; m < k_; m++) compare(m);
    for (auto& sink : sinks_) checkParity(*sink);
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

  void step() {
    const std::uint32_t what = in_.below(12), m = in_.below(k_);
    if (what < 4) return push(m);
    if (what < 6) return flush(m);
    if (what == 6) return rollBack(m);
    if (what == 7) return lose(m);
    if (what == 8) return loseSink(in_.below(r_));
    if (what == 9) return fill(*sinks_[in_.below(r_)], 1 + in_.below(4));
    return recoverSome(m, 1 + in_.below(6));
  }

  std::uint64_t absent(std::uint32_t m) const {
    return members_[m].shard->absentBlocks(kKeys) + members_[m].shard->absentBlocks(kRows);
  }

  /** So many lack something, counted as the code counts them: members and parities of one group. */
  std::uint32_t lackingNow() const {
    std::uint32_t count = 0;
    for (std::uint32_t m = 0; m < k_; m++) count += absent(m) > 0;
    for (const auto& sink : sinks_) count += !sink->full();
    return count;
  }

  bool home() const { return lackingNow() == 0; }

  void push(std::uint32_t m) {
    const std::uint32_t shape = in_.u8(), mode = shape >> 7;
    std::vector<PartData> parts;
    for (const TableSpec& spec : specs_) {
      if (shape >> (spec.id ? 1 : 0) & 1) continue;
      PartData part;
      part.table = spec.id;
      part.width = mode ? spec.width() : spec.dim;
      readRows(part, spec.dim > 100 ? 40 : kKeySpace);
      for (const std::uint64_t key : part.keys) members_[m].keys[spec.id].insert(key);
      parts.push_back(part);
    }
    const Bytes section = test::encode(mode, parts, true);
    const std::size_t open = members_[m].shard->openBytes();
    const Status status = members_[m].shard->push(view(section));
    if (status == Status::Absent) {
      CHECK_EQ(members_[m].shard->openBytes(), open);
      CHECK(absent(m) > 0);
      return;
    }
    CHECK(status == Status::Applied);
    for (const PartData& part : parts) {
      for (TableModel& model : members_[m].models) {
        if (model.spec().id == part.table) model.push(mode, part);
      }
    }
  }

  /** Runs of keys, so that few bytes fill several blocks; they may overlap, and 2^64-2 is the last key there
   * is. */
  void readRows(PartData& part, std::uint32_t space) {
    for (std::uint32_t runs = in_.below(4); runs; runs--) {
      const std::uint32_t first = in_.u16() % (space + 1), length = 1 + in_.u8() % (space / 5);
      const float value = static_cast<float>(in_.u8()) - 100;
      for (std::uint32_t i = 0; i < length; i++) {
        const std::uint64_t key = first + i;
        part.keys.push_back(key % (space + 1) == space ? ~std::uint64_t{1} : key % (space + 1));
        for (std::uint32_t x = 0; x < part.width; x++) part.rows.push_back(value + static_cast<float>(x % 3));
      }
    }
  }

  void flush(std::uint32_t m) { flushTo(m, 1); }

  /** `times` is odd: a delta that is applied, taken back and applied again. */
  void flushTo(std::uint32_t m, int times) {
    const Bytes delta = flushed(*members_[m].shard);
    for (TableModel& model : members_[m].models) model.send();
    for (auto& sink : sinks_) {
      // With accumulators in flight a roll-back drops them first (rule 13).
      if (times > 1) sink->dropAccumulators();
      for (int i = 0; i < times; i++) apply(*sink, m, delta);
    }
  }

  void rollBack(std::uint32_t m) { flushTo(m, 3); }

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

  void lose(std::uint32_t m) {
    if (absent(m) || lackingNow() >= r_) return;
    Member fresh = birth(m);
    fresh.models = std::move(members_[m].models);
    fresh.keys = std::move(members_[m].keys);
    for (TableModel& model : fresh.models) model.lose();
    // Any parity knows the extents; a new one has them from the owner's Start.
    for (const ExtentOf& e : sinks_[0]->extents(m)) CHECK(!fresh.shard->adopt(e.table, e.extent));
    members_[m] = std::move(fresh);
    for (auto& sink : sinks_) sink->dropAccumulators();
  }

  void loseSink(std::uint32_t j) {
    if (!sinks_[j]->full() || lackingNow() >= r_) return;
    for (std::uint32_t m = 0; m < k_; m++) flush(m);
    auto fresh = std::make_unique<Sink>(memory_, k_, j, false);
    for (std::uint32_t m = 0; m < k_; m++) CHECK(!fresh->start(m, members_[m].shard->extents()));
    sinks_[j] = std::move(fresh);
  }

  void fill(Sink& sink, std::size_t max) {
    for (std::uint32_t m = 0; m < k_; m++) {
      BlockPairs wanted;
      sink.nextExcluded(m, max, wanted);
      CHECK_EQ(wanted.empty(), sink.excludedBlocks(m) == 0);
      answerWant(sink, m, wanted);
    }
  }

  void recoverSome(std::uint32_t m, std::size_t max) {
    Shard& shard = *members_[m].shard;
    for (const ColumnKind kind : {kKeys, kRows}) {
      BlockPairs wanted;
      shard.nextAbsent(kind, max, wanted);
      if (wanted.empty()) continue;
      for (std::uint32_t j = 0; j < r_; j++) {
        BlockPairs created, still;
        CHECK(!shard.filterAbsent(list(wanted), still));
        CHECK(!sinks_[j]->recover(m, list(still), created));
        for (std::uint32_t other = 0; other < k_; other++) {
          if (in_.below(4) == 3) push(other);
          BlockPairs pending;
          sinks_[j]->nextPending(other, 1000, pending);
          answerWant(*sinks_[j], other, pending);
        }
        deliver(j);
      }
    }
  }

  void deliver(std::uint32_t j) {
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
      for (const std::uint64_t key : members_[m].keys[part.table]) part.keys.push_back(key);
      part.keys.push_back(kKeySpace + 1);  // never pushed
      const Bytes section = test::encode(1, {part}, false);
      Status status = Status::Absent;
      const Bytes rows = answerOf(
          [&](const Allocate& allocate) { status = members_[m].shard->pull(view(section), allocate); });
      CHECK(status == Status::Applied);
      for (std::size_t i = 0; i < part.keys.size(); i++) {
        const std::vector<float> expected = model.row(part.keys[i]);
        CHECK(std::memcmp(rows.data() + i * part.width * 4, expected.data(), part.width * 4) == 0);
      }
      for (const TableStats& stats : members_[m].shard->stats()) {
        if (stats.table == part.table) CHECK_EQ(stats.rows, model.size());
      }
    }
  }

  void checkParity(Sink& sink) {
    BlockPairs blocks, created;
    sink.dropAccumulators();
    sink.allBlocks(0, 1u << 20, blocks);
    CHECK(!sink.check(list(blocks), created));
    CHECK(created == blocks);
    for (std::uint32_t m = 0; m < k_; m++) answerWant(sink, m, blocks);
    std::size_t seen = 0;
    for (const CompletedGroup& group : sink.takeCompleted()) {
      CHECK(group.checked && !group.lacking);
      CHECK_EQ(group.nonZero, 0u);
      seen += group.blocks.size();
    }
    CHECK_EQ(seen, blocks.size());
  }

  Input& in_;
  std::shared_ptr<Memory> memory_;
  std::uint32_t k_ = 1, r_ = 1;
  std::vector<TableSpec> specs_;
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  Story(in).run();
  return 0;
}
