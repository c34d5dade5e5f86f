#include "engine/sections.h"

#include <algorithm>

#include "engine/blocks.h"

namespace kintsugi {
namespace {

/** Hands out arrays one after the other; each ends padded to 8. */
class Reader {
 public:
  explicit Reader(View section) : section_(section) {}

  const std::uint8_t* take(std::uint64_t count, std::uint64_t size) {
    const std::size_t left = section_.size - at_;
    if (size && count > left / size) return fail();
    const std::size_t bytes = alignUp(static_cast<std::size_t>(count * size), 8);
    if (bytes > left) return fail();
    const std::uint8_t* p = section_.data + at_;
    at_ += bytes;
    return p;
  }

  bool complete() const { return !failed_ && at_ == section_.size; }

 private:
  const std::uint8_t* fail() {
    failed_ = true;
    at_ = section_.size;
    return nullptr;
  }

  View section_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

bool slotsBelow(const std::uint8_t* slots, std::uint32_t count, std::uint32_t extent) {
  std::uint32_t highest = 0;  // no branch per slot, so that the compiler can use vectors
  for (std::uint32_t i = 0; i < count; i++) {
    const auto slot = loadAt<std::uint32_t>(slots, i);
    highest = slot > highest ? slot : highest;
  }
  return !count || highest < extent;
}

bool areFinite(const std::uint8_t* floats, std::uint32_t count) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  bool finite = true;  // no branch per float
  for (std::uint32_t i = 0; i < count; i++)
    finite &= (loadAt<std::uint32_t>(floats, i) & kExponent) != kExponent;
  return finite;
}

}  // namespace

bool repeats(std::vector<std::uint32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

bool parseRequest(View section, bool withRows, Request& out) {
  out.tables.clear();
  Reader reader(section);
  const std::uint8_t* head = reader.take(1, 8);
  if (!head) return false;
  const std::uint32_t tables = loadAt<std::uint32_t>(head, 0);
  out.mode = loadAt<std::uint32_t>(head, 1);
  if (out.mode > 1 || tables > kMaxTables) return false;
  const bool gradients = withRows && !out.mode;
  const std::uint8_t* heads = reader.take(tables, kRequestTableBytes);
  if (!heads) return false;
  for (std::uint32_t t = 0; t < tables; t++) {
    const std::uint8_t* h = heads + t * kRequestTableBytes;
    const auto width = loadAt<std::uint32_t>(h, 2);
    RequestTable r{loadAt<std::uint32_t>(h, 0),
                   loadAt<std::uint32_t>(h, 1),
                   width & ~(kHasCounts | kHasScores),
                   nullptr,
                   nullptr,
                   loadAt<std::uint32_t>(h, 3)};
    if (r.lr != kNoRate && (!gradients || !isRate(r.lr))) return false;
    if (r.width > kMaxStride / 4) return false;
    const bool counted = width & kHasCounts, scored = width & kHasScores;
    if ((counted || scored) && (!gradients || !r.width)) return false;
    r.keys = reader.take(r.count, 8);
    if (!r.keys) return false;
    if (withRows) {
      r.rows = reader.take(r.count, std::uint64_t{r.width} * 4);
      if (!r.rows) return false;
    }
    if (counted) {
      r.counts = reader.take(r.count, 4);
      if (!r.counts) return false;
    }
    if (scored) {
      r.scores = reader.take(r.count, 4);
      if (!r.scores || !areFinite(r.scores, r.count)) return false;
    }
    out.tables.push_back(r);
  }
  return reader.complete();
}

bool parseDelta(View section, std::vector<DeltaTable>& out) {
  out.clear();
  Reader reader(section);
  const std::uint8_t* head = reader.take(1, 8);
  if (!head) return false;
  const std::uint32_t tables = loadAt<std::uint32_t>(head, 0);
  if (loadAt<std::uint32_t>(head, 1) != 0 || tables > kMaxTables) return false;
  const std::uint8_t* heads = reader.take(tables, kDeltaTableBytes);
  if (!heads) return false;
  for (std::uint32_t t = 0; t < tables; t++) {
    const std::uint8_t* h = heads + t * kDeltaTableBytes;
    DeltaTable d{};
    d.table = loadAt<std::uint32_t>(h, 0);
    d.stride = loadAt<std::uint32_t>(h, 1);
    d.extent = loadAt<std::uint32_t>(h, 2);
    d.keyCount = loadAt<std::uint32_t>(h, 3);
    d.rowCount = loadAt<std::uint32_t>(h, 4);
    if (loadAt<std::uint32_t>(h, 5) != 0 || d.table >> 31 || (t && d.table <= out.back().table)) return false;
    if (!d.stride || d.stride % 16 || d.stride > kMaxStride || d.extent > maxSlots(d.stride)) return false;
    d.keySlots = reader.take(d.keyCount, 4);
    d.keyXor = reader.take(d.keyCount, 8);
    d.rowSlots = reader.take(d.rowCount, 4);
    d.rowXor = reader.take(d.rowCount, d.stride);
    if (!d.keySlots || !d.keyXor || !d.rowSlots || !d.rowXor) return false;
    if (!slotsBelow(d.keySlots, d.keyCount, d.extent) || !slotsBelow(d.rowSlots, d.rowCount, d.extent))
      return false;
    out.push_back(d);
  }
  return reader.complete();
}

}  // namespace kintsugi
