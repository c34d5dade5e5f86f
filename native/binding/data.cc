// Lines of data files as rows of a batch. The arrays that are filled belong to JavaScript.
#include "binding/data.h"

#include "binding/objects.h"
#include "data/checksum.h"
#include "kernels/kernels.h"

namespace kintsugi::binding {
namespace {

/** Numbers of the state that both sides share: rows so far and capacity go in, the rest comes out. */
enum State : std::size_t { kRows, kCapacity, kAt, kLines, kWhy, kLateCount, kColumn, kCounts };

constexpr std::size_t kMostFields = 1 << 20;

bool vector() { return &kernels() != &kScalarKernels; }

struct Text {
  View bytes;
  std::size_t from = 0, until = 0;
};

/** (bytes, from, until) */
bool readText(Arguments& arguments, Text& out) {
  out.bytes = arguments.bytes();
  out.from = arguments.u32();
  out.until = arguments.u32();
  if (!arguments.ok()) return false;
  if (out.until > out.bytes.size) out.until = out.bytes.size;
  if (out.from > out.bytes.size || out.bytes.size > 0x7FFFFFFF)
    arguments.refuse("the text begins beyond its end, or is too long");
  return arguments.ok();
}

/** (state) */
bool readState(Arguments& arguments, std::size_t lists, std::uint32_t*& out) {
  auto state = arguments.indices();
  if (!arguments.ok()) return false;
  out = state.Data();
  if (state.ElementLength() < kCounts + lists || out[kRows] > out[kCapacity])
    arguments.refuse("the state is too short, or says more rows than there may be");
  return arguments.ok();
}

/** (table, places, numbers) */
bool readLogarithms(Arguments& arguments, std::size_t perRow, Logarithms& out) {
  const auto table = arguments.floats();
  auto places = arguments.indices();
  auto numbers = arguments.typed<Napi::Float64Array>(napi_float64_array, "expected a Float64Array");
  if (!arguments.ok()) return false;
  out.table = table.Data();
  out.size = table.ElementLength();
  out.places = places.Data();
  out.numbers = numbers.Data();
  out.capacity = std::min(places.ElementLength(), numbers.ElementLength());
  if (out.capacity < perRow) arguments.refuse("there is no room for the numbers of a row");
  return arguments.ok();
}

void writeState(const Stopped& stopped, std::uint32_t rows, const Logarithms& logarithms,
                std::uint32_t* state) {
  state[kRows] = rows;
  state[kAt] = static_cast<std::uint32_t>(stopped.at);
  state[kLines] = stopped.lines;
  state[kWhy] = static_cast<std::uint32_t>(stopped.why);
  state[kLateCount] = static_cast<std::uint32_t>(logarithms.count);
  state[kColumn] = stopped.column;
}

/** (bytes, from, until, state, labels, dense, keys, table, places, numbers) */
Napi::Value criteo(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  Text text;
  Logarithms logarithms;
  std::uint32_t* state = nullptr;
  if (!readText(arguments, text) || !readState(arguments, 0, state)) return info.Env().Undefined();
  auto labels = arguments.floats(), dense = arguments.floats();
  auto keys = arguments.keys();
  if (!arguments.ok() || !readLogarithms(arguments, kCriteoDense, logarithms)) return info.Env().Undefined();
  CriteoRows rows{state[kRows], state[kCapacity], labels.Data(), dense.Data(), keys.Data()};
  const std::size_t capacity = rows.capacity;
  if (labels.ElementLength() < capacity || dense.ElementLength() / kCriteoDense < capacity ||
      keys.ElementLength() / kCriteoKeys < capacity) {
    arguments.refuse("the arrays of the batch are too short");
    return info.Env().Undefined();
  }
  const Stopped stopped = parseCriteo(text.bytes, text.from, text.until, rows, logarithms, vector());
  writeState(stopped, rows.size, logarithms, state);
  return info.Env().Undefined();
}

// The plan of a schema.

double numberOf(Napi::Object object, const char* name) {
  const Napi::Value value = object.Get(name);
  return value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : 0;
}

bool flagOf(Napi::Object object, const char* name) {
  const Napi::Value value = object.Get(name);
  return value.IsBoolean() && value.As<Napi::Boolean>().Value();
}

bool placeOf(Napi::Object object, const char* name, std::uint32_t fields, std::uint32_t& out) {
  return toU32(object.Get(name), fields - 1, out);
}

/** A place, or none where the field is not there. */
bool perhapsPlaceOf(Napi::Object object, const char* name, std::uint32_t fields, std::uint32_t& out) {
  return object.Get(name).IsUndefined() || placeOf(object, name, fields, out);
}

template <class Column>
bool columnsOf(Napi::Object object, const char* name, std::vector<Column>& out,
               bool (*read)(Napi::Object, std::uint32_t, Column&), std::uint32_t fields) {
  const Napi::Value value = object.Get(name);
  if (!value.IsArray()) return false;
  const auto list = value.As<Napi::Array>();
  for (std::uint32_t i = 0; i < list.Length(); i++) {
    const Napi::Value item = list.Get(i);
    Column column;
    if (!item.IsObject() || !read(item.As<Napi::Object>(), fields, column)) return false;
    out.push_back(std::move(column));
  }
  return true;
}

bool readLabel(Napi::Object object, std::uint32_t fields, LabelColumn& out) {
  out.threshold = object.Get("atLeast").IsNumber();
  out.atLeast = numberOf(object, "atLeast");
  out.any = flagOf(object, "any");
  return placeOf(object, "place", fields, out.place);
}

bool readDense(Napi::Object object, std::uint32_t fields, DenseColumn& out) {
  std::uint32_t kind = 0;
  const Napi::Value boundaries = object.Get("boundaries");
  if (!placeOf(object, "place", fields, out.place) || !toU32(object.Get("kind"), 3, kind)) return false;
  out.kind = static_cast<TransformKind>(kind);
  out.mean = numberOf(object, "mean");
  out.std = numberOf(object, "std");
  if (out.kind != TransformKind::Bucketise) return true;
  if (!is(boundaries, napi_float64_array)) return false;
  const auto list = boundaries.As<Napi::Float64Array>();
  out.boundaries.assign(list.Data(), list.Data() + list.ElementLength());
  return true;
}

bool readSparse(Napi::Object object, std::uint32_t fields, SparseColumn& out) {
  std::uint32_t kind = 0;
  out.shared = flagOf(object, "shared");
  out.utf8 = flagOf(object, "utf8");
  out.multi = flagOf(object, "multi");
  out.whole = flagOf(object, "whole");
  const Napi::Value separator = object.Get("separator");
  if (separator.IsString()) out.separator = separator.As<Napi::String>().Utf8Value();
  out.key = toU32(object.Get("key"), 6, kind) ? static_cast<KeyKind>(kind) : KeyKind::String;
  return placeOf(object, "place", fields, out.place) &&
         perhapsPlaceOf(object, "weights", fields, out.weights) &&
         toU32(object.Get("seed"), 0xFFFFFFFF, out.seed) &&
         toU32(object.Get("limit"), 0x7FFFFFFF, out.limit) && (!out.multi || !out.separator.empty());
}

Napi::Value createLineParser(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  LinePlan plan;
  if (!readPlan(arguments.next(), plan)) {
    arguments.refuse("a column of the plan has a wrong field");
    return info.Env().Undefined();
  }
  return Napi::External<LineParser>::New(info.Env(), new LineParser(std::move(plan)),
                                         [](Napi::Env, LineParser* parser) { delete parser; });
}

/** [keys, offsets, weights?] of each sparse column */
bool readLists(Napi::Value value, const LinePlan& plan, std::size_t capacity, const std::uint32_t* counts,
               std::vector<KeyList>& out) {
  if (!value.IsArray() || value.As<Napi::Array>().Length() != plan.sparse.size()) return false;
  for (std::size_t i = 0; i < plan.sparse.size(); i++) {
    const Napi::Value item = value.As<Napi::Array>().Get(static_cast<std::uint32_t>(i));
    if (!item.IsArray()) return false;
    const Napi::Value keys = item.As<Napi::Array>().Get(0u), offsets = item.As<Napi::Array>().Get(1u),
                      weights = item.As<Napi::Array>().Get(2u);
    if (!is(keys, napi_biguint64_array) || !is(offsets, napi_uint32_array)) return false;
    KeyList list;
    list.keys = keys.As<Napi::BigUint64Array>().Data();
    list.capacity = keys.As<Napi::BigUint64Array>().ElementLength();
    list.offsets = offsets.As<Napi::Uint32Array>().Data();
    list.count = counts[i];
    if (list.count > list.capacity || offsets.As<Napi::Uint32Array>().ElementLength() <= capacity)
      return false;
    if (plan.sparse[i].weights != kNoPlace) {
      if (!is(weights, napi_float32_array)) return false;
      list.weights = weights.As<Napi::Float32Array>().Data();
      if (weights.As<Napi::Float32Array>().ElementLength() < list.capacity) return false;
    }
    out.push_back(list);
  }
  return true;
}

/** (parser, bytes, from, until, state, targets, dense, weights, times, lists, table, places, numbers) */
Napi::Value parseLines(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  LineParser* const parser = arguments.external<LineParser>("expected a parser");
  if (parser == nullptr) return info.Env().Undefined();
  Text text;
  RowsArgument argument;
  if (!readText(arguments, text) || !readRows(arguments, parser->plan(), argument))
    return info.Env().Undefined();
  const Stopped stopped =
      parser->parse(text.bytes, text.from, text.until, argument.rows, argument.logarithms, vector());
  writeRows(stopped, argument);
  return info.Env().Undefined();
}

/** (bytes) */
Napi::Value checksum(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const View bytes = arguments.bytes();
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), crc32(bytes));
}

