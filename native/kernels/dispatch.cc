// Chooses the kernels once, at run time, from what the machine can do. The pointer is atomic because addons
// of several worker threads share this one process-wide choice.
#include <atomic>
#include <cstring>

#include "kernels/kernels.h"

namespace kintsugi {

static const Kernels* best() {
  const Kernels* vector = avx512Kernels();
  return vector ? vector : &kScalarKernels;
}

static std::atomic<const Kernels*>& current() {
  static std::atomic<const Kernels*> chosen{best()};
  return chosen;
}

const Kernels& kernels() { return *current().load(std::memory_order_relaxed); }

const char* forceIsa(const char* name) {
  const Kernels* vector = avx512Kernels();
  if (std::strcmp(name, kScalarKernels.name) == 0) current().store(&kScalarKernels);
  if (std::strcmp(name, "auto") == 0) current().store(best());
  if (vector && std::strcmp(name, vector->name) == 0) current().store(vector);
  return kernels().name;
}

}  // namespace kintsugi
