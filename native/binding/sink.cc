#include "binding/objects.h"

namespace kintsugi::binding {

Napi::Function SinkObject::define(Napi::Env env) {
  using S = SinkObject;
  return DefineClass(
      env, "NativeSink",
      {InstanceMethod<&S::dropTable>("dropTable"), InstanceMethod<&S::start>("start"),
       InstanceMethod<&S::learn>("learn"), InstanceMethod<&S::apply>("apply"),
       InstanceMethod<&S::content>("content"), InstanceMethod<&S::lacking>("lacking"),
       InstanceMethod<&S::recover>("recover"), InstanceMethod<&S::check>("check"),
       InstanceMethod<&S::takeCompleted>("takeCompleted"), InstanceMethod<&S::nextPending>("nextPending"),
       InstanceMethod<&S::dropAccumulators>("dropAccumulators"),
       InstanceAccessor<&S::accumulators>("accumulators"), InstanceMethod<&S::nextExcluded>("nextExcluded"),
       InstanceMethod<&S::excludedBlocks>("excludedBlocks"), InstanceAccessor<&S::complete>("complete"),
       InstanceMethod<&S::extents>("extents"), InstanceMethod<&S::allBlocks>("allBlocks"),
       InstanceAccessor<&S::bytes>("bytes"), InstanceMethod<&S::close>("close")});
}

SinkObject::SinkObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<SinkObject>(info) {
  Arguments arguments(info);
  MemoryObject* memory = MemoryObject::from(arguments.next());
  if (!memory) {
    arguments.refuse("memory must come from createMemory");
    return;
  }
  const std::uint32_t k = arguments.u32(kMaxMembers), r = arguments.u32(kMaxParities),
                      parity = arguments.u32();
  const bool complete = arguments.boolean();
  if (!arguments.ok()) return;
  if (k < 1 || parity >= r) {
    arguments.refuse("parityIndex must be below r, and k at least 1");
    return;
  }
  sink_ = std::make_unique<Sink>(memory->memory(), k, parity, complete);
}

bool SinkObject::open(Napi::Env env) const {
  if (!sink_) fail(env, "CLOSED", "this sink is closed");
  return sink_ != nullptr;
}

std::uint32_t SinkObject::member(Arguments& arguments) const { return arguments.u32(sink_->members() - 1); }

Napi::Value SinkObject::dropTable(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t table = arguments.u32();
  if (arguments.ok()) sink_->dropTable(table);
  return info.Env().Undefined();
}

Napi::Value SinkObject::start(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  const std::vector<ExtentOf> extents = arguments.extents();
  if (!arguments.ok()) return info.Env().Undefined();
  if (const Fault fault = sink_->start(m, extents)) return fail(info.Env(), fault);
  return info.Env().Undefined();
}

Napi::Value SinkObject::learn(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  const std::vector<ExtentOf> extents = arguments.extents();
  if (!arguments.ok()) return info.Env().Undefined();
  if (const Fault fault = sink_->learn(m, extents)) return fail(info.Env(), fault);
  return info.Env().Undefined();
}

Napi::Value SinkObject::apply(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  const View delta = arguments.bytes();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs again;
  const Status status = sink_->apply(m, delta, again);
  if (status != Status::Applied) return Napi::Number::New(info.Env(), static_cast<int>(status));
  return toArray(info.Env(), again);
}

Napi::Value SinkObject::content(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  const BlockList blocks = arguments.blocks();
  const View bytes = arguments.bytes();
  if (!arguments.ok()) return info.Env().Undefined();
  std::uint32_t included = 0;
  if (const Fault fault = sink_->content(m, blocks, bytes, included)) return fail(info.Env(), fault);
  return Napi::Number::New(info.Env(), included);
}

Napi::Value SinkObject::lacking(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  const BlockList blocks = arguments.blocks();
  if (!arguments.ok()) return info.Env().Undefined();
  if (const Fault fault = sink_->lacking(m, blocks)) return fail(info.Env(), fault);
  return info.Env().Undefined();
}

Napi::Value SinkObject::recover(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  const BlockList blocks = arguments.blocks();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs created;
  if (const Fault fault = sink_->recover(m, blocks, created)) return fail(info.Env(), fault);
  return toArray(info.Env(), created);
}

Napi::Value SinkObject::check(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const BlockList blocks = arguments.blocks();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs created;
  if (const Fault fault = sink_->check(blocks, created)) return fail(info.Env(), fault);
  return toArray(info.Env(), created);
}

Napi::Value SinkObject::takeCompleted(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!open(env)) return env.Undefined();
  const std::vector<CompletedGroup> groups = sink_->takeCompleted();
  auto list = Napi::Array::New(env, groups.size());
  for (std::uint32_t i = 0; i < groups.size(); i++) {
    const CompletedGroup& group = groups[i];
    auto item = Napi::Object::New(env);
    item.Set("lacking", toMembers(env, group.lacking));
    item.Set("ok", group.ok);
    item.Set("requesters", toMembers(env, group.requesters));
    item.Set("checked", group.checked);
    item.Set("blocks", toArray(env, group.blocks));
    Answer bytes(env);
    std::uint8_t* out = bytes.allocate(group.size);
    if (!out) return env.Undefined();
    group.copyTo(out);
    item.Set("bytes", bytes.array());
    item.Set("nonZero", group.nonZero);
    list.Set(i, item);
  }
  return list;
}

Napi::Value SinkObject::nextPending(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments), max = arguments.u32();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs blocks;
  sink_->nextPending(m, max, blocks);
  return toArray(info.Env(), blocks);
}

Napi::Value SinkObject::dropAccumulators(const Napi::CallbackInfo& info) {
  if (open(info.Env())) sink_->dropAccumulators();
  return info.Env().Undefined();
}

Napi::Value SinkObject::accumulators(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(sink_->accumulators()));
}

Napi::Value SinkObject::nextExcluded(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments), max = arguments.u32();
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs blocks;
  sink_->nextExcluded(m, max, blocks);
  return toArray(info.Env(), blocks);
}

Napi::Value SinkObject::excludedBlocks(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(sink_->excludedBlocks(m)));
}

Napi::Value SinkObject::complete(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Boolean::New(info.Env(), sink_->complete());
}

Napi::Value SinkObject::extents(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const std::uint32_t m = member(arguments);
  if (!arguments.ok()) return info.Env().Undefined();
  return toExtents(info.Env(), sink_->extents(m));
}

Napi::Value SinkObject::allBlocks(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  Arguments arguments(info);
  const double from = arguments.number();
  const std::uint32_t max = arguments.u32();
  if (arguments.ok() && !(from >= 0 && from <= 9007199254740991.0))
    arguments.refuse("from must not be negative");
  if (!arguments.ok()) return info.Env().Undefined();
  BlockPairs blocks;
  sink_->allBlocks(static_cast<std::uint64_t>(from), max, blocks);
  return toArray(info.Env(), blocks);
}

Napi::Value SinkObject::bytes(const Napi::CallbackInfo& info) {
  if (!open(info.Env())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(sink_->bytes()));
}

Napi::Value SinkObject::close(const Napi::CallbackInfo& info) {
  sink_.reset();
  return info.Env().Undefined();
}

}  // namespace kintsugi::binding
