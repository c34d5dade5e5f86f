// The classes behind NativeMemory, NativeShard and NativeSink. Each wrapper owns its engine object and shares
// the memory budget, so the order in which JavaScript lets go of them does not matter. After close() there is
// no engine object and every method throws CLOSED.
#pragma once
#include <napi.h>

#include <memory>

#include "binding/arguments.h"
#include "engine/memory.h"
#include "engine/shard.h"
#include "engine/sink.h"

namespace kintsugi::binding {

class MemoryObject : public Napi::ObjectWrap<MemoryObject> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit MemoryObject(const Napi::CallbackInfo& info);
  /** nullptr if the value is not one of these. */
  static MemoryObject* from(Napi::Value value);
  const std::shared_ptr<Memory>& memory() const { return memory_; }

 private:
  Napi::Value usedBytes(const Napi::CallbackInfo& info);
  Napi::Value limitBytes(const Napi::CallbackInfo& info);
  std::shared_ptr<Memory> memory_;
};

class ShardObject : public Napi::ObjectWrap<ShardObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /** (memory, member, k, r) */
  explicit ShardObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value addTable(const Napi::CallbackInfo& info);
  Napi::Value dropTable(const Napi::CallbackInfo& info);
  Napi::Value adopt(const Napi::CallbackInfo& info);
  Napi::Value checkExtents(const Napi::CallbackInfo& info);
  Napi::Value push(const Napi::CallbackInfo& info);
  Napi::Value pull(const Napi::CallbackInfo& info);
  Napi::Value missing(const Napi::CallbackInfo& info);
  Napi::Value dirty(const Napi::CallbackInfo& info);
  Napi::Value openBytes(const Napi::CallbackInfo& info);
  Napi::Value flush(const Napi::CallbackInfo& info);
  Napi::Value dropBatch(const Napi::CallbackInfo& info);
  Napi::Value watch(const Napi::CallbackInfo& info);
  Napi::Value tell(const Napi::CallbackInfo& info);
  Napi::Value takeEvicted(const Napi::CallbackInfo& info);
  Napi::Value applyDelta(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value install(const Napi::CallbackInfo& info);
  Napi::Value filterAbsent(const Napi::CallbackInfo& info);
  Napi::Value nextAbsent(const Napi::CallbackInfo& info);
  Napi::Value absentKeyBlocks(const Napi::CallbackInfo& info);
  Napi::Value absentRowBlocks(const Napi::CallbackInfo& info);
  Napi::Value keysReady(const Napi::CallbackInfo& info);
  Napi::Value tableReady(const Napi::CallbackInfo& info);
  Napi::Value addEquations(const Napi::CallbackInfo& info);
  Napi::Value dropEquations(const Napi::CallbackInfo& info);
  Napi::Value beginSnapshot(const Napi::CallbackInfo& info);
  Napi::Value readSnapshot(const Napi::CallbackInfo& info);
  Napi::Value endSnapshot(const Napi::CallbackInfo& info);
  Napi::Value snapshotBytes(const Napi::CallbackInfo& info);
  Napi::Value loadRows(const Napi::CallbackInfo& info);
  Napi::Value unloadRows(const Napi::CallbackInfo& info);
  Napi::Value filters(const Napi::CallbackInfo& info);
  Napi::Value loadFilter(const Napi::CallbackInfo& info);
  Napi::Value serve(const Napi::CallbackInfo& info);
  Napi::Value readValues(const Napi::CallbackInfo& info);
  Napi::Value extents(const Napi::CallbackInfo& info);
  Napi::Value extentsOf(const Napi::CallbackInfo& info);
  Napi::Value keys(const Napi::CallbackInfo& info);
  Napi::Value keysInOrder(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  Napi::Value rows(const Napi::CallbackInfo& info);
  Napi::Value bytes(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);

  bool open(Napi::Env env) const;
  std::unique_ptr<Shard> shard_;
};

class SinkObject : public Napi::ObjectWrap<SinkObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /** (memory, k, r, parityIndex, complete) */
  explicit SinkObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value dropTable(const Napi::CallbackInfo& info);
  Napi::Value start(const Napi::CallbackInfo& info);
  Napi::Value learn(const Napi::CallbackInfo& info);
  Napi::Value apply(const Napi::CallbackInfo& info);
  Napi::Value content(const Napi::CallbackInfo& info);
  Napi::Value lacking(const Napi::CallbackInfo& info);
  Napi::Value recover(const Napi::CallbackInfo& info);
  Napi::Value check(const Napi::CallbackInfo& info);
  Napi::Value takeCompleted(const Napi::CallbackInfo& info);
  Napi::Value nextPending(const Napi::CallbackInfo& info);
  Napi::Value dropAccumulators(const Napi::CallbackInfo& info);
  Napi::Value accumulators(const Napi::CallbackInfo& info);
  Napi::Value nextExcluded(const Napi::CallbackInfo& info);
  Napi::Value excludedBlocks(const Napi::CallbackInfo& info);
  Napi::Value complete(const Napi::CallbackInfo& info);
  Napi::Value extents(const Napi::CallbackInfo& info);
  Napi::Value allBlocks(const Napi::CallbackInfo& info);
  Napi::Value bytes(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);

  bool open(Napi::Env env) const;
  std::uint32_t member(Arguments& arguments) const;
  std::unique_ptr<Sink> sink_;
};

/** The functions of the addon that belong to no object: partition, encodeRequest, ... */
void defineRouter(Napi::Env env, Napi::Object exports);
void defineTcp(Napi::Env env, Napi::Object exports);
void defineMapped(Napi::Env env, Napi::Object exports);
/** split, encodeSections, scatterSections. */
void defineSplit(Napi::Env env, Napi::Object exports);
/** parseCriteo, createLineParser, parseLines. */
void defineData(Napi::Env env, Napi::Object exports);
/** openDuckdb, openColumns, takeColumns, skipColumns, closeColumns. */
void defineDuckdb(Napi::Env env, Napi::Object exports);

}  // namespace kintsugi::binding
