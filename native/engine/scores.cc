// Scores of rows. A push brings them beside its gradients. A score is a word of the row like those of its
// life, and stays until a push brings another one.
#include <algorithm>

#include "engine/shard.h"

namespace kintsugi {

void Table::changeScore(std::uint32_t slot, float score, std::uint32_t place) {
  std::uint8_t *now = row(slot) + lifeAt_ - 4, *delta = batch_.delta(place) + lifeAt_ - 4;
  const auto before = loadAt<std::uint32_t>(now, 0);
  setScore(slot, score);
  storeAt(delta, 0, loadAt<std::uint32_t>(delta, 0) ^ before ^ loadAt<std::uint32_t>(now, 0));
}

// After the steps of the rows, whose deltas replace what was at a place. Of a repeated key the highest score
// holds, in whatever order they come.
void Shard::scoreRows(const RequestTable& r, const Plan& plan, std::size_t distinct) {
  Table& t = *plan.table;
  scores_.resize(distinct);
  std::uint32_t seen = 0;
  for (std::uint32_t i = 0; i < r.count; i++) {
    const auto score = loadAt<float>(r.scores, i);
    float& highest = scores_[inverse_[i]];
    const bool isFirst = inverse_[i] == seen;
    highest = isFirst ? score : std::max(highest, score);
    seen += isFirst;
  }
  for (std::size_t i = 0; i < distinct; i++) t.changeScore(plan.slots[i], scores_[i], places_[i]);
}

void Shard::Plan::keep(const RequestTable& r, std::size_t i, std::size_t to) {
  // The arrays of a push that was cut before are those that they are moved to.
  const auto move = [&](const std::uint8_t* from, std::size_t size, std::vector<std::uint8_t>& into) {
    if (!from) return;
    if (into.size() < r.count * size) into.resize(r.count * size);
    std::memmove(into.data() + to * size, from + i * size, size);
  };
  tags[to] = tags[i];
  slots[to] = slots[i];
  move(r.rows, std::size_t{r.width} * 4, kept);
  move(r.counts, 4, keptCounts);
  move(r.scores, 4, keptScores);
}

void Shard::Plan::keepOnly(RequestTable& r, std::size_t count) {
  tags.resize(count);
  slots.resize(count);
  r.count = static_cast<std::uint32_t>(count);
  r.rows = kept.data();
  if (r.counts) r.counts = keptCounts.data();
  if (r.scores) r.scores = keptScores.data();
}

}  // namespace kintsugi
