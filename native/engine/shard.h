// One data shard: every table's keys, rows and optimizer state in one hash range, and the stream of deltas
// that its sinks follow. A shard decides nothing about sequence numbers, epochs or peers; it applies whole
// requests or nothing, says which blocks it would need, and takes blocks as they are decoded.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/bytes.h"
#include "engine/equations.h"
#include "engine/memory.h"
#include "engine/scratch.h"
#include "engine/sections.h"
#include "engine/snapshot.h"
#include "engine/table.h"

namespace kintsugi {

struct ExtentOf {
  std::uint32_t table, stride, extent;
};

struct TableStats {
  std::uint32_t table;
  std::size_t rows;
  std::uint32_t extent;
  std::uint64_t absentKeyBlocks, absentRowBlocks;
  bool hasPolicy;
  LifeCounts counts;
};

struct ReadResult {
  BlockPairs present, lacking;
};

struct EquationsResult {
  struct Other {
    std::uint32_t member;
    BlockPairs blocks;
    std::vector<std::uint8_t> bytes;
  };
  std::uint32_t installed = 0;
  std::vector<Other> others;
  BlockPairs stuck;
};

/** Values that are asked for by key: `into` has room for `dim` floats of each, `found` a byte, or is null. */
struct WantedValues {
  std::uint32_t table = 0;
  const std::uint64_t* keys = nullptr;
  float* into = nullptr;
  std::uint8_t* found = nullptr;
  std::size_t keyCount = 0, floatCount = 0;
  bool initial = false;
};

struct SnapshotBegun {
  std::uint32_t stamp = 0;
  std::uint32_t since = 0;            // 0: it has all rows
  std::uint64_t rows = 0, bytes = 0;  // with a key; of keys, values and state
};

/** Rows of one table; the arrays as in `RowArrays`, with their lengths in elements. */
struct LoadedRows {
  std::uint32_t table = 0;
  const std::uint64_t* keys = nullptr;
  const float *values = nullptr, *state = nullptr;
  std::size_t keyCount = 0, valueCount = 0, stateCount = 0;
};

/** The filter of a table: `waiting` sightings were counted by it, which says what it forgets next. */
struct FilterState {
  std::uint32_t table = 0;
  Filter filter{};
  std::uint32_t waiting = 0;
};

/** Counters of slots, which are numbered as in the line of all shards: `stride` bytes of each. */
struct LoadedFilter {
  std::uint32_t table = 0;
  const std::uint64_t* slots = nullptr;
  const std::uint8_t* counters = nullptr;
  std::size_t slotCount = 0, byteCount = 0;
  std::uint32_t waiting = 0;
};

class Shard {
 public:
  Shard(std::shared_ptr<Memory> memory, std::uint32_t member, std::uint32_t k, std::uint32_t r)
      : memory_(std::move(memory)), member_(member), k_(k), r_(r) {}

  /** Adds a table. One that is there takes the settings of `spec`; everything else must be the same. */
  Fault addTable(const TableSpec& spec);
  /** Frees the table: its rows, its part of the open batch, of equations and of the open snapshot. Nothing if
   * it is not there. */
  void dropTable(std::uint32_t id);
  Fault adopt(std::uint32_t table, std::uint32_t extent);
  /** The newest second of the job. Where clocks count seconds, they go on with the next push to their table;
   * and now, in the open batch, where a table was not pushed to for long and the delta stays within
   * `maxDelta`. 0: with pushes alone. */
  void tell(std::uint32_t seconds, std::size_t maxDelta);
  /** For a shard that readers ask: from now on, a row that is not served reads as if its key had none, but in
   * pulls of whole rows. */
  void serve(const Serving& serving) { serving_ = serving; }
  /** Extents of these tables that `adopt` takes when there is memory. */
  Fault checkExtents(const std::vector<ExtentOf>& extents) const;
  const Table* table(std::uint32_t id) const;

