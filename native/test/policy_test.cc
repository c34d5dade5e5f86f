// Readers of tables with a policy: which rows they see.
#include <array>
#include <cstring>

#include "test/living.h"

namespace kintsugi::test {

TEST(a_row_that_is_not_served_reads_as_if_its_key_had_none) {
  const TableSpec spec = living({8, 0, 0, 2});
  auto shard = shardWith(spec);
  const auto isRead = [&](std::uint64_t key) {
    std::vector<float> values(spec.dim, -1), initial(spec.dim);
    std::uint8_t found = 0;
    std::size_t count = 0;
    CHECK(!shard->readValues({spec.id, &key, values.data(), &found, 1, spec.dim, true}, count));
    CHECK_EQ(count, std::size_t{found});
    // A pull of values gives the same.
    const PartData part{spec.id, spec.dim, {key}, {}};
    const Bytes bytes = answerOf([&](const Allocate& allocate) {
      CHECK(shard->pull(view(encode(0, {part}, false)), allocate) == Status::Applied);
    });
    CHECK(std::memcmp(bytes.data(), values.data(), spec.dim * 4) == 0);
    initialValues(spec, key, initial.data());
    CHECK_EQ(found == 0, values == initial);
    return found == 1;
  };
  // Keys 1, 2 and 3 are seen once, twice and thrice; key 3 last.
  pushed(*shard, gradients(spec, {1, 2, 3}));
  pushed(*shard, gradients(spec, {2, 3}));
  pushed(*shard, gradients(spec, {3}));
  flushed(*shard);
  const auto read = [&](std::uint32_t minSightings, std::uint32_t maxAge) {
    shard->serve({true, minSightings, maxAge});
    return std::array{isRead(1), isRead(2), isRead(3)};
  };
  CHECK((read(0, 0) == std::array{false, true, true}));
  CHECK((read(3, 0) == std::array{false, false, true}));
  CHECK((read(0, 1) == std::array{false, true, true}));
  pushed(*shard, gradients(spec, {1}));
  CHECK((read(0, 1) == std::array{true, false, true}));
  CHECK((read(3, 1) == std::array{false, false, true}));
  // Training sees whole rows as they are, and readers nothing that is gone.
  CHECK(rowOf(*shard, spec, 2)[spec.dim] != rowOf(*shard, spec, 50)[spec.dim]);
  for (int step = 0; step < 7; step++) pushed(*shard, gradients(spec, {7}));
  CHECK((read(0, 0) == std::array{true, false, true}));
  pushed(*shard, gradients(spec, {7}));
  CHECK((read(0, 0) == std::array{true, false, false}));
}

}  // namespace kintsugi::test
