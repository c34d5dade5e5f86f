// Requests split by shard in one call, encoded for a node in one call, and the rows of an answer put where
// they belong in one call. Lists of words travel through JavaScript, so every index in them is checked here.
#include <algorithm>
#include <type_traits>

#include "binding/objects.h"
#include "engine/router.h"
#include "engine/sections.h"

namespace kintsugi::binding {
namespace {

/** Reads { table, width, keys, rows?, lr?, counts?, scores? }. */
bool readCall(Napi::Value value, Call& call) {
  if (!value.IsObject()) return false;
  const auto object = value.As<Napi::Object>();
  const Napi::Value keys = object.Get("keys"), rows = object.Get("rows");
  if (!toU32(object.Get("table"), 0x7FFFFFFF, call.table) ||
      !toU32(object.Get("width"), kMaxStride / 4, call.width) || !is(keys, napi_biguint64_array)) {
    return false;
  }
  const auto keyArray = keys.As<Napi::BigUint64Array>();
  call.keys = keyArray.Data();
  call.keyCount = keyArray.ElementLength();
  call.rows = nullptr;
  if (!toRate(object.Get("lr"), call.lr)) return false;
  if (!toCounts(object.Get("counts"), call.keyCount, call.counts)) return false;
  if (!toScores(object.Get("scores"), call.keyCount, call.scores)) return false;
  if (rows.IsUndefined()) return call.lr == kNoRate && !call.counts && !call.scores;
  if (!is(rows, napi_float32_array)) return false;
  const auto rowArray = rows.As<Napi::Float32Array>();
  static const float kNothing = 0;
  call.rows = rowArray.Data() ? rowArray.Data() : &kNothing;
  return rowArray.ElementLength() == call.keyCount * call.width;
}

bool readCalls(Napi::Value value, std::vector<Call>& calls) {
  if (!value.IsArray()) return false;
  const auto array = value.As<Napi::Array>();
  if (array.Length() > kMaxTables) return false;
  calls.resize(array.Length());
  for (std::uint32_t i = 0; i < calls.size(); i++) {
    if (!readCall(array.Get(i), calls[i]) || !calls[i].rows != !calls[0].rows) return false;
  }
  return true;
}

/** Lists of words that `splitCalls` made, or that pretend so: every index is checked where it is used. */
struct SplitArrays {
  std::vector<Napi::Uint32Array> orders;
  Napi::Uint32Array pieces, sections;

  bool read(Napi::Value value) {
    if (!value.IsObject()) return false;
    const auto object = value.As<Napi::Object>();
    const Napi::Value list = object.Get("orders");
    if (!list.IsArray() || !is(object.Get("pieces"), napi_uint32_array) ||
        !is(object.Get("sections"), napi_uint32_array)) {
      return false;
    }
    const auto array = list.As<Napi::Array>();
    for (std::uint32_t i = 0; i < array.Length(); i++) {
      if (!is(array.Get(i), napi_uint32_array)) return false;
      orders.push_back(array.Get(i).As<Napi::Uint32Array>());
    }
    pieces = object.Get("pieces").As<Napi::Uint32Array>();
    sections = object.Get("sections").As<Napi::Uint32Array>();
    return true;
  }

  /** Words of one section; false when there is none. */
  bool section(std::size_t index, SplitSection& out) const {
    if (index >= sections.ElementLength() / 4) return false;
    const std::uint32_t* words = sections.Data() + index * 4;
    out = {words[0], words[1], words[2], words[3]};
    return std::uint64_t{out.firstPiece} + out.pieces <= pieces.ElementLength() / 3;
  }

