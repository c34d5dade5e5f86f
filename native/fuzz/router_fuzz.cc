// The client's side of the data path with keys, orders and answers from the fuzzer: what is split by shard,
// encoded, parsed and scattered again must be what went in, and indices and lengths that do not fit must be
// refused.
#include "engine/router.h"
#include "engine/sections.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;
using namespace kintsugi::fuzz;

/** The learning rate of a push; often none. */
std::uint32_t readRate(Input& in) {
  return in.below(2) ? rateBits(static_cast<float>(in.u8()) / 64) : kNoRate;
}

/** Counts of keys, often none. */
std::vector<std::uint32_t> readCounts(Input& in, std::size_t keys) {
  std::vector<std::uint32_t> counts;
  if (in.below(2))
    for (std::size_t i = 0; i < keys; i++) counts.push_back(in.u8());
  return counts;
}

/** Scores of keys, often none. */
std::vector<float> readScores(Input& in, std::size_t keys) {
  std::vector<float> scores;
  if (in.below(2))
    for (std::size_t i = 0; i < keys; i++) scores.push_back(static_cast<float>(in.u8()) - 100);
  return scores;
}

/** nullptr where there are none. */
template <class T>
const T* orNone(const std::vector<T>& numbers) {
  return numbers.empty() ? nullptr : numbers.data();
}

void splitAndJoin(Input& in) {
  const std::uint32_t shards = 1 + in.below(9), width = 1 + in.below(5);
  std::vector<std::uint64_t> keys;
  std::vector<float> rows, back;
  for (std::uint32_t n = in.below(64); n; n--) {
    keys.push_back(in.below(2) ? in.u8() : in.u64());
    for (std::uint32_t x = 0; x < width; x++) rows.push_back(static_cast<float>(rows.size()));
  }
  std::vector<std::uint32_t> order(keys.size()), starts(shards + 1);
  const std::uint32_t lr = readRate(in);
  const std::vector<std::uint32_t> counts = readCounts(in, keys.size());
  const std::vector<float> scores = readScores(in, keys.size());
  partition(keys.data(), keys.size(), shards, order.data(), starts.data());
  CHECK(starts[0] == 0 && starts[shards] == keys.size());
  back.assign(rows.size(), -1);
  for (std::uint32_t s = 0; s < shards; s++) {
    const SectionPart part{7,         width,         keys.data(), rows.data(), keys.size(), order.data(),
                           starts[s], starts[s + 1], lr,         orNone(counts), orNone(scores)};
    Bytes section(requestBytes({part}));
    CHECK(encodeRequest(0, {part}, section.data()));
    Request request;
    CHECK(parseRequest(view(section), true, request));
    const RequestTable& r = request.tables[0];
    CHECK(r.table == 7 && r.lr == lr && r.width == width && r.count == starts[s + 1] - starts[s]);
    for (std::uint32_t i = 0; i < r.count; i++) {
      const auto key = loadAt<std::uint64_t>(r.keys, i);
      CHECK(key == keys[order[starts[s] + i]] && shardOf(key, shards) == s);
      CHECK(i == 0 || order[starts[s] + i] > order[starts[s] + i - 1]);
      CHECK_EQ(r.sightings(i), counts.empty() ? 1u : counts[order[starts[s] + i]]);
      if (!scores.empty()) CHECK(loadAt<float>(r.scores, i) == scores[order[starts[s] + i]]);
    }
    if (!r.count) continue;
    const std::size_t offset = static_cast<std::size_t>(r.rows - section.data());
    const std::size_t behind = (!!r.counts + !!r.scores) * alignUp(std::size_t{r.count} * 4, 8);
    CHECK_EQ(scatterRows(back.data(), back.size(), width, order.data(), starts[s], starts[s + 1],
                         view(section), offset),
             section.size() - behind);
  }
  CHECK(back == rows);
}

/** Several tables at once, in sections and rounds of any size: every key is in one section, that of its
 * shard. */
