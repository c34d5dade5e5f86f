// Building requests, and a model of a table that shares nothing with the engine's slots, blocks, index and
// batches: a map from key to row. Only the row functions are the same, and those have tests of their own.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "engine/router.h"
#include "engine/shard.h"
#include "engine/table_spec.h"
#include "kernels/rows.h"
#include "test/harness.h"

namespace kintsugi::test {

using Bytes = std::vector<std::uint8_t>;

inline TableSpec tableSpec(std::uint32_t id, std::uint32_t dim, OptimizerKind kind, InitializerKind start) {
  TableSpec spec;
  spec.id = id;
  spec.dim = dim;
  spec.seed = 1000 + id;
  spec.optimizer.kind = kind;
  spec.optimizer.lr = 0.1f;
  spec.optimizer.momentum = 0.9f;
  spec.optimizer.eps = 1e-8f;
  spec.optimizer.initialAccumulator = 0.1f;
  spec.optimizer.beta1 = 0.9;
  spec.optimizer.beta2 = 0.999;
  spec.optimizer.weightDecay = 0.1;
  spec.optimizer.beta = 1;
  spec.optimizer.l1 = 0.01;
  spec.optimizer.l2 = 0.1;
  spec.initializer = {start, -0.5, 0.5};
  return spec;
}

/** With a largest norm, and a schedule that rows count steps for. */
inline TableSpec scheduled(TableSpec spec) {
  spec.optimizer.clipNorm = 1.5;
  spec.optimizer.schedule = {ScheduleKind::Cosine, 2, 30, 0.1};
  return spec;
}

struct PartData {
  std::uint32_t table = 0, width = 0;
  std::vector<std::uint64_t> keys;
  std::vector<float> rows;
  std::uint32_t lr = kNoRate;
};

inline Bytes encode(std::uint32_t mode, const std::vector<PartData>& data, bool withRows) {
  std::vector<SectionPart> parts;
  std::vector<std::vector<std::uint32_t>> orders(data.size());
  for (std::size_t i = 0; i < data.size(); i++) {
    const PartData& d = data[i];
    for (std::uint32_t k = 0; k < d.keys.size(); k++) orders[i].push_back(k);
    static const float nothing = 0;
    const float* rows = d.rows.empty() ? &nothing : d.rows.data();
    parts.push_back({d.table, d.width, d.keys.data(), withRows ? rows : nullptr, d.keys.size(),
                     orders[i].data(), 0, d.keys.size(), d.lr});
  }
  Bytes section(requestBytes(parts));
  CHECK(encodeRequest(mode, parts, section.data()));
  return section;
}

/** Runs a call that answers through an allocator. */
template <class Call>
Bytes answerOf(Call call) {
  Bytes bytes;
  call([&](std::size_t size) {
    bytes.resize(size + 1);  // never nullptr
    bytes.resize(size);
    return bytes.data();
  });
  return bytes;
}

inline Bytes flushed(Shard& shard) {
  return answerOf([&](const Allocate& allocate) { shard.flush(allocate); });
}

inline View view(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }
inline BlockList list(const BlockPairs& pairs) { return {pairs.data(), pairs.size() / 2}; }

class TableModel {
 public:
  explicit TableModel(const TableSpec& spec) : spec_(spec) {}

  const TableSpec& spec() const { return spec_; }
  std::vector<float> row(std::uint64_t key) const {
    const auto found = rows_.find(key);
    return found == rows_.end() ? initial(key) : found->second;
  }
  std::size_t size() const { return rows_.size(); }

  void push(std::uint32_t mode, const PartData& data) {
    std::map<std::uint64_t, std::vector<float>> sums;
    for (std::size_t i = 0; i < data.keys.size(); i++) {
      if (!data.width) {
        rows_.erase(data.keys[i]);
        touched_.push_back(data.keys[i]);
        continue;
      }
      const float* row = data.rows.data() + i * data.width;
      if (mode) {
        rows_[data.keys[i]].assign(row, row + data.width);
        touched_.push_back(data.keys[i]);
        continue;
      }
      auto [sum, added] = sums.try_emplace(data.keys[i], row, row + data.width);
      for (std::uint32_t x = 0; !added && x < data.width; x++) sum->second[x] += row[x];
    }
    OptimizerParams optimizer = spec_.optimizer;
    if (data.lr != kNoRate) optimizer.lr = rateOf(data.lr);
    for (const auto& [key, sum] : sums) {
      std::vector<float> now = row(key);
      updateRowScalar(optimizer, now.data(), now.data() + spec_.dim, sum.data(), spec_.dim);
      rows_[key] = now;
      touched_.push_back(key);
    }
  }

  /** The row is as if it had never been. */
  void forget(std::uint64_t key) { rows_.erase(key); }
  /** The owner has sent its rows as a delta. */
  void send() {
    for (const std::uint64_t key : touched_) {
      sent_.erase(key);
      if (const auto found = rows_.find(key); found != rows_.end()) sent_.insert(*found);
    }
    touched_.clear();
  }
  /** The owner died: rows are again what was sent last. */
  void lose() {
    rows_ = sent_;
    touched_.clear();
  }

 private:
  std::vector<float> initial(std::uint64_t key) const {
    std::vector<float> row(spec_.width());
    initialValues(spec_, key, row.data());
    initialState(spec_, row.data() + spec_.dim);
    return row;
  }

  TableSpec spec_;
  std::map<std::uint64_t, std::vector<float>> rows_, sent_;
  std::vector<std::uint64_t> touched_;
};

}  // namespace kintsugi::test
