// Equations that a shard has collected for its absent blocks while more than one member lacks them (rules 24
// to 26). With a single lacking member one equation is the answer and nothing is kept; this is the other
// case.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/matrix.h"

namespace kintsugi {

struct Equation {
  std::uint32_t lacking = 0;  // bit per member
  bool answered = false;
  bool ok = false;
  std::vector<std::uint8_t> bytes;
};

/** State of a block after one more equation. */
enum class Outcome { Waiting, Solvable, Stuck, Restart };

class Equations {
 public:
  /** Takes an answer; a later one of the same parity replaces it. */
  Outcome add(std::uint64_t block, std::uint32_t parity, std::uint32_t parityCount, Equation equation);
  /** After `Solvable`: content of every lacking member, ascending by member; forgets the block. */
  std::vector<std::vector<std::uint8_t>> solve(std::uint64_t block, std::uint32_t lacking);
  void forget(std::uint64_t block) { blocks_.erase(block); }
  void clear() { blocks_.clear(); }
  std::size_t size() const { return blocks_.size(); }

 private:
  struct Collected {
    Equation of[kMaxParities];
  };
  const std::vector<std::uint8_t>& inverse(std::uint32_t lacking, std::uint32_t parities);

  std::unordered_map<std::uint64_t, Collected> blocks_;
  std::uint32_t cachedLacking_ = 0, cachedParities_ = 0;
  std::vector<std::uint8_t> cachedInverse_;
};

}  // namespace kintsugi
