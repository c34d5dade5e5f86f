// Push and pull. A request is checked to the end before anything changes: tables, widths, keys, then the
// blocks that its rows need, then the budget. Only then is it applied, in one pass per row: old row in,
// optimizer, new row out, delta out.
#include <algorithm>

#include "engine/shard.h"
#include "kernels/kernels.h"

namespace kintsugi {

/** A push that meets absent keys names at most so many of them: recovering the keys is a sweep, not a list of
 * wishes. */
static constexpr std::size_t kMaxMissingKeyBlocks = 256;
static constexpr std::uint32_t kFar = 32, kNear = 8, kMaxPrefetch = 1024;

static void prefetchRow(const Table& table, std::uint32_t slot, bool near) {
  if (slot == kNone) return;
  const std::uint8_t* row = table.row(slot);
  const std::uint32_t reach = std::min(table.spec().stride(), kMaxPrefetch);
  for (std::uint32_t b = 0; b < reach; b += 64) {
    if (near) {
      __builtin_prefetch(row + b, 1, 3);
    } else {
      __builtin_prefetch(row + b, 1, 2);
    }
  }
}

static void prefetchAhead(const Table& table, const std::vector<std::uint32_t>& slots, std::size_t i) {
  if (i + kFar < slots.size()) prefetchRow(table, slots[i + kFar], false);
  if (i + kNear < slots.size()) prefetchRow(table, slots[i + kNear], true);
}

Status Shard::checkHeads(const Request& request, bool distinct) {
  if (plans_.size() < request.tables.size()) plans_.resize(request.tables.size());
  for (std::size_t i = 0; i < request.tables.size(); i++) {
    const RequestTable& r = request.tables[i];
    plans_[i].table = find(r.table);
    if (!plans_[i].table) return Status::UnknownTable;
    for (std::size_t j = 0; distinct && j < i; j++) {
      if (plans_[j].table == plans_[i].table) return Status::BadFrame;
    }
  }
  for (std::size_t i = 0; i < request.tables.size(); i++) {
    const TableSpec& spec = plans_[i].table->spec();
    if (request.tables[i].width != (request.mode ? spec.width() : spec.dim)) return Status::DimMismatch;
  }
  return Status::Applied;
}

bool Shard::collectTags(const RequestTable& r, Plan& plan) {
  plan.tags.resize(r.count);
  for (std::uint32_t i = 0; i < r.count; i++) {
    plan.tags[i] = loadAt<std::uint64_t>(r.keys, i) + 1;
    if (!plan.tags[i]) return false;
  }
  return true;
}

void Shard::needKeys(const Table& table) {
  Cursor cursor;
  BlockPairs some;
  sweep({{table.spec().id * 2 + kKeys, &table.absent(kKeys)}}, cursor, kMaxMissingKeyBlocks, some);
  for (std::size_t i = 0; i < some.size(); i += 2) needed_.push_back(BlockRef{some[i], some[i + 1]}.id());
}

void Shard::needRows(const Plan& plan, std::uint32_t slot) {
  const std::uint32_t index = plan.table->shape(kRows).blockOfSlot(slot);
  if (!plan.table->absent(kRows).has(index)) return;
  needed_.push_back(BlockRef{plan.table->spec().id * 2 + kRows, index}.id());
}

void Shard::settleMissing() {
  std::sort(needed_.begin(), needed_.end());
  needed_.erase(std::unique(needed_.begin(), needed_.end()), needed_.end());
  for (const std::uint64_t id : needed_) append(missing_, blockOf(id));
}

// Distinct keys in order of first occurrence, their slots, and the slots that new ones will get.
void Shard::planPush(Plan& plan) {
  const std::size_t count = plan.tags.size();
  plan.inverse.resize(count);
  distinct_.reset(count);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i++) {
    bool added;
    plan.inverse[i] = distinct_.add(plan.tags[i], added);
    if (added) plan.tags[kept++] = plan.tags[i];
  }
  plan.tags.resize(kept);
  plan.slots.resize(kept);
  plan.newKeys = 0;
  const Table& t = *plan.table;
  if (!t.ready()) return needKeys(t);
  t.index().findMany(plan.tags.data(), kept, plan.slots.data());
  const bool whole = !t.absent(kRows).count();
  for (const std::uint32_t slot : plan.slots) {
    const std::uint64_t at = slot == kNone ? t.slotForNew(plan.newKeys++) : slot;
    // Also for new slots: those just beyond the extent may fall into the last block, which may be absent.
    if (!whole && at < kNone) needRows(plan, static_cast<std::uint32_t>(at));
  }
}

bool Shard::affordable() {
  std::size_t cost = 0;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    Plan& plan = plans_[i];
    if (!plan.table->canAdd(plan.newKeys)) return false;
    cost += plan.table->costOf(plan.newKeys);
  }
  return !cost || memory_->allows(cost);
}

Status Shard::push(View section) {
  missing_.clear();
  needed_.clear();
  if (!parseRequest(section, true, request_)) return Status::BadFrame;
  if (const Status status = checkHeads(request_, true); status != Status::Applied) return status;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    if (!collectTags(request_.tables[i], plans_[i])) return Status::KeyReserved;
  }
  for (std::size_t i = 0; i < request_.tables.size(); i++) planPush(plans_[i]);
  if (!needed_.empty()) {
    settleMissing();
    return Status::Absent;
  }
  if (!affordable()) return Status::MemoryLimit;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    Plan& plan = plans_[i];
    plan.table->makeRoom(plan.newKeys);
    plan.table->batch().expect(plan.tags.size());
    if (request_.mode) {
      applyRows(request_.tables[i], plan);
    } else {
      applyGradients(request_.tables[i], plan);
    }
  }
  return Status::Applied;
}

