#include "coordinator/plan/choice/split_choice.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr double kSameSeconds = 1e-12;
constexpr int kFewStages = 16;     // of which every pair is tried
constexpr int kMostRefusals = 64;  // of splits for which there is no memory, before it is left at that

// How good a split is: the time first.
struct Worth {
  double seconds = std::numeric_limits<double>::infinity();
  double unevenness = 0;

  bool IsBetterThan(const Worth& other) const {
    if (seconds < other.seconds * (1 - kSameSeconds)) return true;
    return seconds <= other.seconds * (1 + kSameSeconds) && unevenness < other.unevenness * (1 - kSameSeconds);
  }
};

double CostOf(const SplitSums& sums, const std::vector<LayerRange>& split, size_t stage) {
  const std::vector<double>& before = sums.before[stage];
  const double cost = before[static_cast<size_t>(split[stage].end)] - before[static_cast<size_t>(split[stage].begin)];
  return stage + 1 == split.size() ? cost + sums.head : cost;
}

double TermSeconds(const SplitTerm& term, const std::vector<LayerRange>& split) {
  double most = 0, sum = 0;
  for (size_t s = 0; s < split.size(); ++s) {
    const double cost = CostOf(*term.sums, split, s);
    most = std::max(most, cost);
    sum += cost;
  }
  return term.times * std::max({term.floor, term.slowest * most, term.around * (term.fixed + sum)});
}

Worth WorthOf(const SplitLoad& load, const std::vector<LayerRange>& split) {
  Worth worth{.seconds = SecondsOf(load, split)};
  const SplitTerm &prompts = load.prompts.back(), &decode = load.decode.back();
  for (size_t s = 0; s < split.size(); ++s) {
    const double cost = prompts.times * prompts.slowest * CostOf(*prompts.sums, split, s) +
                        decode.times * decode.slowest * CostOf(*decode.sums, split, s);
    worth.unevenness += cost * cost;
  }
  return worth;
}

// One layer less for `from` and one more for `to`; false where `from` has but one.
bool MoveLayer(size_t from, size_t to, std::vector<LayerRange>* split) {
  if ((*split)[from].end - (*split)[from].begin == 1) return false;
  const int step = from < to ? -1 : 1;
  const auto [first, last] = std::minmax(from, to);
  for (size_t s = first; s < last; ++s) {
    (*split)[s].end += step;
    (*split)[s + 1].begin += step;
  }
  return true;
}

// The stages that a layer may be taken from.
std::vector<size_t> Donors(const SplitLoad& load, const std::vector<LayerRange>& split) {
  std::vector<size_t> donors;
  for (size_t s = 0; s < split.size(); ++s) donors.push_back(s);
  if (split.size() <= kFewStages) return donors;
  const auto slowest = [&](const SplitTerm& term) {
    return *std::max_element(donors.begin(), donors.end(), [&](size_t a, size_t b) {
      return CostOf(*term.sums, split, a) < CostOf(*term.sums, split, b);
    });
  };
  return {slowest(load.prompts.back()), slowest(load.decode.back())};
}

}  // namespace

double SecondsOf(const SplitLoad& load, const std::vector<LayerRange>& split) {
  CHECK(!load.prompts.empty() && !load.decode.empty());
  double least = std::numeric_limits<double>::infinity(), decode = least;
  for (size_t i = 0; i < load.prompts.size(); ++i) {
    if (i < load.decode.size()) decode = std::min(decode, TermSeconds(load.decode[i], split));
    least = std::min(least, decode + TermSeconds(load.prompts[i], split));
  }
  return least;
}

std::vector<LayerRange> ImproveSplit(std::vector<LayerRange> split, const SplitLoad& load,
                                     const std::function<bool(const std::vector<LayerRange>&)>& fits) {
  Worth worth = WorthOf(load, split);
  std::vector<std::vector<LayerRange>> refused;
  while (refused.size() < kMostRefusals) {
    std::vector<LayerRange> best;
    Worth best_worth = worth;
    for (const size_t from : Donors(load, split)) {
      for (size_t to = 0; to < split.size(); ++to) {
        std::vector<LayerRange> moved = split;
        if (to == from || !MoveLayer(from, to, &moved)) continue;
        const Worth moved_worth = WorthOf(load, moved);
        if (!moved_worth.IsBetterThan(best_worth)) continue;
        if (std::find(refused.begin(), refused.end(), moved) != refused.end()) continue;
        best_worth = moved_worth;
        best = std::move(moved);
      }
    }
    if (best.empty()) break;
    if (!fits(best)) {
      refused.push_back(std::move(best));
      continue;
    }
    split = std::move(best);
    worth = best_worth;
  }
  return split;
}

}  // namespace stagecoach
