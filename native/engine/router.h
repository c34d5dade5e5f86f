// The client's side of the data path: which shard a key belongs to, and the building and taking apart of
// sections for many shards in one pass over arrays. Callers have checked that arrays fit each other; indices
// in `order` and `inverse` are checked here, because they are data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/bytes.h"

namespace kintsugi {

/** order[0..count): positions grouped by shard, in input order within one; starts[0..shards]. */
void partition(const std::uint64_t* keys, std::size_t count, std::uint32_t shards, std::uint32_t* order,
               std::uint32_t* starts);

struct SectionPart {
  std::uint32_t table, width;
  const std::uint64_t* keys;
  const float* rows;  // nullptr: a pull
  std::size_t keyCount;
  const std::uint32_t* order;
  std::size_t start, end;
  std::uint32_t lr = 0;                   // of a push (sections.h)
  const std::uint32_t* counts = nullptr;  // of a push, a number for each key; nullptr: none (sections.h)
  const float* scores = nullptr;          // the same, a finite score for each key
};

std::size_t requestBytes(const std::vector<SectionPart>& parts);
/** False if an index in `order` is out of range. */
bool encodeRequest(std::uint32_t mode, const std::vector<SectionPart>& parts, std::uint8_t* out);

/** The part of a request for one table: keys, and for a push the rows that go with them. */
struct Call {
  std::uint32_t table, width;
  const std::uint64_t* keys;
  const float* rows;  // nullptr: a pull
  std::size_t keyCount;
  std::uint32_t lr = 0;                   // of a push (sections.h)
  const std::uint32_t* counts = nullptr;  // of a push, a number for each key; nullptr: none (sections.h)
  const float* scores = nullptr;          // the same, a finite score for each key
};

/** Keys order[start..end) of a call. */
struct Piece {
  std::uint32_t call, start, end;
};

/** A section: keys and rows that go to one shard in one message. */
struct SplitSection {
  std::uint32_t shard, firstPiece, pieces, bytes;
};

/** Sections that go to one node together, one after the other in `Split::sections`. */
struct Run {
  std::uint32_t round, node, firstSection, sections;
  std::uint64_t bytes;
};

/** Requests as sections, by round and node. */
struct Split {
  std::vector<Piece> pieces;
  std::vector<SplitSection> sections;
  std::vector<Run> runs;
};

struct SplitLimits {
  std::uint64_t sectionBytes;  // of keys and rows in a section; a shard gets further ones for the rest
  std::uint64_t roundBytes;    // of keys and rows in a round
};

inline constexpr std::uint32_t kNoCall = 0xFFFFFFFF;

/** Splits calls by shard. Where they are cut depends on keys and widths alone: counts and scores add nothing
 * to what the limits are for. `order` and `starts` of each call come from `partition`, `nodes` has the node
 * of each shard. Every section gets one key of call `each`: that with the number of its shard; kNoCall: no
 * call is such. */
void split(const std::vector<Call>& calls, const std::vector<const std::uint32_t*>& starts,
           const std::uint32_t* nodes, std::uint32_t shards, std::uint32_t each, SplitLimits limits,
           Split& out);

/** Copies the rows of a ROWS section at `offset` to target[order[start..end)]. Returns the offset after them,
 * or 0 if the lengths do not fit. */
std::size_t scatterRows(float* target, std::size_t targetFloats, std::size_t width,
                        const std::uint32_t* order, std::size_t start, std::size_t end, View section,
                        std::size_t offset);

/** Distinct keys in order of first occurrence, and for each key its place there. */
void uniqueKeys(const std::uint64_t* keys, std::size_t count, std::vector<std::uint64_t>& distinct,
                std::uint32_t* inverse);

/** target[i] = rows[inverse[i]]; false if an index is out of range. */
bool expandRows(float* target, std::size_t width, const float* rows, std::size_t rowCount,
                const std::uint32_t* inverse, std::size_t count);
/** target[inverse[i]] += rows[i], in input order; false if an index is out of range. */
bool sumRows(float* target, std::size_t targetCount, std::size_t width, const float* rows,
             const std::uint32_t* inverse, std::size_t count);

}  // namespace kintsugi
