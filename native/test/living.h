// A table with a policy, pushes to it, and its whole rows.
#pragma once
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "test/support.h"

namespace kintsugi::test {

inline TableSpec living(LifePolicy policy) {
  return withPolicy(tableSpec(3, 5, OptimizerKind::Adagrad, InitializerKind::Uniform), policy);
}

inline std::unique_ptr<Shard> shardWith(const TableSpec& spec) {
  auto shard = std::make_unique<Shard>(std::make_shared<Memory>(0), 0, 1, 1);
  CHECK(!shard->addTable(spec));
  return shard;
}

inline PartData gradients(const TableSpec& spec, std::vector<std::uint64_t> keys, float value = 0.5f) {
  PartData part{spec.id, spec.dim, std::move(keys), {}};
  part.rows.assign(part.keys.size() * spec.dim, value);
  return part;
}

/** As an owner does: a push that finds no room in the open batch comes again after it. Returns the batches
 * that ended for it. */
inline int pushed(Shard& shard, const PartData& part, std::uint32_t mode = 0) {
  for (int ended = 0;; ended++) {
    const Status status = shard.push(view(encode(mode, {part}, true)));
    if (status != Status::BatchFull) {
      CHECK(status == Status::Applied);
      return ended;
    }
    CHECK(shard.dirty());
    flushed(shard);
  }
}

/** Keys that follow one another. */
inline std::vector<std::uint64_t> range(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

/** The key has a row, gone or not. */
inline bool has(const Shard& shard, const TableSpec& spec, std::uint64_t key) {
  return shard.table(spec.id)->index().find(key + 1) != kNone;
}

inline std::vector<float> rowOf(Shard& shard, const TableSpec& spec, std::uint64_t key) {
  const PartData part{spec.id, spec.width(), {key}, {}};
  Status status = Status::Absent;
  const Bytes bytes = answerOf(
      [&](const Allocate& allocate) { status = shard.pull(view(encode(1, {part}, false)), allocate); });
  CHECK(status == Status::Applied);
  std::vector<float> row(spec.width());
  std::memcpy(row.data(), bytes.data(), row.size() * 4);
  return row;
}

}  // namespace kintsugi::test
