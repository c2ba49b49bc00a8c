#include <algorithm>
#include <limits>

#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/ffn/ffn.h"

namespace stagecoach {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLeastSum = 0x1p-14f;  // what a sum of weights is at least when they are divided by it

float RankOf(float score) { return score != score ? -kInfinity : score; }

// The softmax over these logits, in place.
void Softmax(int64_t count, float* logits) {
  float max = -kInfinity;
  for (int64_t i = 0; i < count; ++i) max = std::max(max, RankOf(logits[i]));
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    logits[i] = FixedExp(logits[i] - max);
    sum += static_cast<double>(logits[i]);
  }
  for (int64_t i = 0; i < count; ++i) logits[i] = static_cast<float>(static_cast<double>(logits[i]) / sum);
}

// p of every expert.
void Probabilities(Gating gating, int64_t experts, const float* logits, float* p) {
  std::copy_n(logits, experts, p);
  if (gating == Gating::kSoftmax) Softmax(experts, p);
  if (gating != Gating::kSigmoid) return;
  for (int64_t e = 0; e < experts; ++e) p[e] = FixedSigmoid(p[e]);
}

// The sum of the two largest of a group.
float GroupScore(const float* scores, int64_t size) {
  float first = -kInfinity, second = -kInfinity;
  for (int64_t i = 0; i < size; ++i) {
    const float score = RankOf(scores[i]);
    if (score > first) {
      second = first;
      first = score;
    } else {
      second = std::max(second, score);
    }
  }
  return size == 1 ? first : RankOf(first + second);
}

// kept [groups]: 1 for the best groups_used groups, 0 for the others.
void KeepGroups(const float* scores, int64_t experts, const RouterSpec& spec, float* group_scores, float* kept) {
  const int64_t groups = spec.groups, size = experts / groups;
  for (int64_t g = 0; g < groups; ++g) group_scores[g] = GroupScore(scores + g * size, size);
  for (int64_t g = 0; g < groups; ++g) {
    int64_t before = 0;
    for (int64_t other = 0; other < groups; ++other) {
      const bool better = group_scores[other] > group_scores[g];
      before += better || (other < g && group_scores[other] == group_scores[g]) ? 1 : 0;
    }
    kept[g] = before < spec.groups_used ? 1.0f : 0.0f;
  }
}

// Inserts an expert behind all that rank as high, within the best `used`.
struct Ranking {
  int64_t used;
  int32_t* chosen;
  float* ranks;
  int64_t count = 0;

  void Offer(int64_t expert, float rank) {
    if (count == used && !(rank > ranks[used - 1])) return;
    int64_t at = count < used ? count++ : used - 1;
    for (; at > 0 && rank > ranks[at - 1]; --at) {
      ranks[at] = ranks[at - 1];
      chosen[at] = chosen[at - 1];
    }
    ranks[at] = rank;
    chosen[at] = static_cast<int32_t>(expert);
  }
};

}  // namespace

void Route(const RouterSpec& spec, int64_t experts, int64_t used, const float* logits, const float* selection_bias,
           float* work, int32_t* chosen, float* weights) {
  float* const p = work;
  float* const scores = work + experts;
  Probabilities(spec.gating, experts, logits, p);
  for (int64_t e = 0; e < experts; ++e) scores[e] = selection_bias == nullptr ? p[e] : p[e] + selection_bias[e];

  Ranking ranking{.used = used, .chosen = chosen, .ranks = weights};
  float* const kept = work + 2 * experts;
  if (spec.groups > 1) KeepGroups(scores, experts, spec, kept + spec.groups, kept);
  for (int64_t e = 0; e < experts; ++e) {
    if (spec.groups <= 1 || kept[e / (experts / spec.groups)] != 0.0f) ranking.Offer(e, RankOf(scores[e]));
  }

  for (int64_t i = 0; i < used; ++i) weights[i] = p[chosen[i]];
  if (spec.gating == Gating::kSoftmaxOfChosen) Softmax(used, weights);
  if (spec.normalized) {
    float sum = 0;
    for (int64_t i = 0; i < used; ++i) sum += weights[i];
    const float divisor = sum < kLeastSum ? kLeastSum : sum;
    for (int64_t i = 0; i < used; ++i) weights[i] /= divisor;
  }
  if (spec.scale != 1) {
    for (int64_t i = 0; i < used; ++i) weights[i] *= static_cast<float>(spec.scale);
  }
}

ExpertPlan::ExpertPlan(const int32_t* chosen, int64_t row_count, int64_t used, int64_t experts,
                       ExpertWorkerScratch* scratch) {
  int32_t* const ends = scratch->begins.as<int32_t>();
  int32_t* const with_rows = scratch->active.as<int32_t>();
  int32_t* const sorted_rows = scratch->rows.as<int32_t>();
  int32_t* const place_of = scratch->places.as<int32_t>();
  const int64_t pairs = row_count * used;
  // ends[e + 1] counts, then is where e's next pair goes, which is at last where the next expert begins.
  std::fill_n(ends, experts + 1, 0);
  for (int64_t pair = 0; pair < pairs; ++pair) ++ends[chosen[pair] + 1];
  int32_t place = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int32_t count = ends[e + 1];
    if (count > 0) with_rows[active_count++] = static_cast<int32_t>(e);
    ends[e + 1] = place;
    place += count;
  }
  for (int64_t row = 0, pair = 0; row < row_count; ++row) {
    for (int64_t rank = 0; rank < used; ++rank, ++pair) {
      const int32_t at = ends[chosen[pair] + 1]++;
      sorted_rows[at] = static_cast<int32_t>(row);
      place_of[pair] = at;
    }
  }
  active = with_rows;
  begins = ends;
  rows = sorted_rows;
  places = place_of;
}

}  // namespace stagecoach
