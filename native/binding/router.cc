// The functions without an object. Array lengths are checked here; indices inside the arrays are checked by
// the engine.
#include <string>

#include "binding/objects.h"
#include "engine/matrix.h"
#include "engine/router.h"
#include "kernels/kernels.h"

namespace kintsugi::binding {
namespace {

Napi::Value partitionKeys(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const auto keys = arguments.keys();
  const std::uint32_t shards = arguments.u32(kMaxShards);
  if (arguments.ok() && shards < 1) arguments.refuse("there must be at least one shard");
  if (!arguments.ok()) return env.Undefined();
  const std::size_t count = keys.ElementLength();
  auto order = Napi::Uint32Array::New(env, count);
  auto starts = Napi::Uint32Array::New(env, shards + 1);
  if (!made(order) || !made(starts)) return env.Undefined();
  partition(keys.Data(), count, shards, order.Data(), starts.Data());
  auto object = Napi::Object::New(env);
  object.Set("order", order);
  object.Set("starts", starts);
  return object;
}

bool readPart(Napi::Value value, SectionPart& part) {
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const Napi::Value keys = object.Get("keys"), rows = object.Get("rows"), order = object.Get("order");
  std::uint32_t start, end;
  if (!toU32(object.Get("table"), 0x7FFFFFFF, part.table) ||
      !toU32(object.Get("width"), kMaxStride / 4, part.width) ||
      !toU32(object.Get("start"), 0xFFFFFFFF, start) || !toU32(object.Get("end"), 0xFFFFFFFF, end)) {
    return false;
  }
  if (!is(keys, napi_biguint64_array) || !is(order, napi_uint32_array)) return false;
  const auto keyArray = keys.As<Napi::BigUint64Array>();
  const auto orderArray = order.As<Napi::Uint32Array>();
  part.keys = keyArray.Data();
  part.keyCount = keyArray.ElementLength();
  part.order = orderArray.Data();
  part.start = start;
  part.end = end;
  part.rows = nullptr;
  if (!toRate(object.Get("lr"), part.lr)) return false;
  if (start > end || end > orderArray.ElementLength()) return false;
  if (!toCounts(object.Get("counts"), part.keyCount, part.counts)) return false;
  if (!toScores(object.Get("scores"), part.keyCount, part.scores)) return false;
  if (rows.IsUndefined()) return part.lr == kNoRate && !part.counts && !part.scores;
  if (!is(rows, napi_float32_array)) return false;
  const auto rowArray = rows.As<Napi::Float32Array>();
  static const float kNothing = 0;  // an empty array may have no address, and nullptr means a pull
  part.rows = rowArray.Data() ? rowArray.Data() : &kNothing;
  return rowArray.ElementLength() == part.keyCount * part.width;
}

Napi::Value encode(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const std::uint32_t mode = arguments.u32(1);
  const Napi::Value list = arguments.next();
  if (arguments.ok() && !list.IsArray()) arguments.refuse("parts must be an array");
  Answer answer(env, arguments);
  if (!arguments.ok()) return env.Undefined();
  const auto array = list.As<Napi::Array>();
  if (array.Length() > kMaxTables) return fail(env, "BAD_ARGUMENT", "too many parts");
  std::vector<SectionPart> parts(array.Length());
  for (std::uint32_t i = 0; i < parts.size(); i++) {
    if (!readPart(array.Get(i), parts[i]))
      return fail(env, "BAD_ARGUMENT", "a part has a wrong field or length");
    if (!parts[i].rows != !parts[0].rows) return fail(env, "BAD_ARGUMENT", "all parts have rows, or none");
  }
  const std::size_t bytes = requestBytes(parts);
  if (bytes > kMaxAnswerBytes) return fail(env, "LIMIT", "the request is too large");
  std::uint8_t* out = answer.allocate(bytes);
  if (!out) return env.Undefined();
  if (!encodeRequest(mode, parts, out)) return fail(env, "BAD_ARGUMENT", "order has an index out of range");
  return answer.array();
}

Napi::Value scatter(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  auto target = arguments.floats();
  const std::uint32_t width = arguments.u32(kMaxStride / 4);
  const auto order = arguments.indices();
  const std::uint32_t start = arguments.u32(), end = arguments.u32();
  const View section = arguments.bytes();
  const double offset = arguments.number();
  if (!arguments.ok()) return env.Undefined();
  if (width < 1 || start > end || end > order.ElementLength() || !(offset >= 0 && offset <= 4294967295.0)) {
    return fail(env, "BAD_ARGUMENT", "width, range or offset does not fit the arrays");
  }
  const auto at = static_cast<std::size_t>(offset);
  if (start == end) return Napi::Number::New(env, offset);
  const std::size_t next =
      scatterRows(target.Data(), target.ElementLength(), width, order.Data(), start, end, section, at);
  if (!next) return fail(env, "BAD_FRAME", "the rows do not fit the section or the target");
  return Napi::Number::New(env, static_cast<double>(next));
}

Napi::Value unique(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const auto keys = arguments.keys();
  if (!arguments.ok()) return env.Undefined();
  auto inverse = Napi::Uint32Array::New(env, keys.ElementLength());
  if (!made(inverse)) return env.Undefined();
  std::vector<std::uint64_t> distinct;
  uniqueKeys(keys.Data(), keys.ElementLength(), distinct, inverse.Data());
  auto array = Napi::BigUint64Array::New(env, distinct.size());
  if (!made(array)) return env.Undefined();
  if (!distinct.empty()) std::memcpy(array.Data(), distinct.data(), distinct.size() * 8);
  auto object = Napi::Object::New(env);
  object.Set("keys", array);
  object.Set("inverse", inverse);
  return object;
}

/** (target, width, rows, inverse), the form of expandRows and sumRows. */
struct RowsCall {
  Napi::Float32Array target, rows;
  Napi::Uint32Array inverse;
  std::uint32_t width = 0;

