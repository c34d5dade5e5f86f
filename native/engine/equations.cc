#include "engine/equations.h"

#include <bit>
#include <utility>

#include "kernels/kernels.h"

namespace kintsugi {

static std::vector<std::uint32_t> bitsOf(std::uint32_t mask) {
  std::vector<std::uint32_t> bits;
  for (; mask; mask &= mask - 1) bits.push_back(static_cast<std::uint32_t>(std::countr_zero(mask)));
  return bits;
}

Outcome Equations::add(std::uint64_t block, std::uint32_t parity, std::uint32_t parityCount,
                       Equation equation) {
  const std::uint32_t lacking = equation.lacking;
  Collected& collected = blocks_[block];
  collected.of[parity] = std::move(equation);
  std::uint32_t answers = 0, same = 0, usable = 0;
  for (const Equation& e : collected.of) {
    answers += e.answered;
    same += e.answered && e.lacking == lacking;
    usable += e.answered && e.lacking == lacking && e.ok;
  }
  if (usable >= static_cast<std::uint32_t>(std::popcount(lacking))) return Outcome::Solvable;
  if (answers < parityCount) return Outcome::Waiting;
  // All parities have answered and the equations do not suffice. The equations grow stale, so they are
  // dropped and the next round collects new ones.
  blocks_.erase(block);
  return same == answers ? Outcome::Stuck : Outcome::Restart;
}

// Neighbouring blocks nearly always have the same lacking set and parities: keep the last inverse.
const std::vector<std::uint8_t>& Equations::inverse(std::uint32_t lacking, std::uint32_t parities) {
  if (lacking == cachedLacking_ && parities == cachedParities_) return cachedInverse_;
  const auto members = bitsOf(lacking), rows = bitsOf(parities);
  std::vector<std::uint8_t> matrix;
  for (const std::uint32_t j : rows) {
    for (const std::uint32_t i : members) matrix.push_back(coefficient(j, i));
  }
  invertMatrix(matrix,
               static_cast<std::uint32_t>(members.size()));  // every minor of the generator is non-zero
  cachedLacking_ = lacking;
  cachedParities_ = parities;
  return cachedInverse_ = std::move(matrix);
}

std::vector<std::vector<std::uint8_t>> Equations::solve(std::uint64_t block, std::uint32_t lacking) {
  const auto found = blocks_.find(block);
  const auto unknowns = static_cast<std::uint32_t>(std::popcount(lacking));
  std::vector<const Equation*> used;
  std::uint32_t parities = 0;
  for (std::uint32_t j = 0; j < kMaxParities && used.size() < unknowns; j++) {
    const Equation& e = found->second.of[j];
    if (!e.answered || !e.ok || e.lacking != lacking) continue;
    used.push_back(&e);
    parities |= 1u << j;
  }
  const std::vector<std::uint8_t>& inverted = inverse(lacking, parities);
  std::vector<std::vector<std::uint8_t>> contents(unknowns);
  for (std::uint32_t x = 0; x < unknowns; x++) {
    contents[x].assign(used[0]->bytes.size(), 0);
    for (std::uint32_t q = 0; q < unknowns; q++) {
      kernels().mulAdd(contents[x].data(), used[q]->bytes.data(), contents[x].size(),
                       inverted[x * unknowns + q]);
    }
  }
  blocks_.erase(found);
  return contents;
}

}  // namespace kintsugi
