#include "coordinator/schedule/groups/guess_planner.h"

#include <algorithm>
#include <array>
#include <utility>

namespace stagecoach {
namespace {

using Classes = std::array<int64_t, std::tuple_size_v<GuessShares>>;  // sequences, by acceptance

constexpr auto kClasses = static_cast<int32_t>(std::tuple_size_v<GuessShares>);

// As many as decode: those that do not are taken to be the ones that guess worst.
Classes DecodingOf(const GuessShares& shares, int64_t decoding) {
  Classes classes{};
  for (int32_t i = kClasses - 1; i >= 0; --i) {
    classes[static_cast<size_t>(i)] = std::min<int64_t>(std::max(shares[static_cast<size_t>(i)], 0), decoding);
    decoding -= classes[static_cast<size_t>(i)];
  }
  classes.front() += decoding;
  return classes;
}

int64_t RoundedUp(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace

GuessPlanner::GuessPlanner(GroupCosts* costs, int32_t most_rows, int32_t most_places)
    : costs_(costs), most_rows_(std::min(most_rows, most_places)), most_places_(most_places) {}

std::optional<GuessPlanner::Option> GuessPlanner::OptionOf(const Load& load, const GroupChoice& choice,
                                                           GroupCosts::Beside beside) const {
  const Classes classes = DecodingOf(load.shares, load.decoding);
  int64_t guessing = 0;
  double right = 0;  // of one guess of each of them
  int32_t worst = kClasses;
  for (int32_t i = kClasses - 1; i >= choice.shares_from; --i) {
    const int64_t sequences = classes[static_cast<size_t>(i)];
    if (sequences > 0) worst = i;
    guessing += sequences;
    right += static_cast<double>(sequences) * ShareAcceptance(static_cast<size_t>(i));
  }
  if (guessing == 0) return std::nullopt;
  const int64_t rows = load.decoding + guessing * (choice.guess_rows - 1);
  const int64_t share = RoundedUp(load.decoding, choice.groups);
  const int64_t places = std::max<int64_t>(choice.guess_rows, RoundedUp(rows, share));
  if (places > most_places_) return std::nullopt;
  Option option = {choice, 0};
  option.choice.guess_places = static_cast<int32_t>(places);
  const double loop_us =
      std::max(costs_->LoopUs(rows, option.choice.guess_places, share, beside), choice.guess_rows * load.guess_us);
  const double spared = 1 - 1.0 / choice.guess_rows;  // of a loop, by a right guess
  // All rows are taken to be alike. Those of a long context take longer, but micro-batches keep their order: everybody
  // waits for these rows' way through all stages, without guesses, too. A mean time falls short of that way by more
  // than of what the slowest stage does in a loop, so the bound errs on the safe side.
  const double longest_us =
      loop_us * (guessing < load.decoding ? 1 : 1 - ShareAcceptance(static_cast<size_t>(worst)) * spared);
  if (longest_us > without_us_ * (1 + kMostLoss)) return std::nullopt;
  option.sum_us = loop_us * (static_cast<double>(load.decoding) - right * spared);
  return option;
}

// Of all that take less than `below_us`.
std::optional<GuessPlanner::Option> GuessPlanner::Best(const Load& load, double below_us,
                                                       GroupCosts::Beside beside) const {
  const Classes classes = DecodingOf(load.shares, load.decoding);
  std::optional<Option> best;
  const int32_t step = std::max(1, load.groups / kSteps);
  for (int32_t groups = load.pinned ? load.groups : 1; groups <= load.groups; groups += step) {
    for (int32_t rows = 2; rows <= most_rows_; ++rows) {
      for (int32_t from = 1; from < kClasses; ++from) {
        if (classes[static_cast<size_t>(from)] == 0) continue;
        const std::optional<Option> option =
            OptionOf(load, {.groups = groups, .guess_rows = rows, .shares_from = from}, beside);
        if (!option.has_value() || option->sum_us >= below_us) continue;
        below_us = option->sum_us;
        best = option;
      }
    }
  }
  return best;
}

GroupChoice GuessPlanner::Choose(const Load& load, int64_t results) {
  without_us_ = costs_->LoopUs(load.decoding, load.groups, RoundedUp(load.decoding, load.groups));
  const double without_us = without_us_ * static_cast<double>(load.decoding);
  double below_us = without_us * (1 - margin() - kGain);
  if (now_.has_value()) {
    GroupChoice same = *now_;
    same.groups = load.pinned ? load.groups : static_cast<int32_t>(std::min<int64_t>(same.groups, load.decoding));
    const std::optional<Option> now = OptionOf(load, same, GroupCosts::Beside::kKnown);
    now_.reset();
    if (now.has_value() && now->sum_us <= without_us * (1 - margin())) {
      now_ = now->choice;
      below_us = now->sum_us * (1 - kChange);
    }
  }
  hunch_.reset();
  const std::optional<Option> best = Best(load, below_us, GroupCosts::Beside::kKnown);
  if (best.has_value()) now_ = best->choice;
  if (!now_.has_value() && !BeginHunch(load, results)) return {.groups = load.groups};
  return *now_;
}

bool GuessPlanner::BeginHunch(const Load& load, int64_t results) {
  if (!costs_->shares_hosts() || results < next_hunch_) return false;
  const double without_us = without_us_ * static_cast<double>(load.decoding);
  const std::optional<Option> best = Best(load, without_us * (1 - margin() - kGain), GroupCosts::Beside::kAlone);
  if (!best.has_value()) return false;
  now_ = best->choice;
  const int32_t places = now_->guess_places;
  costs_->Fade(places);  // what is so old would only be in the way of what comes
  hunch_ = {costs_->results(places) + kHunchLoops * places, results + 4 * kHunchLoops * places};
  gap_ = std::min(2 * gap_, kLongestGap);
  next_hunch_ = results + gap_ * kHunchGap;
  return true;
}

bool GuessPlanner::TrialOver(int64_t results) const {
  return results >= hunch_->until || costs_->results(now_->guess_places) >= hunch_->wanted;
}

}  // namespace stagecoach