/** (state, bytes): adds the bytes; the lower half of the hash of all so far. */
Napi::Value xxh64(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  auto state = arguments.typed<Napi::BigUint64Array>(napi_biguint64_array, "expected a BigUint64Array");
  const View bytes = arguments.bytes();
  if (arguments.ok() && state.ByteLength() != sizeof(Xxh64)) arguments.refuse("the state has another length");
  if (!arguments.ok()) return info.Env().Undefined();
  Xxh64 sum;
  std::memcpy(static_cast<void*>(&sum), state.Data(), sizeof(Xxh64));
  sum.add(bytes);
  std::memcpy(state.Data(), static_cast<void*>(&sum), sizeof(Xxh64));
  return Napi::Number::New(info.Env(), static_cast<std::uint32_t>(sum.digest()));
}

}  // namespace

bool readPlan(Napi::Value value, LinePlan& out) {
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  std::uint32_t delimiter = 0;
  if (!toU32(object.Get("delimiter"), 127, delimiter) ||
      !toU32(object.Get("fields"), kMostFields, out.fields) || out.fields == 0) {
    return false;
  }
  out.delimiter = static_cast<std::uint8_t>(delimiter);
  return columnsOf(object, "labels", out.labels, readLabel, out.fields) &&
         columnsOf(object, "dense", out.dense, readDense, out.fields) &&
         columnsOf(object, "sparse", out.sparse, readSparse, out.fields) &&
         perhapsPlaceOf(object, "weight", out.fields, out.weight) &&
         perhapsPlaceOf(object, "time", out.fields, out.time);
}

