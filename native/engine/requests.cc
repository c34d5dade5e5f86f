// Push and pull. A request is checked to the end before anything changes: tables, widths, keys, then the
// blocks that its rows need, then the budget. Only then is it applied, in one pass per row: old row in,
// optimizer, new row out, delta out.
#include <algorithm>
#include <span>

#include "engine/shard.h"
#include "kernels/kernels.h"

namespace kintsugi {

/** A push that meets absent blocks of keys names at most so many of them: the background recovers all blocks
 * of keys anyway. */
static constexpr std::size_t kMaxMissingKeyBlocks = 256;

/** A key that comes was seen, by a table that counts. */
static bool countsFit(const Table& t, const RequestTable& r) {
  if (!t.hasPolicy()) return false;
  bool zero = false;
  for (std::uint32_t i = 0; i < r.count; i++) zero |= !loadAt<std::uint32_t>(r.counts, i);
  return !zero;
}

Status Shard::checkHeads(const Request& request, bool isPush) {
  if (plans_.size() < request.tables.size()) plans_.resize(request.tables.size());
  for (std::size_t i = 0; i < request.tables.size(); i++) {
    const RequestTable& r = request.tables[i];
    plans_[i].table = find(r.table);
    if (!plans_[i].table) return Status::UnknownTable;
  }
  if (isPush) {
    ids_.clear();
    for (const RequestTable& r : request.tables) ids_.push_back(r.table);
    if (repeats(ids_)) return Status::BadFrame;
  }
  for (std::size_t i = 0; i < request.tables.size(); i++) {
    const TableSpec& spec = plans_[i].table->spec();
    const RequestTable& r = request.tables[i];
    if (isPush && !r.width) {
      if (r.lr != kNoRate) return Status::BadFrame;
      continue;
    }
    if (r.width != (request.mode ? spec.width() : spec.dim)) return Status::DimMismatch;
    if (r.lr != kNoRate && optimizerOf(spec.optimizer.kind).fixedRate) return Status::BadArgument;
    if (r.counts && !countsFit(*plans_[i].table, r)) return Status::BadArgument;
    if (r.scores && !plans_[i].table->hasScores()) return Status::BadArgument;
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
  std::vector<std::uint32_t> some;
  table.absent(kKeys).list(0, kMaxMissingKeyBlocks, some);
  for (const std::uint32_t index : some) needed_.push_back(BlockRef{table.spec().id * 2 + kKeys, index}.id());
}

void Shard::needRows(const Plan& plan) {
  const Table& t = *plan.table;
  if (!t.absent(kRows).count()) return;
  const auto need = [&](std::uint32_t slot) {
    const std::uint32_t index = t.shape(kRows).blockOfSlot(slot);
    if (t.absent(kRows).has(index)) needed_.push_back(BlockRef{t.spec().id * 2 + kRows, index}.id());
  };
  // The clock of a table with a policy lies in its first slot.
  if (t.hasPolicy()) need(0);
  for (const std::uint32_t slot : plan.slots)
    if (slot != kNone) need(slot);
}

void Shard::settleMissing() {
  std::sort(needed_.begin(), needed_.end());
  needed_.erase(std::unique(needed_.begin(), needed_.end()), needed_.end());
  for (const std::uint64_t id : needed_) append(missing_, blockOf(id));
}

// Slots of all keys. New ones, which are rare, are made distinct and get the slots that they will have.
void Shard::planPush(RequestTable& r, Plan& plan) {
  plan.slots.resize(plan.tags.size());
  plan.newTags.clear();
  const Table& t = *plan.table;
  if (!t.ready()) return needKeys(t);
  t.index().findMany(plan.tags.data(), plan.tags.size(), plan.slots.data());
  if (!request_.mode && t.spec().policy.filters() && !planAdmission(r, plan)) return;
  const std::size_t count = plan.tags.size();
  bool fits = true;
  for (std::size_t i = 0; i < count; i++) {
    if (plan.slots[i] != kNone) continue;
    if (plan.newTags.empty()) distinct_.reset(count - i);
    bool added;
    const std::uint64_t slot = t.slotForNew(distinct_.add(plan.tags[i], added));
    if (added) plan.newTags.push_back(plan.tags[i]);
    fits = fits && slot < kNone;
    plan.slots[i] = static_cast<std::uint32_t>(slot);
  }
  // Also for new slots: those just beyond the extent may fall into the last block, which may be absent.
  if (fits) needRows(plan);
}

// Slots of the keys that are there, ascending and each once. A key that is not there has nothing to delete.
void Shard::planDeletion(Plan& plan) {
  const Table& t = *plan.table;
  plan.newTags.clear();
  if (!t.ready()) return needKeys(t);
  plan.slots.resize(plan.tags.size());
  t.index().findMany(plan.tags.data(), plan.tags.size(), plan.slots.data());
  std::erase(plan.slots, kNone);
  std::sort(plan.slots.begin(), plan.slots.end());
  plan.slots.erase(std::unique(plan.slots.begin(), plan.slots.end()), plan.slots.end());
  needRows(plan);
}

std::size_t Shard::costOf() const {
  std::size_t cost = 0;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    cost += plans_[i].table->costOf(static_cast<std::uint32_t>(plans_[i].newTags.size()));
  }
  return cost;
}

/** A step of a table with a policy: only such a push makes rows go. */
bool Shard::isStep(std::size_t at) const {
  return request_.tables[at].width && !request_.mode && plans_[at].table->hasPolicy();
}

// Bytes that a part of the push adds to a delta at most, but for the rows that it makes go.
std::size_t Shard::deltaOf(std::size_t at) const {
  const Plan& plan = plans_[at];
  const OpenBatch& batch = plan.table->batch();
  if (!request_.tables[at].width)
    return kDeltaTableBytes + batch.bytesOf(plan.slots.size(), plan.slots.size());
  return kDeltaTableBytes + kSlotPadding + batch.bytesOf(plan.newTags.size(), plan.tags.size() + plan.others);
}

// Where the budget does not allow new keys, tables with `forMemory` make room, or drop them.
Status Shard::makeMemory(std::size_t maxDelta) {
  std::size_t cost = costOf();
  if (!cost || memory_->allows(cost)) return Status::Applied;
  const auto makesRoom = [&](std::size_t i) {
    const Table& t = *plans_[i].table;
    return isStep(i) && t.spec().policy.forMemory && t.extent();
  };
  const std::size_t count = request_.tables.size();
  for (std::size_t i = 0; i < count; i++) {
    if (makesRoom(i)) cost -= plans_[i].table->costOf(static_cast<std::uint32_t>(plans_[i].newTags.size()));
  }
  if (cost && !memory_->allows(cost)) return Status::MemoryLimit;
  bool isFull = false;
  for (std::size_t i = 0; i < count; i++)
    isFull = (makesRoom(i) && makeSlots(request_.tables[i], plans_[i], maxDelta)) || isFull;
  if (isFull) return Status::BatchFull;
  for (std::size_t i = 0; i < count; i++) {
    if (!makesRoom(i)) continue;
    plans_[i].displaced = plans_[i].table->surplusOf(plans_[i].newTags.size(), true);
    keepFitting(request_.tables[i], plans_[i]);
  }
  cost = costOf();
  return cost && !memory_->allows(cost) ? Status::MemoryLimit : Status::Applied;
}

// First the budget, then the size of the delta, then the system: all before a row of the push changes.
Status Shard::makeRoom(std::size_t maxDelta) {
  const std::size_t count = request_.tables.size();
  for (std::size_t i = 0; i < count; i++) {
    Plan& plan = plans_[i];
    const Table& t = *plan.table;
    const std::size_t newKeys = plan.newTags.size();
    plan.unfit = 0;
    const bool tight = t.spec().policy.forMemory && t.isTight(newKeys, *memory_);
    plan.displaced = isStep(i) ? t.surplusOf(newKeys, tight) : 0;
    // A table with a policy changes its clock and its rule, and may change its filter.
    plan.others = t.reserved() + plan.unknown.size() + plan.cleared;
  }
  if (const Status status = makeMemory(maxDelta); status != Status::Applied) return status;
  std::size_t bytes = openBytes();
  for (std::size_t i = 0; i < count; i++) bytes += deltaOf(i);
  if (bytes > maxDelta) return dirty() ? Status::BatchFull : Status::DeltaLimit;
  for (std::size_t i = 0; i < count; i++) {
    Plan& plan = plans_[i];
    Table& t = *plan.table;
    if (!t.makeRoom(static_cast<std::uint32_t>(plan.newTags.size()))) return Status::MemoryLimit;
    // Rows go as far as the delta has room for them.
    const std::size_t each = t.spec().stride() + kSlotBytes, room = (maxDelta - bytes) / each;
    plan.displaced = static_cast<std::uint32_t>(std::min<std::size_t>(plan.displaced, room));
    plan.swept = t.hasPolicy() ? t.sweepOf(plan.tags.size()) : 0;
    plan.swept = static_cast<std::uint32_t>(std::min<std::size_t>(plan.swept, room - plan.displaced));
    bytes += (std::size_t{plan.displaced} + plan.swept) * each;
    if (!t.batch().expect(plan.tags.size() + plan.swept + plan.displaced + plan.others))
      return Status::MemoryLimit;
  }
  for (const Plan& plan : std::span(plans_).first(count)) {
    plan.table->noteWanted(plan.newTags.size() + plan.unfit);
    plan.table->countRefused(plan.unfit + plan.refused);
  }
  return Status::Applied;
}

Status Shard::push(View section, std::size_t maxDelta) {
  missing_.clear();
  needed_.clear();
  if (!parseRequest(section, true, request_)) return Status::BadFrame;
  if (const Status status = checkHeads(request_, true); status != Status::Applied) return status;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    if (!collectTags(request_.tables[i], plans_[i])) return Status::KeyReserved;
    plans_[i].moves = !plans_[i].tags.empty();
    plans_[i].unknown.clear();
    plans_[i].refused = plans_[i].cleared = 0;
  }
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    if (request_.tables[i].width) {
      planPush(request_.tables[i], plans_[i]);
    } else {
      planDeletion(plans_[i]);
    }
  }
  if (!needed_.empty()) {
    settleMissing();
    return Status::Absent;
  }
  if (const Status status = makeRoom(maxDelta); status != Status::Applied) return status;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    Plan& plan = plans_[i];
    const Change change(*this, *plan.table);
    if (snapshot_) snapshot_->keep(*plan.table, plan.slots);
    plan.table->grow(static_cast<std::uint32_t>(plan.newTags.size()));
    const bool brings = request_.tables[i].width && plan.moves;
    if (brings && !request_.mode && plan.table->spec().policy.filters()) plan.table->open();
    if (brings || plan.displaced) {
      plan.table->advance();
      followPolicy(*plan.table);
    }
    if (!request_.tables[i].width) {
      countDeleted(plan);
      deleteRows(*plan.table, plan.slots);
    } else if (request_.mode) {
      applyRows(request_.tables[i], plan);
    } else {
      applyGradients(request_.tables[i], plan);
      if (plan.table->hasPolicy() && (plan.moves || plan.displaced)) endStep(plan);
    }
  }
  return Status::Applied;
}

