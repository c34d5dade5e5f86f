// Chooses the kernels once, at run time, from what the machine can do. The pointer is atomic because addons
// of several worker threads share this one process-wide choice.
#include <atomic>
#include <cstring>
#include <initializer_list>

#include "kernels/kernels.h"

namespace kintsugi {

const Kernels* const* availableKernels() {
  static const struct List {
    const Kernels* of[5] = {};
    List() {
      std::size_t n = 0;
      for (const Kernels* k : {&kScalarKernels, neonKernels(), avx2Kernels(), avx512Kernels()}) {
        if (k) of[n++] = k;
      }
    }
  } list;
  return list.of;
}

static const Kernels* best() {
  const Kernels* const* k = availableKernels();
  while (k[1]) k++;
  return *k;
}

static std::atomic<const Kernels*>& current() {
  static std::atomic<const Kernels*> chosen{best()};
  return chosen;
}

const Kernels& kernels() { return *current().load(std::memory_order_relaxed); }

const char* forceIsa(const char* name) {
  if (std::strcmp(name, "auto") == 0) current().store(best());
  for (const Kernels* const* k = availableKernels(); *k; k++) {
    if (std::strcmp(name, (*k)->name) == 0) current().store(*k);
  }
  return kernels().name;
}

}  // namespace kintsugi
