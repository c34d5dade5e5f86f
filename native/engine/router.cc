#include "engine/router.h"

#include "engine/hash.h"
#include "engine/scratch.h"
#include "engine/sections.h"

namespace kintsugi {

// A counting sort: shard of each key first, then positions.
void partition(const std::uint64_t* keys, std::size_t count, std::uint32_t shards, std::uint32_t* order,
               std::uint32_t* starts) {
  std::vector<std::uint32_t> shardOfKey(count), next(shards, 0);
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
    for (std::size_t i = p.start; i < p.end; i++) {
      if (p.order[i] >= p.keyCount) return false;
      storeAt(at, 0, p.keys[p.order[i]]);
      at += 8;
    }
    if (!p.rows) continue;
    for (std::size_t i = p.start; i < p.end; i++) {
      std::memcpy(at, p.rows + p.order[i] * std::size_t{p.width}, rowBytes);
      at += rowBytes;
    }
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
  const std::size_t rows = targetFloats / width;
  const std::uint8_t* from = section.data + offset;
  for (std::size_t i = start; i < end; i++) {
    if (order[i] >= rows) return 0;
    std::memcpy(target + order[i] * width, from, rowBytes);
    from += rowBytes;
  }
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
  for (std::size_t i = 0; i < count; i++) {
    if (inverse[i] >= rowCount) return false;
    std::memcpy(target + i * width, rows + inverse[i] * width, width * 4);
  }
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