// Moves the slots of the distinct rows of a push to the front, in order of first occurrence, and fills
// `places_` and `inverse_`. Returns their number. One look-up per row finds its place in the open batch and
// whether this push has had it before.
std::size_t Shard::distinctRows(Plan& plan) {
  OpenBatch& batch = plan.table->batch();
  const std::size_t count = plan.slots.size();
  places_.resize(count);
  inverse_.resize(count);
  if (++pushes_ == 0) {
    visits_.assign(visits_.size(), {});
    pushes_ = 1;
  }
  if (visits_.size() < batch.rows() + count) visits_.resize((batch.rows() + count) * 2);
  std::uint32_t distinct = 0;
  for (std::size_t i = 0; i < count; i++) {
    const std::uint32_t slot = plan.slots[i], place = batch.touch(slot);
    Visit& visit = visits_[place & ~kAddTo];
    if (visit.push != pushes_) {
      visit = {pushes_, distinct};
      plan.slots[distinct] = slot;
      places_[distinct++] = place;
    }
    inverse_[i] = visit.rank;
  }
  return distinct;
}

// One gradient per distinct key. The first one is copied and the others are added in input order.
void Shard::sumGradients(const RequestTable& r, std::size_t distinct) {
  gradients_.resize(distinct * r.width);
  std::uint32_t seen = 0;
  for (std::uint32_t i = 0; i < r.count; i++) {
    float* sum = gradients_.data() + std::size_t{inverse_[i]} * r.width;
    const std::uint8_t* row = r.rows + std::size_t{i} * r.width * 4;
    if (inverse_[i] == seen) {
      seen++;
      std::memcpy(sum, row, std::size_t{r.width} * 4);
    } else {
      for (std::uint32_t x = 0; x < r.width; x++) sum[x] += loadAt<float>(row, x);
    }
  }
}

