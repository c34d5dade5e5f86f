#include "engine/router.h"

#include <algorithm>

#include "engine/hash.h"
#include "engine/scratch.h"
#include "engine/sections.h"
#include "kernels/kernels.h"

namespace kintsugi {

// A counting sort: shard of each key first, then positions.
void partition(const std::uint64_t* keys, std::size_t count, std::uint32_t shards, std::uint32_t* order,
               std::uint32_t* starts) {
  thread_local std::vector<std::uint32_t> shardOfKey, next;
  shardOfKey.resize(count);
  next.assign(shards, 0);
  for (std::size_t i = 0; i < count; i++) {
    shardOfKey[i] = shardOf(keys[i], shards);
    next[shardOfKey[i]]++;
  }
  std::uint32_t sum = 0;
  for (std::uint32_t s = 0; s < shards; s++) {
    starts[s] = sum;
    sum += next[s];
    next[s] = starts[s];
  }
  starts[shards] = sum;
  for (std::size_t i = 0; i < count; i++) order[next[shardOfKey[i]]++] = static_cast<std::uint32_t>(i);
}

/** The highest index, in a loop without a branch. */
static bool allBelow(const std::uint32_t* indices, std::size_t count, std::size_t limit) {
  std::uint32_t highest = 0;
  for (std::size_t i = 0; i < count; i++) highest = indices[i] > highest ? indices[i] : highest;
  return !count || highest < limit;
}

std::size_t requestBytes(const std::vector<SectionPart>& parts) {
  std::size_t bytes = 8 + parts.size() * kRequestTableBytes;
  for (const SectionPart& p : parts) {
    const std::size_t count = p.end - p.start;
    bytes += count * 8;
    if (p.rows) bytes += alignUp(count * p.width * 4, 8);
    if (p.counts) bytes += alignUp(count * 4, 8);
    if (p.scores) bytes += alignUp(count * 4, 8);
  }
  return bytes;
}

/** The end of an array of so many bytes, with its padding. */
static std::uint8_t* padded(std::uint8_t* array, std::size_t bytes) {
  std::memset(array + bytes, 0, alignUp(bytes, 8) - bytes);
  return array + alignUp(bytes, 8);
}

bool encodeRequest(std::uint32_t mode, const std::vector<SectionPart>& parts, std::uint8_t* out) {
  storeAt(out, 0, static_cast<std::uint32_t>(parts.size()));
  storeAt(out, 1, mode);
  std::uint8_t* head = out + 8;
  std::uint8_t* at = head + parts.size() * kRequestTableBytes;
  for (const SectionPart& p : parts) {
    const std::size_t count = p.end - p.start, rowBytes = std::size_t{p.width} * 4;
    const std::uint32_t extras = (p.counts ? kHasCounts : 0) | (p.scores ? kHasScores : 0);
    const std::uint32_t header[4] = {p.table, static_cast<std::uint32_t>(count), p.width | extras, p.lr};
    std::memcpy(head, header, sizeof header);
    head += kRequestTableBytes;
    const std::uint32_t* order = p.order + p.start;
    if (!allBelow(order, count, p.keyCount)) return false;
    for (std::size_t i = 0; i < count; i++) storeAt(at, i, p.keys[order[i]]);
    at += count * 8;
    if (!p.rows) continue;
    kernels().gatherRows(at, reinterpret_cast<const std::uint8_t*>(p.rows), rowBytes, rowBytes, order, count);
    at = padded(at, count * rowBytes);
    const auto put = [&](const auto* numbers) {
      if (!numbers) return;
      for (std::size_t i = 0; i < count; i++) storeAt(at, i, numbers[order[i]]);
      at = padded(at, count * 4);
    };
    put(p.counts);
    put(p.scores);
  }
  return true;
}

namespace {

/** Bytes of a key and its row. */
std::uint64_t rowBytes(const Call& call) { return 8 + std::uint64_t{call.width} * 4; }

/** Bytes that a piece adds to a REQUEST section. */
std::uint64_t pieceBytes(const Call& call, const Piece& piece) {
  const std::uint64_t count = piece.end - piece.start;
  return kRequestTableBytes + count * 8 + (call.rows ? alignUp(count * call.width * 4, 8) : 0) +
         (call.counts ? alignUp(count * 4, 8) : 0) + (call.scores ? alignUp(count * 4, 8) : 0);
}

/** Cuts what goes to one shard into sections. */
class Cutter {
 public:
  Cutter(const std::vector<Call>& calls, std::uint32_t each, std::uint64_t limit, Split& out)
      : calls_(calls), each_(each), limit_(limit), out_(out) {}

  void add(std::uint32_t shard, std::uint32_t call, std::uint32_t start, std::uint32_t end) {
    const std::uint64_t row = rowBytes(calls_[call]);
    while (start < end) {
      if (used_ && used_ + row > limit_) finish(shard);
      const std::uint64_t fit = limit_ > used_ ? (limit_ - used_) / row : 0;
      const std::uint64_t rows = std::min<std::uint64_t>(end - start, std::max<std::uint64_t>(1, fit));
      const Piece piece{call, start, start + static_cast<std::uint32_t>(rows)};
      out_.pieces.push_back(piece);
      bytes_ += pieceBytes(calls_[call], piece);
      used_ += rows * row;
      start = piece.end;
    }
  }

