// Snapshots of a shard, and rows that are loaded: the rest of ShardObject.
#include "binding/objects.h"

namespace kintsugi::binding {

namespace {

/** A typed array of `count` elements whose memory is not zeroed first. Empty if there is none; see `made`. */
template <class Array, class Element>
Array unzeroed(Napi::Env env, std::size_t count) {
  napi_value buffer;
  void* data;
  if (!count || napi_create_buffer(env, count * sizeof(Element), &data, &buffer) != napi_ok)
    return env.IsExceptionPending() ? Array() : Array::New(env, count);
  const auto bytes = Napi::Uint8Array(env, buffer);
  return Array::New(env, count, bytes.ArrayBuffer(), bytes.ByteOffset());
}

/** The arrays of one piece of a snapshot. */
struct Piece {
  std::uint32_t table = 0;
  Napi::BigUint64Array keys;
  Napi::Float32Array values, state;
  Napi::BigUint64Array removed;
  Napi::BigUint64Array slots;
  Napi::Uint8Array counters;

  bool allocate(Napi::Env env, const Table& from, std::size_t rows, RowArrays& to) {
    const TableSpec& spec = from.spec();
    table = spec.id;
    if (to.areCounters) return allocateCounters(env, spec.stride(), rows, to);
    keys = unzeroed<Napi::BigUint64Array, std::uint64_t>(env, rows);
    if (made(keys)) values = unzeroed<Napi::Float32Array, float>(env, rows * spec.dim);
    if (made(values)) state = unzeroed<Napi::Float32Array, float>(env, rows * (spec.width() - spec.dim));
    if (made(state) && to.removedCount)
      removed = unzeroed<Napi::BigUint64Array, std::uint64_t>(env, to.removedCount);
    if (env.IsExceptionPending() || !made(state) || (to.removedCount && !made(removed))) return false;
    to.keys = keys.Data();
    to.values = reinterpret_cast<std::uint8_t*>(values.Data());
    to.state = reinterpret_cast<std::uint8_t*>(state.Data());
    if (to.removedCount) to.removed = removed.Data();
    return true;
  }

  bool allocateCounters(Napi::Env env, std::size_t stride, std::size_t count, RowArrays& to) {
    keys = unzeroed<Napi::BigUint64Array, std::uint64_t>(env, 0);
    if (made(keys)) values = unzeroed<Napi::Float32Array, float>(env, 0);
    if (made(values)) state = unzeroed<Napi::Float32Array, float>(env, 0);
    if (made(state)) slots = unzeroed<Napi::BigUint64Array, std::uint64_t>(env, count);
    if (made(slots)) counters = unzeroed<Napi::Uint8Array, std::uint8_t>(env, count * stride);
    if (env.IsExceptionPending() || !made(counters)) return false;
    to.keys = slots.Data();
    to.values = counters.Data();
    return true;
  }
};

}  // namespace

Napi::Value ShardObject::beginSnapshot(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  const std::uint32_t since = arguments.u32();
  Serving serving;
  serving.valuesOnly = arguments.more() && arguments.boolean();
  if (arguments.more()) serving.minSightings = arguments.u32();
  if (arguments.more()) serving.maxAge = arguments.u32();
  if (arguments.more()) serving.maxSeconds = arguments.u32();
  if (!arguments.ok()) return env.Undefined();
  SnapshotBegun begun;
  if (const Fault fault = shard_->beginSnapshot(since, begun, serving)) return fail(env, fault);
  auto object = Napi::Object::New(env);
  object.Set("stamp", begun.stamp);
  object.Set("since", begun.since);
  object.Set("rows", static_cast<double>(begun.rows));
  object.Set("bytes", static_cast<double>(begun.bytes));
  return object;
}

Napi::Value ShardObject::readSnapshot(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  const std::uint32_t maxBytes = arguments.u32();
  if (!arguments.ok()) return env.Undefined();
  Piece piece;
  const Fault fault = shard_->readSnapshot(maxBytes, [&](const Table& from, std::size_t rows, RowArrays& to) {
    return piece.allocate(env, from, rows, to);
  });
  if (fault) return fail(env, fault);
  if (env.IsExceptionPending() || !made(piece.state)) return env.Undefined();
  auto object = Napi::Object::New(env);
  object.Set("table", piece.table);
  object.Set("keys", piece.keys);
  object.Set("values", piece.values);
  object.Set("state", piece.state);
  if (!piece.removed.IsEmpty()) object.Set("removed", piece.removed);
  if (!piece.slots.IsEmpty()) {
    auto filter = Napi::Object::New(env);
    filter.Set("slots", piece.slots);
    filter.Set("counters", piece.counters);
    object.Set("filter", filter);
  }
  return object;
}

Napi::Value ShardObject::endSnapshot(const Napi::CallbackInfo& info) {
  if (open(info.Env())) shard_->endSnapshot();
  return info.Env().Undefined();
}

Napi::Value ShardObject::snapshotBytes(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(shard_->snapshotBytes()));
}

