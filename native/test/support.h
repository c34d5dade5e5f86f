// Building requests, and a model of a table that shares nothing with the engine's slots, blocks, index and
// batches: a map from key to row. Only the row functions are the same, and those have tests of their own.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <set>
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

inline LifePolicy filtered(Filter filter, std::uint32_t ttl = 0) {
  LifePolicy policy;
  policy.filter = filter;
  if (!filter.line) policy.filter.line = filter.slots;
  policy.ttl = ttl;
  return policy;
}

/** `part` of 16. */
inline LifePolicy byChance(std::uint64_t part, std::uint32_t ttl = 0) {
  LifePolicy policy;
  policy.chance = part << 28;
  policy.ttl = ttl;
  return policy;
}

/** So many rows at most, and scores. */
inline LifePolicy scored(std::uint32_t maxRows, std::uint32_t ttl = 0) {
  LifePolicy policy;
  policy.maxRows = maxRows;
  policy.ttl = ttl;
  policy.score = true;
  return policy;
}

struct PartData {
  std::uint32_t table = 0, width = 0;
  std::vector<std::uint64_t> keys;
  std::vector<float> rows;
  std::uint32_t lr = kNoRate;
  std::vector<std::uint32_t> counts = {};  // of the keys; empty: none
  std::vector<float> scores = {};          // the same

  std::uint32_t count(std::size_t i) const { return counts.empty() ? 1 : counts[i]; }
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
                     orders[i].data(), 0, d.keys.size(), d.lr, d.counts.empty() ? nullptr : d.counts.data(),
                     d.scores.empty() ? nullptr : d.scores.data()});
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

/** Counters of keys that have no row: of every slot a list, where nobody saves memory. */
class FilterModel {
 public:
  /** Sightings of a key as its lowest counter has them. */
  std::uint32_t countOf(const TableSpec& spec, std::uint64_t key) const {
    std::uint32_t least = kMostCounter;
    for (const auto& at : countersOf(spec, key)) {
      const auto found = counters_.find(at);
      least = std::min(least, found == counters_.end() ? 0 : found->second);
    }
    return least;
  }
  /** Full counters stay. */
  void change(const TableSpec& spec, std::uint64_t key, std::int64_t by) {
    for (const auto& at : countersOf(spec, key)) {
      std::uint32_t& counter = counters_[at];
      if (counter == kMostCounter) continue;
      counter = static_cast<std::uint32_t>(std::clamp<std::int64_t>(counter + by, 0, kMostCounter));
    }
  }
  /** So many sightings of waiting keys come. Slots that have their turn begin again. */
  void wait(const Filter& filter, std::uint64_t sightings) {
    const std::uint64_t lap = filter.capacity / 2;
    for (; sightings; sightings--) {
      const std::uint64_t before = turn(filter, waiting_, lap);
      const std::uint64_t after = turn(filter, ++waiting_, lap);
      for (std::uint64_t i = before; i < after; i++) {
        const auto slot = static_cast<std::uint32_t>(i % filter.slots);
        std::erase_if(counters_, [&](const auto& each) { return each.first.first == slot; });
      }
    }
  }

 private:
  using At = std::pair<std::uint32_t, std::uint32_t>;
  static std::uint64_t turn(const Filter& filter, std::uint64_t waiting, std::uint64_t lap) {
    return waiting < lap ? 0 : (waiting - lap) * filter.slots / lap;
  }
  static std::set<At> countersOf(const TableSpec& spec, std::uint64_t key) {
    std::set<At> all;
    std::uint64_t hash = filterHash(key);
    const Filter& filter = spec.policy.filter;
    const auto slot = static_cast<std::uint32_t>(lineSlot(key, filter.line) - filter.first);
    for (std::uint32_t i = 0; i < spec.policy.filter.hashes; i++) {
      hash = mix64(hash + 0x9E3779B97F4A7C15ull);
      all.emplace(slot, below(hash, spec.stride()));
    }
    return all;
  }

