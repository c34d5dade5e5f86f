#include <algorithm>

#include "binding/objects.h"

namespace kintsugi::binding {

Napi::Function ShardObject::define(Napi::Env env) {
  using S = ShardObject;
  return DefineClass(env, "NativeShard",
                     {InstanceMethod<&S::addTable>("addTable"),
                      InstanceMethod<&S::dropTable>("dropTable"),
                      InstanceMethod<&S::adopt>("adopt"),
                      InstanceMethod<&S::checkExtents>("checkExtents"),
                      InstanceMethod<&S::push>("push"),
                      InstanceMethod<&S::pull>("pull"),
                      InstanceMethod<&S::missing>("missing"),
                      InstanceAccessor<&S::dirty>("dirty"),
                      InstanceAccessor<&S::openBytes>("openBytes"),
                      InstanceMethod<&S::flush>("flush"),
                      InstanceMethod<&S::dropBatch>("dropBatch"),
                      InstanceMethod<&S::watch>("watch"),
                      InstanceMethod<&S::tell>("tell"),
                      InstanceMethod<&S::takeEvicted>("takeEvicted"),
                      InstanceMethod<&S::read>("read"),
                      InstanceMethod<&S::applyDelta>("applyDelta"),
                      InstanceMethod<&S::install>("install"),
                      InstanceMethod<&S::filterAbsent>("filterAbsent"),
                      InstanceMethod<&S::nextAbsent>("nextAbsent"),
                      InstanceAccessor<&S::absentKeyBlocks>("absentKeyBlocks"),
                      InstanceAccessor<&S::absentRowBlocks>("absentRowBlocks"),
                      InstanceAccessor<&S::keysReady>("keysReady"),
                      InstanceMethod<&S::tableReady>("tableReady"),
                      InstanceMethod<&S::addEquations>("addEquations"),
                      InstanceMethod<&S::dropEquations>("dropEquations"),
                      InstanceMethod<&S::beginSnapshot>("beginSnapshot"),
                      InstanceMethod<&S::readSnapshot>("readSnapshot"),
                      InstanceMethod<&S::endSnapshot>("endSnapshot"),
                      InstanceAccessor<&S::snapshotBytes>("snapshotBytes"),
                      InstanceMethod<&S::loadRows>("loadRows"),
                      InstanceMethod<&S::unloadRows>("unloadRows"),
                      InstanceMethod<&S::filters>("filters"),
                      InstanceMethod<&S::loadFilter>("loadFilter"),
                      InstanceMethod<&S::serve>("serve"),
                      InstanceMethod<&S::readValues>("readValues"),
                      InstanceMethod<&S::extents>("extents"),
                      InstanceMethod<&S::extentsOf>("extentsOf"),
                      InstanceMethod<&S::keys>("keys"),
                      InstanceMethod<&S::keysInOrder>("keysInOrder"),
                      InstanceMethod<&S::stats>("stats"),
                      InstanceAccessor<&S::rows>("rows"),
                      InstanceAccessor<&S::bytes>("bytes"),
                      InstanceMethod<&S::close>("close")});
}

ShardObject::ShardObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<ShardObject>(info) {
  Arguments arguments(info);
  MemoryObject* memory = MemoryObject::from(arguments.next());
  if (!memory) {
    arguments.refuse("memory must come from createMemory");
    return;
  }
  const std::uint32_t member = arguments.u32(kMaxMembers - 1), k = arguments.u32(kMaxMembers),
                      r = arguments.u32(kMaxParities);
  if (!arguments.ok()) return;
  if (k < 1 || member >= k) {
    arguments.refuse("member must be below k, and k at least 1");
    return;
  }
  shard_ = std::make_unique<Shard>(memory->memory(), member, k, r);
}

bool ShardObject::open(Napi::Env env) const {
  if (!shard_) fail(env, "CLOSED", "this shard is closed");
  return shard_ != nullptr;
}

Napi::Value ShardObject::addTable(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  TableSpec spec;
  if (!readTable(info[0], spec)) return fail(info.Env(), "BAD_ARGUMENT", "not a table specification");
  if (const Fault fault = shard_->addTable(spec)) return fail(info.Env(), fault);
  return info.Env().Undefined();
}

Napi::Value ShardObject::dropTable(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t table = arguments.u32();
  if (arguments.ok()) shard_->dropTable(table);
  return info.Env().Undefined();
}

Napi::Value ShardObject::adopt(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t table = arguments.u32(), extent = arguments.u32();
  if (!arguments.ok()) return info.Env().Undefined();
  if (const Fault fault = shard_->adopt(table, extent)) return fail(info.Env(), fault);
  return info.Env().Undefined();
}

Napi::Value ShardObject::checkExtents(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::vector<ExtentOf> extents = arguments.extents();
  if (!arguments.ok()) return info.Env().Undefined();
  if (const Fault fault = shard_->checkExtents(extents)) return fail(info.Env(), fault);
  return info.Env().Undefined();
}

Napi::Value ShardObject::push(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const View section = arguments.bytes();
  const std::size_t maxDelta = info.Length() > 1 ? arguments.u32() : kMaxDeltaBytes;
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(),
                           static_cast<int>(shard_->push(section, std::min(maxDelta, kMaxDeltaBytes))));
}

