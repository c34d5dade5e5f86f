#include "binding/objects.h"

namespace kintsugi::binding {

static constexpr napi_type_tag kMemoryTag = {0x6b696e7473756769, 0x6d656d6f72790001};

Napi::Function MemoryObject::define(Napi::Env env) {
  return DefineClass(env, "NativeMemory",
                     {InstanceAccessor<&MemoryObject::usedBytes>("usedBytes"),
                      InstanceAccessor<&MemoryObject::limitBytes>("limitBytes")});
}

MemoryObject::MemoryObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<MemoryObject>(info) {
  Arguments arguments(info);
  const double limit = arguments.number();
  if (!arguments.ok()) return;
  if (limit < 0 || limit > 9007199254740991.0) {
    arguments.refuse("limitBytes must be 0 or a number of bytes");
    return;
  }
  memory_ = std::make_shared<Memory>(static_cast<std::size_t>(limit));
  info.This().As<Napi::Object>().TypeTag(&kMemoryTag);
}

MemoryObject* MemoryObject::from(Napi::Value value) {
  if (!value.IsObject() || !value.As<Napi::Object>().CheckTypeTag(&kMemoryTag)) return nullptr;
  return Unwrap(value.As<Napi::Object>());
}

Napi::Value MemoryObject::usedBytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(memory_->used()));
}

Napi::Value MemoryObject::limitBytes(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(memory_->limit()));
}

}  // namespace kintsugi::binding