void splitCalls(Input& in) {
  const std::uint32_t shards = 1 + in.below(9), tables = 1 + in.below(3);
  const bool push = in.below(2), counted = in.below(2);
  const SplitLimits limits{1 + in.below(400), 1 + in.below(2000)};
  std::vector<std::vector<std::uint64_t>> keys(tables + counted);
  std::vector<std::vector<float>> rows(keys.size());
  std::vector<std::vector<std::uint32_t>> counts;
  std::vector<std::vector<float>> scores;
  std::vector<std::uint32_t> nodes, width;
  for (std::uint32_t s = 0; s < shards; s++) nodes.push_back(in.below(4));
  for (std::uint32_t t = 0; t < keys.size(); t++) {
    const bool each = counted && t == tables;
    width.push_back(each ? 1 : 1 + in.below(5));
    for (std::uint32_t n = each ? shards : in.below(40); n; n--)
      keys[t].push_back(each ? keys[t].size() : in.below(2) ? in.u8() : in.u64());
    for (std::size_t x = 0; x < keys[t].size() * width[t]; x++) rows[t].push_back(static_cast<float>(x));
    counts.push_back(push && !each ? readCounts(in, keys[t].size()) : std::vector<std::uint32_t>{});
    scores.push_back(push && !each ? readScores(in, keys[t].size()) : std::vector<float>{});
  }
  std::vector<Call> calls;
  std::vector<std::vector<std::uint32_t>> orders, starts;
  std::vector<const std::uint32_t*> firsts;
  static const float kNothing = 0;
  for (std::uint32_t t = 0; t < keys.size(); t++) {
    calls.push_back({t, width[t], keys[t].data(),
                     push ? (rows[t].empty() ? &kNothing : rows[t].data()) : nullptr, keys[t].size(),
                     push ? readRate(in) : kNoRate, orNone(counts[t]), orNone(scores[t])});
    orders.emplace_back(keys[t].size());
    starts.emplace_back(shards + 1);
    partition(keys[t].data(), keys[t].size(), shards, orders[t].data(), starts[t].data());
  }
  for (const auto& list : starts) firsts.push_back(list.data());
  if (counted) {
    for (std::uint32_t s = 0; s < shards; s++) orders[tables][s] = s;
  }
  Split out;
  split(calls, firsts, nodes.data(), shards, counted ? tables : kNoCall, limits, out);
  std::vector<std::size_t> seen(tables);
  std::size_t pieces = 0, section = 0;
  for (std::size_t i = 0; i < out.runs.size(); i++) {
    const Run& run = out.runs[i];
    CHECK_EQ(std::size_t{run.firstSection}, section);
    CHECK(i == 0 || out.runs[i - 1].round < run.round ||
          (out.runs[i - 1].round == run.round && out.runs[i - 1].node < run.node));
    std::uint64_t runBytes = 0;
    for (std::uint32_t n = 0; n < run.sections; n++, section++) {
      const SplitSection& each = out.sections[section];
      CHECK(each.shard < shards && nodes[each.shard] == run.node && each.pieces > 0);
      std::vector<SectionPart> parts;
      std::uint64_t weight = 0;
      std::uint32_t count = 0;
      for (std::uint32_t j = 0; j < each.pieces; j++) {
        const Piece& piece = out.pieces[each.firstPiece + j];
        const Call& call = calls[piece.call];
        CHECK(piece.start < piece.end && piece.end <= call.keyCount);
        parts.push_back({call.table, call.width, call.keys, call.rows, call.keyCount,
                         orders[piece.call].data(), piece.start, piece.end, call.lr, call.counts,
                         call.scores});
        if (counted && piece.call == tables) {
          CHECK(j + 1 == each.pieces && piece.start == each.shard && piece.end == each.shard + 1);
          continue;
        }
        CHECK(piece.start >= starts[piece.call][each.shard] &&
              piece.end <= starts[piece.call][each.shard + 1]);
        seen[piece.call] += piece.end - piece.start;
        count += piece.end - piece.start;
        weight += (piece.end - piece.start) * (8 + std::uint64_t{call.width} * 4);
      }
      CHECK(weight <= limits.sectionBytes || count == 1);
      CHECK(!counted || out.pieces[each.firstPiece + each.pieces - 1].call == tables);
      pieces += each.pieces;
      Bytes bytes(requestBytes(parts));
      CHECK_EQ(bytes.size(), std::size_t{each.bytes});
      CHECK(encodeRequest(0, parts, bytes.data()));
      Request request;
      CHECK(parseRequest(view(bytes), push, request));
      for (std::uint32_t j = 0; j < each.pieces; j++) {
        CHECK_EQ(request.tables[j].lr, parts[j].lr);
        CHECK(!request.tables[j].counts == !parts[j].counts);
        CHECK(!request.tables[j].scores == !parts[j].scores);
      }
      runBytes += each.bytes;
    }
    CHECK_EQ(runBytes, run.bytes);
  }
  CHECK_EQ(section, out.sections.size());
  CHECK_EQ(pieces, out.pieces.size());
  for (std::uint32_t t = 0; t < tables; t++) CHECK_EQ(seen[t], keys[t].size());
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
  switch (in.below(4)) {
    case 0:
      splitAndJoin(in);
      break;
    case 3:
      splitCalls(in);
      break;
    case 1:
      wildIndices(in);
      break;
    default:
      uniqueAndBack(in);
  }
  return 0;
}
