// Rows that are gone are evicted soon, whatever says when the rows of a run of slots go.
#include <bit>
#include <numeric>

#include "test/support.h"

namespace kintsugi::test {
namespace {

struct Living {
  TableSpec spec;
  Shard shard{std::make_shared<Memory>(0), 0, 1, 1};

  explicit Living(LifePolicy policy)
      : spec(withPolicy(tableSpec(3, 5, OptimizerKind::Adagrad, InitializerKind::Uniform), policy)) {
    CHECK(!shard.addTable(spec));
  }

  void push(std::vector<std::uint64_t> keys) {
    PartData part{spec.id, spec.dim, std::move(keys), {}};
    part.rows.assign(part.keys.size() * spec.dim, 0.5f);
    CHECK(shard.push(view(encode(0, {part}, true))) == Status::Applied);
  }
  /** Rows that hold memory. */
  std::size_t held() const { return shard.table(spec.id)->index().size(); }
};

}  // namespace

TEST(slots_are_free_soon_after_their_rows_are_gone) {
  Living life({400, 2, 200, 0});
  std::vector<std::uint64_t> staying(2000);
  std::iota(staying.begin(), staying.end(), 1'000'000);
  life.push(staying);
  life.push(staying);
  const auto stepsUpTo = [](std::uint64_t age, std::uint64_t step) { return std::min(age, step) + 1; };
  for (std::uint64_t step = 0; step < 2000; step++) {
    // Half of those that come are seen twice; some that stay share their runs.
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < 10; i++) keys.insert(keys.end(), {step * 20 + i, step * 20 + i});
    for (std::uint64_t i = 10; i < 20; i++) keys.push_back(step * 20 + i);
    for (std::uint64_t i = 0; i < 40; i++) keys.push_back(1'000'000 + (step * 40 + i) % 2000);
    life.push(keys);
    flushed(life.shard);
    // 2 % later at most.
    const std::uint64_t most = 2000 + 10 * (stepsUpTo(408, step) + stepsUpTo(204, step));
    CHECK(life.held() <= most);
  }
  CHECK(life.shard.totalsAreRight());
}

TEST(rows_that_come_with_an_age_are_evicted_by_it) {
  Living life({1000, 0, 0, 0});
  const TableSpec& spec = life.spec;
  std::vector<std::uint64_t> many(300), staying(200);
  std::iota(many.begin(), many.end(), 0);
  std::iota(staying.begin(), staying.end(), 1000);
  life.push(many);
  // Every run has said by now that it has a thousand steps.
  for (int step = 0; step < 20; step++) life.push(staying);
  flushed(life.shard);
  PartData whole{spec.id, spec.width(), many, {}};
  whole.rows.assign(many.size() * spec.width(), 1);
  for (std::size_t i = 0; i < many.size(); i++) {
    float* words = whole.rows.data() + (i + 1) * spec.width() - kLifeWords;
    words[0] = std::bit_cast<float>(std::uint32_t{990});
    words[1] = std::bit_cast<float>(std::uint32_t{1});
  }
  CHECK(life.shard.push(view(encode(1, {whole}, true))) == Status::Applied);
  CHECK_EQ(life.held(), 500u);
  for (int step = 0; step < 40; step++) life.push(staying);
  CHECK_EQ(life.held(), 200u);
}

}  // namespace kintsugi::test
