// The mixing functions. All are the finalizer of splitmix64; the constants added before it keep the uses
// independent of each other: keys of one shard share the high bits of `shardHash`, and must still spread over
// the index.
#pragma once
#include <cstdint>

namespace kintsugi {

inline std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/** Placement, part of the wire format: shard = high 64 bits of shardHash(key) * shards. */
inline std::uint64_t shardHash(std::uint64_t key) { return mix64(key + 0x9E3779B97F4A7C15ull); }
inline std::uint32_t shardOf(std::uint64_t key, std::uint32_t shards) {
  return static_cast<std::uint32_t>(static_cast<unsigned __int128>(shardHash(key)) * shards >> 64);
}

/** Buckets of the index and of scratch sets: local to a process. */
inline std::uint64_t indexHash(std::uint64_t key) { return mix64(key ^ 0xD6E8FEB86659FD93ull); }

/** The random numbers of a key, by counter: initial values, part of the format. */
inline std::uint64_t drawStream(std::uint64_t seed, std::uint64_t key) {
  return mix64(mix64(seed + 0x9E3779B97F4A7C15ull) ^ mix64(key + 0xA0761D6478BD642Full));
}
inline std::uint64_t draw(std::uint64_t stream, std::uint64_t counter) {
  return mix64(stream + (counter + 1) * 0x9E3779B97F4A7C15ull);
}

/** The slot of a key among so many of all shards. A shard has those that follow one another in its range.
 * Part of the format, since shards are recovered and restored with them; so is `filterHash`. */
inline std::uint64_t lineSlot(std::uint64_t key, std::uint64_t slots) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(shardHash(key)) * slots >> 64);
}
/** Which counters of its slot a key has in a filter. */
inline std::uint64_t filterHash(std::uint64_t key) { return mix64(key + 0xC2B2AE3D27D4EB4Full); }
/** A number below `count`, of a hash. */
inline std::uint32_t below(std::uint64_t hash, std::uint32_t count) {
  return static_cast<std::uint32_t>((hash >> 32) * count >> 32);
}

}  // namespace kintsugi
