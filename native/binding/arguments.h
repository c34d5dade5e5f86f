// Reading arguments and throwing errors. The addon is built without C++ exceptions: a reader that finds
// something wrong throws a JavaScript error with a stable code and returns false, and the caller returns at
// once.
#pragma once
#include <napi.h>

#include <cstdint>
#include <vector>

#include "engine/blocks.h"
#include "engine/bytes.h"
#include "engine/shard.h"
#include "engine/status.h"
#include "engine/table_spec.h"

namespace kintsugi::binding {

/** Throws an error with `code` and returns undefined, to be returned in turn. */
Napi::Value fail(Napi::Env env, const char* code, const char* message);
inline Napi::Value fail(Napi::Env env, const Fault& fault) { return fail(env, fault.code, fault.message); }

/** Reads arguments in order; after the first failure everything fails and the error is pending. */
class Arguments {
 public:
  explicit Arguments(const Napi::CallbackInfo& info) : info_(info) {}

  bool ok() const { return ok_; }
  std::uint32_t u32(std::uint32_t limit = 0xFFFFFFFF);  // 0 <= value <= limit
  std::uint64_t u64();                                  // a BigInt
  double number();                                      // finite
  bool boolean();
  View bytes();
  BlockList blocks();
  std::vector<std::uint32_t> u32s();  // an array of numbers
  std::vector<ExtentOf> extents();    // an array of [table, stride, extent]
  template <class Array>
  Array typed(napi_typedarray_type type, const char* message) {
    const Napi::Value value = next();
    if (ok_ && (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type))
      refuse(message);
    return ok_ ? value.As<Array>() : Array();
  }
  Napi::BigUint64Array keys() {
    return typed<Napi::BigUint64Array>(napi_biguint64_array, "keys must be a BigUint64Array");
  }
  Napi::Float32Array floats() {
    return typed<Napi::Float32Array>(napi_float32_array, "rows must be a Float32Array");
  }
  Napi::Uint32Array indices() {
    return typed<Napi::Uint32Array>(napi_uint32_array, "indices must be a Uint32Array");
  }
  /** The object that an External holds; nullptr if it is none. */
  template <class T>
  T* external(const char* message) {
    const Napi::Value value = next();
    if (ok_ && !value.IsExternal()) refuse(message);
    return ok_ ? value.As<Napi::External<T>>().Data() : nullptr;
  }
  Napi::Value next();
  /** There is a further argument. */
  bool more() const { return at_ < info_.Length() && !info_[at_].IsUndefined(); }
  void refuse(const char* message);

 private:
  const Napi::CallbackInfo& info_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

/** A finite number in [0, limit] that is an integer. */
bool toU32(Napi::Value value, std::uint32_t limit, std::uint32_t& out);
/** The learning rate of a push, as it travels; undefined: there is none. */
bool toRate(Napi::Value value, std::uint32_t& out);
/** Counts of the keys of a push; undefined: there are none, nullptr. */
bool toCounts(Napi::Value value, std::size_t keys, const std::uint32_t*& out);
/** The same for scores. Whether they are finite is asked where they arrive. */
bool toScores(Napi::Value value, std::size_t keys, const float*& out);

/** True for a typed array of this kind. */
inline bool is(Napi::Value value, napi_typedarray_type type) {
  return value.IsTypedArray() && value.As<Napi::TypedArray>().TypedArrayType() == type;
}

/** Most shards that keys are split into. */
inline constexpr std::uint32_t kMaxShards = 1 << 20;

bool readOptimizer(Napi::Value value, OptimizerParams& out);
bool readTable(Napi::Value value, TableSpec& out);
bool readPolicy(Napi::Value value, LifePolicy& out);

/** Whether a new array has its memory. If not, either an exception is pending, or this thread is being
 * terminated and takes none. */
template <class Array>
bool made(const Array& array) {
  return !array.IsEmpty();
}

Napi::Uint32Array toArray(Napi::Env env, const std::vector<std::uint32_t>& values);
Napi::Uint8Array toBytes(Napi::Env env, const std::vector<std::uint8_t>& bytes);
Napi::Array toExtents(Napi::Env env, const std::vector<ExtentOf>& extents);
/** Members of a mask, ascending. */
Napi::Array toMembers(Napi::Env env, std::uint32_t mask);

/** A Uint8Array that the engine fills: its `allocate` may be called once. The memory is the caller's, if it
 * gave some, or else V8's own, so that the garbage collector sees how much there is and gives it back in
 * time, but not zeroed first. */
class Answer {
 public:
  explicit Answer(Napi::Env env) : env_(env) {}
  /** Reads the arguments (into?, at?): memory for the answer, from byte `at`, if it fits. */
  Answer(Napi::Env env, Arguments& arguments);
  std::uint8_t* allocate(std::size_t size);
  Allocate allocator() {
    return [this](std::size_t size) { return allocate(size); };
  }
  Napi::Uint8Array array() const { return array_; }

 private:
  Napi::Env env_;
  Napi::Uint8Array array_, into_;
  std::size_t at_ = 0;
  std::uint8_t empty_ = 0;
};

}  // namespace kintsugi::binding
