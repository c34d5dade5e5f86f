// Snapshots: the rows of a shard as they were at one instant, handed out piece by piece while pushes go on. A
// snapshot copies nothing when it begins. A row that is about to change and was not handed out yet is copied
// first ("kept"). Where much was kept it is handed out before anything else, so that as little as possible is
// kept at a time. Rows are kept one by one, because pushes come to rows at random places: with blocks of 4
// KiB each row of 64 bytes would cost 64 times its size. Stamps say which rows changed since an earlier
// snapshot.
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

/** Which rows of a snapshot are for readers that serve them. A table without a policy has no words of lives,
 * and all of its rows are. */
struct Serving {
  bool valuesOnly = false;         // false: all rows are wanted, with their state
  std::uint32_t minSightings = 0;  // rows that were seen less often, or are not admitted, are left out
  std::uint32_t maxAge = 0;        // rows that were last seen more steps ago are left out; 0: none
  std::uint32_t maxSeconds = 0;    // the same where clocks count seconds
};

/** The stamp of each slot of a table: the number of the newest snapshot that had begun before the slot's last
 * change. A stamp may be higher than that, and then an unchanged row counts as changed. Snapshots count from
 * 1. Slots that are not covered changed after the newest snapshot began. A change sets one bit per slot,
 * because the bits fit the caches; the bits become stamps when the next snapshot begins. A stamp is one byte,
 * counted from `base_`. When a byte does not suffice, all rows count as changed once. */
class Stamps {
 public:
  explicit Stamps(Memory& memory) : charge_(memory, Counts::Besides) {}

  /** Before a snapshot begins; `newest` is the one before it, or 0. Covers the slots below `count`. False if
   * the system refuses memory. */
  bool settle(std::uint32_t count, std::uint32_t newest);
  /** The stamp of the slot is `since` or higher. `settle` came before. */
  bool isNewer(std::uint32_t slot, std::uint32_t since) const {
    return since <= base_ || slot >= covered_ || stamps_[slot] >= since - base_;
  }
  /** Removes the slots from `slots` whose stamps are below `since`. */
  void removeOlder(std::uint32_t since, BlockSet& slots) const;
  /** Rows at these slots changed. Slots that are not covered are passed over. */
  void mark(const std::vector<std::uint32_t>& slots);
  std::size_t bytes() const { return charge_.bytes(); }

 private:
  Charge charge_;
  std::unique_ptr<std::uint8_t[]> stamps_;
  std::unique_ptr<std::uint64_t[]> changed_;
  std::uint32_t base_ = 0, covered_ = 0, room_ = 0;  // room is a multiple of 64
};

/** Keys of a table that were removed, each with the number of the newest snapshot that had begun before. Keys
 * that were removed before the first snapshot are in none, and are not noted. */
class Removals {
 public:
  explicit Removals(Memory& memory) : charge_(memory, Counts::Besides) {}

  /** `newest` never falls. Where more than `most` keys would be known, the oldest are forgotten. Returns the
   * highest number of a forgotten one, or 0: snapshots since that number, or an older one, have all rows. */
  std::uint32_t add(const std::vector<std::uint64_t>& tags, std::uint32_t newest, std::size_t most);
  /** Appends the tags that were removed after snapshot `since` began; a tag may come twice. */
  void list(std::uint32_t since, std::vector<std::uint64_t>& tags) const;
  std::size_t bytes() const { return charge_.bytes(); }

 private:
  struct Removal {
    std::uint64_t tag;
    std::uint32_t stamp;
  };
  Charge charge_;
  std::vector<Removal> all_;  // stamps ascend
};

/** Where rows go: keys u64[n], values f32[n * dim], state f32[n * (width - dim)]; and keys whose rows are
 * gone, u64[removedCount]. Or slots of a filter: their numbers in its line as keys, and in the place of
 * values u8[n * stride], their counters. */
