// Building requests, and a model of a table that shares nothing with the engine's slots, blocks, index and
// batches: a map from key to row. Only the row functions are the same, and those have tests of their own.
#pragma once
#include <algorithm>
#include <bit>
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

inline TableSpec withPolicy(TableSpec spec, LifePolicy policy) {
  spec.policy = policy;
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
  /** The next push that brings rows makes it the policy. */
  void set(const LifePolicy& policy) { wanted_ = policy; }
  std::vector<float> row(std::uint64_t key) const {
    const auto found = rows_.find(key);
    if (found == rows_.end() || isGone(found->second)) return initial(key);
    std::vector<float> row = found->second;
    if (spec_.policy.any()) setLife(row, clock_ - lifeOf(row).first, lifeOf(row).second);
    return row;
  }
  std::size_t size() const {
    return static_cast<std::size_t>(
        std::count_if(rows_.begin(), rows_.end(), [&](const auto& each) { return !isGone(each.second); }));
  }

  void push(std::uint32_t mode, const PartData& data) {
    if (data.width && !data.keys.empty()) follow();
    std::map<std::uint64_t, std::vector<float>> sums;
    std::map<std::uint64_t, std::uint32_t> sightings;
    for (std::size_t i = 0; i < data.keys.size(); i++) {
      if (!data.width) {
        rows_.erase(data.keys[i]);
        touched_.push_back(data.keys[i]);
        continue;
      }
      const float* row = data.rows.data() + i * data.width;
      if (mode) {
        rows_[data.keys[i]].assign(row, row + data.width);
        if (spec_.policy.any()) {
          const auto [age, seen] = lifeOf(rows_[data.keys[i]]);
          setLife(rows_[data.keys[i]], clock_ - std::min(age, kMostAge),
                  seen ? std::min(kMostSteps, seen) : std::max(1u, spec_.policy.admitAt));
        }
        touched_.push_back(data.keys[i]);
        continue;
      }
      auto [sum, added] = sums.try_emplace(data.keys[i], row, row + data.width);
      sightings[data.keys[i]]++;
      for (std::uint32_t x = 0; !added && x < data.width; x++) sum->second[x] += row[x];
    }
    OptimizerParams optimizer = spec_.optimizer;
    if (data.lr != kNoRate) optimizer.lr = rateOf(data.lr);
    for (const auto& [key, sum] : sums) {
      std::vector<float> now = row(key);
      const std::uint32_t seen = spec_.policy.any()
                                     ? std::min(kMostSteps, lifeOf(now).second + sightings[key])
                                     : spec_.policy.admitAt;
      if (seen >= spec_.policy.admitAt)
        updateRowScalar(optimizer, now.data(), now.data() + spec_.dim, sum.data(), spec_.dim);
      if (spec_.policy.any()) setLife(now, clock_ + 1, seen);
      rows_[key] = now;
      touched_.push_back(key);
    }
    if (!mode && data.width && !data.keys.empty()) clock_++;
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
    sentClock_ = clock_;
    sentPolicy_ = spec_.policy;
  }
  /** The owner died: rows are again what was sent last. */
  void lose() {
    rows_ = sent_;
    clock_ = sentClock_;
    spec_.policy = sentPolicy_;
    touched_.clear();
  }

 private:
  /** Rows that are gone under the old policy are gone for good. */
  void follow() {
    if (wanted_ == spec_.policy) return;
    for (auto at = rows_.begin(); at != rows_.end();) {
      const auto row = at++;
      if (!isGone(row->second)) continue;
      touched_.push_back(row->first);
      rows_.erase(row);
    }
    spec_.policy = wanted_;
  }
  std::vector<float> initial(std::uint64_t key) const {
    std::vector<float> row(spec_.width());
    initialValues(spec_, key, row.data());
    initialState(spec_, row.data() + spec_.dim);
    return row;
  }

  /** The last step and the sightings of a whole row. */
  static std::pair<std::uint32_t, std::uint32_t> lifeOf(const std::vector<float>& row) {
    return {std::bit_cast<std::uint32_t>(row[row.size() - 2]), std::bit_cast<std::uint32_t>(row.back())};
  }
  static void setLife(std::vector<float>& row, std::uint32_t last, std::uint32_t seen) {
    row[row.size() - 2] = std::bit_cast<float>(last);
    row.back() = std::bit_cast<float>(seen);
  }
  bool isGone(const std::vector<float>& row) const {
    const LifePolicy& policy = spec_.policy;
    if (!policy.any()) return false;
    const auto [last, seen] = lifeOf(row);
    return (policy.ttl && clock_ > last + policy.ttl) ||
           (policy.rareTtl && seen < policy.rareBelow && clock_ > last + policy.rareTtl);
  }

  TableSpec spec_;
  LifePolicy wanted_ = spec_.policy, sentPolicy_ = spec_.policy;
  std::uint32_t clock_ = kFirstStep, sentClock_ = kFirstStep;
  std::map<std::uint64_t, std::vector<float>> rows_, sent_;
  std::vector<std::uint64_t> touched_;
};

}  // namespace kintsugi::test
