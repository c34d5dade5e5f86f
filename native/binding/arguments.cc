#include "binding/arguments.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace kintsugi::binding {

Napi::Value fail(Napi::Env env, const char* code, const char* message) {
  if (!env.IsExceptionPending()) {
    Napi::Error error = Napi::Error::New(env, message);
    error.Set("code", Napi::String::New(env, code));
    error.ThrowAsJavaScriptException();
  }
  return env.Undefined();
}

bool toU32(Napi::Value value, std::uint32_t limit, std::uint32_t& out) {
  if (value.IsEmpty() || !value.IsNumber()) return false;
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!(number >= 0 && number <= limit) || number != std::floor(number)) return false;
  out = static_cast<std::uint32_t>(number);
  return true;
}

bool toCounts(Napi::Value value, std::size_t keys, const std::uint32_t*& out) {
  out = nullptr;
  if (value.IsUndefined()) return true;
  if (!is(value, napi_uint32_array)) return false;
  const auto array = value.As<Napi::Uint32Array>();
  static const std::uint32_t kNothing = 0;  // an empty array may have no address
  out = array.Data() ? array.Data() : &kNothing;
  return array.ElementLength() == keys;
}

bool toScores(Napi::Value value, std::size_t keys, const float*& out) {
  out = nullptr;
  if (value.IsUndefined()) return true;
  if (!is(value, napi_float32_array)) return false;
  const auto array = value.As<Napi::Float32Array>();
  static const float kNothing = 0;  // an empty array may have no address
  out = array.Data() ? array.Data() : &kNothing;
  return array.ElementLength() == keys;
}

bool toRate(Napi::Value value, std::uint32_t& out) {
  out = kNoRate;
  if (value.IsEmpty()) return false;
  if (value.IsUndefined()) return true;
  if (!value.IsNumber()) return false;
  const double rate = value.As<Napi::Number>().DoubleValue();
  if (!(rate >= 0 && rate <= std::numeric_limits<float>::max())) return false;
  out = rateBits(static_cast<float>(rate));
  return true;
}

void Arguments::refuse(const char* message) {
  if (ok_) fail(info_.Env(), "BAD_ARGUMENT", message);
  ok_ = false;
}

Napi::Value Arguments::next() { return info_[at_++]; }

std::uint32_t Arguments::u32(std::uint32_t limit) {
  std::uint32_t value = 0;
  if (!toU32(next(), limit, value)) refuse("expected an integer in range");
  return value;
}

std::uint64_t Arguments::u64() {
  const Napi::Value value = next();
  bool lossless = false;
  const std::uint64_t number = value.IsBigInt() ? value.As<Napi::BigInt>().Uint64Value(&lossless) : 0;
  if (!lossless) refuse("expected a BigInt from 0 to 2^64-1");
  return number;
}

double Arguments::number() {
  const Napi::Value value = next();
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : NAN;
  if (!std::isfinite(number)) refuse("expected a finite number");
  return number;
}

bool Arguments::boolean() {
  const Napi::Value value = next();
  if (!value.IsBoolean()) refuse("expected a boolean");
  return ok_ && value.As<Napi::Boolean>().Value();
}

View Arguments::bytes() {
  const auto array = typed<Napi::Uint8Array>(napi_uint8_array, "expected a Uint8Array");
  return ok_ ? View{array.Data(), array.ByteLength()} : View{};
}

BlockList Arguments::blocks() {
  const auto array = typed<Napi::Uint32Array>(napi_uint32_array, "a list of blocks must be a Uint32Array");
  if (!ok_) return {};
  if (array.ElementLength() % 2) {
    refuse("a list of blocks must have an even length");
    return {};
  }
  return {array.Data(), array.ElementLength() / 2};
}

std::vector<std::uint32_t> Arguments::u32s() {
  std::vector<std::uint32_t> list;
  const Napi::Value value = next();
  if (!ok_ || !value.IsArray()) {
    refuse("expected an array of numbers");
    return list;
  }
  const auto array = value.As<Napi::Array>();
  for (std::uint32_t i = 0; i < array.Length() && ok_; i++) {
    std::uint32_t item = 0;
    if (!toU32(array.Get(i), 0xFFFFFFFF, item)) refuse("expected an array of numbers");
    list.push_back(item);
  }
  return list;
}

