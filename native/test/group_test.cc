// Random operations on a whole group (group.h): lost members that are recovered while others go on pushing,
// lost parities that are rebuilt under traffic, deltas that are taken back and applied again. After each
// story every row is compared bit for bit with the model, and every parity block with the sum of its members.
#include "test/group.h"

#include <algorithm>
#include <numeric>

namespace kintsugi::test {
namespace {

constexpr std::uint32_t kKeySpace = 3000;

/** Rows go by seconds, and sightings decay. */
LifePolicy timely() {
  LifePolicy policy{9, 3, 4, 0};
  policy.seconds = true;
  policy.decay = {40'000, 3};
  return policy;
}

class Story : public Group {
 public:
  Story(std::uint64_t seed, std::uint32_t k, std::uint32_t r)
      : Group(k, r,
              {scheduled(tableSpec(0, 5, OptimizerKind::Adagrad, InitializerKind::Uniform)),
               scheduled(tableSpec(3, 16, OptimizerKind::AdamW, InitializerKind::Normal)),
               tableSpec(4, 7, OptimizerKind::Ftrl, InitializerKind::Zeros),
               withPolicy(tableSpec(5, 6, OptimizerKind::Adagrad, InitializerKind::Uniform), {9, 3, 5, 2}),
               withPolicy(tableSpec(6, 3, OptimizerKind::Momentum, InitializerKind::Normal), {4, 0, 0, 0}),
               withPolicy(tableSpec(8, 6, OptimizerKind::Adagrad, InitializerKind::Uniform),
                          filtered({3, 40, 4, 900}, 9)),
               withPolicy(tableSpec(9, 2, OptimizerKind::Sgd, InitializerKind::Normal), byChance(4, 6)),
               tableSpec(7, 1200, OptimizerKind::Sgd, InitializerKind::Zeros),
               withPolicy(tableSpec(10, 5, OptimizerKind::Adagrad, InitializerKind::Normal),
                          scored(1u << 30, 20)),
               withPolicy(tableSpec(11, 4, OptimizerKind::Adagrad, InitializerKind::Uniform), timely())}),
        random_(seed) {}

  void run(int steps) {
    for (int step = 0; step < steps; step++) {
      const std::uint32_t what = random_.below(100), m = random_.below(k_);
      if (what < 3) {
        tell(m, second_ += random_.below(3), random_.chance(50) ? kMaxDeltaBytes : 0);
      } else if (what < 60) {
        push(m);
      } else if (what < 85) {
        flush(m);
      } else if (what < 90) {
        rebuildSink(random_.below(r_));
      } else if (what < 92) {
        // With a ttl, so that rows that are given as a whole, which are very old, are gone.
        TableSpec& spec = specs_[3 + random_.below(4)];
        const std::uint32_t below = random_.chance(30) ? 0 : 2 + random_.below(2);
        LifePolicy policy{1 + random_.below(12), below, 1 + random_.below(9), random_.below(3)};
        policy.filter = spec.policy.filter;
        if (policy.filter.admitAt) policy.admitAt = 0;
        if (!policy.filter.admitAt && random_.chance(30)) policy = byChance(1 + random_.below(8), policy.ttl);
        setPolicy(spec, policy);
      } else if (what < 97) {
        recover(1 + random_.below(std::min(r_, k_)));
      } else {
        checkParities();
      }
    }
    std::vector<std::uint64_t> all(kKeySpace);
    std::iota(all.begin(), all.end(), 0);
    for (std::uint32_t m = 0; m < k_; m++) compare(m, all);
    checkParities();
  }

 private:
  /** With accumulators in flight a delta is not taken back. */
  int timesOf(Sink& sink) override { return sink.accumulators() || !random_.chance(20) ? 1 : 3; }

  PartData randomPart(const TableSpec& spec, std::uint32_t mode) {
    PartData part;
    part.table = spec.id;
    part.width = random_.chance(15) ? 0 : mode ? spec.width() : spec.dim;
    const std::uint32_t count = random_.below(spec.dim > 1000 ? 4 : 60);
    for (std::uint32_t i = 0; i < count; i++) {
      part.keys.push_back(random_.chance(10) && i ? part.keys[random_.below(i)]
                                                  : random_.below(spec.dim > 1000 ? 40 : kKeySpace));
      for (std::uint32_t x = 0; x < part.width; x++) part.rows.push_back(random_.real());
    }
    if (part.width && !mode && !optimizerOf(spec.optimizer.kind).fixedRate && random_.chance(40))
      part.lr = rateBits(static_cast<float>(random_.below(5)) * 0.07f);
    if (part.width && !mode && spec.policy.any() && random_.chance(40))
      for (std::uint32_t i = 0; i < count; i++)
        part.counts.push_back(random_.chance(5) ? ~random_.below(1 << 20) : 1 + random_.below(4));
    if (part.width && !mode && spec.policy.score && random_.chance(60))
      for (std::uint32_t i = 0; i < count; i++)
        part.scores.push_back(random_.chance(10) ? -0.0f : random_.real());
    return part;
  }

  bool push(std::uint32_t m) {
    const std::uint32_t mode = random_.chance(15) ? 1 : 0;
    std::vector<PartData> parts;
    for (const TableSpec& spec : specs_) {
      if (random_.chance(60)) parts.push_back(randomPart(spec, mode));
    }
    return pushParts(m, mode, parts);
  }

  void fillSink(Sink& sink) {
    push(random_.below(k_));
    flush(random_.below(k_));
    for (std::uint32_t m = 0; m < k_; m++) include(sink, m, 1 + random_.below(5));
  }

  void rebuildSink(std::uint32_t j) {
    replaceSink(j);
    while (!sinks_[j]->complete()) fillSink(*sinks_[j]);
  }

  /** Loses `count` members at once and brings them back while everybody goes on pushing. */
  void recover(std::uint32_t count) {
    std::vector<std::uint32_t> lost;
    while (lost.size() < count) {
      const std::uint32_t m = random_.below(k_);
      if (std::find(lost.begin(), lost.end(), m) == lost.end()) lost.push_back(m);
    }
    // With a parity to spare, one of them is half rebuilt when the members are lost.
    Sink* partial = nullptr;
    if (count < r_) {
      const std::uint32_t j = random_.below(r_);
      replaceSink(j);
      partial = sinks_[j].get();
      for (std::uint32_t i = random_.below(4); i; i--) fillSink(*partial);
    }
    for (const std::uint32_t m : lost) replaceMember(m);
    for (bool left = true; left;) {
      left = false;
      push(random_.below(k_));
      if (random_.chance(30)) flush(random_.below(k_));
      for (const std::uint32_t m : lost) left |= recoverSome(m);
      if (partial) fillSink(*partial);
    }
    while (partial && !partial->complete()) fillSink(*partial);
    for (const std::uint32_t m : lost) CHECK(members_[m].shard->keysReady());
  }

  bool recoverSome(std::uint32_t m) {
    Shard& shard = *members_[m].shard;
    BlockPairs wanted;
    if (!push(m)) wanted = shard.missing();
    const ColumnKind kind = shard.absentBlocks(kKeys) ? kKeys : kRows;
    BlockPairs swept;
    shard.nextAbsent(kind, 1 + random_.below(8), swept);
    wanted.insert(wanted.end(), swept.begin(), swept.end());
    CHECK_EQ(wanted.empty(), absent(m) == 0);
    for (std::uint32_t j = 0; j < r_; j++) {
      if (random_.chance(25)) continue;  // not every parity is asked in every round
      askParity(j, m, wanted, [&](std::uint32_t) {
        if (random_.chance(30)) push(random_.below(k_));
        if (random_.chance(30)) flush(random_.below(k_));
      });
      CHECK_EQ(deliver(j), 0u);
    }
    return absent(m) > 0;
  }

  void checkParities() {
    for (auto& sink : sinks_) checkParity(*sink, [&](std::uint32_t m) { push(m); });
  }

  Random random_;
  std::uint32_t second_ = 0;
};

TEST(groupSurvives) {
  const std::uint32_t codes[][2] = {{1, 1}, {2, 1}, {4, 2}, {3, 3}, {5, 4}};
  for (const auto& code : codes) Story(seed * 100 + code[0] * 10 + code[1], code[0], code[1]).run(120);
}

}  // namespace
}  // namespace kintsugi::test