// One gradient per distinct key. The first one is copied and the others are added in input order.
void Shard::sumGradients(const RequestTable& r, const Plan& plan) {
  gradients_.resize(plan.tags.size() * r.width);
  std::uint32_t seen = 0;
  for (std::uint32_t i = 0; i < r.count; i++) {
    float* sum = gradients_.data() + std::size_t{plan.inverse[i]} * r.width;
    const std::uint8_t* row = r.rows + std::size_t{i} * r.width * 4;
    if (plan.inverse[i] == seen) {
      seen++;
      std::memcpy(sum, row, std::size_t{r.width} * 4);
    } else {
      for (std::uint32_t x = 0; x < r.width; x++) sum[x] += loadAt<float>(row, x);
    }
  }
}

void Shard::applyGradients(const RequestTable& r, Plan& plan) {
  Table& t = *plan.table;
  const TableSpec& spec = t.spec();
  const Kernels& kernel = kernels();
  const bool repeated = plan.tags.size() < r.count;
  if (repeated) {
    sumGradients(r, plan);
  } else {
    gradients_.resize(r.width);
  }
  before_.resize(spec.stride());
  for (std::size_t u = 0; u < plan.tags.size(); u++) {
    prefetchAhead(t, plan.slots, u);
    const bool fresh = plan.slots[u] == kNone;
    const std::uint32_t slot = fresh ? t.addKey(plan.tags[u]) : plan.slots[u];
    std::uint8_t* row = t.row(slot);
    auto* values = reinterpret_cast<float*>(row);
    std::memcpy(before_.data(), row, before_.size());
    if (fresh) {
      initialValues(spec, plan.tags[u] - 1, values);
      initialState(spec, values + spec.dim);
    }
    const float* gradient = gradients_.data();
    if (repeated) {
      gradient += u * r.width;
    } else {
      std::memcpy(gradients_.data(), r.rows + u * r.width * 4, std::size_t{r.width} * 4);
    }
    kernel.updateRow(spec.optimizer, values, values + spec.dim, gradient, spec.dim);
    t.batch().addRow(slot, before_.data(), row);
  }
}

// Whole rows: what comes replaces what is there; of a repeated key the last one counts.
void Shard::applyRows(const RequestTable& r, Plan& plan) {
  Table& t = *plan.table;
  before_.resize(t.spec().stride());
  for (std::size_t u = 0; u < plan.tags.size(); u++) {
    if (plan.slots[u] == kNone) plan.slots[u] = t.addKey(plan.tags[u]);
  }
  for (std::uint32_t i = 0; i < r.count; i++) {
    const std::uint32_t slot = plan.slots[plan.inverse[i]];
    std::uint8_t* row = t.row(slot);
    std::memcpy(before_.data(), row, before_.size());
    std::memcpy(row, r.rows + std::size_t{i} * r.width * 4, std::size_t{r.width} * 4);
    t.batch().addRow(slot, before_.data(), row);
  }
}

static std::uint8_t* copyRows(const Table& t, const RequestTable& r, const std::vector<std::uint64_t>& tags,
                              const std::vector<std::uint32_t>& slots, std::uint8_t* out) {
  const std::size_t bytes = std::size_t{r.width} * 4;
  const TableSpec& spec = t.spec();
  std::vector<float> initial(spec.width());
  initialState(spec, initial.data() + spec.dim);
  for (std::size_t i = 0; i < slots.size(); i++) {
    prefetchAhead(t, slots, i);
    if (slots[i] == kNone) {
      initialValues(spec, tags[i] - 1, initial.data());
      std::memcpy(out, initial.data(), bytes);
    } else {
      std::memcpy(out, t.row(slots[i]), bytes);
    }
    out += bytes;
  }
  const std::size_t padding = alignUp(bytes * slots.size(), 8) - bytes * slots.size();
  std::memset(out, 0, padding);
  return out + padding;
}

Status Shard::pull(View section, const Allocate& allocate) {
  missing_.clear();
  needed_.clear();
  if (!parseRequest(section, false, request_)) return Status::BadFrame;
  if (const Status status = checkHeads(request_, false); status != Status::Applied) return status;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    if (!collectTags(request_.tables[i], plans_[i])) return Status::KeyReserved;
    bytes += alignUp(std::size_t{request_.tables[i].count} * request_.tables[i].width * 4, 8);
  }
  if (bytes > kMaxAnswerBytes) return Status::BadFrame;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    Plan& plan = plans_[i];
    const Table& t = *plan.table;
    if (!t.ready()) {
      needKeys(t);
      continue;
    }
    plan.slots.resize(plan.tags.size());
    t.index().findMany(plan.tags.data(), plan.tags.size(), plan.slots.data());
    if (!t.absent(kRows).count()) continue;
    for (const std::uint32_t slot : plan.slots) {
      if (slot != kNone) needRows(plan, slot);
    }
  }
  if (!needed_.empty()) {
    settleMissing();
    return Status::Absent;
  }
  std::uint8_t* out = allocate(bytes);
  if (!out) return Status::BadFrame;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    out = copyRows(*plans_[i].table, request_.tables[i], plans_[i].tags, plans_[i].slots, out);
  }
  return Status::Applied;
}

}  // namespace kintsugi
