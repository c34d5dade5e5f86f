#include "engine/router.h"

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
  }
  return bytes;
}

bool encodeRequest(std::uint32_t mode, const std::vector<SectionPart>& parts, std::uint8_t* out) {
  storeAt(out, 0, static_cast<std::uint32_t>(parts.size()));
  storeAt(out, 1, mode);
  std::uint8_t* head = out + 8;
  std::uint8_t* at = head + parts.size() * kRequestTableBytes;
  for (const SectionPart& p : parts) {
    const std::size_t count = p.end - p.start, rowBytes = std::size_t{p.width} * 4;
    const std::uint32_t header[4] = {p.table, static_cast<std::uint32_t>(count), p.width, 0};
    std::memcpy(head, header, sizeof header);
    head += kRequestTableBytes;
    const std::uint32_t* order = p.order + p.start;
    if (!allBelow(order, count, p.keyCount)) return false;
    for (std::size_t i = 0; i < count; i++) storeAt(at, i, p.keys[order[i]]);
    at += count * 8;
    if (!p.rows) continue;
    kernels().gatherRows(at, reinterpret_cast<const std::uint8_t*>(p.rows), rowBytes, rowBytes, order, count);
    at += count * rowBytes;
    const std::size_t padding = alignUp(count * rowBytes, 8) - count * rowBytes;
    std::memset(at, 0, padding);
    at += padding;
  }
  return true;
}

std::size_t scatterRows(float* target, std::size_t targetFloats, std::size_t width,
                        const std::uint32_t* order, std::size_t start, std::size_t end, View section,
                        std::size_t offset) {
  const std::size_t rowBytes = width * 4, bytes = alignUp((end - start) * rowBytes, 8);
  if (offset > section.size || bytes > section.size - offset) return 0;
  if (!allBelow(order + start, end - start, targetFloats / width)) return 0;
  kernels().scatterRows(reinterpret_cast<std::uint8_t*>(target), rowBytes, order + start, end - start,
                        section.data + offset);
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
