#include "coordinator/schedule/groups/group_planner.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/check.h"

namespace stagecoach {
namespace {

// Half as many sequences again, or a third fewer.
bool IsOtherLoad(int64_t decoding, int64_t before) { return 2 * decoding >= 3 * before || 3 * decoding <= 2 * before; }

// Results between two trials of a number of groups, from `now` of them.
int64_t Gap(int32_t now) { return std::max(GroupPlanner::kTrialGap, GroupPlanner::kTrialGapRounds * now); }

}  // namespace

GroupPlanner::GroupPlanner(const std::vector<int>& host_of_stage, int32_t most_groups, ReadCurve reads,
                           const Options& options)
    : most_groups_(most_groups),
      options_(options),
      costs_(host_of_stage, reads, options.idle_us),
      guesses_(&costs_, options.guess_rows, most_groups),
      groups_(std::min(most_groups, costs_.stages())) {
  CHECK_GE(most_groups, 1);
}

void GroupPlanner::Confirmed(const Result& result) {
  if (static_cast<int64_t>(result.times.size()) != costs_.stages()) return;  // a pipeline without times
  ++results_;
  if (costs_.Confirmed(result)) ++learned_;
}

std::optional<double> GroupPlanner::RoundUs(int64_t decoding, int32_t groups) {
  if (learned_ < GroupCosts::kNeeded) return std::nullopt;
  costs_.Refit();
  return costs_.RoundUs(std::max<int64_t>(decoding, 1), groups);
}

int32_t GroupPlanner::Most(int64_t decoding) const {
  return static_cast<int32_t>(std::clamp<int64_t>(decoding, 1, most_groups_));
}

int32_t GroupPlanner::Groups(int64_t decoding) {
  decoding = std::max<int64_t>(decoding, 1);
  const int32_t most = Most(decoding);
  if (trial_.has_value()) {
    if (!TrialOver(decoding)) return trial_->groups;
    trial_.reset();
    Plan(decoding);  // look at once at what it showed
  } else if (learned_ >= planned_ + std::max<int64_t>(kRefit, groups_) ||
             8 * std::abs(decoding - planned_for_) > planned_for_) {
    Plan(decoding);
  }
  return trial_.has_value() ? trial_->groups : std::min(groups_, most);
}

// What a sequence gains is reckoned from what it has without guesses, and from the best number of groups, if there is
// more than one to choose from: no other is found while sequences guess. Where fewer than `groups` are in flight, as
// sequences come and go, as many results of any number do; stages of one host need their own.
bool GroupPlanner::MayGuess(int64_t decoding, int32_t groups) {
  if (groups != steady_groups_) {
    steady_groups_ = groups;
    steady_since_ = learned_;
  }
  if (options_.guess_rows < 2 || trial_.has_value()) return false;
  const bool lone = options_.groups > 0 || Most(decoding) == 1;
  const int64_t needed = lone ? kGuessNeeded : GroupCosts::kNeeded;
  if (costs_.results(groups) >= needed) return true;
  return !costs_.shares_hosts() && learned_ >= (lone ? 0 : steady_since_) + needed;
}

GroupChoice GroupPlanner::Choose(int64_t decoding, const GuessShares& shares, double guess_us) {
  decoding = std::max<int64_t>(decoding, 1);
  const bool pinned = options_.groups > 0;
  const int32_t groups = pinned ? std::min(options_.groups, Most(decoding)) : Groups(decoding);
  if (!MayGuess(decoding, groups)) {
    guesses_.Stop();
    chosen_for_ = 0;
    return {.groups = pinned ? options_.groups : groups};
  }
  const bool other = groups != chosen_beside_ || 8 * std::abs(decoding - chosen_for_) > chosen_for_;
  const bool due = guesses_.OnTrial() ? guesses_.TrialOver(results_) : results_ >= next_look_;
  if (!other && !due) return choice_;
  costs_.Refit();
  const GroupChoice before =
      std::exchange(choice_, guesses_.Choose({decoding, shares, guess_us, groups, pinned}, results_));
  if (pinned && choice_.guess_places == 0) choice_.groups = options_.groups;
  // What a new choice costs is seen once the second trip is over, and may be far more than was expected.
  const int64_t gap = std::max<int64_t>(kRefit, groups);
  next_look_ = results_ + (choice_ == before ? gap : std::min<int64_t>(gap, 2 * choice_.guess_places));
  chosen_for_ = decoding;
  chosen_beside_ = groups;
  return choice_;
}

void GroupPlanner::Plan(int64_t decoding) {
  planned_ = learned_;
  planned_for_ = decoding;
  const int32_t now = std::min(groups_, Most(decoding));
  if (costs_.results(now) < GroupCosts::kNeeded) return;
  costs_.Refit();
  const std::optional<int32_t> better = Better(decoding, now);
  if (!better.has_value()) return BeginTrial(decoding, now);
  tried_[*better].gap = 1;
  tried_[now] = {.next = results_ + Gap(now), .decoding = decoding};  // it is as well known as what was tried
  groups_ = *better;
}

// Of the numbers seen of late for such a load, the one with the shortest round, if enough shorter.
std::optional<int32_t> GroupPlanner::Better(int64_t decoding, int32_t now) const {
  double best_us = costs_.RoundUs(decoding, now) * (1 - kGain);
  std::optional<int32_t> best;
  for (auto tried = tried_.lower_bound((now + 1) / 2); tried != tried_.end(); ++tried) {
    const int32_t groups = tried->first;
    if (groups > std::min(2 * now, Most(decoding))) break;
    if (groups == now || costs_.results(groups) == 0 || results_ >= tried->second.next) continue;
    // What is known of another load may be wrong for this one till the next look; a short trial costs less.
    if (IsOtherLoad(decoding, tried->second.decoding)) continue;
    const double round_us = costs_.RoundUs(decoding, groups);
    if (round_us >= best_us) continue;
    best_us = round_us;
    best = groups;
  }
  return best;
}

void GroupPlanner::BeginTrial(int64_t decoding, int32_t now) {
  double least_us = costs_.RoundUs(decoding, now) * (1 - kGain);
  std::optional<int32_t> chosen;
  const auto look_at = [&](int32_t groups) {
    const auto tried = tried_.find(groups);
    const bool again = tried != tried_.end() && results_ < tried->second.next;
    if (again && !IsOtherLoad(decoding, tried->second.decoding)) return;
    const double round_us = costs_.LeastRoundUs(decoding, groups, now, /*own=*/again);
    if (round_us >= least_us) return;
    least_us = round_us;
    chosen = groups;
  };
  const int32_t least = (now + 1) / 2, most = static_cast<int32_t>(std::min<int64_t>(Most(decoding), 2LL * now));
  const int32_t step = std::max(1, now / kSteps);
  for (int32_t groups = least; groups < now; groups += step) look_at(groups);
  for (int32_t groups = now + 1; groups <= most; groups += step) look_at(groups);
  if (!chosen.has_value()) return;
  Tried& tried = tried_[*chosen];
  if (results_ >= tried.next) {
    costs_.Fade(*chosen);  // what is so old would only be in the way of what comes
    tried.gap = tried.next == 0 ? 1 : std::min(2 * tried.gap, kLongestGap);
  }
  const int64_t wanted = std::max<int64_t>(int64_t{kTrialRounds} * *chosen, kTrialResults);
  // Groups come back and are cut anew before there are as many as wanted.
  trial_ = {*chosen, decoding, costs_.results(*chosen), wanted, results_ + 2 * (now + wanted)};
  tried.next = results_ + tried.gap * Gap(now);
  tried.decoding = decoding;
}

bool GroupPlanner::TrialOver(int64_t decoding) const {
  const int32_t groups = trial_->groups;
  if (decoding < groups || IsOtherLoad(decoding, trial_->decoding) || results_ >= trial_->until) return true;
  const int64_t seen = costs_.results(groups) - trial_->before;
  if (seen >= trial_->wanted) return true;
  const int32_t now = std::min(groups_, Most(decoding));
  return seen >= kTrialLeast &&
         costs_.LeastRoundUs(decoding, groups, now, /*own=*/true) >= costs_.RoundUs(decoding, now) * (1 - kGain);
}

}  // namespace stagecoach
