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

class Shard {
 public:
  Shard(std::shared_ptr<Memory> memory, std::uint32_t member, std::uint32_t k, std::uint32_t r)
      : memory_(std::move(memory)), member_(member), k_(k), r_(r) {}

  Fault addTable(const TableSpec& spec);
  Fault adopt(std::uint32_t table, std::uint32_t extent);
  /** Extents of these tables that `adopt` takes when there is memory. */
  Fault checkExtents(const std::vector<ExtentOf>& extents) const;
  const Table* table(std::uint32_t id) const;

  Status push(View section);
  /** Fills what `allocate` returns, if the answer is Applied. */
  Status pull(View section, const Allocate& allocate);
  const BlockPairs& missing() const { return missing_; }

  bool dirty() const;
  std::size_t openBytes() const;
  void flush(const Allocate& allocate);
  /** Closes the open batch for nobody. */
  void dropBatch();

  Fault read(BlockList blocks, ReadResult& result, const Allocate& allocate) const;
  Fault install(BlockList blocks, View bytes, std::uint32_t& installed);
  Fault filterAbsent(BlockList blocks, BlockPairs& out) const;
  void nextAbsent(ColumnKind kind, std::size_t max, BlockPairs& out);
  std::uint64_t absentBlocks(ColumnKind kind) const;
  bool keysReady() const;

  Fault addEquations(std::uint32_t parity, std::uint32_t parityCount,
                     const std::vector<std::uint32_t>& lacking, bool ok, BlockList blocks, View bytes,
                     EquationsResult& result);
  void dropEquations() { equations_.clear(); }

  std::vector<ExtentOf> extents() const;
  std::vector<TableStats> stats() const;
  std::size_t bytes() const;

 private:
  /** The work on one table of a request between checking and applying. Kept between calls for its memory. */
  struct Plan {
    Table* table = nullptr;
    std::vector<std::uint64_t> tags;     // of the request, as they come
    std::vector<std::uint32_t> slots;    // of each tag; in pushes new ones have the slot that they will get
    std::vector<std::uint64_t> newTags;  // pushes: distinct, in order of first occurrence
  };

  Table* find(std::uint32_t id) { return const_cast<Table*>(table(id)); }
  Status checkHeads(const Request& request, bool distinct);
  bool collectTags(const RequestTable& r, Plan& plan);
  void needKeys(const Table& table);
  void planPush(Plan& plan);
  void needRows(const Plan& plan, std::uint32_t slot);
  bool makeRoom();
  void settleMissing();
  void addKeys(const Plan& plan, bool initialize);
  void applyGradients(const RequestTable& r, Plan& plan);
  void applyRows(const RequestTable& r, const Plan& plan);
  std::size_t distinctRows(Plan& plan);
  void sumGradients(const RequestTable& r, std::size_t distinct);
  std::uint8_t* copyRows(const RequestTable& r, const Plan& plan, std::uint8_t* out);
  Fault checkList(BlockList blocks, std::size_t* bytes) const;
  void takeEquation(BlockRef block, std::uint32_t parity, std::uint32_t parityCount, Equation equation,
                    EquationsResult& result);

  std::shared_ptr<Memory> memory_;  // first: everything below charges it until destroyed
  std::uint32_t member_, k_, r_;
  std::map<std::uint32_t, std::unique_ptr<Table>> tables_;
  Equations equations_;
  Cursor cursors_[2];
  BlockPairs missing_;

  Request request_;
  std::vector<Plan> plans_;
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
};

}  // namespace kintsugi