Napi::Value ShardObject::pull(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const View section = arguments.bytes();
  Answer answer(info.Env(), arguments);
  if (!arguments.ok()) return info.Env().Undefined();
  const Status status = shard_->pull(section, answer.allocator());
  if (info.Env().IsExceptionPending()) return info.Env().Undefined();
  if (status == Status::Applied) return answer.array();
  return Napi::Number::New(info.Env(), static_cast<int>(status));
}

Napi::Value ShardObject::missing(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return toArray(info.Env(), shard_->missing());
}

Napi::Value ShardObject::dirty(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Boolean::New(info.Env(), shard_->dirty());
}

Napi::Value ShardObject::openBytes(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(shard_->openBytes()));
}

Napi::Value ShardObject::flush(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Answer answer(info.Env());
  shard_->flush(answer.allocator());
  if (info.Env().IsExceptionPending()) return info.Env().Undefined();
  return answer.array();
}

Napi::Value ShardObject::dropBatch(const Napi::CallbackInfo& info) {
  if (open(info.Env())) shard_->dropBatch();
  return info.Env().Undefined();
}

Napi::Value ShardObject::read(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  const BlockList blocks = arguments.blocks();
  Answer answer(env, arguments);
  if (!arguments.ok()) return env.Undefined();
  ReadResult result;
  if (const Fault fault = shard_->read(blocks, result, answer.allocator())) return fail(env, fault);
  if (env.IsExceptionPending()) return env.Undefined();
  auto object = Napi::Object::New(env);
  object.Set("present", toArray(env, result.present));
  object.Set("bytes", answer.array());
  object.Set("lacking", toArray(env, result.lacking));
  return object;
}

Napi::Value ShardObject::applyDelta(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const View delta = arguments.bytes();
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<int>(shard_->applyDelta(delta)));
}

Napi::Value ShardObject::install(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const BlockList blocks = arguments.blocks();
  const View bytes = arguments.bytes();
  if (!arguments.ok()) return info.Env().Undefined();
  std::uint32_t installed = 0;
  if (const Fault fault = shard_->install(blocks, bytes, installed)) return fail(info.Env(), fault);
  return Napi::Number::New(info.Env(), installed);
}

Napi::Value ShardObject::filterAbsent(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const BlockList blocks = arguments.blocks();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs absent;
  if (const Fault fault = shard_->filterAbsent(blocks, absent)) return fail(info.Env(), fault);
  return toArray(info.Env(), absent);
}

Napi::Value ShardObject::nextAbsent(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t kind = arguments.u32(1), max = arguments.u32();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs absent;
  shard_->nextAbsent(static_cast<ColumnKind>(kind), max, absent);
  return toArray(info.Env(), absent);
}

Napi::Value ShardObject::absentKeyBlocks(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(shard_->absentBlocks(kKeys)));
}

Napi::Value ShardObject::absentRowBlocks(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(shard_->absentBlocks(kRows)));
}

Napi::Value ShardObject::keysReady(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Boolean::New(info.Env(), shard_->keysReady());
}

Napi::Value ShardObject::tableReady(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const Table* table = shard_->table(arguments.u32());
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Boolean::New(info.Env(), !table || table->keysAreKnown());
}

Napi::Value ShardObject::addEquations(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  const std::uint32_t parity = arguments.u32(kMaxParities - 1), parityCount = arguments.u32(kMaxParities);
  const std::vector<std::uint32_t> lacking = arguments.u32s();
  const bool ok = arguments.boolean();
  const BlockList blocks = arguments.blocks();
  const View bytes = arguments.bytes();
  if (!arguments.ok()) return env.Undefined();
  EquationsResult result;
  const Fault fault = shard_->addEquations(parity, parityCount, lacking, ok, blocks, bytes, result);
  if (fault) return fail(env, fault);
  auto others = Napi::Array::New(env, result.others.size());
  for (std::uint32_t i = 0; i < result.others.size(); i++) {
    auto other = Napi::Object::New(env);
    other.Set("member", result.others[i].member);
    other.Set("blocks", toArray(env, result.others[i].blocks));
    other.Set("bytes", toBytes(env, result.others[i].bytes));
    others.Set(i, other);
  }
  auto object = Napi::Object::New(env);
  object.Set("installed", result.installed);
  object.Set("others", others);
  object.Set("stuck", toArray(env, result.stuck));
  return object;
}

Napi::Value ShardObject::dropEquations(const Napi::CallbackInfo& info) {
  if (open(info.Env())) shard_->dropEquations();
  return info.Env().Undefined();
}

Napi::Value ShardObject::extents(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return toExtents(info.Env(), shard_->extents());
}

