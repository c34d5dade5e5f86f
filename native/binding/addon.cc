// The entry point. Everything that lives as long as an environment hangs on its instance data, so the addon
// can be loaded by the main thread and by any number of worker threads at once.
#include "binding/objects.h"

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

Napi::Object load(Napi::Env env, Napi::Object exports) {
  auto* classes = new Classes;
  classes->memory = Napi::Persistent(MemoryObject::define(env));
  classes->shard = Napi::Persistent(ShardObject::define(env));
  classes->sink = Napi::Persistent(SinkObject::define(env));
  env.SetInstanceData(classes);
  defineRouter(env, exports);
  exports.Set("createMemory", Napi::Function::New<construct<&Classes::memory, 1>>(env, "createMemory"));
  exports.Set("createShard", Napi::Function::New<construct<&Classes::shard, 4>>(env, "createShard"));
  exports.Set("createSink", Napi::Function::New<construct<&Classes::sink, 5>>(env, "createSink"));
  return exports;
}

}  // namespace

NODE_API_MODULE(kintsugi, load)

}  // namespace kintsugi::binding