  /** Applied, or a status and no row of the push is changed. BatchFull: it waits for the next batch, because
   * the delta would be larger than `maxDelta`, or because rows that go in the open one make room for it; that
   * one is not empty, and the push is offered again after it. DeltaLimit: its delta alone may be larger. */
  Status push(View section, std::size_t maxDelta = kMaxDeltaBytes);
  /** Fills what `allocate` returns, if the answer is Applied. */
  Status pull(View section, const Allocate& allocate);
  const BlockPairs& missing() const { return missing_; }

  // Sums over all tables are updated with each change, not computed by a walk. With thousands of tables in
  // each of many shards, a walk at every tick and every push would take most of a node's time.
  bool dirty() const { return !dirty_.empty(); }
  std::size_t openBytes() const { return 8 + totals_.openBytes; }
  void flush(const Allocate& allocate);
  /** See `Table::watch`. Nothing if the table is not there. */
  void watch(std::uint32_t table, bool on);
  /** The keys that were noted in the open batch, by table: called before the batch is closed. */
  std::vector<std::pair<std::uint32_t, Evicted>> takeEvicted();
  /** Closes the open batch of a shard that no sink and no replica follows: no delta is written. */
  void dropBatch();

  /** For a shard that follows another one and takes no pushes: applies the delta to the present blocks. A
   * second call with the same delta takes it back. Applied, or a status and nothing is changed. */
  Status applyDelta(View delta);

  Fault read(BlockList blocks, ReadResult& result, const Allocate& allocate) const;
  Fault install(BlockList blocks, View bytes, std::uint32_t& installed);
  Fault filterAbsent(BlockList blocks, BlockPairs& out) const;
  void nextAbsent(ColumnKind kind, std::size_t max, BlockPairs& out);
  std::uint64_t absentBlocks(ColumnKind kind) const { return absent_[kind].count(); }
  /** No block of keys is absent, so every table has its index. */
  bool keysReady() const { return absent_[kKeys].count() == 0; }

  Fault addEquations(std::uint32_t parity, std::uint32_t parityCount,
                     const std::vector<std::uint32_t>& lacking, bool ok, BlockList blocks, View bytes,
                     EquationsResult& result);
  void dropEquations() { equations_.clear(); }

  /** A snapshot of all rows that changed after snapshot `since` began, as they are now, and of the keys whose
   * rows went since then; of all rows if `since` is 0 or not a number that this shard has given, or if too
   * many rows went. So, too, if a table has a policy, unless nobody wants more than values: the ages of rows
   * that have not changed are others. A chain of snapshots has the same `serving`. The open batch must be
   * empty, and no block absent; one snapshot at a time. */
  Fault beginSnapshot(std::uint32_t since, SnapshotBegun& begun, const Serving& serving = {});
  /** The next rows of the open snapshot. When there are none, `allocate` is not called and the snapshot is
   * over. MEMORY_LIMIT: the system refused memory for what changed; `endSnapshot` is left to do. */
  Fault readSnapshot(std::size_t maxBytes, const AllocateRows& allocate);
  void endSnapshot() { snapshot_.reset(); }
  /** Memory of what the open snapshot keeps. */
  std::size_t snapshotBytes() const { return snapshot_ ? snapshot_->keptBytes() : 0; }
  /** Loads whole rows, new ones or in place of those that are there; of a repeated key the last one counts.
   * Only for a shard that nobody follows, because no delta is made. Applied, or a status and nothing is
   * changed. */
  Fault loadRows(const LoadedRows& rows, Status& status);
  /** Removes rows from a shard that nobody follows. Keys without a row are passed over. */
  Fault unloadRows(const LoadedRows& rows, Status& status);
  /** The filters of tables that have one. The blocks of their first slots are present. */
  std::vector<FilterState> filters() const;
  /** Adds counters to those that are there, in a shard that nobody follows; full ones stay full, and slots of
   * other shards are passed over. So a filter is the sum of those that are loaded. `waiting` replaces what it
   * was. Applied, or a status and nothing is changed. */
  Fault loadFilter(const LoadedFilter& filter, Status& status);
  /** Writes the values of each key that has a row to the key's place in `into`, and 1 to its place in
   * `found`. For a key without a row, writes its initial value if `initial`, else nothing. `count`: keys with
   * a row. */
  Fault readValues(const WantedValues& wanted, std::size_t& count);

