// REQUEST sections from anybody against a shard that serves, one whose blocks are partly lost and one whose
// memory is used up. A refused section changes nothing, byte for byte of the accounts of memory. An applied
// one leaves as a delta that a parity takes, and that delta applied twice is nothing.
#include "engine/sink.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;

enum Kind { kWhole, kDamaged, kTight, kKinds };

/** The engine object of one kind. It lives from one input to the next as long as nothing changes it. */
struct Subject {
  std::shared_ptr<Memory> memory;
  std::unique_ptr<Shard> shard;
  std::vector<ExtentOf> extents;
  std::size_t used = 0;
};

void addTables(Shard& shard) {
  CHECK(!shard.addTable(scheduled(tableSpec(0, 3, OptimizerKind::Adagrad, InitializerKind::Uniform))));
  CHECK(!shard.addTable(tableSpec(1, 16, OptimizerKind::Adam, InitializerKind::Normal)));
  CHECK(!shard.addTable(tableSpec(2, 1, OptimizerKind::Ftrl, InitializerKind::Zeros)));
  // These take counts, and the last one takes scores.
  LifePolicy counter{4, 3, 2, 2};
  std::uint32_t id = 3;
  for (const LifePolicy& policy : {counter, test::byChance(1), test::filtered({3, 4, 2, 50}),
                                   test::scored(3)}) {
    const TableSpec spec = tableSpec(id++, 2, OptimizerKind::Sgd, InitializerKind::Zeros);
    CHECK(!shard.addTable(test::withPolicy(spec, policy)));
  }
}

Subject birth(Kind kind) {
  Subject s;
  s.memory = std::make_shared<Memory>(kind == kTight ? 48 << 10 : 0);
  s.shard = std::make_unique<Shard>(s.memory, 0, 2, 2);
  addTables(*s.shard);
  test::PartData some;
  some.table = 0;
  some.width = 3;
  for (std::uint64_t key = 0; key < 300; key++) {
    some.keys.push_back(key % 7 ? key : ~std::uint64_t{1} - key);
    some.rows.insert(some.rows.end(), 3, 1.5f);
  }
  CHECK(s.shard->push(view(test::encode(0, {some}, true))) == Status::Applied);
  flushed(*s.shard);
  if (kind == kDamaged) {
    auto after = std::make_unique<Shard>(s.memory, 0, 2, 2);
    addTables(*after);
    CHECK(!after->adopt(0, 300));
    CHECK(!after->adopt(1, 20));
    // The keys of table 0 are back, its rows in part; of table 1 nothing is.
    const BlockPairs back = {0, 0, 1, 1};
    ReadResult result;
    const Bytes bytes =
        answerOf([&](const Allocate& allocate) { CHECK(!s.shard->read(list(back), result, allocate)); });
    std::uint32_t installed = 0;
    CHECK(!after->install(list(back), view(bytes), installed));
    CHECK_EQ(installed, 2u);
    CHECK(after->table(0)->ready() && !after->table(1)->ready());
    s.shard = std::move(after);
  }
  s.extents = s.shard->extents();
  s.used = s.memory->used();
  return s;
}

bool unchanged(const Subject& s) {
  const std::vector<ExtentOf> now = s.shard->extents();
  for (std::size_t i = 0; i < now.size(); i++) {
    if (now[i].extent != s.extents[i].extent) return false;
  }
  return !s.shard->dirty() && s.memory->used() == s.used && now.size() == s.extents.size();
}

/** A push that was applied: to a parity, and back. */
void follow(Subject& s) {
  const Bytes delta = flushed(*s.shard);
  Sink sink(s.memory, 2, 1, true);
  CHECK(!sink.learn(0, s.extents));
  BlockPairs again;
  CHECK(sink.apply(0, view(delta), again) == Status::Applied);
  for (const ExtentOf& e : sink.extents(0)) CHECK(e.extent == s.shard->table(e.table)->extent());
  CHECK(sink.apply(0, view(delta), again) == Status::Applied);
  BlockPairs blocks;
  sink.allBlocks(0, 64, blocks);
  BlockPairs created;
  CHECK(!sink.check(list(blocks), created));
  for (std::uint32_t m = 0; m < 2; m++) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
      const BlockRef b{blocks[i], blocks[i + 1]};
      bytes += s.shard->table(b.table())->shape(b.kind()).blockBytes;
    }
    std::uint32_t included = 0;
    CHECK(!sink.content(m, list(blocks), view(Bytes(bytes)), included));
  }
  for (const CompletedGroup& group : sink.takeCompleted()) CHECK_EQ(group.nonZero, 0u);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Subject subjects[kKinds] = {birth(kWhole), birth(kDamaged), birth(kTight)};
  Input in(data, size);
  const std::uint8_t choice = in.u8();
  const Kind kind = static_cast<Kind>(choice % kKinds);
  Subject& s = subjects[kind];
  const Bytes section = in.rest();
  if (choice & 0x80) {
    Status status = Status::Applied;
    answerOf([&](const Allocate& allocate) { status = s.shard->pull(view(section), allocate); });
    if (status == Status::Absent) CHECK(!s.shard->missing().empty());
    CHECK(unchanged(s));
    return 0;
  }
  const Status status = s.shard->push(view(section));
  if (status == Status::Absent) {
    BlockPairs absent;
    CHECK(!s.shard->missing().empty());
    CHECK(!s.shard->filterAbsent(list(s.shard->missing()), absent));
    CHECK(absent == s.shard->missing());
  }
  if (status != Status::Applied) {
    CHECK(unchanged(s));
    return 0;
  }
  if (kind == kTight) CHECK(s.memory->used() <= s.memory->limit());
  if (!s.shard->dirty()) {
    // An empty push has changed nothing, but the slots of a filter may have their memory by now.
    s.used = s.memory->used();
    return 0;
  }
  follow(s);
  s = birth(kind);
  return 0;
}
