// A column of a slab: one contiguous piece of memory that doubles. A small column is on the heap and is
// copied when it grows. A large one is a mapping of its own; growing moves its page tables, never its bytes.
// A column without rows takes no memory and no addresses. Bytes that were never written are zero, which is
// what the code needs of a slot that was never used.
//
// The rows of a column stay contiguous because the kernels need one base address. With an address per
// segment, gathering rows took 7 to 38 % longer (bench/LOG.md, 2026-11-22).
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/memory.h"

namespace kintsugi {

class Column {
 public:
  explicit Column(Memory& memory) : charge_(memory) {}
  ~Column();
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  /** nullptr while there is no room. `makeRoom` may change it. */
  std::uint8_t* data() const { return data_; }
  /** Bytes in use; they count against the budget. */
  std::size_t bytes() const { return charge_.bytes(); }
  /** Makes room for `bytes`, zero where nothing was written. False if the system refuses; the column is then
   * as it was. Charges nothing. */
  bool makeRoom(std::size_t bytes);
  /** After `makeRoom`. Never shrinks. Charges without asking: the caller has asked the budget, or must not be
   * refused. */
  void grow(std::size_t bytes);

 private:
  bool growOnHeap(std::size_t room);
  bool growMapping(std::size_t room);
  void release();

  Charge charge_;
  std::uint8_t* data_ = nullptr;
  std::size_t room_ = 0;  // bytes from `data_` on
  void* heap_ = nullptr;  // what to free, where it is not a mapping
  bool huge_ = false;
};

}  // namespace kintsugi