  std::vector<ExtentOf> extents() const;
  /** Extents of the tables that have one of these blocks. */
  std::vector<ExtentOf> extentsOf(BlockList blocks) const;
  std::vector<TableStats> stats() const;
  /** Rows of all tables. */
  std::uint64_t rows() const { return totals_.rows; }
  /** True if the sums over all tables equal those that a walk over the tables finds. For tests. */
  bool totalsAreRight() const;
  std::size_t bytes() const { return totals_.bytes + (snapshot_ ? snapshot_->memoryBytes() : 0); }

 private:
  /** The counts of one table, or their sums over all tables. */
  struct Figures {
    std::uint64_t rows = 0;
    std::size_t bytes = 0, openBytes = 0;  // `openBytes`: of the delta, 0 if the batch is empty
    std::uint64_t absent[2] = {0, 0};      // blocks; of all tables they are in `absent_`
  };
  /** Lives while a table is changed, and then updates the sums over all tables. Only `closeBatches` changes
   * tables without it. */
  class Change {
   public:
    Change(Shard& shard, Table& table) : shard_(shard), table_(table), before_(figuresOf(table)) {}
    ~Change() { shard_.count(table_, before_); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    Shard& shard_;
    Table& table_;
    Figures before_;
  };
  static Figures figuresOf(const Table& table);
  void count(Table& table, const Figures& before);
  bool installBlock(BlockRef block, const std::uint8_t* bytes);

  /** A key of a push that has no row before it, or one that is gone. */
  struct Unknown {
    std::uint64_t tag;
    std::uint32_t seen;     // in this push
    std::uint32_t before;   // as the filter says
    std::uint32_t cellsAt;  // slot of its counters
    bool admitted;
  };
  /** The work on one table of a request between checking and applying. Kept between calls for its memory. */
  struct Plan {
    Table* table = nullptr;
    std::vector<std::uint64_t> tags;     // of the request, as they come
    std::vector<std::uint32_t> slots;    // of each tag; in pushes new ones have the slot that they will get
    std::vector<std::uint64_t> newTags;  // pushes: distinct, in order of first occurrence
    std::uint32_t swept = 0;             // pushes: rows that are gone and may be evicted
    std::uint32_t displaced = 0;         // pushes: rows that make room for new ones
    std::size_t others = 0;              // pushes: slots without keys that may change
    std::size_t unfit = 0;               // pushes: new keys without a slot, see `keepFitting`
    std::vector<std::uint8_t> kept;      // rows of the others
    std::vector<std::uint8_t> keptCounts, keptScores;
    std::vector<Unknown> unknown;  // pushes: keys without a row, where a table filters
    std::size_t refused = 0;       // of these, those that get none
    std::uint32_t cleared = 0;     // slots of the filter that begin again
    std::uint32_t waiting = 0;     // sightings that it has counted by then, see `wrapped`
    bool moves = false;            // a step: gradients have come, whether a row takes them or not

    /** Key i of the push is key `to` of those that are kept, which are as many or fewer. */
    void keep(const RequestTable& r, std::size_t i, std::size_t to);
    /** The push has the first `count` of them alone. */
    void keepOnly(RequestTable& r, std::size_t count);
  };

