// Blocks: how a column is cut into units of recovery, and sets of blocks (absent ones of a shard, excluded
// ones of a sink). A set covers only blocks below a limit fixed when it was filled: anything beyond the
// extent known then is zero everywhere, hence present and included by definition.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace kintsugi {

inline constexpr std::uint32_t kNone = 0xFFFFFFFF;
inline constexpr std::size_t kBlockBytes = 4096;  // about; a longer row is a block of its own
/** A column is never larger. */
inline constexpr std::size_t kMaxKeysBytes = std::size_t{8} << 30, kMaxRowsBytes = std::size_t{64} << 30;
inline constexpr std::uint32_t kMaxDim = 1 << 16;
inline constexpr std::uint32_t kMaxStride = (3 * kMaxDim + 4) * 4;

enum ColumnKind : std::uint32_t { kKeys = 0, kRows = 1 };

struct BlockRef {
  std::uint32_t column;  // tableId * 2 + ColumnKind
  std::uint32_t index;
  std::uint32_t table() const { return column >> 1; }
  ColumnKind kind() const { return static_cast<ColumnKind>(column & 1); }
  std::uint64_t id() const { return std::uint64_t{column} << 32 | index; }
};

inline BlockRef blockOf(std::uint64_t id) {
  return {static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)};
}

/** A list as it came from outside: u32 pairs. */
struct BlockList {
  const std::uint32_t* pairs = nullptr;
  std::size_t count = 0;
  BlockRef operator[](std::size_t i) const { return {pairs[2 * i], pairs[2 * i + 1]}; }
};

/** A list that is being built: u32 pairs. */
using BlockPairs = std::vector<std::uint32_t>;

inline void append(BlockPairs& list, BlockRef block) {
  list.push_back(block.column);
  list.push_back(block.index);
}

/** Fixed sizes of one column. */
struct ColumnShape {
  std::uint32_t stride;
  std::uint32_t slotsPerBlock;
  std::uint32_t blockBytes;

  std::uint32_t blockOfSlot(std::uint32_t slot) const { return slot / slotsPerBlock; }
  std::uint32_t blocks(std::uint32_t extent) const {
    return static_cast<std::uint32_t>((std::uint64_t{extent} + slotsPerBlock - 1) / slotsPerBlock);
  }
  std::size_t bytes(std::uint32_t extent) const { return std::size_t{blocks(extent)} * blockBytes; }
};

ColumnShape shapeOf(std::uint32_t stride);
inline ColumnShape keysShape() { return shapeOf(8); }
/** Slots that fit the largest columns. */
std::uint32_t maxSlots(std::uint32_t rowStride);

class BlockSet {
 public:
  /** All blocks below `limit`. */
  void fill(std::uint32_t limit);
  bool has(std::uint32_t index) const { return index < limit_ && (words_[index >> 6] >> (index & 63) & 1); }
  /** False if it was not there. */
  bool remove(std::uint32_t index);
  /** Members from `from` to before `to`. */
  void removeRange(std::uint32_t from, std::uint32_t to);
  std::uint64_t count() const { return count_; }
  /** The first member at or after `from`, or kNone. */
  std::uint32_t next(std::uint32_t from) const;
  /** Appends the first `max` members at or after `from`. */
  void list(std::uint32_t from, std::size_t max, std::vector<std::uint32_t>& out) const;
  std::size_t bytes() const { return words_.capacity() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> words_;
  std::uint32_t limit_ = 0;
  std::uint64_t count_ = 0;
};

/** Where a sweep over several columns goes on. */
struct Cursor {
  std::uint32_t column = 0;
  std::uint32_t index = 0;
};

/** The columns of one kind whose sets have blocks, and the number of these blocks. With thousands of tables
 * there are few such columns, so nothing here looks at the others. */
class ColumnSets {
 public:
  /** After each change of a column's set, which must stay where it is; `before`: its count until then. */
  void changed(std::uint32_t column, const BlockSet& set, std::uint64_t before);
  /** Blocks of all columns. */
  std::uint64_t count() const { return count_; }
  /** Appends up to `max` blocks to `out`, from the cursor on, wrapping around, none twice. */
  void sweep(Cursor& cursor, std::size_t max, BlockPairs& out) const;
  bool operator==(const ColumnSets& other) const = default;

 private:
  std::map<std::uint32_t, const BlockSet*> columns_;  // no set is empty
  std::uint64_t count_ = 0;
};

}  // namespace kintsugi
