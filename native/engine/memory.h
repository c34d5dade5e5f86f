// The memory budget that all shards and sinks of one node share. It counts what they have committed to
// (extents, indexes, accumulators), not what the kernel has mapped, so that a refusal happens at the same
// point on every machine. Memory of snapshots is counted beside it: nothing is ever refused because of them.
#pragma once
#include <cstddef>

namespace kintsugi {

class Memory {
 public:
  /** `limit` 0: no limit. */
  explicit Memory(std::size_t limit) : limit_(limit) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /** All that is charged. */
  std::size_t used() const { return used_ + besides_; }
  std::size_t limit() const { return limit_; }
  bool allows(std::size_t more) const { return limit_ == 0 || (used_ <= limit_ && more <= limit_ - used_); }
  /** So much of the budget is used that tables with such a policy should not grow. */
  bool isTight() const { return limit_ && used_ >= limit_ - limit_ / kTightPart; }
  void charge(std::size_t bytes) { used_ += bytes; }
  void release(std::size_t bytes) { used_ -= bytes; }
  void chargeBesides(std::size_t bytes) { besides_ += bytes; }
  void releaseBesides(std::size_t bytes) { besides_ -= bytes; }

 private:
  static constexpr std::size_t kTightPart = 8;
  std::size_t used_ = 0, besides_ = 0;
  std::size_t limit_;
};

/** Against: the amount lowers what `Memory::allows`. Besides: the amount is only reported by `Memory::used`.
 */
enum class Counts { Against, Besides };

/** An amount charged to a budget for as long as this lives. */
class Charge {
 public:
  explicit Charge(Memory& memory, Counts counts = Counts::Against) : memory_(memory), counts_(counts) {}
  ~Charge() { set(0); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  std::size_t bytes() const { return bytes_; }
  void set(std::size_t bytes) {
    if (counts_ == Counts::Against) {
      memory_.charge(bytes);
      memory_.release(bytes_);
    } else {
      memory_.chargeBesides(bytes);
      memory_.releaseBesides(bytes_);
    }
    bytes_ = bytes;
  }

 private:
  Memory& memory_;
  Counts counts_;
  std::size_t bytes_ = 0;
};

}  // namespace kintsugi