std::vector<ExtentOf> Arguments::extents() {
  std::vector<ExtentOf> list;
  const Napi::Value value = next();
  if (!ok_ || !value.IsArray()) {
    refuse("expected an array of extents");
    return list;
  }
  const auto array = value.As<Napi::Array>();
  for (std::uint32_t i = 0; i < array.Length() && ok_; i++) {
    const Napi::Value item = array.Get(i);
    ExtentOf e{};
    const bool good = item.IsArray() && toU32(item.As<Napi::Array>().Get(0u), 0xFFFFFFFF, e.table) &&
                      toU32(item.As<Napi::Array>().Get(1u), 0xFFFFFFFF, e.stride) &&
                      toU32(item.As<Napi::Array>().Get(2u), 0xFFFFFFFF, e.extent);
    if (!good) refuse("an extent is [table, stride, extent]");
    list.push_back(e);
  }
  return list;
}

namespace {

std::string kindOf(Napi::Object object) {
  const Napi::Value kind = object.Get("kind");
  return kind.IsString() ? kind.As<Napi::String>().Utf8Value() : std::string();
}

/** A finite number property; NaN if it is not there or not one. */
double property(Napi::Object object, const char* name) {
  const Napi::Value value = object.Get(name);
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : NAN;
  return std::isfinite(number) ? number : NAN;
}

/** The engine computes in single precision, where a number may be too large. */
bool readParameter(Napi::Object object, const OptimizerParameter& parameter, OptimizerParams& out) {
  const double number = property(object, parameter.name);
  out.*parameter.value = number;
  return std::isfinite(static_cast<float>(number));
}

/** A length in steps, or a factor, in the range that the engine computes with. */
bool readScheduleNumber(Napi::Object object, const char* name, double least, double& out) {
  out = name ? property(object, name) : least;
  return out >= least && out <= static_cast<double>(1u << 24);
}

bool readSchedule(Napi::Value value, ScheduleParams& out) {
  if (value.IsUndefined()) return true;
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const std::string kind = kindOf(object);
  for (const Schedule& schedule : kSchedules) {
    if (kind != schedule.name) continue;
    out.kind = schedule.kind;
    return readScheduleNumber(object, "warmup", 0, out.warmup) &&
           readScheduleNumber(object, schedule.length, 1, out.length) &&
           readScheduleNumber(object, schedule.value, 0, out.value);
  }
  return false;
}

bool readClipNorm(Napi::Object object, OptimizerParams& out) {
  return object.Get("clipNorm").IsUndefined() ||
         readParameter(object, {"clipNorm", &OptimizerParams::clipNorm}, out);
}

bool readInitializer(Napi::Value value, InitializerParams& out) {
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const std::string kind = kindOf(object);
  if (kind == "zeros") {
    out = {};
  } else if (kind == "constant") {
    out = {InitializerKind::Constant, property(object, "value"), 0};
  } else if (kind == "uniform") {
    out = {InitializerKind::Uniform, property(object, "low"), property(object, "high")};
  } else if (kind == "normal") {
    out = {InitializerKind::Normal, property(object, "mean"), property(object, "std")};
  } else {
    return false;
  }
  return std::isfinite(out.a) && std::isfinite(out.b);
}

}  // namespace

bool readOptimizer(Napi::Value value, OptimizerParams& out) {
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const std::string kind = kindOf(object);
  for (const Optimizer& optimizer : kOptimizers) {
    if (kind != optimizer.name) continue;
    out = {};
    out.kind = optimizer.kind;
    bool good = readParameter(object, kLearningRate, out);
    for (const OptimizerParameter& parameter : optimizer.parameters)
      good = good && (!parameter.name || readParameter(object, parameter, out));
    return good && readClipNorm(object, out) && readSchedule(object.Get("schedule"), out.schedule);
  }
  return false;
}

