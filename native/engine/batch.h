// The open batch of one table: deltas since the last flush. XOR deltas of the same row add, so a row that is
// pushed a hundred times between two flushes travels once. The memory stays from batch to batch: a fresh
// megabyte costs 256 page faults, more than the kernels need to fill it.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/bytes.h"
#include "kernels/kernels.h"

namespace kintsugi {

class OpenBatch {
 public:
  explicit OpenBatch(std::uint32_t stride) : stride_(stride) {}

  bool empty() const { return keySlots_.empty() && rowSlots_.empty(); }

  std::size_t rows() const { return rowSlots_.size(); }
  /** Slots of all rows that changed, new ones included. */
  const std::vector<std::uint32_t>& slots() const { return rowSlots_; }

  /** Makes room for `rows` rows before they are touched, so that no delta moves meanwhile. False if the
   * system refuses. */
  bool expect(std::size_t rows);

  void addKey(std::uint32_t slot, std::uint64_t changed) {
    keySlots_.push_back(slot);
    keyXor_.push_back(changed);
  }

  /** Changes of keys whose slots are in ascending order, each once. A slot has one change in a batch: it is
   * added to one that is there. */
  void changeKeys(const std::vector<std::uint32_t>& slots, const std::vector<std::uint64_t>& changed);

  /** The place of a row's delta. With kAddTo: the delta exists and the caller adds to it. Without: the caller
   * writes the delta. */
  std::uint32_t touch(std::uint32_t slot) {
    std::uint32_t i = cellOf(slot);
    while (cells_[i] != kNoSlot) {
      if (rowSlots_[cells_[i]] == slot) return cells_[i] | kAddTo;
      i = (i + 1) & (cellCount_ - 1);
    }
    const auto place = static_cast<std::uint32_t>(rowSlots_.size());
    cells_[i] = place;
    rowSlots_.push_back(slot);
    return place;
  }

  /** Deltas of rows, `stride` bytes each, by place. */
  std::uint8_t* deltas() const { return deltas_.get(); }
  /** As `touch`, where a delta that is new begins as zeros. */
  std::uint32_t touchFromZero(std::uint32_t slot) {
    const std::uint32_t place = touch(slot);
    if (!(place & kAddTo)) std::memset(delta(place), 0, stride_);
    return place;
  }
  std::uint8_t* delta(std::uint32_t place) const { return deltas() + std::size_t{place & ~kAddTo} * stride_; }

  /** Size of the arrays in a DELTA section. */
  std::size_t bytes() const { return bytesOf(keySlots_.size(), rowSlots_.size()); }
  /** The same of a batch with so many changes of keys and rows. */
  std::size_t bytesOf(std::size_t keys, std::size_t rows) const {
    return alignUp(keys * 4, 8) + keys * 8 + alignUp(rows * 4, 8) + rows * stride_;
  }

  /** Writes the header of the table and its arrays (padding included) and returns the end of the arrays. */
  std::uint8_t* write(std::uint8_t* head, std::uint8_t* arrays, std::uint32_t table,
                      std::uint32_t extent) const;
  void clear();

 private:
  std::uint32_t cellOf(std::uint32_t slot) const { return (slot * 0x9E3779B1u) >> cellShift_; }
  void growCells(std::size_t rows);

  std::uint32_t stride_;
  std::vector<std::uint32_t> keySlots_;
  std::vector<std::uint64_t> keyXor_;
  std::vector<std::uint32_t> rowSlots_;
  std::unique_ptr<std::uint8_t[]> deltas_;
  std::size_t rows_ = 0;  // that have room in `deltas_`
  // Slot to place, open addressing at most half full; only the first `cellCount_` cells are in use.
  std::vector<std::uint32_t> cells_;
  std::uint32_t cellCount_ = 0, cellShift_ = 31;
};

}  // namespace kintsugi
