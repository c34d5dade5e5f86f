// Parsing of sections that come from other machines. Parsers check every length before they hand out a
// pointer, so what they return can be read without further checks; anything that does not fit exactly is
// refused as a whole.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "engine/bytes.h"

namespace kintsugi {

inline constexpr std::uint32_t kMaxTables = 4096;  // per section and per shard
/** No answer of one call is larger than this. */
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 30;

/** The learning rate of a push to one table, as the bits of an f32. Zero means the table's own, so a rate of
 * zero is the bits of minus zero. */
inline constexpr std::uint32_t kNoRate = 0, kZeroRate = 0x80000000;

/** Finite and not negative, or none. */
constexpr bool isRate(std::uint32_t bits) { return bits < 0x7F800000 || bits == kZeroRate; }
/** The rate that these bits say; they must not be kNoRate. */
constexpr float rateOf(std::uint32_t bits) { return std::bit_cast<float>(bits & ~kZeroRate); }
constexpr std::uint32_t rateBits(float rate) {
  return rate == 0 ? kZeroRate : std::bit_cast<std::uint32_t>(rate);
}

/** A delta is never larger, so that it fits a frame (64 MiB) beside the largest header. */
inline constexpr std::size_t kMaxDeltaBytes = std::size_t{56} << 20;

/** The width of a table in a push of gradients says with this bit that the section has its counts, too: how
 * often each key was seen, in place of once. Only tables with a policy have them. */
inline constexpr std::uint32_t kHasCounts = 0x80000000;
/** The same for the scores of the keys, behind the counts. Only tables with scores have them. */
inline constexpr std::uint32_t kHasScores = 0x40000000;

struct RequestTable {
  std::uint32_t table, count, width;  // of a push, a width of 0: the rows of the keys are deleted
  const std::uint8_t* keys;           // u64[count]
  const std::uint8_t* rows;           // f32[count * width], pushes only
  std::uint32_t lr = kNoRate;
  const std::uint8_t* counts = nullptr;  // u32[count], of pushes; nullptr: each is 1
  const std::uint8_t* scores = nullptr;  // f32[count], of pushes, all finite; nullptr: rows keep theirs

  std::uint32_t sightings(std::size_t i) const { return counts ? loadAt<std::uint32_t>(counts, i) : 1; }
};

/** Sightings never overflow. */
constexpr std::uint32_t addSightings(std::uint32_t a, std::uint32_t b) { return a + b < a ? ~0u : a + b; }

struct Request {
  std::uint32_t mode = 0;  // 1: whole rows
  std::vector<RequestTable> tables;
};

struct DeltaTable {
  std::uint32_t table, stride, extent, keyCount, rowCount;
  const std::uint8_t* keySlots;  // u32[keyCount]
  const std::uint8_t* keyXor;    // u64[keyCount]
  const std::uint8_t* rowSlots;  // u32[rowCount]
  const std::uint8_t* rowXor;    // rowCount * stride bytes
};

bool parseRequest(View section, bool withRows, Request& out);
/** Tables must be ascending, strides possible, slots below the extent and the extent within the address
 * space. */
bool parseDelta(View section, std::vector<DeltaTable>& out);

/** Whether an id of a table comes twice. Sorts them. */
bool repeats(std::vector<std::uint32_t>& ids);

inline constexpr std::size_t kRequestTableBytes = 16;
inline constexpr std::size_t kDeltaTableBytes = 24;
/** A delta's bytes of a row beside the row, where its key changes, too: two slots and a key. */
inline constexpr std::size_t kSlotBytes = 16;
/** Bytes by which the arrays of slots in a delta are padded at most, of keys and of rows. */
inline constexpr std::size_t kSlotPadding = 8;

}  // namespace kintsugi
