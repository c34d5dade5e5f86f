// The client's side of the data path with keys, orders and answers from the fuzzer: what is split by shard,
// encoded, parsed and scattered again must be what went in, and indices and lengths that do not fit must be
// refused.
#include "engine/router.h"
#include "engine/sections.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;

void splitAndJoin(Input& in) {
  const std::uint32_t shards = 1 + in.below(9), width = 1 + in.below(5);
  std::vector<std::uint64_t> keys;
  std::vector<float> rows, back;
  for (std::uint32_t n = in.below(64); n; n--) {
    keys.push_back(in.below(2) ? in.u8() : in.u64());
    for (std::uint32_t x = 0; x < width; x++) rows.push_back(static_cast<float>(rows.size()));
  }
  std::vector<std::uint32_t> order(keys.size()), starts(shards + 1);
  partition(keys.data(), keys.size(), shards, order.data(), starts.data());
  CHECK(starts[0] == 0 && starts[shards] == keys.size());
  back.assign(rows.size(), -1);
  for (std::uint32_t s = 0; s < shards; s++) {
    const SectionPart part{7,           width,        keys.data(), rows.data(),
                           keys.size(), order.data(), starts[s],   starts[s + 1]};
    Bytes section(requestBytes({part}));
    CHECK(encodeRequest(0, {part}, section.data()));
    Request request;
    CHECK(parseRequest(view(section), true, request));
    const RequestTable& r = request.tables[0];
    CHECK(r.table == 7 && r.width == width && r.count == starts[s + 1] - starts[s]);
    for (std::uint32_t i = 0; i < r.count; i++) {
      const auto key = loadAt<std::uint64_t>(r.keys, i);
      CHECK(key == keys[order[starts[s] + i]] && shardOf(key, shards) == s);
      CHECK(i == 0 || order[starts[s] + i] > order[starts[s] + i - 1]);
    }
    if (!r.count) continue;
    const std::size_t offset = static_cast<std::size_t>(r.rows - section.data());
    CHECK_EQ(scatterRows(back.data(), back.size(), width, order.data(), starts[s], starts[s + 1],
                         view(section), offset),
             section.size());
  }
  CHECK(back == rows);
}

/** Indices as they come: every call says no, or stays inside its arrays. */
void wildIndices(Input& in) {
  const std::uint32_t width = 1 + in.below(4), count = in.below(16), rowCount = in.below(16);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < count; i++) order.push_back(in.below(8) == 7 ? in.u32() : in.below(16));
  std::vector<float> target(std::size_t{rowCount} * width), rows(std::size_t{count} * width, 1.f);
  const Bytes section = in.bytes(in.below(200));
  const std::size_t next =
      scatterRows(target.data(), target.size(), width, order.data(), 0, count, view(section), in.u16());
  CHECK(next <= section.size());
  sumRows(target.data(), rowCount, width, rows.data(), order.data(), count);
  expandRows(rows.data(), width, target.data(), rowCount, order.data(), count);
  std::vector<std::uint64_t> keys(rowCount);
  for (auto& key : keys) key = in.u8();
  const SectionPart part{1, width, keys.data(), target.data(), keys.size(), order.data(), 0, count};
  Bytes encoded(requestBytes({part}));
  encodeRequest(0, {part}, encoded.data());
}

void uniqueAndBack(Input& in) {
  std::vector<std::uint64_t> keys, distinct;
  for (std::uint32_t n = in.u8(); n; n--) keys.push_back(in.below(2) ? in.u8() : in.u64());
  std::vector<std::uint32_t> inverse(keys.size());
  uniqueKeys(keys.data(), keys.size(), distinct, inverse.data());
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < keys.size(); i++) {
    CHECK(inverse[i] <= seen && inverse[i] < distinct.size() && distinct[inverse[i]] == keys[i]);
    if (inverse[i] == seen) seen++;
  }
  CHECK_EQ(seen, distinct.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  switch (in.below(3)) {
    case 0:
      splitAndJoin(in);
      break;
    case 1:
      wildIndices(in);
      break;
    default:
      uniqueAndBack(in);
  }
  return 0;
}
