// The parsers alone, as fast as they go: what they hand out must lie within the section, in order, and be
// what the headers say; what encodes must parse.
#include <cmath>

#include "engine/sections.h"
#include "fuzz/input.h"

namespace {

using namespace kintsugi;

/** Follows arrays through a section; every one begins where the one before it ended, padded to 8. */
struct Walk {
  const std::uint8_t* at;
  void over(const std::uint8_t* array, std::uint64_t bytes) {
    CHECK(array == at);
    at += alignUp(bytes, 8);
  }
};

unsigned touch(const std::uint8_t* p, std::uint64_t bytes) {
  return bytes ? p[0] + p[bytes - 1] + p[bytes / 2] : 0;
}

void asRequest(View section, bool withRows) {
  static Request request;
  static volatile unsigned seen;
  if (!parseRequest(section, withRows, request)) return;
  CHECK(request.mode <= 1 && request.tables.size() <= kMaxTables);
  Walk walk{section.data + 8 + request.tables.size() * kRequestTableBytes};
  for (const RequestTable& r : request.tables) {
    CHECK(r.lr == kNoRate || (withRows && !request.mode && rateOf(r.lr) >= 0 && rateOf(r.lr) < INFINITY));
    const std::uint64_t keys = std::uint64_t{r.count} * 8, rows = std::uint64_t{r.count} * r.width * 4;
    walk.over(r.keys, keys);
    seen = seen + touch(r.keys, keys);
    if (!withRows) continue;
    walk.over(r.rows, rows);
    seen = seen + touch(r.rows, rows);
    for (const std::uint8_t* numbers : {r.counts, r.scores}) {
      if (!numbers) continue;
      CHECK(!request.mode && r.width);
      walk.over(numbers, std::uint64_t{r.count} * 4);
      seen = seen + touch(numbers, std::uint64_t{r.count} * 4);
    }
    for (std::uint32_t i = 0; r.scores && i < r.count; i++) CHECK(std::isfinite(loadAt<float>(r.scores, i)));
  }
  CHECK(walk.at == section.data + section.size);
}

void asDelta(View section) {
  static std::vector<DeltaTable> tables;
  static volatile unsigned seen;
  if (!parseDelta(section, tables)) return;
  Walk walk{section.data + 8 + tables.size() * kDeltaTableBytes};
  for (std::size_t i = 0; i < tables.size(); i++) {
    const DeltaTable& d = tables[i];
    CHECK(!i || d.table > tables[i - 1].table);
    CHECK(d.stride % 16 == 0 && d.stride && d.extent <= maxSlots(d.stride));
    walk.over(d.keySlots, std::uint64_t{d.keyCount} * 4);
    walk.over(d.keyXor, std::uint64_t{d.keyCount} * 8);
    walk.over(d.rowSlots, std::uint64_t{d.rowCount} * 4);
    walk.over(d.rowXor, std::uint64_t{d.rowCount} * d.stride);
    for (std::uint32_t s = 0; s < d.keyCount; s++) CHECK(loadAt<std::uint32_t>(d.keySlots, s) < d.extent);
    for (std::uint32_t s = 0; s < d.rowCount; s++) CHECK(loadAt<std::uint32_t>(d.rowSlots, s) < d.extent);
    seen = seen + touch(d.rowXor, std::uint64_t{d.rowCount} * d.stride);
  }
  CHECK(walk.at == section.data + section.size);
}

}  // namespace

// The input is read where it is: libFuzzer hands out a copy of its exact size.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const View section{data, size};
  asRequest(section, true);
  asRequest(section, false);
  asDelta(section);
  return 0;
}