  std::map<At, std::uint32_t> counters_;
  std::uint64_t waiting_ = 0;
};

class TableModel {
 public:
  explicit TableModel(const TableSpec& spec) : spec_(spec) {}

  const TableSpec& spec() const { return spec_; }
  /** The next push that brings rows makes it the policy, or `pass`. */
  void set(const LifePolicy& policy) { wanted_ = policy; }
  /** The owner hears of a second of the job. */
  void tell(std::uint32_t seconds) { seconds_ = std::max(seconds_, seconds); }
  /** Time went on without a push. `begins`: so did the policy that is to be. */
  void pass(std::uint32_t clock, bool begins) {
    clock_ = clock;
    if (begins) follow();
  }
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
    const bool brings = data.width && !data.keys.empty();
    if (brings && spec_.policy.seconds) clock_ = std::max(clock_, kFirstStep + seconds_);
    if (brings) follow();
    const std::uint32_t step = spec_.policy.seconds ? clock_ : clock_ + 1;
    std::map<std::uint64_t, std::vector<float>> sums;
    std::map<std::uint64_t, std::uint32_t> sightings;
    std::map<std::uint64_t, float> scores;
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
        if (spec_.policy.score) scoreOf(rows_[data.keys[i]]) = asScore(scoreOf(rows_[data.keys[i]]));
        touched_.push_back(data.keys[i]);
        continue;
      }
      auto [sum, added] = sums.try_emplace(data.keys[i], row, row + data.width);
      const std::uint64_t count = std::uint64_t{sightings[data.keys[i]]} + data.count(i);
      sightings[data.keys[i]] = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, ~0u));
      for (std::uint32_t x = 0; !added && x < data.width; x++) sum->second[x] += row[x];
      if (data.scores.empty()) continue;
      const auto [score, isFirst] = scores.try_emplace(data.keys[i], data.scores[i]);
      if (!isFirst) score->second = std::max(score->second, data.scores[i]);
    }
    std::map<std::uint64_t, std::uint32_t> begun;
    const bool isStep = !mode && data.width && spec_.policy.filters();
    const std::set<std::uint64_t> refused =
        isStep ? refusedOf(data, sightings, begun) : std::set<std::uint64_t>{};
    OptimizerParams optimizer = spec_.optimizer;
    if (data.lr != kNoRate) optimizer.lr = rateOf(data.lr);
    for (const auto& [key, sum] : sums) {
      if (refused.count(key)) continue;
      std::vector<float> now = row(key);
      std::uint32_t seen = spec_.policy.admitAt;
      if (spec_.policy.any()) {
        const auto found = rows_.find(key);
        const bool isThere = found != rows_.end() && !isGone(found->second);
        const std::uint64_t all =
            std::uint64_t{isThere ? left(found->second, step) : 0} + sightings[key] + begun[key];
        seen = static_cast<std::uint32_t>(std::min<std::uint64_t>(all, kMostSteps));
      }
      if (seen >= spec_.policy.admitAt)
        updateRowScalar(optimizer, now.data(), now.data() + spec_.dim, sum.data(), spec_.dim);
      if (spec_.policy.any()) setLife(now, step, seen);
      if (scores.count(key)) scoreOf(now) = asScore(scores[key]);
      rows_[key] = now;
      touched_.push_back(key);
    }
    if (mode || !brings) return;
    clock_ = step;
    pushes_++;
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
    sentPushes_ = pushes_;
    sentFilter_ = filter_;
    sentPolicy_ = spec_.policy;
  }
  /** The owner died: rows are again what was sent last. */
  void lose() {
    rows_ = sent_;
    clock_ = sentClock_;
    pushes_ = sentPushes_;
    seconds_ = 0;
    filter_ = sentFilter_;
    spec_.policy = sentPolicy_;
    touched_.clear();
  }

 private:
  /** Keys of a push that get no row. `begun`: sightings that others had before. */
  std::set<std::uint64_t> refusedOf(const PartData& data, std::map<std::uint64_t, std::uint32_t>& sightings,
                                    std::map<std::uint64_t, std::uint32_t>& begun) {
    const LifePolicy& policy = spec_.policy;
    std::set<std::uint64_t> refused;
    std::vector<std::uint64_t> unknown;
    for (const std::uint64_t key : data.keys) {
      const auto found = rows_.find(key);
      if (found != rows_.end() && !isGone(found->second)) continue;
      if (std::find(unknown.begin(), unknown.end(), key) != unknown.end()) continue;
      unknown.push_back(key);
      bool admitted = false;
      if (policy.chance) {
        const std::uint64_t stream = drawStream(spec_.seed ^ 0x94D049BB133111EBull, key);
        const std::uint32_t number = policy.seconds ? pushes_ + 1 : clock_ + 1;
        // So many draws hit in every test.
        admitted = sightings[key] > 999;
        for (std::uint64_t i = 0; i < sightings[key] && !admitted; i++)
          admitted |= draw(stream, std::uint64_t{number} << 32 | i) >> 32 < policy.chance;
      } else {
        begun[key] = filter_.countOf(spec_, key);
        admitted = begun[key] + sightings[key] >= policy.filter.admitAt;
      }
      if (!admitted) refused.insert(key);
    }
    if (policy.chance) return refused;
    std::uint64_t waiting = 0;
    for (const std::uint64_t key : refused) waiting += sightings[key];
    filter_.wait(policy.filter, waiting);
    for (const std::uint64_t key : unknown)
      filter_.change(spec_, key,
                     refused.count(key) ? std::int64_t{sightings[key]}
                                        : -std::int64_t{std::min(begun[key], policy.filter.admitAt - 1)});
    return refused;
  }

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
  static float& scoreOf(std::vector<float>& row) { return row[row.size() - 3]; }
  /** As a row has it: finite, and no negative zero. */
  static float asScore(float score) { return std::isfinite(score) ? score + 0.0f : 0; }
  /** The sightings of a row as they count at this clock: its own multiplication, one by one where few. */
  std::uint32_t left(const std::vector<float>& row, std::uint32_t clock) const {
    const auto [last, seen] = lifeOf(row);
    const Decay& decay = spec_.policy.decay;
    if (!decay.every || clock <= last) return seen;
    const std::uint32_t times = clock / decay.every - last / decay.every;
    long double part = 1;
    for (std::uint32_t i = 0; i < std::min(times, 40'000u); i++) part *= decay.factor / 65536.0L;
    return static_cast<std::uint32_t>(part * seen + 0.5L);
  }
  double normOf(const std::vector<float>& row) const {
    double squares = 0;
    for (std::uint32_t i = 0; i < spec_.dim; i++) squares += double{row[i]} * double{row[i]};
    return std::sqrt(squares);
  }
  bool isGone(const std::vector<float>& row) const {
    const LifePolicy& policy = spec_.policy;
    if (!policy.any()) return false;
    const std::uint32_t last = lifeOf(row).first;
    return (policy.ttl && clock_ > last + policy.ttl) ||
           (policy.rareTtl && left(row, clock_) < policy.rareBelow && clock_ > last + policy.rareTtl) ||
           (policy.faintTtl && clock_ > last + policy.faintTtl && normOf(row) < policy.faintBelow);
  }

  TableSpec spec_;
  LifePolicy wanted_ = spec_.policy, sentPolicy_ = spec_.policy;
  std::uint32_t clock_ = kFirstStep, sentClock_ = kFirstStep;
  std::uint32_t pushes_ = 0, sentPushes_ = 0, seconds_ = 0;
  std::map<std::uint64_t, std::vector<float>> rows_, sent_;
  std::vector<std::uint64_t> touched_;
  FilterModel filter_, sentFilter_;
};

}  // namespace kintsugi::test
