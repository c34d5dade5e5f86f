// Snapshots: the rows of a shard as they were at one instant, handed out piece by piece while pushes go on. A
// snapshot copies nothing when it begins. A block of rows that is about to change and was not handed out yet
// is copied first ("kept"), and what was kept is handed out before anything else, so that as little as
// possible is kept at a time. Stamps say which blocks changed since an earlier snapshot.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/blocks.h"
#include "engine/memory.h"

namespace kintsugi {

class Table;

/** For each row block of a table the number of the newest snapshot that had begun before its last change.
 * Snapshots count from 1. Blocks that are not covered changed after the newest one. */
class Stamps {
 public:
  explicit Stamps(Memory& memory) : charge_(memory, Counts::Besides) {}

  /** Covers the blocks below `count`; new ones get `stamp`. False if the system refuses memory. */
  bool cover(std::uint32_t count, std::uint32_t stamp);
  std::uint32_t covered() const { return covered_; }
  std::uint32_t operator[](std::uint32_t block) const { return stamps_[block]; }
  /** Blocks of these slots change now. Blocks that are not covered are passed over. */
  void mark(const std::vector<std::uint32_t>& slots, const ColumnShape& shape, std::uint32_t stamp) {
    for (const std::uint32_t slot : slots) {
      const std::uint32_t block = shape.blockOfSlot(slot);
      if (block < covered_) stamps_[block] = stamp;
    }
  }
  std::size_t bytes() const { return charge_.bytes(); }

 private:
  Charge charge_;
  std::unique_ptr<std::uint32_t[]> stamps_;
  std::uint32_t covered_ = 0, room_ = 0;
};

/** Where rows go: keys u64[n], values f32[n * dim], state f32[n * (width - dim)]. */
struct RowArrays {
  std::uint64_t* keys = nullptr;
  std::uint8_t* values = nullptr;
  std::uint8_t* state = nullptr;
};

/** Called once with the table and the number of rows: sets the arrays, or returns false to give up. */
using AllocateRows = std::function<bool(const Table&, std::size_t, RowArrays&)>;

class Snapshot {
 public:
  explicit Snapshot(Memory& memory) : charge_(memory, Counts::Besides) {}

  /** Before the first `keep` and `read`: row blocks of `table` whose stamp is at least `since`; 0 for all. */
  void add(const Table& table, std::uint32_t since);
  /** Rows, and bytes of their keys, values and state, in all of it. */
  std::uint64_t rows() const { return rows_; }
  std::uint64_t bytes() const { return bytes_; }

  /** Before these slots of `table` change or get a key. Never fails: where the system refuses memory the
   * snapshot is broken. */
  void keep(const Table& table, const std::vector<std::uint32_t>& slots);
  bool broken() const { return broken_; }
  /** Memory of rows that were kept and not handed out yet. */
  std::size_t keptBytes() const { return charge_.bytes(); }

  /** The next rows, all of one table: at most `maxBytes` of keys, values and state, but at least one row, and
   * a block that was not kept as a whole. False when there are none. */
  bool read(std::size_t maxBytes, const AllocateRows& allocate);

 private:
  struct Part {
    const Table* table;
    std::uint32_t extent;  // when it began: what lies beyond is not part of it
    BlockSet unread;
    std::uint32_t from = 0;      // blocks before this one are not unread
    std::uint32_t open = kNone;  // number of the page that takes more rows
  };
  /** Rows of one table that were kept. */
  struct Page {
    std::uint32_t part;
    std::uint32_t room, count, taken;
    std::unique_ptr<std::uint8_t[]> memory;
  };

  void collect(const Part& part, std::uint32_t block);
  Page* pageFor(Part& part, std::size_t rows);
  RowArrays arrays(const Page& page, std::uint32_t row) const;
  bool readKept(std::size_t maxBytes, const AllocateRows& allocate);
  bool readPart(Part& part, std::size_t maxBytes, const AllocateRows& allocate);
  void giveUp();

  Charge charge_;
  std::vector<Part> parts_;  // ascending by table
  std::size_t at_ = 0;       // parts before this one have nothing unread
  std::deque<Page> pages_;
  std::uint32_t dropped_ = 0;         // pages before the first of `pages_`
  std::vector<std::uint32_t> slots_;  // scratch: slots with a key
  std::uint64_t rows_ = 0, bytes_ = 0;
  bool broken_ = false;
};

}  // namespace kintsugi