  /** Words of one piece, whose call and range exist. */
  bool piece(std::size_t index, std::size_t calls, Piece& out) const {
    const std::uint32_t* words = pieces.Data() + index * 3;
    out = {words[0], words[1], words[2]};
    return out.call < calls && out.call < orders.size() && out.start <= out.end &&
           out.end <= orders[out.call].ElementLength();
  }
};

template <class Struct>
Napi::Uint32Array toWords(Napi::Env env, const std::vector<Struct>& list) {
  static_assert(sizeof(Struct) % 4 == 0 && std::is_trivially_copyable_v<Struct>);
  auto array = Napi::Uint32Array::New(env, list.size() * (sizeof(Struct) / 4));
  if (made(array) && !list.empty()) std::memcpy(array.Data(), list.data(), list.size() * sizeof(Struct));
  return array;
}

Napi::Value splitCalls(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  std::vector<Call> calls;
  const Napi::Value list = arguments.next();
  const auto nodes = arguments.indices();
  const double sectionBytes = arguments.number(), roundBytes = arguments.number();
  const std::uint32_t each = arguments.more() ? arguments.u32() : kNoCall;
  if (arguments.ok() && !readCalls(list, calls)) arguments.refuse("a call has a wrong field or length");
  const std::size_t shards = arguments.ok() ? nodes.ElementLength() : 0;
  if (arguments.ok() && (shards < 1 || shards > kMaxShards)) arguments.refuse("too few or too many shards");
  if (arguments.ok() && !(sectionBytes >= 1 && sectionBytes <= kMaxAnswerBytes && roundBytes >= 1 &&
                          roundBytes <= kMaxAnswerBytes)) {
    arguments.refuse("a limit is out of range");
  }
  if (arguments.ok() && each != kNoCall && (each >= calls.size() || calls[each].keyCount != shards))
    arguments.refuse("the call for each shard has a key for each shard");
  if (!arguments.ok()) return env.Undefined();
  auto orders = Napi::Array::New(env, calls.size());
  std::vector<std::vector<std::uint32_t>> starts(calls.size());
  std::vector<const std::uint32_t*> firsts;
  for (std::uint32_t i = 0; i < calls.size(); i++) {
    auto order = Napi::Uint32Array::New(env, calls[i].keyCount);
    if (!made(order)) return env.Undefined();
    starts[i].resize(shards + 1);
    if (i == each) {
      for (std::uint32_t shard = 0; shard < shards; shard++) order.Data()[shard] = shard;
    } else {
      partition(calls[i].keys, calls[i].keyCount, static_cast<std::uint32_t>(shards), order.Data(),
                starts[i].data());
    }
    orders.Set(i, order);
    firsts.push_back(starts[i].data());
  }
  Split result;
  const SplitLimits limits{static_cast<std::uint64_t>(sectionBytes), static_cast<std::uint64_t>(roundBytes)};
  split(calls, firsts, nodes.Data(), static_cast<std::uint32_t>(shards), each, limits, result);
  auto runs = Napi::Float64Array::New(env, result.runs.size() * 5);
  if (!made(runs)) return env.Undefined();
  for (std::size_t i = 0; i < result.runs.size(); i++) {
    const Run& run = result.runs[i];
    const double words[5] = {double(run.round), double(run.node), double(run.firstSection),
                             double(run.sections), double(run.bytes)};
    std::memcpy(runs.Data() + i * 5, words, sizeof words);
  }
  const auto pieces = toWords(env, result.pieces), sections = toWords(env, result.sections);
  if (!made(pieces) || !made(sections)) return env.Undefined();
  auto object = Napi::Object::New(env);
  object.Set("orders", orders);
  object.Set("pieces", pieces);
  object.Set("sections", sections);
  object.Set("runs", runs);
  return object;
}

/** The pieces of a section as parts of a request. */
bool partsOf(const SplitArrays& arrays, const SplitSection& section, const std::vector<Call>& calls,
             std::vector<SectionPart>& parts) {
  parts.resize(section.pieces);
  for (std::uint32_t i = 0; i < section.pieces; i++) {
    Piece piece;
    if (!arrays.piece(section.firstPiece + i, calls.size(), piece)) return false;
    const Call& call = calls[piece.call];
    parts[i] = {
        call.table,  call.width, call.keys, call.rows,   call.keyCount, arrays.orders[piece.call].Data(),
        piece.start, piece.end,  call.lr,   call.counts, call.scores};
  }
  return true;
}

Napi::Value encodeSections(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const std::uint32_t mode = arguments.u32(1);
  std::vector<Call> calls;
  SplitArrays arrays;
  const Napi::Value list = arguments.next(), splitValue = arguments.next();
  const std::uint32_t first = arguments.u32(), count = arguments.u32();
  if (arguments.ok() && (!readCalls(list, calls) || !arrays.read(splitValue)))
    arguments.refuse("a call or the split has a wrong field or length");
  Answer answer(env, arguments);
  if (!arguments.ok()) return env.Undefined();
  std::vector<SectionPart> parts;
  std::size_t bytes = 0;
  SplitSection section;
  for (std::size_t i = 0; i < count; i++) {
    if (!arrays.section(first + i, section) || !partsOf(arrays, section, calls, parts) ||
        requestBytes(parts) != section.bytes) {
      return fail(env, "BAD_ARGUMENT", "the split does not fit the calls");
    }
    bytes += section.bytes;
    if (bytes > kMaxAnswerBytes) return fail(env, "LIMIT", "the request is too large");
  }
  std::uint8_t* out = answer.allocate(bytes);
  if (!out) return env.Undefined();
  for (std::size_t i = 0; i < count; i++) {
    arrays.section(first + i, section);
    partsOf(arrays, section, calls, parts);
    if (!encodeRequest(mode, parts, out)) return fail(env, "BAD_ARGUMENT", "order has an index out of range");
    out += section.bytes;
  }
  return answer.array();
}

/** (targets, widths, split, items, rows): rows of sections, (section, bytes) each, to their places. */
Napi::Value scatterSections(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const Napi::Value list = arguments.next();
  const auto widths = arguments.indices();
  SplitArrays arrays;
  const Napi::Value splitValue = arguments.next();
  const auto items = arguments.indices();
  const View rows = arguments.bytes();
  if (arguments.ok() && (!list.IsArray() || !arrays.read(splitValue)))
    arguments.refuse("the targets or the split have a wrong field");
  if (!arguments.ok()) return env.Undefined();
  std::vector<Napi::Float32Array> targets;
  for (std::uint32_t i = 0; i < list.As<Napi::Array>().Length(); i++) {
    const Napi::Value target = list.As<Napi::Array>().Get(i);
    if (!is(target, napi_float32_array) || i >= widths.ElementLength() || widths.Data()[i] < 1)
      return fail(env, "BAD_ARGUMENT", "a target is no Float32Array, or has no width");
    targets.push_back(target.As<Napi::Float32Array>());
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i + 1 < items.ElementLength(); i += 2) {
    const std::uint32_t bytes = items.Data()[i + 1];
    SplitSection section;
    if (!arrays.section(items.Data()[i], section)) return fail(env, "BAD_ARGUMENT", "no such section");
    if (bytes > rows.size - at) return fail(env, "BAD_FRAME", "the rows are too short");
    const View mine{rows.data + at, bytes};
    at += bytes;
    std::size_t offset = 0;
    for (std::uint32_t j = 0; j < section.pieces; j++) {
      Piece piece;
      if (!arrays.piece(section.firstPiece + j, targets.size(), piece))
        return fail(env, "BAD_ARGUMENT", "the split does not fit the targets");
      if (piece.start == piece.end) continue;
      Napi::Float32Array& target = targets[piece.call];
      offset = scatterRows(target.Data(), target.ElementLength(), widths.Data()[piece.call],
                           arrays.orders[piece.call].Data(), piece.start, piece.end, mine, offset);
      if (!offset) return fail(env, "BAD_FRAME", "the rows do not fit the section or the target");
    }
  }
  return env.Undefined();
}

}  // namespace

void defineSplit(Napi::Env env, Napi::Object exports) {
  const auto set = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  set("split", splitCalls);
  set("encodeSections", encodeSections);
  set("scatterSections", scatterSections);
}

}  // namespace kintsugi::binding
