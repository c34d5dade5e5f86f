// Rows on their way to files and back: snapshots of a shard, and rows that are loaded as they were saved.
#include <algorithm>

#include "engine/shard.h"
#include "kernels/kernels.h"

namespace kintsugi {

static constexpr std::size_t kMaxLoadedRows = std::size_t{1} << 30;
static constexpr Fault kReservedKey{"KEY_RESERVED", "the key 2^64-1 is reserved"};

Fault Shard::beginSnapshot(std::uint32_t since, SnapshotBegun& begun, const Serving& serving) {
  if (snapshot_) return badArgument("a snapshot of this shard is open");
  if (dirty()) return badArgument("a snapshot begins after a flush");
  if (absentBlocks(kKeys) || absentBlocks(kRows)) return badArgument("blocks of this shard are absent");
  for (const auto& [id, t] : tables_) {
    const Change change(*this, *t);
    if (!t->stamps().settle(t->extent(), snapshots_)) return kNoMemory;
  }
  if (since > snapshots_ || since <= forgotten_) since = 0;
  for (const auto& [id, t] : tables_) {
    if (t->hasPolicy() && !serving.valuesOnly) since = 0;
  }
  for (const auto& [id, t] : tables_) t->noteClock(snapshots_ + 1);
  snapshot_ = std::make_unique<Snapshot>(*memory_);
  for (const auto& [id, t] : tables_) snapshot_->add(*t, since, serving);
  begun = {++snapshots_, since, snapshot_->rows(), snapshot_->bytes()};
  return {};
}

Fault Shard::readSnapshot(std::size_t maxBytes, const AllocateRows& allocate) {
  if (!snapshot_) return badArgument("no snapshot of this shard is open");
  if (!maxBytes) return badArgument("a piece of a snapshot has at least one byte");
  if (snapshot_->broken()) return kNoMemory;
  if (!snapshot_->read(std::min(maxBytes, kMaxAnswerBytes), allocate)) snapshot_.reset();
  return {};
}

// Slots of all keys; of new ones they are kNone. Their number, of which some may come twice.
std::uint32_t Shard::planLoad(Plan& plan) {
  plan.slots.resize(plan.tags.size());
  plan.table->index().findMany(plan.tags.data(), plan.tags.size(), plan.slots.data());
  return static_cast<std::uint32_t>(std::count(plan.slots.begin(), plan.slots.end(), kNone));
}

// Asks the budget for all new keys. If the budget refuses, counts the distinct new keys and asks for these:
// saved rows are rarely repeated, so the count is seldom needed.
bool Shard::makeRoomToLoad(const Plan& plan, std::uint32_t& newKeys) {
  const auto allowed = [&] {
    const std::size_t cost = plan.table->costOf(newKeys);
    return !cost || memory_->allows(cost);
  };
  if (!allowed()) {
    distinct_.reset(newKeys);
    for (std::size_t i = 0; i < plan.tags.size(); i++) {
      bool added;
      if (plan.slots[i] == kNone) distinct_.add(plan.tags[i], added);
    }
    newKeys = static_cast<std::uint32_t>(distinct_.size());
    if (!allowed()) return false;
  }
  return plan.table->makeRoom(newKeys);
}

Fault Shard::loadRows(const LoadedRows& rows, Status& status) {
  if (dirty()) return badArgument("rows are loaded after a flush");
  if (rows.keyCount > kMaxLoadedRows) return badArgument("too many rows in one call");
  if (plans_.empty()) plans_.resize(1);
  Plan& plan = plans_[0];
  plan.table = find(rows.table);
  status = plan.table ? checkLoaded(rows, plan) : Status::UnknownTable;
  if (status != Status::Applied) return {};
  if (plan.table->absent(kKeys).count() || plan.table->absent(kRows).count())
    return badArgument("blocks of this table are absent");
  if (plan.tags.empty()) return {};
  std::uint32_t newKeys = planLoad(plan);
  if (makeRoomToLoad(plan, newKeys)) {
    if (snapshot_) snapshot_->keep(*plan.table, plan.slots);
    applyLoaded(rows, plan, newKeys);
  } else {
    status = Status::MemoryLimit;
  }
  return {};
}

// Rows that are in no snapshot need no note.
void Shard::noteRemoved(Table& t, const std::vector<std::uint32_t>& slots) {
  if (snapshots_) forgotten_ = std::max(forgotten_, t.noteRemoved(slots, snapshots_));
}

Fault Shard::unloadRows(const LoadedRows& rows, Status& status) {
  if (dirty()) return badArgument("rows are unloaded after a flush");
  if (rows.keyCount > kMaxLoadedRows) return badArgument("too many rows in one call");
  if (plans_.empty()) plans_.resize(1);
  Plan& plan = plans_[0];
  plan.table = find(rows.table);
  if (!plan.table) {
    status = Status::UnknownTable;
    return {};
  }
  Table& t = *plan.table;
  if (t.absent(kKeys).count() || t.absent(kRows).count())
    return badArgument("blocks of this table are absent");
  const RequestTable keys{rows.table, static_cast<std::uint32_t>(rows.keyCount), 0,
                          reinterpret_cast<const std::uint8_t*>(rows.keys), nullptr};
  status = collectTags(keys, plan) ? Status::Applied : Status::KeyReserved;
  if (status != Status::Applied) return {};
  planDeletion(plan);
  if (snapshot_) snapshot_->keep(t, plan.slots);
  const Change change(*this, t);
  noteRemoved(t, plan.slots);
  t.unload(plan.slots);
  return {};
}

Status Shard::checkLoaded(const LoadedRows& rows, Plan& plan) {
  const TableSpec& spec = plan.table->spec();
  if (rows.valueCount != rows.keyCount * spec.dim) return Status::DimMismatch;
  if (rows.stateCount != rows.keyCount * (spec.width() - spec.dim)) return Status::DimMismatch;
  const RequestTable keys{rows.table, static_cast<std::uint32_t>(rows.keyCount), 0,
                          reinterpret_cast<const std::uint8_t*>(rows.keys), nullptr};
  return collectTags(keys, plan) ? Status::Applied : Status::KeyReserved;
}

void Shard::applyLoaded(const LoadedRows& rows, Plan& plan, std::uint32_t newKeys) {
  Table& t = *plan.table;
  const Change change(*this, t);
  t.enter(plan.tags, plan.slots, newKeys);
  const std::size_t stride = t.spec().stride(), values = std::size_t{t.spec().dim} * 4,
                    state = std::size_t{t.spec().width()} * 4 - values;
  const auto scatter = [&](std::size_t offset, std::size_t bytes, const float* from) {
    kernels().scatterRows(t.row(0) + offset, stride, bytes, plan.slots.data(), plan.slots.size(),
                          reinterpret_cast<const std::uint8_t*>(from));
  };
  scatter(0, values, rows.values);
  if (state) scatter(values, state, rows.state);
  if (snapshots_) t.stamps().mark(plan.slots);
  if (!t.hasPolicy()) return;
  if (t.spec().policy.seconds) t.setClock();
  // The last row of a repeated key counts, and its age is taken once.
  std::sort(plan.slots.begin(), plan.slots.end());
  plan.slots.erase(std::unique(plan.slots.begin(), plan.slots.end()), plan.slots.end());
  for (const std::uint32_t slot : plan.slots) {
    t.setLife(slot, t.given(slot));
    if (t.hasScores()) t.setScore(slot, t.scoreOf(slot));
  }
  t.lookAgain();
  t.writeFirstRule();
}

Fault Shard::readValues(const WantedValues& wanted, std::size_t& count) {
  const Table* t = table(wanted.table);
  if (!t) return badArgument("there is no such table");
  const TableSpec& spec = t->spec();
  if (wanted.keyCount > kMaxLoadedRows || wanted.floatCount != wanted.keyCount * spec.dim)
    return badArgument("the values of these keys have another length");
  if (t->absent(kKeys).count() || t->absent(kRows).count())
    return badArgument("blocks of this table are absent");
  if (plans_.empty()) plans_.resize(1);
  Plan& plan = plans_[0];
  const RequestTable keys{wanted.table, static_cast<std::uint32_t>(wanted.keyCount), 0,
                          reinterpret_cast<const std::uint8_t*>(wanted.keys), nullptr};
  if (!collectTags(keys, plan)) return kReservedKey;
  plan.slots.resize(plan.tags.size());
  t->index().findMany(plan.tags.data(), plan.tags.size(), plan.slots.data());
  t->hideUnserved(plan.slots, serving_);
  kernels().gatherRows(reinterpret_cast<std::uint8_t*>(wanted.into), t->row(0), spec.stride(),
                       std::size_t{spec.dim} * 4, plan.slots.data(), plan.slots.size());
  count = 0;
  for (std::size_t i = 0; i < plan.slots.size(); i++) {
    if (plan.slots[i] != kNone) {
      count++;
      if (wanted.found) wanted.found[i] = 1;
    } else if (wanted.initial) {
      initialValues(spec, plan.tags[i] - 1, wanted.into + i * spec.dim);
    }
  }
  return {};
}

}  // namespace kintsugi
