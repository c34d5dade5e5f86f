// Readers that follow increments of values have what a snapshot of all has, while rows go by steps or
// seconds, sightings decay, and policies change.
#include <functional>
#include <map>

#include "test/ruled.h"

namespace kintsugi::test {
namespace {

using Values = std::map<std::uint64_t, std::vector<float>>;  // by key

/** A reader of a shard with these thresholds. */
class Reader {
 public:
  explicit Reader(Serving serving) : serving_(serving) {}

  const Values& values() const { return values_; }

  /** Takes the next increment, or all; pushes go on between its pieces. */
  void follow(Shard& shard, bool isWhole, const std::function<void()>& meanwhile) {
    flushed(shard);
    SnapshotBegun begun;
    CHECK(!shard.beginSnapshot(isWhole ? 0 : stamp_, begun, serving_));
    stamp_ = begun.stamp;
    if (!begun.since) values_.clear();
    wasWhole_ = !begun.since;
    for (bool more = true; more; meanwhile()) {
      more = false;
      std::vector<std::uint64_t> keys, removed;
      std::vector<float> values, state;
      std::uint32_t dim = 0;
      CHECK(!shard.readSnapshot(100, [&](const Table& t, std::size_t rows, RowArrays& to) {
        more = true;
        dim = t.spec().dim;
        keys.resize(rows);
        values.resize(rows * dim);
        state.resize(rows * (t.spec().width() - dim));
        removed.resize(to.removedCount);
        to.keys = keys.data();
        to.values = reinterpret_cast<std::uint8_t*>(values.data());
        to.state = reinterpret_cast<std::uint8_t*>(state.data());
        to.removed = removed.data();
        return true;
      }));
      for (const std::uint64_t key : removed) values_.erase(key);
      for (std::size_t i = 0; i < keys.size(); i++)
        values_[keys[i]] = {values.begin() + static_cast<std::ptrdiff_t>(i * dim),
                            values.begin() + static_cast<std::ptrdiff_t>((i + 1) * dim)};
    }
  }
  bool wasWhole() const { return wasWhole_; }

 private:
  Serving serving_;
  std::uint32_t stamp_ = 0;
  bool wasWhole_ = false;
  Values values_;
};

}  // namespace

TEST(increments_bring_readers_to_what_all_rows_are) {
  Random random(seed);
  int increments = 0;
  for (int life = 0; life < 120; life++) {
    const bool seconds = random.chance(50);
    const auto drawn = [&] {
      LifePolicy policy{random.chance(60) ? 1 + random.below(20) : 0, 1 + random.below(5),
                        1 + random.below(12), 0};
      if (random.chance(70)) policy.decay = {1 + random.below(65535), 1 + random.below(9)};
      if (policy.ttl && random.chance(30)) policy.keep = 1 + random.below(30);
      if (random.chance(20)) {
        policy.faintTtl = 1 + random.below(9);
        policy.faintBelow = 1;
      }
      policy.seconds = seconds;
      return policy;
    };
    TableSpec spec = living(drawn());
    auto shard = shardWith(spec);
    const Serving serving{true, random.below(4), random.below(2) * random.below(9),
                          random.below(2) * random.below(9)};
    Reader reader(serving);
    std::uint32_t second = 0;
    const auto step = [&] {
      if (random.chance(40)) shard->tell(second += random.below(3), random.chance(70) ? kMaxDeltaBytes : 0);
      if (random.chance(3)) set(*shard, spec, drawn());
      std::vector<std::uint64_t> keys;
      for (std::uint32_t i = random.below(8); i; i--) keys.push_back(random.below(150));
      if (!random.chance(30)) pushed(*shard, gradients(spec, keys));
      if (random.chance(5)) pushed(*shard, {spec.id, 0, {random.below(150)}, {}});
    };
    for (int round = 0; round < 40; round++) {
      for (std::uint32_t i = random.below(6); i; i--) step();
      reader.follow(*shard, false, [] {});
      increments += !reader.wasWhole();
      Reader all(serving);
      all.follow(*shard, true, [] {});
      CHECK(reader.values() == all.values());
      // A snapshot while rows go has what was there when it began.
      Reader slow(serving), known(serving);
      known.follow(*shard, true, [] {});
      slow.follow(*shard, true, [&] {
        if (random.chance(50)) step();
      });
      CHECK(slow.values() == known.values());
      CHECK(shard->totalsAreRight());
    }
  }
  CHECK(increments > 500);
}

}  // namespace kintsugi::test