struct RowArrays {
  std::uint64_t* keys = nullptr;
  std::uint8_t* values = nullptr;
  std::uint8_t* state = nullptr;
  std::uint64_t* removed = nullptr;
  std::size_t removedCount = 0;  // set before memory is asked for
  bool areCounters = false;      // set before memory is asked for
};

/** Called once with the table and the number of rows: sets the arrays, or returns false to give up. */
using AllocateRows = std::function<bool(const Table&, std::size_t, RowArrays&)>;

class Snapshot {
 public:
  explicit Snapshot(Memory& memory) : charge_(memory, Counts::Besides), sets_(memory, Counts::Besides) {}

  /** Before the first `keep` and `read`: rows of `table` whose stamp is at least `since`, and keys that were
   * removed since then and are not there; 0: all rows. Tables come in the order of their ids. The counters of
   * a filter come with all rows, for who wants more than values. */
  void add(const Table& table, std::uint32_t since, const Serving& serving);
  /** Rows, and bytes of their keys, values and state, in all of it. */
  std::uint64_t rows() const { return rows_; }
  std::uint64_t bytes() const { return bytes_; }

  /** Before rows at these slots of `table` change; slots that had no key are passed over. Never fails: where
   * the system refuses memory the snapshot is broken. */
  void keep(const Table& table, const std::vector<std::uint32_t>& slots);
  /** Before the table goes: none of its rows is handed out any more. */
  void drop(const Table& table);
  bool broken() const { return broken_; }
  /** Memory of rows that were kept and not handed out yet. */
  std::size_t keptBytes() const { return charge_.bytes(); }
  /** All memory of this snapshot. */
  std::size_t memoryBytes() const { return charge_.bytes() + sets_.bytes(); }

  /** The next rows, all of one table: at most `maxBytes` of keys, values and state, but at least one row.
   * Keys that were removed come before all rows, without any. False when there are none. */
  bool read(std::size_t maxBytes, const AllocateRows& allocate);

 private:
  /** Rows that were kept. */
  struct Page {
    std::uint32_t room, count, taken;
    std::unique_ptr<std::uint8_t[]> memory;
  };
  /** The rows of one table that are still to be handed out. */
  struct Part {
    const Table* table;
    bool areCounters = false;            // of slots of its filter
    BlockSet left;                       // slots whose rows were neither handed out nor kept
    std::uint32_t from = 0;              // no slot before this one is left
    std::size_t kept = 0;                // rows in pages
    std::uint32_t clock = 0;             // of a table with a policy, when the snapshot began
    std::deque<Page> pages;              // the last one takes more rows
    std::vector<std::uint64_t> removed;  // keys that are still to be handed out

    std::size_t valueBytes() const;
    std::size_t stateBytes() const;
    std::size_t rowBytes() const { return sizeof(std::uint64_t) + valueBytes() + stateBytes(); }
    RowArrays advanced(RowArrays to, std::size_t rows) const;
    /** Row `row` of memory for `room` rows: keys first, then all values, then all state. */
    RowArrays arraysOf(std::uint8_t* memory, std::size_t room, std::size_t row) const;
    void copy(const std::uint32_t* slots, std::size_t count, RowArrays to) const;
  };

  Part* find(const Table& table, bool areCounters);
  void addFilter(const Table& table);
  void push(Part part);
  void keep(Part& part, const std::vector<std::uint32_t>& slots);
  void drop(Part& part);
  Page* pageFor(Part& part, std::size_t rows);
  Part* choose(std::size_t maxBytes);
  bool readRemoved(std::size_t maxBytes, const AllocateRows& allocate);
  void takeKept(Part& part, std::size_t rows, RowArrays to);
  void giveUp();

  Charge charge_, sets_;
  std::deque<Part> parts_;            // by id of the table
  std::size_t left_ = 0, kept_ = 0;   // see `choose`
  std::size_t removed_ = 0;           // parts before it have no removed keys left
  std::vector<std::uint32_t> slots_;  // scratch
  std::uint64_t rows_ = 0, bytes_ = 0;
  bool broken_ = false;
};

}  // namespace kintsugi
