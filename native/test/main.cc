// Runs all tests, or the one named, with every instruction set that the machine has.
#include "kernels/kernels.h"
#include "test/harness.h"

namespace kintsugi::test {

std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

}  // namespace kintsugi::test

int main(int argc, char** argv) {
  using namespace kintsugi;
  const char* only = argc > 1 ? argv[1] : nullptr;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  int ran = 0;
  for (const Kernels* const* set = availableKernels(); *set; set++) {
    const char* isa = (*set)->name;
    if (std::strcmp(forceIsa(isa), isa) != 0) return 1;
    for (const auto& test : test::tests()) {
      if (only && std::strcmp(only, test.name) != 0) continue;
      std::printf("%s %s seed %llu\n", isa, test.name, static_cast<unsigned long long>(seed));
      std::fflush(stdout);
      test.run(seed);
      ran++;
    }
  }
  std::printf("%d tests passed\n", ran);
  return ran ? 0 : 1;
}
