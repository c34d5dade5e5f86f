// A column of a slab: address space reserved once, pages committed by the kernel at first touch. Rows never
// move, so growing costs nothing and pointers stay valid; bytes that were never written are zero, which is
// what the code needs of a slot that was never used.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/memory.h"

namespace kintsugi {

class Column {
 public:
  /** Reserves up to `reserve` bytes of address space at first use; fewer where the system refuses so much. */
  Column(Memory& memory, std::size_t reserve) : charge_(memory), reserve_(reserve) {}
  ~Column();
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  /** nullptr while nothing was ever grown. */
  std::uint8_t* data() const { return data_; }
  /** Bytes in use; they count against the budget. */
  std::size_t bytes() const { return charge_.bytes(); }
  /** Makes sure that the address space suffices for `bytes`; changes nothing that can be seen. */
  bool canGrow(std::size_t bytes);
  /** After `canGrow`. Never shrinks. Charges without asking: the caller has asked the budget, or must not be
   * refused. */
  void grow(std::size_t bytes);

 private:
  bool map();

  Charge charge_;
  std::size_t reserve_;
  std::uint8_t* data_ = nullptr;
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  bool huge_ = false;
};

}  // namespace kintsugi