/** A number from 1 on; 0 where there is none. */
static bool readLife(Napi::Object object, const char* name, std::uint32_t& out) {
  return object.Get(name).IsUndefined() || (toU32(object.Get(name), kMostAge - 1, out) && out >= 1);
}

/** As `readLife`: the rows of a whole job may be more than a shard can have. */
static bool readRows(Napi::Object object, const char* name, std::uint32_t& out) {
  if (object.Get(name).IsUndefined()) return true;
  const double rows = property(object, name);
  if (!(rows >= 1) || rows != std::floor(rows)) return false;
  out = static_cast<std::uint32_t>(std::min(rows, double{kNone}));
  return true;
}

/** A chance in 2^32: that of a sighting, or the one that lets 95 of 100 keys pass in so many sightings. */
static bool readChance(Napi::Object object, std::uint64_t& out) {
  std::uint32_t sightings = 0;
  if (!readLife(object, "likely", sightings)) return false;
  double chance = sightings ? 1 - std::pow(0.05, 1.0 / sightings) : 0;
  if (!object.Get("probability").IsUndefined()) {
    chance = property(object, "probability");
    if (!(chance > 0 && chance <= 1) || sightings) return false;
  }
  if (chance > 0) out = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(chance * 4294967296.0 + 0.5));
  return true;
}

/** A number up to 2^53 - 1. */
static bool readWhole(const Napi::Object& object, const char* name, std::uint64_t& out) {
  const double value = property(object, name);
  if (!(value >= 0 && value <= 9007199254740991.0) || value != std::floor(value)) return false;
  out = static_cast<std::uint64_t>(value);
  return true;
}

/** Only a shard needs the sizes of a filter. */
static bool readFilter(Napi::Value value, Filter& out) {
  if (value.IsUndefined()) return true;
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  return toU32(object.Get("sightings"), kMostCounter, out.admitAt) && out.admitAt >= 2 &&
         (object.Get("slots").IsUndefined() ||
          (toU32(object.Get("slots"), kNone - 2, out.slots) && toU32(object.Get("hashes"), 32, out.hashes) &&
           toU32(object.Get("capacity"), kNone, out.capacity) && readWhole(object, "line", out.line) &&
           readWhole(object, "first", out.first)));
}

/** A factor, which is rounded to parts of 2^16, and steps. */
static bool readDecay(Napi::Value value, Decay& out) {
  if (value.IsUndefined()) return true;
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const double factor = std::round(property(object, "factor") * 65536);
  if (!(factor >= 1 && factor <= 65535)) return false;
  out.factor = static_cast<std::uint32_t>(factor);
  return readLife(object, "every", out.every) && out.every;
}

/** Steps, if nothing is said. */
static bool readClock(Napi::Value value, bool& seconds) {
  seconds = !value.IsUndefined();
  return !seconds || (value.IsString() && value.As<Napi::String>().Utf8Value() == "seconds");
}

bool readPolicy(Napi::Value value, LifePolicy& out) {
  if (value.IsUndefined()) return true;
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const Napi::Value rare = object.Get("minFrequency");
  if (!rare.IsUndefined()) {
    if (!rare.IsObject()) return false;
    const auto parts = rare.As<Napi::Object>();
    if (!readLife(parts, "sightings", out.rareBelow) || !readLife(parts, "ttl", out.rareTtl)) return false;
    if (!out.rareBelow || !out.rareTtl || !readDecay(parts.Get("decay"), out.decay)) return false;
  }
  const Napi::Value faint = object.Get("l2Below");
  if (!faint.IsUndefined()) {
    if (!faint.IsObject()) return false;
    const auto parts = faint.As<Napi::Object>();
    out.faintBelow = static_cast<float>(property(parts, "norm"));
    if (!(out.faintBelow > 0 && std::isfinite(out.faintBelow))) return false;
    if (!readLife(parts, "ttl", out.faintTtl) || !out.faintTtl) return false;
  }
  const Napi::Value memory = object.Get("memory");
  if (!memory.IsUndefined() && !(memory.IsBoolean() && memory.As<Napi::Boolean>().Value())) return false;
  out.forMemory = !memory.IsUndefined();
  const Napi::Value score = object.Get("score");
  if (!score.IsUndefined() && !(score.IsBoolean() && score.As<Napi::Boolean>().Value())) return false;
  out.score = !score.IsUndefined();
  return readLife(object, "ttl", out.ttl) && readLife(object, "counter", out.admitAt) &&
         readRows(object, "maxRows", out.maxRows) && readRows(object, "keep", out.keep) &&
         readClock(object.Get("clock"), out.seconds) && readChance(object, out.chance) &&
         readFilter(object.Get("bloom"), out.filter) && (!out.chance || !out.filter.admitAt) && out.any() &&
         (!out.score || out.maxRows || out.forMemory) && (!out.keep || out.ttl) &&
         (!out.seconds || out.mayGo()) && (!out.decay.every || !out.admitAt);
}