Napi::Value ShardObject::extentsOf(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const BlockList blocks = arguments.blocks();
  if (!arguments.ok()) return info.Env().Undefined();
  return toExtents(info.Env(), shard_->extentsOf(blocks));
}

/** A page of keys, and where the next one begins. */
static Napi::Value toPage(Napi::Env env, const std::vector<std::uint64_t>& found, Napi::Value next) {
  auto keys = Napi::BigUint64Array::New(env, found.size());
  if (!made(keys)) return env.Undefined();
  if (!found.empty()) std::memcpy(keys.Data(), found.data(), found.size() * 8);
  auto object = Napi::Object::New(env);
  object.Set("keys", keys);
  object.Set("next", next);
  return object;
}

Napi::Value ShardObject::keys(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  const std::uint32_t id = arguments.u32(), from = arguments.u32(), max = arguments.u32();
  if (!arguments.ok()) return env.Undefined();
  const Table* table = shard_->table(id);
  if (!table) return fail(env, "UNKNOWN_TABLE", "no such table in this shard");
  std::uint32_t slot = from;
  const std::vector<std::uint64_t> found = table->keysBySlot(slot, max);
  const double next = slot < table->extent() ? static_cast<double>(slot) : -1.0;
  return toPage(env, found, Napi::Number::New(env, next));
}

Napi::Value ShardObject::keysInOrder(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  Arguments arguments(info);
  const std::uint32_t id = arguments.u32();
  const std::uint64_t least = arguments.u64();
  const std::uint32_t max = arguments.u32();
  if (!arguments.ok()) return env.Undefined();
  if (!max) return fail(env, "BAD_ARGUMENT", "a page has at least one key");
  const Table* table = shard_->table(id);
  if (!table) return fail(env, "UNKNOWN_TABLE", "no such table in this shard");
  bool more = false;
  const std::vector<std::uint64_t> found = table->keysInOrder(least, max, more);
  if (!more) return toPage(env, found, Napi::Number::New(env, -1));
  return toPage(env, found, Napi::BigInt::New(env, found.back() + 1));
}

Napi::Value ShardObject::stats(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  const std::vector<TableStats> stats = shard_->stats();
  auto list = Napi::Array::New(env, stats.size());
  for (std::uint32_t i = 0; i < stats.size(); i++) {
    auto item = Napi::Object::New(env);
    item.Set("table", stats[i].table);
    item.Set("rows", static_cast<double>(stats[i].rows));
    item.Set("extent", stats[i].extent);
    item.Set("absentKeyBlocks", static_cast<double>(stats[i].absentKeyBlocks));
    item.Set("absentRowBlocks", static_cast<double>(stats[i].absentRowBlocks));
    const LifeCounts& counts = stats[i].counts;
    if (stats[i].hasPolicy || counts.deleted) {
      auto life = Napi::Object::New(env);
      life.Set("expired", static_cast<double>(counts.expired));
      life.Set("rare", static_cast<double>(counts.rare));
      life.Set("faint", static_cast<double>(counts.faint));
      life.Set("displaced", static_cast<double>(counts.displaced));
      life.Set("deleted", static_cast<double>(counts.deleted));
      life.Set("refused", static_cast<double>(counts.refused));
      item.Set("life", life);
    }
    list.Set(i, item);
  }
  return list;
}

Napi::Value ShardObject::tell(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t seconds = arguments.u32(), maxDelta = arguments.u32();
  if (arguments.ok()) shard_->tell(seconds, std::min<std::size_t>(maxDelta, kMaxDeltaBytes));
  return info.Env().Undefined();
}

Napi::Value ShardObject::watch(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t table = arguments.u32();
  const bool on = arguments.boolean();
  if (arguments.ok()) shard_->watch(table, on);
  return info.Env().Undefined();
}

Napi::Value ShardObject::takeEvicted(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  const auto taken = shard_->takeEvicted();
  auto list = Napi::Array::New(env, taken.size());
  for (std::uint32_t i = 0; i < taken.size(); i++) {
    const auto& [table, some] = taken[i];
    auto keys = Napi::BigUint64Array::New(env, some.keys.size());
    auto reasons = Napi::Uint8Array::New(env, some.reasons.size());
    if (!made(keys) || !made(reasons)) return env.Undefined();
    std::copy(some.keys.begin(), some.keys.end(), keys.Data());
    std::copy(some.reasons.begin(), some.reasons.end(), reasons.Data());
    auto item = Napi::Object::New(env);
    item.Set("table", table);
    item.Set("keys", keys);
    item.Set("reasons", reasons);
    list.Set(i, item);
  }
  return list;
}

Napi::Value ShardObject::rows(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(shard_->rows()));
}

Napi::Value ShardObject::bytes(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(shard_->bytes()));
}

Napi::Value ShardObject::close(const Napi::CallbackInfo& info) {
  shard_.reset();
  return info.Env().Undefined();
}

}  // namespace kintsugi::binding
