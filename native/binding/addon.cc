// The entry point. Everything that lives as long as an environment hangs on its instance data, so the addon
// can be loaded by the main thread and by any number of worker threads at once.
#include <cmath>

#include "binding/arguments.h"
#include "binding/objects.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace kintsugi::binding {
namespace {

struct Classes {
  Napi::FunctionReference memory, shard, sink;
};

template <Napi::FunctionReference Classes::*Class, std::size_t Count>
Napi::Value construct(const Napi::CallbackInfo& info) {
  std::vector<napi_value> arguments(Count);
  for (std::size_t i = 0; i < Count; i++) arguments[i] = info[i];
  const Napi::Object object = (info.Env().GetInstanceData<Classes>()->*Class).New(arguments);
  return info.Env().IsExceptionPending() ? info.Env().Undefined() : Napi::Value(object);
}

/** Buffers of a megabyte come and go with every request. By default glibc maps each one anew, and page faults
 * then cost more than the work; with these they are reused. Process-wide, hence once, at load. */
void keepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

/** Gives the pages of freed memory back that `keepFreedMemory` keeps. */
Napi::Value trimMemory(const Napi::CallbackInfo& info) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  return info.Env().Undefined();
}

/** V8 counts so many bytes more, or fewer, of arrays outside of its heap, which make it collect garbage.
 * Returns the sum. */
Napi::Value countExternalMemory(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const double bytes = arguments.number();
  if (!arguments.ok()) return info.Env().Undefined();
  if (!(std::abs(bytes) <= 9007199254740991.0)) {
    arguments.refuse("bytes must be a number of bytes");
    return info.Env().Undefined();
  }
  const auto change = static_cast<std::int64_t>(bytes);
  const std::int64_t counted = Napi::MemoryManagement::AdjustExternalMemory(info.Env(), change);
  return Napi::Number::New(info.Env(), static_cast<double>(counted));
}

Napi::Object load(Napi::Env env, Napi::Object exports) {
  keepFreedMemory();
  auto* classes = new Classes;
  classes->memory = Napi::Persistent(MemoryObject::define(env));
  classes->shard = Napi::Persistent(ShardObject::define(env));
  classes->sink = Napi::Persistent(SinkObject::define(env));
  env.SetInstanceData(classes);
  defineRouter(env, exports);
  defineTcp(env, exports);
  defineMapped(env, exports);
  defineSplit(env, exports);
  defineData(env, exports);
  defineDuckdb(env, exports);
  exports.Set("createMemory", Napi::Function::New<construct<&Classes::memory, 1>>(env, "createMemory"));
  exports.Set("createShard", Napi::Function::New<construct<&Classes::shard, 4>>(env, "createShard"));
  exports.Set("createSink", Napi::Function::New<construct<&Classes::sink, 5>>(env, "createSink"));
  exports.Set("countExternalMemory", Napi::Function::New(env, countExternalMemory, "countExternalMemory"));
  exports.Set("trimMemory", Napi::Function::New(env, trimMemory, "trimMemory"));
  return exports;
}

}  // namespace

NODE_API_MODULE(kintsugi, load)

}  // namespace kintsugi::binding