void Shard::applyGradients(const RequestTable& r, Plan& plan) {
  Table& t = *plan.table;
  if (!plan.newTags.empty()) addKeys(plan, true);
  if (t.hasPolicy()) startAgain(plan);
  if (!plan.unknown.empty()) fillFilter(plan);
  const std::size_t distinct = distinctRows(plan);
  RowSteps steps;
  steps.rows = t.row(0);
  steps.dim = t.spec().dim;
  steps.stride = t.spec().stride();
  steps.slots = plan.slots.data();
  steps.gradients = r.rows;
  steps.deltas = t.batch().deltas();
  steps.places = places_.data();
  steps.count = distinct;
  if (distinct < r.count) {
    sumGradients(r, distinct);
    steps.gradients = reinterpret_cast<const std::uint8_t*>(gradients_.data());
  }
  if (t.hasPolicy()) admit(r, plan, steps);
  const OptimizerParams& optimizer = t.spec().optimizer;
  if (r.lr == kNoRate) {
    kernels().stepRows(optimizer, steps);
  } else {
    OptimizerParams now = optimizer;
    now.lr = rateOf(r.lr);
    kernels().stepRows(now, steps);
  }
  if (t.hasPolicy()) seeRows(plan, distinct);
  if (r.scores) scoreRows(r, plan, distinct);
}

