// Anything that a peer can send to a sink, in any order: starts, extents, deltas, content, lacking,
// recoveries and checks of blocks that need not exist. The engine may refuse, it may not misbehave, and its
// accounts must agree with each other afterwards.
#include "engine/sink.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;

constexpr std::uint32_t kMembers = 3;

std::vector<ExtentOf> readExtents(Input& in) {
  static const std::uint32_t strides[] = {16, 32, 48, 4096, 8192, 786448, 0, 8};
  std::vector<ExtentOf> extents;
  for (std::uint32_t n = in.below(4); n; n--) {
    const std::uint32_t table = in.u8();
    const bool wild = table >= 0xF0;
    extents.push_back(
        {wild ? in.u32() : table % 4, strides[in.below(8)], wild ? in.u32() : in.u16() % 2000u});
  }
  return extents;
}

/** A DELTA that is right but for what the input says: the parser is fuzzed elsewhere, this is for what
 * follows. */
Bytes readDelta(Input& in) {
  if (in.below(8) == 7) return in.bytes(in.u16());
  const std::uint32_t stride = 16u << in.below(4), extent = 1 + in.u16() % 1500u;
  const std::uint32_t keys = in.below(6), rows = in.below(6), table = in.below(4);
  const std::uint32_t head[8] = {1, 0, table, stride, extent, keys, rows, 0};
  Bytes section(sizeof head);
  std::memcpy(section.data(), head, sizeof head);
  const auto slots = [&](std::uint32_t count) {
    for (std::uint32_t i = 0; i < alignUp(count, 2); i++) {
      const std::uint32_t slot = i < count ? in.u16() % (extent + 1) : 0;
      const auto* p = reinterpret_cast<const std::uint8_t*>(&slot);
      section.insert(section.end(), p, p + 4);
    }
  };
  const auto append = [&](const Bytes& bytes) { section.insert(section.end(), bytes.begin(), bytes.end()); };
  slots(keys);
  append(in.filled(std::size_t{keys} * 8));
  slots(rows);
  append(in.filled(std::size_t{rows} * stride));
  return section;
}

/** Bytes for a list of blocks, as many as the sink expects where that can be known. */
Bytes bytesFor(Input& in, const Sink& sink, const BlockPairs& blocks) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    const BlockRef block{blocks[i], blocks[i + 1]};
    std::size_t size = keysShape().blockBytes;
    for (std::uint32_t m = 0; block.kind() == kRows && m < kMembers; m++) {
      for (const ExtentOf& e : sink.extents(m)) {
        if (e.table == block.table()) size = shapeOf(e.stride).blockBytes;
      }
    }
    bytes += size;
  }
  return in.filled(bytes);
}

void checkAccounts(Sink& sink, const Memory& memory) {
  CHECK_EQ(sink.bytes(), memory.used());
  bool whole = true;
  for (std::uint32_t m = 0; m < kMembers; m++) {
    BlockPairs excluded;
    const std::uint64_t count = sink.excludedBlocks(m);
    sink.nextExcluded(m, 16, excluded);
    CHECK_EQ(excluded.size() / 2, std::min<std::uint64_t>(count, 16));
    if (count) whole = false;
    for (const ExtentOf& e : sink.extents(m)) CHECK(e.extent <= maxSlots(e.stride));
    BlockPairs pending;
    sink.nextPending(m, 1000, pending);
    CHECK(pending.size() / 2 <= sink.accumulators());
  }
  if (sink.complete()) CHECK(whole);
  BlockPairs all;
  sink.allBlocks(0, 64, all);
  CHECK(all.size() <= 128);
}

/** Every completed accumulator says which members it lacks. Members that asked are among them, and a check
 * lacks nobody or is asked for. */
void checkCompleted(Sink& sink) {
  for (const CompletedGroup& group : sink.takeCompleted()) {
    CHECK(!group.blocks.empty() && group.size);
    CHECK(group.nonZero <= group.blocks.size() / 2);
    CHECK(group.lacking < 1u << kMembers && group.requesters < 1u << kMembers);
  }
}

void step(Input& in, Sink& sink) {
  const std::uint32_t what = in.below(11), member = in.below(kMembers);
  BlockPairs pairs;
  std::uint32_t included = 0;
  // Faults are answers here, whichever they are.
  switch (what) {
    case 0:
      static_cast<void>(sink.start(member, readExtents(in)));
      break;
    case 1:
      static_cast<void>(sink.learn(member, readExtents(in)));
      break;
    case 2:
    case 3:
      static_cast<void>(sink.apply(member, view(readDelta(in)), pairs));
      break;
    case 4:
    case 5: {
      const BlockPairs blocks = readBlocks(in);
      static_cast<void>(sink.content(member, list(blocks), view(bytesFor(in, sink, blocks)), included));
      break;
    }
    case 6:
      static_cast<void>(sink.lacking(member, list(readBlocks(in))));
      break;
    case 7:
      static_cast<void>(sink.recover(member, list(readBlocks(in)), pairs));
      break;
    case 8:
      static_cast<void>(sink.check(list(readBlocks(in)), pairs));
      break;
    case 9: {  // what an honest member would do next
      sink.nextExcluded(member, 4, pairs);
      static_cast<void>(sink.content(member, list(pairs), view(bytesFor(in, sink, pairs)), included));
      break;
    }
    default:
      checkCompleted(sink);
      if (in.below(4) == 0) sink.dropAccumulators();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  auto memory = std::make_shared<Memory>(0);
  const std::uint8_t birth = in.u8();
  Sink sink(memory, kMembers, birth % 4, birth & 0x80);
  for (int steps = 0; !in.empty() && steps < 100; steps++) step(in, sink);
  checkCompleted(sink);
  checkAccounts(sink, *memory);
  return 0;
}
