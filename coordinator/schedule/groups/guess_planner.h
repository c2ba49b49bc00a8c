#ifndef STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GUESS_PLANNER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GUESS_PLANNER_H_

// Decides whether sequences guess ahead, and how far: the group planner's half that may take fewer groups and fill the
// places with guessed rows. Pure and deterministic; not thread-safe.
//
// Of n decoding sequences in G groups the q whose guesses prove right most often have R rows each in flight, the others
// one. A micro-batch has at most a group's share of rows, s = ceil(n / G), guessed ones included. So
//   W = n + q * (R - 1)          rows in flight
//   M = max(R, ceil(W / s))      micro-batches: a row and its successor never share one
//   L = max(T(W, M, s), R * the guesser's own time)    from a row's leaving to its result (T: GroupCosts::LoopUs)
// A right guess spares its successor the trip, and R right ones follow each other in one: a token of a sequence whose
// guesses are right with probability p takes L * (p / R + 1 - p). In a simulated flow shop that is right within 0.5 %
// of a sequence alone. Of one to five, on even and uneven stages, with rows that cost nothing or as much as reading,
// the choice is within 7 % of the best of all (guess_planner_test.cc).
//
// Choice   The least sum of these times over all sequences, of every G up to that without guesses, every R, and every
//          class of GuessShares from which on sequences guess.
// Bound    Nobody's token takes longer than kMostLoss more than without guesses.
// Change   Guesses begin where they gain kGain, go on while they lose nothing, and go over to another choice that
//          gains kChange against it. Where stages share a host, both want kSharedGain - kGain more: times there
//          differ by a tenth from one minute to the next, and no two choices are ever seen side by side.
// Hunch    Stages that share a host are taken to be in each other's way until it is known (group_costs.h), so that they
//          never guess. Where it would pay if they were not, it is tried for kHunchLoops trips, then after twice as
//          many results: two stages on two NUMA nodes gain as those of two hosts do.

#include <cstdint>
#include <optional>

#include "coordinator/schedule/groups/group_costs.h"
#include "coordinator/schedule/groups/guess_shares.h"

namespace stagecoach {

// What decoding sequences do until the next choice.
struct GroupChoice {
  int32_t groups = 1;        // Scheduler::SetDecodeGroups
  int32_t guess_places = 0;  // M, for Scheduler::SetGuessPlaces; 0: nobody guesses
  int32_t guess_rows = 1;    // R
  int32_t shares_from = 0;   // class of GuessShares: sequences of this one and higher ones have R rows in flight
  friend bool operator==(const GroupChoice&, const GroupChoice&) = default;
};

class GuessPlanner {
 public:
  static constexpr double kGain = 0.05, kSharedGain = 0.15, kChange = 0.02;  // of the sum of times
  static constexpr double kMostLoss = 0.03;                                  // of one sequence's
  static constexpr int64_t kHunchLoops = 2;
  // Results before the first hunch. The gap doubles with each, up to kLongestGap of it.
  static constexpr int64_t kHunchGap = 512, kLongestGap = 16;

  // most_rows: R at most; 1: nobody ever guesses. most_places: M at most. `costs`, up to date, outlives this.
  GuessPlanner(GroupCosts* costs, int32_t most_rows, int32_t most_places);

  struct Load {
    int64_t decoding = 1;
    GuessShares shares{};
    double guess_us = 0;  // that a guess takes its guesser; 0: nothing that shows
    int32_t groups = 1;   // without guesses, at most `decoding`
    bool pinned = false;  // and with guesses
  };
  // Looks at every choice anew: about 50 times the classes in use, each time at all stages. `results`: so far, of any
  // kind.
  GroupChoice Choose(const Load& load, int64_t results);
  // Whether the last choice is a trial, and whether this has shown enough: until then it stays the choice.
  bool OnTrial() const { return hunch_.has_value(); }
  bool TrialOver(int64_t results) const;
  void Stop() { now_.reset(), hunch_.reset(); }

 private:
  static constexpr int32_t kSteps = 16;  // numbers of groups that are looked at

  struct Option {
    GroupChoice choice;
    double sum_us = 0;  // of all sequences' times
  };
  // A choice for this load: absent where its places are too many, nobody would guess, or somebody would lose too much.
  std::optional<Option> OptionOf(const Load& load, const GroupChoice& choice, GroupCosts::Beside beside) const;
  std::optional<Option> Best(const Load& load, double below_us, GroupCosts::Beside beside) const;
  bool BeginHunch(const Load& load, int64_t results);
  double margin() const { return costs_->shares_hosts() ? kSharedGain - kGain : 0; }

  GroupCosts* const costs_;
  const int32_t most_rows_, most_places_;
  double without_us_ = 0;           // that a token takes without guesses, at the last look
  std::optional<GroupChoice> now_;  // with guesses
  struct Hunch {
    int64_t wanted = 0;  // results with as many in flight, then it is over
    int64_t until = 0;   // results of any kind: by then it is over, whatever was seen
  };
  std::optional<Hunch> hunch_;
  int64_t next_hunch_ = kHunchGap, gap_ = 1;  // results; of kHunchGap
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_GROUPS_GUESS_PLANNER_H_