Napi::Value ShardObject::loadRows(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  LoadedRows rows;
  rows.table = arguments.u32();
  const Napi::BigUint64Array keys = arguments.keys();
  const Napi::Float32Array values = arguments.floats(), state = arguments.floats();
  if (!arguments.ok()) return env.Undefined();
  rows.keys = keys.Data();
  rows.values = values.Data();
  rows.state = state.Data();
  rows.keyCount = keys.ElementLength();
  rows.valueCount = values.ElementLength();
  rows.stateCount = state.ElementLength();
  Status status;
  if (const Fault fault = shard_->loadRows(rows, status)) return fail(env, fault);
  return Napi::Number::New(env, static_cast<int>(status));
}

Napi::Value ShardObject::unloadRows(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  LoadedRows rows;
  rows.table = arguments.u32();
  const Napi::BigUint64Array keys = arguments.keys();
  if (!arguments.ok()) return env.Undefined();
  rows.keys = keys.Data();
  rows.keyCount = keys.ElementLength();
  Status status;
  if (const Fault fault = shard_->unloadRows(rows, status)) return fail(env, fault);
  return Napi::Number::New(env, static_cast<int>(status));
}

Napi::Value ShardObject::filters(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  auto all = Napi::Array::New(env);
  for (const auto& [table, filter, waiting] : shard_->filters()) {
    auto object = Napi::Object::New(env);
    object.Set("table", table);
    object.Set("line", static_cast<double>(filter.line));
    object.Set("first", static_cast<double>(filter.first));
    object.Set("slots", filter.slots);
    object.Set("hashes", filter.hashes);
    object.Set("capacity", filter.capacity);
    object.Set("waiting", waiting);
    all.Set(all.Length(), object);
  }
  return all;
}

Napi::Value ShardObject::loadFilter(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  LoadedFilter filter;
  filter.table = arguments.u32();
  const Napi::BigUint64Array slots = arguments.keys();
  const auto counters = arguments.typed<Napi::Uint8Array>(napi_uint8_array, "counters must be a Uint8Array");
  filter.waiting = arguments.u32();
  if (!arguments.ok()) return env.Undefined();
  filter.slots = slots.Data();
  filter.counters = counters.Data();
  filter.slotCount = slots.ElementLength();
  filter.byteCount = counters.ElementLength();
  Status status;
  if (const Fault fault = shard_->loadFilter(filter, status)) return fail(env, fault);
  return Napi::Number::New(env, static_cast<int>(status));
}

Napi::Value ShardObject::serve(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  Serving serving;
  serving.valuesOnly = true;
  serving.minSightings = arguments.u32();
  serving.maxAge = arguments.u32();
  if (arguments.more()) serving.maxSeconds = arguments.u32();
  if (arguments.ok()) shard_->serve(serving);
  return info.Env().Undefined();
}

Napi::Value ShardObject::readValues(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  WantedValues wanted;
  wanted.table = arguments.u32();
  const Napi::BigUint64Array keys = arguments.keys();
  Napi::Float32Array into = arguments.floats();
  wanted.initial = arguments.boolean();
  Napi::Uint8Array found;
  if (arguments.more())
    found = arguments.typed<Napi::Uint8Array>(napi_uint8_array, "found must be a Uint8Array");
  if (!arguments.ok()) return env.Undefined();
  wanted.keys = keys.Data();
  wanted.keyCount = keys.ElementLength();
  wanted.into = into.Data();
  wanted.floatCount = into.ElementLength();
  if (!found.IsEmpty()) {
    if (found.ElementLength() != wanted.keyCount)
      return fail(env, "BAD_ARGUMENT", "found needs a byte for each key");
    wanted.found = found.Data();
  }
  std::size_t count = 0;
  if (const Fault fault = shard_->readValues(wanted, count)) return fail(env, fault);
  return Napi::Number::New(env, static_cast<double>(count));
}

}  // namespace kintsugi::binding
