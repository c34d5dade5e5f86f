// The memory budget that all shards and sinks of one node share. It counts what they have committed to
// (extents, indexes, accumulators), not what the kernel has mapped, so that a refusal happens at the same
// point on every machine.
#pragma once
#include <cstddef>

namespace kintsugi {

class Memory {
 public:
  /** `limit` 0: no limit. */
  explicit Memory(std::size_t limit) : limit_(limit) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::size_t used() const { return used_; }
  std::size_t limit() const { return limit_; }
  bool allows(std::size_t more) const { return limit_ == 0 || (used_ <= limit_ && more <= limit_ - used_); }
  void charge(std::size_t bytes) { used_ += bytes; }
  void release(std::size_t bytes) { used_ -= bytes; }

 private:
  std::size_t used_ = 0;
  std::size_t limit_;
};

/** An amount charged to a budget for as long as this lives. */
class Charge {
 public:
  explicit Charge(Memory& memory) : memory_(memory) {}
  ~Charge() { memory_.release(bytes_); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  std::size_t bytes() const { return bytes_; }
  void set(std::size_t bytes) {
    memory_.charge(bytes);
    memory_.release(bytes_);
    bytes_ = bytes;
  }

 private:
  Memory& memory_;
  std::size_t bytes_ = 0;
};

}  // namespace kintsugi
