// Side-by-side measurement: the candidates of one comparison take turns, round after round, and the median of
// each is reported, so that a noisy machine disturbs all of them alike. JSON on stdout, one object.
#pragma once
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/hash.h"

namespace kintsugi::bench {

struct Candidate {
  std::string name;
  std::function<void()> run;  // one pass over the work
};

/** CPU time of this thread: everything here runs on one, and time in which it was not scheduled says nothing.
 */
inline double cpuNow() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline double seconds(const std::function<void()>& run) {
  const double start = cpuNow();
  run();
  return cpuNow() - start;
}

/** Median seconds of a pass of each candidate; `passes` of them make a round. */
inline std::vector<double> interleave(const std::vector<Candidate>& candidates, int rounds, int passes) {
  std::vector<std::vector<double>> times(candidates.size());
  for (const Candidate& c : candidates) c.run();
  for (int round = 0; round < rounds; round++) {
    for (std::size_t i = 0; i < candidates.size(); i++) {
      times[i].push_back(seconds([&] {
                           for (int pass = 0; pass < passes; pass++) candidates[i].run();
                         }) /
                         passes);
    }
  }
  std::vector<double> medians;
  for (auto& t : times) {
    std::nth_element(t.begin(), t.begin() + static_cast<std::ptrdiff_t>(t.size() / 2), t.end());
    medians.push_back(t[t.size() / 2]);
  }
  return medians;
}

/** Memory on 2 MiB pages where the system gives them, touched. Never freed: the process ends soon. */
inline std::uint8_t* memory(std::size_t bytes, std::uint64_t seed) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  bytes = (bytes + kHuge - 1) / kHuge * kHuge;
  auto* p = static_cast<std::uint8_t*>(std::aligned_alloc(kHuge, bytes));
  if (!p) std::abort();
#ifdef MADV_HUGEPAGE
  madvise(p, bytes, MADV_HUGEPAGE);
#endif
  auto* words = reinterpret_cast<std::uint64_t*>(p);
  for (std::size_t i = 0; i < bytes / 8; i++) words[i] = seed ? mix64(seed + i) : 0;
  return p;
}

/** Keeps results from being optimised away, and shows that candidates did the same work. */
inline std::uint64_t digest(const std::uint8_t* p, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + 8 <= bytes; i += 8)
    sum = mix64(sum ^ *reinterpret_cast<const std::uint64_t*>(p + i));
  return sum;
}

/** Collects { name, unit, values: { candidate: value } } and prints them at the end. */
class Report {
 public:
  void add(const std::string& name, const char* unit, const std::vector<Candidate>& candidates,
           const std::vector<double>& values) {
    if (!text_.empty()) text_ += ",";
    text_ += "{\"name\":\"" + name + "\",\"unit\":\"" + unit + "\",\"values\":{";
    for (std::size_t i = 0; i < candidates.size(); i++) {
      char number[64];
      std::snprintf(number, sizeof number, "%.6g", values[i]);
      text_ += (i ? ",\"" : "\"") + candidates[i].name + "\":" + number;
    }
    text_ += "}}";
  }
  void print(const char* isa, std::uint64_t hash, const char* skipped) const {
    std::printf("{\"isa\":\"%s\",\"hash\":\"%016llx\",\"skipped\":\"%s\",\"results\":[%s]}\n", isa,
                static_cast<unsigned long long>(hash), skipped, text_.c_str());
  }

 private:
  std::string text_;
};

}  // namespace kintsugi::bench
