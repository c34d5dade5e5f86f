// The hash of numbers, many at a time: a template over the bytes of a vector, included by one file per
// instruction set inside its target region.
#pragma once
#include <cstring>

#include "kernels/key_hash.h"

namespace kintsugi {
namespace {

template <std::size_t kBytes>
struct KeyHashes {
  typedef std::uint32_t Words __attribute__((vector_size(kBytes)));
  static constexpr std::size_t kLanes = kBytes / sizeof(std::uint32_t);
  /** Vectors under way at a time: each step of a hash waits for the one before. */
  static constexpr std::size_t kGroups = 4, kBlock = kGroups * kLanes;

  static inline void block(std::uint64_t* keys, std::uint32_t seed, std::uint64_t missing) {
    std::uint32_t words[2][kBlock];
    for (std::size_t i = 0; i < kBlock; i++) {
      words[0][i] = static_cast<std::uint32_t>(keys[i]);
      words[1][i] = static_cast<std::uint32_t>(keys[i] >> 32);
    }
    Words first[kGroups], second[kGroups], word;
    for (std::size_t g = 0; g < kGroups; g++) {
      first[g] = Words{} + seed;
      second[g] = Words{} + KeyHash::kBegin;
    }
    for (std::uint32_t step = 0; step < 2 + KeyHash::kEndWords; step++) {
      for (std::size_t g = 0; g < kGroups; g++) {
        if (step < 2) {
          std::memcpy(&word, words[step] + g * kLanes, kBytes);
        } else {
          word = Words{} + (KeyHash::kEnd + step - 2);
        }
        // As KeyHash::absorb.
        const Words mixed = (first[g] ^ word) * KeyHash::kFirst;
        first[g] = (mixed << 13 | mixed >> 19) + second[g];
        const Words other = (second[g] ^ first[g]) * KeyHash::kSecond;
        second[g] = other << 17 | other >> 15;
      }
    }
    std::memcpy(words[0], first, sizeof first);
    std::memcpy(words[1], second, sizeof second);
    for (std::size_t i = 0; i < kBlock; i++) {
      const std::uint64_t key = KeyHash::key(words[0][i], words[1][i]);
      keys[i] = keys[i] == kMissingBit ? missing : key;
    }
  }

  static void hashKeys(std::uint64_t* keys, std::size_t count, std::uint32_t seed, std::uint64_t missing) {
    std::size_t at = 0;
    for (; count - at >= kBlock; at += kBlock) block(keys + at, seed, missing);
    if (at == count) return;
    std::uint64_t rest[kBlock] = {};
    std::memcpy(rest, keys + at, (count - at) * sizeof *rest);
    block(rest, seed, missing);
    std::memcpy(keys + at, rest, (count - at) * sizeof *rest);
  }
};

}  // namespace
}  // namespace kintsugi
