// A shard that comes back, with peers that lie: blocks that do not exist, equations of the wrong sizes,
// lacking sets that contradict each other, keys that repeat. A shard may then hold nonsense, which is the
// liar's doing; it must hold it safely, and its counts of what is absent must stay right.
#include "engine/shard.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;

constexpr std::uint32_t kMembers = 4, kParities = 3;

std::uint32_t sizeOf(const Shard& shard, BlockRef block) {
  const Table* t = shard.table(block.table());
  return t ? t->shape(block.kind()).blockBytes : 64;
}

Bytes bytesFor(Input& in, const Shard& shard, const BlockPairs& blocks) {
  std::size_t bytes = in.below(16) == 15 ? 1 : 0;
  for (std::size_t i = 0; i < blocks.size(); i += 2) bytes += sizeOf(shard, {blocks[i], blocks[i + 1]});
  return in.filled(bytes);
}

BlockPairs wanted(Input& in, Shard& shard) {
  if (in.below(3) == 0) return readBlocks(in);
  BlockPairs absent;
  shard.nextAbsent(in.below(2) ? kRows : kKeys, 1 + in.below(6), absent);
  return absent;
}

std::uint32_t countAbsent(const Shard& shard, const BlockPairs& blocks) {
  BlockPairs absent;
  if (shard.filterAbsent(list(blocks), absent)) return 0;
  return static_cast<std::uint32_t>(absent.size() / 2);
}

void equations(Input& in, Shard& shard) {
  std::vector<std::uint32_t> lacking;
  const std::uint32_t mask = in.u8();
  for (std::uint32_t m = 0; m <= kMembers; m++) {
    if ((mask >> m & 1) || (m == 1 && !(mask & 0x80))) lacking.push_back(m);
  }
  const BlockPairs blocks = wanted(in, shard);
  const std::uint64_t before = shard.absentBlocks(kKeys) + shard.absentBlocks(kRows);
  EquationsResult result;
  const std::uint32_t parity = in.below(kParities + 1), parities = in.below(kParities + 1);
  const bool ok = in.below(4) != 0;
  const Bytes bytes = bytesFor(in, shard, blocks);
  if (shard.addEquations(parity, parities, lacking, ok, list(blocks), view(bytes), result)) {
    CHECK_EQ(result.installed, 0u);
  }
  CHECK_EQ(shard.absentBlocks(kKeys) + shard.absentBlocks(kRows) + result.installed, before);
  for (const EquationsResult::Other& other : result.others) {
    CHECK(other.member != 1 && other.member < kMembers);
    std::size_t expected = 0;
    for (std::size_t i = 0; i < other.blocks.size(); i += 2)
      expected += sizeOf(shard, {other.blocks[i], other.blocks[i + 1]});
    CHECK_EQ(expected, other.bytes.size());
  }
}

void request(Input& in, Shard& shard) {
  test::PartData part;
  part.table = in.below(3);
  part.width = part.table == 0 ? 3 : part.table == 1 ? 48 : 1;
  const std::uint32_t mode =
      part.table == 1 ? 1 : 0;  // whole rows of Adam: 16 * 3 floats, and its step count
  if (part.table == 1) part.width = shard.table(1)->spec().width();
  for (std::uint32_t n = in.below(12); n; n--) {
    part.keys.push_back(in.u16() % 512u);
    for (std::uint32_t x = 0; x < part.width; x++) part.rows.push_back(static_cast<float>(x));
  }
  if (in.below(2)) {
    const Status status = shard.push(view(test::encode(mode, {part}, true)));
    CHECK(status == Status::Applied || status == Status::Absent);
  } else {
    Status status = Status::Applied;
    const Bytes section = test::encode(mode, {part}, false);
    answerOf([&](const Allocate& allocate) { status = shard.pull(view(section), allocate); });
    CHECK(status == Status::Applied || status == Status::Absent);
  }
}

void step(Input& in, Shard& shard) {
  const std::uint32_t what = in.below(8);
  std::uint32_t installed = 0;
  BlockPairs blocks;
  switch (what) {
    case 0:
    case 1: {
      blocks = wanted(in, shard);
      const std::uint64_t before = shard.absentBlocks(kKeys) + shard.absentBlocks(kRows);
      const std::uint32_t absent = countAbsent(shard, blocks);
      const Fault fault = shard.install(list(blocks), view(bytesFor(in, shard, blocks)), installed);
      CHECK(fault ? installed == 0 : installed <= absent);
      CHECK_EQ(shard.absentBlocks(kKeys) + shard.absentBlocks(kRows) + installed, before);
      break;
    }
    case 2:
    case 3:
      equations(in, shard);
      break;
    case 4: {
      blocks = readBlocks(in);
      ReadResult result;
      answerOf(
          [&](const Allocate& allocate) { static_cast<void>(shard.read(list(blocks), result, allocate)); });
      CHECK(result.present.size() + result.lacking.size() <= blocks.size());
      break;
    }
    case 5:
    case 6:
      request(in, shard);
      break;
    default:
      if (in.below(2)) {
        shard.dropEquations();
      } else {
        flushed(shard);
        CHECK(!shard.dirty());
      }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 1, kMembers, kParities);
  CHECK(!shard.addTable(scheduled(tableSpec(0, 3, OptimizerKind::Momentum, InitializerKind::Uniform))));
  CHECK(!shard.addTable(tableSpec(1, 16, OptimizerKind::Adam, InitializerKind::Normal)));
  CHECK(!shard.addTable(tableSpec(2, 1, OptimizerKind::RowwiseAdagrad, InitializerKind::Zeros)));
  const std::uint32_t wild = in.below(16);
  for (std::uint32_t table = 0; table < 3; table++) {
    const std::uint32_t extent = wild == 15 ? in.u32() % 5000000u : in.u16() % 1400u;
    static_cast<void>(shard.adopt(table, extent));
    CHECK(shard.adopt(table, extent) || extent == 0);  // a history is adopted once
  }
  for (int steps = 0; !in.empty() && steps < 100; steps++) step(in, shard);
  for (const TableStats& stats : shard.stats()) {
    CHECK(stats.rows <= stats.extent);
    CHECK(!stats.absentKeyBlocks == shard.table(stats.table)->ready());
  }
  std::size_t used = shard.bytes();
  CHECK_EQ(used, memory->used());
  return 0;
}
