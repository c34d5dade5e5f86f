// A sink: linear accumulators over the streams of k members. A parity is P = sum of coefficient x content
// over what each member has included; a mirror is the same with k = 1 and coefficient 1. Which messages are
// current (generation, epoch, sequence number) is decided by the caller; the rule numbers are those of the
// protocol description.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/accumulators.h"
#include "engine/arena.h"
#include "engine/bytes.h"
#include "engine/matrix.h"
#include "engine/memory.h"
#include "engine/sections.h"
#include "engine/shard.h"
#include "engine/status.h"

namespace kintsugi {

/** Blocks that became one message: their bytes are those of the accumulators, one after the other. */
struct CompletedGroup {
  std::uint32_t lacking = 0, requesters = 0;  // bit per member
  bool ok = false, checked = false;
  BlockPairs blocks;
  std::vector<Accumulator> parts;
  std::size_t size = 0;  // bytes
  std::uint32_t nonZero = 0;

  void copyTo(std::uint8_t* out) const;
  std::vector<std::uint8_t> bytes() const;
};

class Sink {
 public:
  Sink(std::shared_ptr<Memory> memory, std::uint32_t k, std::uint32_t parity, bool complete);

  std::uint32_t members() const { return static_cast<std::uint32_t>(members_.size()); }
  // These functions carry out messages of peers. If the system refuses memory they fail with MEMORY_LIMIT and
  // have applied nothing, except for the accumulators of the blocks in `created`.
  /** Frees the sums of the table, and what is known of its members. Drops all accumulators. */
  void dropTable(std::uint32_t id);
  Fault start(std::uint32_t member, const std::vector<ExtentOf>& extents);
  Fault learn(std::uint32_t member, const std::vector<ExtentOf>& extents);
  /** `again`: blocks for which the member was lacking and is pending now. */
  Status apply(std::uint32_t member, View delta, BlockPairs& again);
  Fault content(std::uint32_t member, BlockList blocks, View bytes, std::uint32_t& included);
  Fault lacking(std::uint32_t member, BlockList blocks);
  Fault recover(std::uint32_t member, BlockList blocks, BlockPairs& created);
  Fault check(BlockList blocks, BlockPairs& created);
  std::vector<CompletedGroup> takeCompleted();
  void nextPending(std::uint32_t member, std::size_t max, BlockPairs& out) {
    accumulators_.nextPending(member, max, out);
  }
  void dropAccumulators() { accumulators_.clear(); }
  std::size_t accumulators() const { return accumulators_.size(); }
  void nextExcluded(std::uint32_t member, std::size_t max, BlockPairs& out);
  std::uint64_t excludedBlocks(std::uint32_t member) const {
    return members_[member].excluded[kKeys].count() + members_[member].excluded[kRows].count();
  }
  bool complete() const;
  std::vector<ExtentOf> extents(std::uint32_t member) const;
  void allBlocks(std::uint64_t from, std::size_t max, BlockPairs& out) const;
  /** True if the sums over all tables equal those that a walk over the tables finds. For tests. */
  bool totalsAreRight() const;
  std::size_t bytes() const { return accumulators_.bytes() + bytes_; }

 private:
  /** P of one table. */
  struct Sums {
    Sums(Memory& memory, std::uint32_t stride)
        : shapes{keysShape(), shapeOf(stride)}, columns{Column(memory), Column(memory)} {}
    /** As `Column::makeRoom`, for both columns. */
    bool makeRoom(std::uint32_t newExtent) {
      return columns[kKeys].makeRoom(shapes[kKeys].bytes(newExtent)) &&
             columns[kRows].makeRoom(shapes[kRows].bytes(newExtent));
    }
    ColumnShape shapes[2];
    Column columns[2];
    std::uint32_t extent = 0;  // the highest of any member
  };
  /** The part of one member in the sums of one table. */
  struct Share {
    std::uint32_t extent = 0;
    BlockSet excluded[2];
  };
  struct Member {
    bool started = false;
    std::map<std::uint32_t, Share> shares;
    ColumnSets excluded[2];  // of all shares, by kind
    Cursor cursors[2];
  };

  Sums* find(std::uint32_t table) const;
  Sums* obtain(std::uint32_t table, std::uint32_t stride);
  Fault checkExtents(const std::vector<ExtentOf>& extents);
  void exclude(Member& member, std::uint32_t table, Share& share, ColumnKind kind, std::uint32_t limit);
  void raise(Sums& sums, Share& share, std::uint32_t extent);
  Status checkDelta(const std::vector<DeltaTable>& delta);
  void applyColumn(std::uint32_t member, const DeltaTable& d, ColumnKind kind, BlockPairs& again);
  Fault checkList(BlockList blocks, std::size_t* bytes) const;
  bool excluded(std::uint32_t member, BlockRef block) const;
  /** Bit per member whose stream has started. */
  std::uint32_t startedBits() const;
  /** nullptr if the system refuses memory. */
  Accumulator* createAccumulator(BlockRef block);
  void settle(Accumulator& accumulator);

  std::shared_ptr<Memory> memory_;  // first: everything below charges it until destroyed
  std::uint32_t parity_;
  std::vector<Member> members_;
  std::map<std::uint32_t, std::unique_ptr<Sums>> tables_;
  std::size_t bytes_ = 0;  // of all columns
  Accumulators accumulators_;
  std::vector<DeltaTable> delta_;
};

}  // namespace kintsugi