  void finish(std::uint32_t shard) {
    if (!used_) return;
    if (each_ != kNoCall) {
      const Piece piece{each_, shard, shard + 1};
      out_.pieces.push_back(piece);
      bytes_ += pieceBytes(calls_[each_], piece);
      used_ += rowBytes(calls_[each_]);
    }
    const auto pieces = static_cast<std::uint32_t>(out_.pieces.size()) - first_;
    out_.sections.push_back({shard, first_, pieces, static_cast<std::uint32_t>(8 + bytes_)});
    weights_.push_back(used_);
    first_ += pieces;
    bytes_ = used_ = 0;
  }

  /** Bytes of keys and rows of each section. */
  const std::vector<std::uint64_t>& weights() const { return weights_; }

 private:
  const std::vector<Call>& calls_;
  std::uint32_t each_;
  std::uint64_t limit_;
  Split& out_;
  std::uint32_t first_ = 0;
  std::uint64_t bytes_ = 0, used_ = 0;
  std::vector<std::uint64_t> weights_;
};

}  // namespace

void split(const std::vector<Call>& calls, const std::vector<const std::uint32_t*>& starts,
           const std::uint32_t* nodes, std::uint32_t shards, std::uint32_t each, SplitLimits limits,
           Split& out) {
  Cutter cutter(calls, each, limits.sectionBytes, out);
  for (std::uint32_t shard = 0; shard < shards; shard++) {
    for (std::uint32_t call = 0; call < calls.size(); call++)
      if (call != each) cutter.add(shard, call, starts[call][shard], starts[call][shard + 1]);
    cutter.finish(shard);
  }
  // In the order of the shards a round takes as much as it may; in it, sections are sorted by node.
  std::vector<SplitSection> sorted;
  sorted.reserve(out.sections.size());
  std::vector<std::uint32_t> order;
  std::uint32_t round = 0;
  for (std::size_t from = 0, to = 0; from < out.sections.size(); from = to, round++) {
    std::uint64_t bytes = 0;
    for (; to < out.sections.size(); to++) {
      if (to > from && bytes + cutter.weights()[to] > limits.roundBytes) break;
      bytes += cutter.weights()[to];
    }
    order.resize(to - from);
    for (std::size_t i = from; i < to; i++) order[i - from] = static_cast<std::uint32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return nodes[out.sections[a].shard] < nodes[out.sections[b].shard];
    });
    for (const std::uint32_t i : order) {
      const SplitSection& section = out.sections[i];
      const std::uint32_t node = nodes[section.shard];
      if (out.runs.empty() || out.runs.back().round != round || out.runs.back().node != node)
        out.runs.push_back({round, node, static_cast<std::uint32_t>(sorted.size()), 0, 0});
      out.runs.back().sections++;
      out.runs.back().bytes += section.bytes;
      sorted.push_back(section);
    }
  }
  out.sections = std::move(sorted);
}

std::size_t scatterRows(float* target, std::size_t targetFloats, std::size_t width,
                        const std::uint32_t* order, std::size_t start, std::size_t end, View section,
                        std::size_t offset) {
  const std::size_t rowBytes = width * 4, bytes = alignUp((end - start) * rowBytes, 8);
  if (offset > section.size || bytes > section.size - offset) return 0;
  if (!allBelow(order + start, end - start, targetFloats / width)) return 0;
  kernels().scatterRows(reinterpret_cast<std::uint8_t*>(target), rowBytes, rowBytes, order + start,
                        end - start, section.data + offset);
  return offset + bytes;
}

void uniqueKeys(const std::uint64_t* keys, std::size_t count, std::vector<std::uint64_t>& distinct,
                std::uint32_t* inverse) {
  thread_local ScratchMap<std::uint64_t> places;
  places.reset(count);
  for (std::size_t i = 0; i < count; i++) {
    bool added;
    inverse[i] = places.add(keys[i], added);
    if (added) distinct.push_back(keys[i]);
  }
}

bool expandRows(float* target, std::size_t width, const float* rows, std::size_t rowCount,
                const std::uint32_t* inverse, std::size_t count) {
  if (!allBelow(inverse, count, rowCount)) return false;
  kernels().gatherRows(reinterpret_cast<std::uint8_t*>(target), reinterpret_cast<const std::uint8_t*>(rows),
                       width * 4, width * 4, inverse, count);
  return true;
}

bool sumRows(float* target, std::size_t targetCount, std::size_t width, const float* rows,
             const std::uint32_t* inverse, std::size_t count) {
  for (std::size_t i = 0; i < count; i++) {
    if (inverse[i] >= targetCount) return false;
    float* sum = target + inverse[i] * width;
    for (std::size_t x = 0; x < width; x++) sum[x] += rows[i * width + x];
  }
  return true;
}

}  // namespace kintsugi