bool readRows(Arguments& arguments, const LinePlan& plan, RowsArgument& out) {
  if (!readState(arguments, plan.sparse.size(), out.state)) return false;
  auto targets = arguments.floats(), dense = arguments.floats(), weights = arguments.floats();
  auto times = arguments.typed<Napi::Float64Array>(napi_float64_array, "expected a Float64Array");
  const Napi::Value lists = arguments.next();
  if (!arguments.ok() || !readLogarithms(arguments, plan.logarithms(), out.logarithms)) return false;
  SchemaRows& rows = out.rows;
  rows.size = out.state[kRows];
  rows.capacity = out.state[kCapacity];
  rows.targets = targets.Data();
  rows.dense = dense.Data();
  rows.weights = weights.Data();
  rows.times = times.Data();
  const std::size_t capacity = rows.capacity;
  if (targets.ElementLength() < capacity * plan.labels.size() ||
      dense.ElementLength() < capacity * plan.denseWidth() ||
      (plan.weight != kNoPlace && weights.ElementLength() < capacity) ||
      (plan.time != kNoPlace && times.ElementLength() < capacity) ||
      !readLists(lists, plan, capacity, out.state + kCounts, rows.lists)) {
    arguments.refuse("the arrays of the batch are too short, or of another kind");
  }
  return arguments.ok();
}

void writeRows(const Stopped& stopped, const RowsArgument& from) {
  writeState(stopped, from.rows.size, from.logarithms, from.state);
  for (std::size_t i = 0; i < from.rows.lists.size(); i++)
    from.state[kCounts + i] = static_cast<std::uint32_t>(from.rows.lists[i].count);
}

void defineData(Napi::Env env, Napi::Object exports) {
  const auto set = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  set("parseCriteo", criteo);
  set("createLineParser", createLineParser);
  set("parseLines", parseLines);
  set("crc32", checksum);
  set("xxh64", xxh64);
}

}  // namespace kintsugi::binding
