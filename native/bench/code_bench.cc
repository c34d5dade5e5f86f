// Reed-Solomon encode: every variant of ours against ISA-L, blocks in the caches (64 KiB) and data in DRAM.
// Both sides encode with the same generator, and the parities are compared before anything is timed.
#include <cstring>

#include "bench/measure.h"
#include "engine/matrix.h"
#include "kernels/kernels.h"

#ifdef HAVE_ISAL
#include <isa-l/erasure_code.h>
#endif

using namespace kintsugi;
using namespace kintsugi::bench;

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  const int rounds = smoke ? 1 : 15;
  struct Code {
    std::uint32_t k, r;
  };
  Report report;
  std::uint64_t hash = 0;
  const char* skipped = "isa-l: not installed (Debian: apt-get install libisal-dev)";
  for (const std::size_t block : {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20}) {
    const bool dram = block > std::size_t{1} << 20;
    if (smoke && dram) continue;
    for (const Code code : {Code{4, 1}, Code{4, 2}, Code{8, 2}, Code{10, 4}}) {
      const std::uint32_t k = code.k, r = code.r;
      std::vector<std::uint8_t*> data, parity, other;
      // Rows of a stripe do not start at the same place in a page: that would make every set of the caches
      // collide.
      std::uint8_t* arena = memory((k + 2 * r) * (block + 4352), 1);
      for (std::uint32_t i = 0; i < k + 2 * r; i++)
        (i < k ? data : i < k + r ? parity : other).push_back(arena + i * (block + 4352));
      std::vector<std::uint8_t> generator;
      for (std::uint32_t j = 0; j < r; j++) {
        for (std::uint32_t i = 0; i < k; i++) generator.push_back(coefficient(j, i));
      }
      std::vector<Candidate> candidates;
      for (const Kernels* const* set = availableKernels(); *set; set++) {
        if (dram && set[1]) continue;
        if (*set == &kScalarKernels && !smoke && block > std::size_t{64} << 10) continue;
        const Kernels* kernel = *set;
        candidates.push_back({kernel->name, [=, &generator] {
                                kernel->encode(data.data(), k, parity.data(), r, block, generator.data());
                              }});
      }
      candidates.back().run();
      for (const std::uint8_t* p : parity) hash ^= digest(p, block);
#ifdef HAVE_ISAL
      skipped = "";
      std::vector<std::uint8_t> tables(32 * k * r);
      ec_init_tables(static_cast<int>(k), static_cast<int>(r), generator.data(), tables.data());
      candidates.push_back({"isa-l", [&] {
                              ec_encode_data(static_cast<int>(block), static_cast<int>(k),
                                             static_cast<int>(r), tables.data(), data.data(), other.data());
                            }});
      candidates.back().run();
      for (std::uint32_t j = 0; j < r; j++) {
        if (std::memcmp(parity[j], other[j], block) == 0) continue;
        std::fprintf(stderr, "parities differ\n");
        return 1;
      }
#endif
      const int passes =
          smoke ? 1 : static_cast<int>(std::max<std::size_t>(1, (std::size_t{32} << 20) / (block * k)));
      std::vector<double> values = interleave(candidates, rounds, passes);
      for (double& v : values) v = static_cast<double>(block) * k / v / 1e9;
      report.add("encode (" + std::to_string(k) + "," + std::to_string(r) + ") " +
                     std::to_string(block >> 10) + " KiB",
                 "GB/s of data", candidates, values);
      std::free(arena);
    }
  }
  report.print(kernels().name, hash, skipped);
  return 0;
}