// Whole rows replace the rows that are there; of a repeated key the last row counts.
void Shard::applyRows(const RequestTable& r, const Plan& plan) {
  Table& t = *plan.table;
  const std::size_t bytes = std::size_t{r.width} * 4;
  addKeys(plan, false);
  // A table had no slot for its clock before its first rows.
  t.advance();
  for (std::uint32_t i = 0; i < r.count; i++) {
    const std::uint32_t slot = plan.slots[i], place = t.batch().touch(slot);
    if (t.hasPolicy()) countReplaced(t, slot);
    kernels().replaceRow(t.row(slot), r.rows + i * bytes, bytes, t.spec().stride(), t.batch().delta(place),
                         place & kAddTo);
    if (t.hasPolicy()) takeLife(t, slot, place);
  }
}

// Rows become zeros, so that nothing of them is left, in parities, too. Slots are ascending, each once.
void Shard::deleteRows(Table& t, const std::vector<std::uint32_t>& slots) {
  if (slots.empty()) return;
  noteRemoved(t, slots);
  initial_.assign(t.spec().width(), 0);
  for (const std::uint32_t slot : slots) {
    const std::uint32_t place = t.batch().touch(slot);
    kernels().replaceRow(t.row(slot), reinterpret_cast<const std::uint8_t*>(initial_.data()),
                         initial_.size() * 4, t.spec().stride(), t.batch().delta(place), place & kAddTo);
  }
  t.removeKeys(slots);
}

std::uint8_t* Shard::copyRows(const RequestTable& r, const Plan& plan, std::uint8_t* out) {
  const Table& t = *plan.table;
  const TableSpec& spec = t.spec();
  const std::size_t bytes = std::size_t{r.width} * 4;
  kernels().gatherRows(out, t.row(0), spec.stride(), bytes, plan.slots.data(), r.count);
  if (std::find(plan.slots.begin(), plan.slots.end(), kNone) != plan.slots.end()) {
    initial_.resize(spec.width());
    initialState(spec, initial_.data() + spec.dim);
    for (std::size_t i = 0; i < r.count; i++) {
      if (plan.slots[i] != kNone) continue;
      initialValues(spec, plan.tags[i] - 1, initial_.data());
      std::memcpy(out + i * bytes, initial_.data(), bytes);
    }
  }
  if (t.hasPolicy() && r.width > spec.dim) giveAges(t, plan.slots, out);
  const std::size_t used = bytes * r.count, padded = alignUp(used, 8);
  std::memset(out + used, 0, padded - used);
  return out + padded;
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
    needRows(plan);
  }
  if (!needed_.empty()) {
    settleMissing();
    return Status::Absent;
  }
  std::uint8_t* out = allocate(bytes);
  if (!out) return Status::BadFrame;
  // Whole rows are not for readers.
  const Serving serving = request_.mode ? Serving{} : serving_;
  for (std::size_t i = 0; i < request_.tables.size(); i++) {
    plans_[i].table->hideUnserved(plans_[i].slots, serving);
    out = copyRows(request_.tables[i], plans_[i], out);
  }
  return Status::Applied;
}

}  // namespace kintsugi
