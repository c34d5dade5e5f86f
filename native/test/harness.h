// The test harness: named tests, a check that prints the values, and a seeded generator. A failing check ends
// the process; what was random is printed as a seed and can be replayed with `engine_test <name> <seed>`.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/hash.h"

namespace kintsugi::test {

struct Test {
  const char* name;
  void (*run)(std::uint64_t seed);
};

std::vector<Test>& tests();

struct Register {
  Register(const char* name, void (*run)(std::uint64_t)) { tests().push_back({name, run}); }
};

#define TEST(name)                                                             \
  static void test_##name(std::uint64_t seed);                                 \
  static const ::kintsugi::test::Register register_##name(#name, test_##name); \
  static void test_##name([[maybe_unused]] std::uint64_t seed)

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

#define CHECK_EQ(left, right)                                                                              \
  do {                                                                                                     \
    const auto left_ = (left);                                                                             \
    const auto right_ = (right);                                                                           \
    if (!(left_ == right_)) {                                                                              \
      std::fprintf(stderr, "%s:%d: %s = %lld, %s = %lld\n", __FILE__, __LINE__, #left, (long long)(left_), \
                   #right, (long long)(right_));                                                           \
      std::exit(1);                                                                                        \
    }                                                                                                      \
  } while (0)

class Random {
 public:
  explicit Random(std::uint64_t seed) : stream_(drawStream(seed, 1)) {}
  std::uint64_t next() { return draw(stream_, counter_++); }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(next() % n); }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  /** In -1 .. 1. */
  float real() { return static_cast<float>(static_cast<double>(next() >> 40) / (1 << 23) - 1); }
  void fill(std::uint8_t* p, std::size_t n) {
    for (std::size_t i = 0; i < n; i++) p[i] = static_cast<std::uint8_t>(next());
  }

 private:
  std::uint64_t stream_;
  std::uint64_t counter_ = 0;
};

}  // namespace kintsugi::test
