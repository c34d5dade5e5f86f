// Memory that this process shares with another one of the same machine: a file that lives in memory, mapped
// as one ArrayBuffer. Its bytes may change at any time, so whatever is read from them is checked after it was
// read, or is data that no decision depends on.
#include "binding/objects.h"

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <string>

namespace kintsugi::binding {
namespace {

constexpr double kMaxBytes = 1.0e12;

#ifdef __linux__
/** Why the file cannot be mapped; null: it can. A file that shrinks under a mapping ends the process. */
const char* refusal(int fd, std::size_t bytes, bool sealed) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return "the memory is not a regular file";
  if (static_cast<std::size_t>(status.st_size) < bytes) return "the memory is shorter than was said";
  if (!sealed) return nullptr;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 ? nullptr : "the memory is not sealed against shrinking";
}
#endif

/** (path, bytes, sealed): see `mapShared` in src/engine/native.ts. */
Napi::Value mapShared(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const Napi::Value path = arguments.next();
  const double size = arguments.number();
  const bool sealed = arguments.boolean();
  if (arguments.ok() && !path.IsString()) arguments.refuse("path must be a string");
  if (arguments.ok() && !(size >= 1 && size <= kMaxBytes)) arguments.refuse("bytes is out of range");
  if (!arguments.ok()) return env.Undefined();
#ifdef __linux__
  const auto bytes = static_cast<std::size_t>(size);
  // Opening a pipe must not block the process, if somebody names one.
  const std::string name = path.As<Napi::String>().Utf8Value();
  const int fd = open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail(env, "UNREACHABLE", "the memory cannot be opened");
  if (const char* why = refusal(fd, bytes, sealed)) {
    close(fd);
    return fail(env, "BAD_ARGUMENT", why);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return fail(env, "MEMORY_LIMIT", "the system refuses to map the memory");
  return Napi::ArrayBuffer::New(env, memory, bytes,
                                [bytes](Napi::Env, void* mapped) { munmap(mapped, bytes); });
#else
  return fail(env, "DEPENDENCY_MISSING", "memory is shared on Linux only");
#endif
}

/** Every view of the buffer is empty from now on; the memory is unmapped soon after. */
Napi::Value unmapShared(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const Napi::Value buffer = arguments.next();
  if (arguments.ok() && !buffer.IsArrayBuffer()) arguments.refuse("buffer must be an ArrayBuffer");
  if (arguments.ok()) buffer.As<Napi::ArrayBuffer>().Detach();
  return info.Env().Undefined();
}

}  // namespace

void defineMapped(Napi::Env env, Napi::Object exports) {
  exports.Set("mapShared", Napi::Function::New(env, mapShared, "mapShared"));
  exports.Set("unmapShared", Napi::Function::New(env, unmapShared, "unmapShared"));
}

}  // namespace kintsugi::binding
