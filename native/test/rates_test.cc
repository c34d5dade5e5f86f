// The learning rate that a push brings for a table, and settings of a table that change.
#include <cstring>
#include <memory>

#include "engine/sections.h"
#include "test/support.h"

namespace kintsugi::test {
namespace {

PartData part(std::uint32_t table, std::uint32_t width, std::vector<std::uint64_t> keys, float value) {
  PartData data{table, width, std::move(keys), {}};
  data.rows.assign(data.keys.size() * width, value);
  return data;
}

TEST(aPushMayHaveItsOwnRate) {
  for (const Optimizer& optimizer : kOptimizers) {
    TableSpec given = tableSpec(1, 5, optimizer.kind, InitializerKind::Uniform), other = given;
    if (!optimizer.fixedRate) given = scheduled(given);
    other = given;
    for (const float rate : {0.0f, 0.3f, 1e-40f, 3e38f}) {
      other.optimizer.lr = rate;
      const auto memory = std::make_shared<Memory>(0);
      Shard one(memory, 0, 1, 1), two(memory, 0, 1, 1);
      CHECK(!one.addTable(given) && !two.addTable(other));
      CHECK(!one.addTable(tableSpec(2, 1, OptimizerKind::Sgd, InitializerKind::Zeros)));
      CHECK(!two.addTable(tableSpec(2, 1, OptimizerKind::Sgd, InitializerKind::Zeros)));
      // The table behind it in the section has the rate that it always had.
      PartData rated = part(1, 5, {1, 2, 1}, 0.25f);
      rated.lr = rateBits(rate);
      const Bytes section = encode(0, {rated, part(2, 1, {1}, 1)}, true);
      if (optimizer.fixedRate) {
        CHECK(one.push(view(section)) == Status::BadArgument);
        CHECK(!one.dirty() && one.rows() == 0);
        continue;
      }
      CHECK(one.push(view(section)) == Status::Applied);
      CHECK(two.push(view(encode(0, {part(1, 5, {1, 2, 1}, 0.25f), part(2, 1, {1}, 1)}, true))) ==
            Status::Applied);
      CHECK(flushed(one) == flushed(two));
    }
  }
}

TEST(aTableTakesAnotherRate) {
  for (const Optimizer& optimizer : kOptimizers) {
    TableSpec given = tableSpec(1, 5, optimizer.kind, InitializerKind::Uniform);
    if (!optimizer.fixedRate) given = scheduled(given);
    TableSpec other = given, wider = given;
    other.optimizer.lr = 0.3f;
    wider.dim++;
    const auto memory = std::make_shared<Memory>(0);
    Shard changed(memory, 0, 1, 1), before(memory, 0, 1, 1), follower(memory, 0, 1, 1);
    for (Shard* shard : {&changed, &before, &follower}) CHECK(!shard->addTable(given));
    const Bytes section = encode(0, {part(1, 5, {1, 2}, 0.25f)}, true);
    CHECK(changed.push(view(section)) == Status::Applied);
    CHECK(before.push(view(section)) == Status::Applied);
    CHECK(changed.addTable(wider));
    CHECK(static_cast<bool>(changed.addTable(other)) == optimizer.fixedRate);
    const double lr = optimizer.fixedRate ? given.optimizer.lr : other.optimizer.lr;
    CHECK(changed.table(1)->spec().optimizer.lr == lr);
    // The first push of the batch has the old rate, and the second one has the new rate.
    CHECK(changed.push(view(section)) == Status::Applied);
    PartData rated = part(1, 5, {1, 2}, 0.25f);
    rated.lr = rateBits(static_cast<float>(lr));
    const bool isPlain = optimizer.fixedRate;
    CHECK(before.push(view(isPlain ? section : encode(0, {rated}, true))) == Status::Applied);
    const Bytes delta = flushed(changed);
    CHECK(delta == flushed(before));
    // A shard that follows it needs no rate.
    CHECK(follower.applyDelta(view(delta)) == Status::Applied);
    const Bytes question = encode(0, {part(1, 5, {1, 2}, 0)}, false);
    const auto rows = [&](Shard& shard) {
      return answerOf([&](const Allocate& to) { CHECK(shard.pull(view(question), to) == Status::Applied); });
    };
    CHECK(rows(follower) == rows(changed));
  }
}

/** Shards that took a push with the settings of `given`; the next push has those of `other`, and is compared
 * with that of a shard that has them from the start, and with those rows. */
void checkSettings(const TableSpec& given, const TableSpec& other) {
  const auto memory = std::make_shared<Memory>(0);
  Shard changed(memory, 0, 1, 1), reference(memory, 0, 1, 1);
  CHECK(!changed.addTable(given) && !reference.addTable(other));
  const Bytes section = encode(0, {part(1, 5, {1, 2}, 1.25f)}, true);
  CHECK(changed.push(view(section)) == Status::Applied);
  PartData whole = part(1, given.width(), {1, 2}, 0);
  const Bytes question = encode(1, {part(1, given.width(), {1, 2}, 0)}, false);
  const auto rows = [&](Shard& shard) {
    return answerOf([&](const Allocate& to) { CHECK(shard.pull(view(question), to) == Status::Applied); });
  };
  const Bytes before = rows(changed);
  CHECK(before.size() == whole.rows.size() * 4);
  std::memcpy(whole.rows.data(), before.data(), before.size());
  CHECK(reference.push(view(encode(1, {whole}, true))) == Status::Applied);
  CHECK(!changed.addTable(other));
  CHECK(rows(changed) == before);
  // The batch is open: its first push had the old settings.
  for (Shard* shard : {&changed, &reference}) CHECK(shard->push(view(section)) == Status::Applied);
  CHECK(rows(changed) == rows(reference));
}

TEST(aTableTakesOtherSettings) {
  for (const Optimizer& optimizer : kOptimizers) {
    const TableSpec plain = tableSpec(1, 5, optimizer.kind, InitializerKind::Uniform);
    TableSpec clipped = plain, counted = plain, both = plain;
    clipped.optimizer.clipNorm = 0.5;
    checkSettings(plain, clipped);
    checkSettings(clipped, plain);
    counted.optimizer.schedule = {ScheduleKind::Cosine, 2, 30, 0.1};
    both.optimizer.schedule = {ScheduleKind::Step, 0, 1, 0.5};
    both.optimizer.clipNorm = 0.5;
    if (optimizer.fixedRate) continue;
    both.optimizer.lr = 0.3f;
    checkSettings(counted, both);
    const auto memory = std::make_shared<Memory>(0);
    Shard shard(memory, 0, 1, 1);
    CHECK(!shard.addTable(plain));
    // Rows that count no steps have no place for a count.
    CHECK(static_cast<bool>(shard.addTable(counted)) == !optimizer.countsSteps);
    if (!optimizer.countsSteps) continue;
    checkSettings(plain, both);
    checkSettings(both, plain);
  }
}

TEST(ratesThatAreNone) {
  const auto memory = std::make_shared<Memory>(0);
  Shard shard(memory, 0, 1, 1);
  CHECK(!shard.addTable(tableSpec(1, 8, OptimizerKind::Adagrad, InitializerKind::Uniform)));
  for (const std::uint32_t bits :
       {0x7F800000u, 0x7FC00000u, 0xFFC00000u, 0xFF800000u, 0x80000001u, 0xBF800000u}) {
    PartData rated = part(1, 8, {1}, 1);
    rated.lr = bits;
    CHECK(shard.push(view(encode(0, {rated}, true))) == Status::BadFrame);
  }
  PartData rated = part(1, 8, {1}, 1);
  rated.lr = rateBits(0.5f);
  const Bytes question = encode(0, {rated}, false);
  CHECK(shard.pull(view(question), [](std::size_t) { return nullptr; }) == Status::BadFrame);
  rated = part(1, shard.table(1)->spec().width(), {1}, 1);
  rated.lr = rateBits(0.5f);
  CHECK(shard.push(view(encode(1, {rated}, true))) == Status::BadFrame);
  CHECK(!shard.dirty() && shard.rows() == 0);
}

}  // namespace
}  // namespace kintsugi::test