  explicit RowsCall(Arguments& arguments) {
    target = arguments.floats();
    width = arguments.u32(kMaxStride / 4);
    rows = arguments.floats();
    inverse = arguments.indices();
    if (!arguments.ok()) return;
    if (width < 1 || rows.ElementLength() % width || target.ElementLength() % width)
      arguments.refuse("rows do not fit the width");
  }
};

Napi::Value expand(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  RowsCall call(arguments);
  if (!arguments.ok()) return env.Undefined();
  const std::size_t count = call.inverse.ElementLength();
  if (call.target.ElementLength() != count * call.width)
    return fail(env, "BAD_ARGUMENT", "target does not fit inverse");
  if (!expandRows(call.target.Data(), call.width, call.rows.Data(), call.rows.ElementLength() / call.width,
                  call.inverse.Data(), count)) {
    return fail(env, "BAD_ARGUMENT", "inverse has an index out of range");
  }
  return env.Undefined();
}

Napi::Value sum(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  RowsCall call(arguments);
  if (!arguments.ok()) return env.Undefined();
  const std::size_t count = call.inverse.ElementLength();
  if (call.rows.ElementLength() != count * call.width)
    return fail(env, "BAD_ARGUMENT", "rows do not fit inverse");
  if (!sumRows(call.target.Data(), call.target.ElementLength() / call.width, call.width, call.rows.Data(),
               call.inverse.Data(), count)) {
    return fail(env, "BAD_ARGUMENT", "inverse has an index out of range");
  }
  return env.Undefined();
}

Napi::Value mulAdd(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const View dst = arguments.bytes(), src = arguments.bytes();
  const std::uint32_t c = arguments.u32(255);
  if (!arguments.ok()) return env.Undefined();
  if (dst.size != src.size) return fail(env, "BAD_ARGUMENT", "dst and src differ in length");
  kernels().mulAdd(const_cast<std::uint8_t*>(dst.data), src.data, dst.size, static_cast<std::uint8_t>(c));
  return env.Undefined();
}

Napi::Value coefficientOf(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const std::uint32_t k = arguments.u32(kMaxMembers), r = arguments.u32(kMaxParities);
  const std::uint32_t parity = arguments.u32(), member = arguments.u32();
  if (arguments.ok() && (parity >= r || member >= k)) arguments.refuse("no such parity or member");
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), coefficient(parity, member));
}

Napi::Value rowWidth(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const std::uint32_t dim = arguments.u32(kMaxDim);
  TableSpec spec;
  spec.dim = dim;
  if (arguments.ok() && (dim < 1 || !readOptimizer(arguments.next(), spec.optimizer)))
    arguments.refuse("not an optimizer, or dim is 0");
  if (arguments.ok() && arguments.more() && !readPolicy(arguments.next(), spec.policy))
    arguments.refuse("not a policy");
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), spec.width());
}

Napi::Value optimizers(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto list = Napi::Array::New(env);
  for (const Optimizer& optimizer : kOptimizers) {
    auto names = Napi::Array::New(env);
    names.Set(0u, kLearningRate.name);
    for (const OptimizerParameter& parameter : optimizer.parameters)
      if (parameter.name) names.Set(names.Length(), parameter.name);
    auto item = Napi::Object::New(env);
    item.Set("kind", optimizer.name);
    item.Set("parameters", names);
    item.Set("fixedRate", Napi::Boolean::New(env, optimizer.fixedRate));
    list.Set(list.Length(), item);
  }
  return list;
}

Napi::Value schedules(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto list = Napi::Array::New(env);
  for (const Schedule& schedule : kSchedules) {
    auto names = Napi::Array::New(env);
    names.Set(0u, "warmup");
    for (const char* name : {schedule.length, schedule.value})
      if (name) names.Set(names.Length(), name);
    auto item = Napi::Object::New(env);
    item.Set("kind", schedule.name);
    item.Set("parameters", names);
    list.Set(list.Length(), item);
  }
  return list;
}

Napi::Value isa(const Napi::CallbackInfo& info) { return Napi::String::New(info.Env(), kernels().name); }

Napi::Value force(const Napi::CallbackInfo& info) {
  if (!info[0].IsString()) return fail(info.Env(), "BAD_ARGUMENT", "expected the name of an instruction set");
  return Napi::String::New(info.Env(), forceIsa(info[0].As<Napi::String>().Utf8Value().c_str()));
}

}  // namespace

void defineRouter(Napi::Env env, Napi::Object exports) {
  const auto set = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  exports.DefineProperty(Napi::PropertyDescriptor::Accessor<isa>("isa", napi_enumerable));
  set("forceIsa", force);
  set("coefficient", coefficientOf);
  set("rowWidth", rowWidth);
  set("optimizers", optimizers);
  set("schedules", schedules);
  set("partition", partitionKeys);
  set("encodeRequest", encode);
  set("scatterRows", scatter);
  set("unique", unique);
  set("expandRows", expand);
  set("sumRows", sum);
  set("mulAdd", mulAdd);
}

}  // namespace kintsugi::binding