bool readTable(Napi::Value value, TableSpec& out) {
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  return readWhole(object, "seed", out.seed) && toU32(object.Get("id"), 0x7FFFFFFF, out.id) &&
         toU32(object.Get("dim"), kMaxDim, out.dim) &&
         readOptimizer(object.Get("optimizer"), out.optimizer) &&
         readInitializer(object.Get("initializer"), out.initializer) &&
         readPolicy(object.Get("policy"), out.policy);
}

Napi::Uint32Array toArray(Napi::Env env, const std::vector<std::uint32_t>& values) {
  auto array = Napi::Uint32Array::New(env, values.size());
  if (!values.empty() && made(array)) std::memcpy(array.Data(), values.data(), values.size() * 4);
  return array;
}

Napi::Uint8Array toBytes(Napi::Env env, const std::vector<std::uint8_t>& bytes) {
  auto array = Napi::Uint8Array::New(env, bytes.size());
  if (!bytes.empty() && made(array)) std::memcpy(array.Data(), bytes.data(), bytes.size());
  return array;
}

/** Below this, zeroing costs less than the detour. */
static constexpr std::size_t kUnzeroedFrom = std::size_t{4} << 10;

Answer::Answer(Napi::Env env, Arguments& arguments) : env_(env) {
  if (!arguments.more()) return;
  const auto into = arguments.typed<Napi::Uint8Array>(napi_uint8_array, "expected a Uint8Array");
  at_ = arguments.u32();
  if (arguments.ok()) into_ = into;
}

std::uint8_t* Answer::allocate(std::size_t size) {
  if (!into_.IsEmpty() && size && at_ <= into_.ByteLength() && size <= into_.ByteLength() - at_) {
    array_ = Napi::Uint8Array::New(env_, size, into_.ArrayBuffer(), into_.ByteOffset() + at_);
    return env_.IsExceptionPending() ? nullptr : array_.Data();
  }
  napi_value buffer;
  void* data;
  if (size >= kUnzeroedFrom && napi_create_buffer(env_, size, &data, &buffer) == napi_ok) {
    const auto bytes = Napi::Uint8Array(env_, buffer);
    array_ = Napi::Uint8Array::New(env_, size, bytes.ArrayBuffer(), bytes.ByteOffset());
  } else if (!env_.IsExceptionPending()) {
    array_ = Napi::Uint8Array::New(env_, size);
  }
  if (env_.IsExceptionPending()) return nullptr;
  return size ? array_.Data() : &empty_;
}

Napi::Array toExtents(Napi::Env env, const std::vector<ExtentOf>& extents) {
  auto list = Napi::Array::New(env, extents.size());
  for (std::uint32_t i = 0; i < extents.size(); i++) {
    auto item = Napi::Array::New(env, 3);
    item.Set(0u, extents[i].table);
    item.Set(1u, extents[i].stride);
    item.Set(2u, extents[i].extent);
    list.Set(i, item);
  }
  return list;
}

Napi::Array toMembers(Napi::Env env, std::uint32_t mask) {
  auto list = Napi::Array::New(env);
  for (std::uint32_t i = 0; mask; mask &= mask - 1, i++)
    list.Set(i, static_cast<std::uint32_t>(std::countr_zero(mask)));
  return list;
}

}  // namespace kintsugi::binding