  Table* find(std::uint32_t id) { return const_cast<Table*>(table(id)); }
  Status checkHeads(const Request& request, bool isPush);
  bool collectTags(const RequestTable& r, Plan& plan);
  void needKeys(const Table& table);
  void planPush(RequestTable& r, Plan& plan);
  void planDeletion(Plan& plan);
  void needRows(const Plan& plan);
  Status makeRoom(std::size_t maxDelta);
  Status makeMemory(std::size_t maxDelta);
  bool isStep(std::size_t at) const;
  std::size_t costOf() const;
  std::size_t deltaOf(std::size_t at) const;
  bool makeSlots(const RequestTable& r, const Plan& plan, std::size_t maxDelta);
  void keepFitting(RequestTable& r, Plan& plan);
  void settleMissing();
  void addKeys(const Plan& plan, bool initialize);
  void applyGradients(const RequestTable& r, Plan& plan);
  void applyRows(const RequestTable& r, const Plan& plan);
  void noteRemoved(Table& t, const std::vector<std::uint32_t>& slots);
  void deleteRows(Table& t, const std::vector<std::uint32_t>& slots);
  void beginRows(const Table& t);
  void putInitial(Table& t, std::uint32_t slot);
  // The life of rows (life.cc), in tables with a policy.
  void followPolicy(Table& t);
  void startAgain(const Plan& plan);
  void countReplaced(Table& t, std::uint32_t slot);
  static void countDeleted(const Plan& plan);
  void admit(const RequestTable& r, const Plan& plan, RowSteps& steps);
  void seeRows(const Plan& plan, std::size_t distinct);
  void scoreRows(const RequestTable& r, const Plan& plan, std::size_t distinct);
  void takeLife(Table& t, std::uint32_t slot, std::uint32_t place);
  static void giveAges(const Table& t, const std::vector<std::uint32_t>& slots, std::uint8_t* rows);
  void endStep(const Plan& plan);
  void sweep(Table& t, std::uint32_t most, std::size_t keys);
  void evict(Table& t);
  void passTime(Table& t, std::size_t maxDelta);
  // Keys that get no row yet (filter.cc).
  bool planAdmission(RequestTable& r, Plan& plan);
  void needFilter(Plan& plan);
  static void dropRefused(RequestTable& r, Plan& plan, const std::vector<std::uint32_t>& ranks);
  void fillFilter(const Plan& plan);
  void keepFilter(const Plan& plan);
  void clearFilter(const Plan& plan);
  std::size_t distinctRows(Plan& plan);
  void sumGradients(const RequestTable& r, std::size_t distinct);
  std::uint8_t* copyRows(const RequestTable& r, const Plan& plan, std::uint8_t* out);
  Fault checkList(BlockList blocks, std::size_t* bytes) const;
  void takeEquation(BlockRef block, std::uint32_t parity, std::uint32_t parityCount, Equation equation,
                    EquationsResult& result);

  Status checkFollowed(const std::vector<DeltaTable>& delta);

  void closeBatches();
  Status checkLoaded(const LoadedRows& rows, Plan& plan);
  std::uint32_t planLoad(Plan& plan);
  void applyLoaded(const LoadedRows& rows, Plan& plan, std::uint32_t newKeys);
  bool makeRoomToLoad(const Plan& plan, std::uint32_t& newKeys);

  std::shared_ptr<Memory> memory_;  // first: everything below charges it until destroyed
  std::uint32_t member_, k_, r_;
  std::map<std::uint32_t, std::unique_ptr<Table>> tables_;
  Figures totals_;
  std::vector<Table*> dirty_;  // with an open batch, in the order in which they got it
  ColumnSets absent_[2];       // by kind
  Equations equations_;
  Cursor cursors_[2];
  BlockPairs missing_;
  Serving serving_;
  std::uint32_t seconds_ = 0;           // of the job
  std::unique_ptr<Snapshot> snapshot_;  // the open one
  std::uint32_t snapshots_ = 0;         // begun so far; while it is 0 there are no stamps
  std::uint32_t forgotten_ = 0;         // since this snapshot or an older one, not all removed keys are known

  Request request_;
  std::vector<DeltaTable> delta_;
  std::vector<Plan> plans_;
  std::vector<std::uint32_t> ids_;
  ScratchMap<std::uint64_t> distinct_;
  std::vector<std::uint64_t> needed_;
  // Scratch of one push, kept for its memory. A visit says when a place of the open batch was last touched
  // and which of the push's distinct rows it was then.
  struct Visit {
    std::uint32_t push = 0, rank = 0;
  };
  std::vector<Visit> visits_;
  std::uint32_t pushes_ = 0;
  std::vector<std::uint32_t> places_;   // of each distinct row
  std::vector<std::uint32_t> inverse_;  // for each key of the request its rank
  std::vector<float> gradients_;
  std::vector<float> initial_;
  std::vector<float> scores_;  // of each distinct row
  std::vector<std::uint32_t> sightings_, admittedSlots_, admittedPlaces_, swept_, gone_, ranks_, kept_;
};

}  // namespace kintsugi
