// Who guesses ahead, and how far: against a flow shop in which guesses prove right by chance.

#include "coordinator/schedule/groups/guess_planner.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <utility>
#include <vector>

#include "common/base/counter_rng.h"
#include "coordinator/schedule/groups/group_planner.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/schedule/groups/made_up_pipeline.h"

namespace stagecoach {
namespace {

// Sequences that decode over a made-up pipeline as the scheduler sends them: known rows first, then guesses, all of
// them at most a group's share; at most one row of a sequence in a micro-batch. What the last stage judges is judged.
class GuessingUsers {
 public:
  // acceptance: of each user, the probability that a guess is right.
  GuessingUsers(MadeUpPipeline* pipeline, const std::vector<double>& acceptance, uint64_t seed = 1)
      : pipeline_(pipeline), seed_(seed) {
    for (const double right : acceptance) {
      ready_.push_back(users_.size());
      users_.push_back({.right = right});
    }
  }

  void Set(const GroupChoice& choice) { choice_ = choice; }
  // A row of the user takes so much longer at every stage, as those of a long context do.
  void Deepen(size_t user, double more_us) { users_[user].more_us = more_us; }
  // What the planner is told; by default the truth.
  void Pretend(const std::vector<double>& acceptance) { pretended_ = acceptance; }

  // Until all together have so many more tokens. `planner` chooses after every result; nullptr: nobody does.
  void Run(int64_t tokens, GroupPlanner* planner = nullptr, double guess_us = 0) {
    const double begin_us = pipeline_->now_us();
    for (User& user : users_) user.begin = user.tokens, user.rights = 0;
    produced_ = 0;
    while (produced_ < tokens) {
      Fill();
      const MadeUpPipeline::InFlight back = pipeline_->Return();
      const int64_t void_rows = Confirm();
      if (planner == nullptr) continue;
      planner->Confirmed({.decode_rows = back.rows,
                          .in_flight = back.in_flight,
                          .round_trip_us = static_cast<int64_t>(back.result_us - back.submit_us),
                          .times = back.times,
                          .void_rows = void_rows});
      const GroupChoice choice = planner->Choose(static_cast<int64_t>(users_.size()), Shares(), guess_us);
      changes_ += choice == choice_ ? 0 : 1;
      choice_ = choice;
    }
    took_us_ = pipeline_->now_us() - begin_us;
  }

  // Of the last Run.
  double UsAToken(size_t user) const {
    return took_us_ / static_cast<double>(users_[user].tokens - users_[user].begin);
  }
  double MeanUs() const {  // of all users' UsAToken
    double sum = 0;
    for (size_t user = 0; user < users_.size(); ++user) sum += UsAToken(user);
    return sum / static_cast<double>(users_.size());
  }
  double RightShare(size_t user) const {
    return static_cast<double>(users_[user].rights) / static_cast<double>(users_[user].tokens - users_[user].begin);
  }
  // Of all.
  const GroupChoice& choice() const { return choice_; }
  int64_t guesses() const { return guesses_; }
  int64_t changes() const { return changes_; }

 private:
  struct User {
    double right = 0, more_us = 0;
    int64_t tokens = 0, begin = 0, rights = 0;
    int32_t in_flight = 0;
    std::deque<bool> guesses;  // for the positions from `tokens` on: whether they are right
    bool ready = true;
    uint64_t latest = 0;
  };
  struct Row {
    size_t user;
    int64_t position;
    bool guess, right;
  };

  int32_t ClassOf(size_t user) const {
    return static_cast<int32_t>(ShareClass(pretended_.empty() ? users_[user].right : pretended_[user]));
  }
  GuessShares Shares() const {
    GuessShares shares{};
    for (size_t user = 0; user < users_.size(); ++user) ++shares[static_cast<size_t>(ClassOf(user))];
    return shares;
  }
  int32_t RowsOf(size_t user) const { return ClassOf(user) >= choice_.shares_from ? choice_.guess_rows : 1; }
  bool IsRight(size_t user, int64_t position) const {
    return UniformAt(MixBits(seed_ + user), static_cast<uint64_t>(position)) < users_[user].right;
  }

  // Without guesses the ready ones are shared out among the groups that are not under way.
  void Fill() {
    const auto groups = static_cast<size_t>(std::max(choice_.groups, 1));
    const auto places = static_cast<size_t>(choice_.guess_places), most = std::max(places, groups);
    const size_t share = (users_.size() + groups - 1) / groups;
    while (batches_.size() < most) {
      std::vector<Row> batch;
      ++number_;
      size_t left = share;
      if (places == 0) left = std::min(share, (ready_.size() + most - batches_.size() - 1) / (most - batches_.size()));
      if (places > 0 && batches_.size() >= places) return;
      for (; !ready_.empty() && batch.size() < left; ready_.pop_front()) Send(ready_.front(), /*guess=*/false, &batch);
      if (places > 0) AddGuesses(share, &batch);
      if (batch.empty()) return;
      double more_us = 0;
      for (const Row& row : batch) more_us += users_[row.user].more_us;
      pipeline_->Submit(static_cast<int64_t>(batch.size()), more_us);
      batches_.push_back(std::move(batch));
    }
  }

  void AddGuesses(size_t share, std::vector<Row>* batch) {
    const std::vector<size_t> ahead(ahead_.begin(), ahead_.end());  // sending moves them to the end
    for (const size_t user : ahead) {
      if (batch->size() == share) return;
      if (users_[user].latest == number_ || users_[user].in_flight >= RowsOf(user)) continue;
      Send(user, /*guess=*/true, batch);
    }
  }

  void Send(size_t user, bool guess, std::vector<Row>* batch) {
    User& of = users_[user];
    const int64_t position = of.tokens + static_cast<int64_t>(of.guesses.size()) + (guess ? 1 : 0);
    const bool right = IsRight(user, position);
    batch->push_back({user, position, guess, right});
    if (guess) of.guesses.push_back(right), ++guesses_, ahead_.remove(user);
    ahead_.push_back(user);
    of.ready = false;
    of.latest = number_;
    ++of.in_flight;
  }

  // Returns how many rows were void. A row at a position is right where its sequence has so many tokens.
  int64_t Confirm() {
    int64_t void_rows = 0;
    for (const Row& row : batches_.front()) {
      User& user = users_[row.user];
      --user.in_flight;
      if (row.guess && (row.position != user.tokens || !row.right)) {
        ++void_rows;
        continue;
      }
      EXPECT_EQ(row.position, user.tokens);
      ++user.tokens;
      ++produced_;
      user.rights += IsRight(row.user, user.tokens) ? 1 : 0;
      if (!user.guesses.empty() && user.guesses.front()) {
        user.guesses.pop_front();
        continue;
      }
      user.guesses.clear();
      ahead_.remove(row.user);
      ready_.push_back(row.user);
    }
    batches_.pop_front();
    return void_rows;
  }

  MadeUpPipeline* const pipeline_;
  const uint64_t seed_;
  std::vector<User> users_;
  std::vector<double> pretended_;
  std::list<size_t> ready_, ahead_;
  std::deque<std::vector<Row>> batches_;
  GroupChoice choice_;
  uint64_t number_ = 0;
  int64_t produced_ = 0, guesses_ = 0, changes_ = 0;
  double took_us_ = 0;
};

std::vector<MadeUpStage> Stages(const std::vector<double>& fixed_us, double row_us = 0, bool one_host = false) {
  std::vector<MadeUpStage> stages;
  for (const double fixed : fixed_us) stages.push_back({fixed, row_us, one_host ? 0 : static_cast<int>(stages.size())});
  return stages;
}

GroupPlanner PlannerOf(const MadeUpPipeline& pipeline, int32_t stages, ReadCurve reads = {},
                       GroupPlanner::Options options = {.guess_rows = 16}) {
  return GroupPlanner(pipeline.hosts(), stages + 1, reads, options);
}

// A user alone with R rows in flight: what the formula says of the share of guesses that were right.
TEST(GuessingAlone, TakesWhatTheFormulaSays) {
  for (const int stages : {2, 4, 8, 16}) {
    for (const double right : {0.0, 0.4, 0.8, 1.0}) {
      for (const int32_t rows : {2, stages}) {
        MadeUpPipeline pipeline(Stages(std::vector<double>(static_cast<size_t>(stages), 1000)), 20);
        GuessingUsers user(&pipeline, {right});
        user.Set({.groups = 1, .guess_places = rows, .guess_rows = rows, .shares_from = 0});
        user.Run(4000);
        const double loop_us = stages * 1000 + (stages + 1) * 20, share = user.RightShare(0);
        EXPECT_NEAR(user.UsAToken(0) / (loop_us * (share / rows + 1 - share)), 1, 0.005)
            << stages << " stages, " << rows << " rows, right " << right;
      }
    }
  }
}

struct GuessedLoad {
  std::vector<double> fixed_us;
  double hop_us;
  std::vector<double> acceptance;
};

std::vector<GuessedLoad> Loads() {
  std::vector<GuessedLoad> loads;
  const std::vector<std::vector<double>> users = {
      {0.75}, {0.625, 0.625}, {0.8125, 0}, {0.875, 0.5, 0}, {0.8125, 0.75, 0, 0, 0}};
  for (const std::vector<double>& acceptance : users) {
    loads.push_back({{1000, 1000, 1000, 1000}, 400, acceptance});
    loads.push_back({{1000, 1000, 1000, 2000}, 10, acceptance});
  }
  return loads;
}

// Users with a choice that stays.
GuessingUsers Fixed(MadeUpPipeline* pipeline, const std::vector<double>& acceptance, const GroupChoice& choice) {
  GuessingUsers users(pipeline, acceptance);
  users.Set(choice);
  users.Run(600 * static_cast<int64_t>(acceptance.size()));
  return users;
}

double MostUs(const GuessingUsers& users, size_t count) {
  double most = 0;
  for (size_t user = 0; user < count; ++user) most = std::max(most, users.UsAToken(user));
  return most;
}

// The best mean time of a token over all users, of every choice in which nobody's takes much longer than without
// guesses.
double BestUs(const GuessedLoad& load, double row_us) {
  const auto stages = static_cast<int32_t>(load.fixed_us.size());
  const auto n = static_cast<int32_t>(load.acceptance.size());
  const auto users_with = [&](const GroupChoice& choice) {
    MadeUpPipeline pipeline(Stages(load.fixed_us, row_us), load.hop_us);
    return Fixed(&pipeline, load.acceptance, choice);
  };
  double best_us = std::numeric_limits<double>::infinity();
  for (int32_t groups = 1; groups <= std::min(n, stages + 1); ++groups) {
    best_us = std::min(best_us, users_with({.groups = groups}).MeanUs());
  }
  const double without_us = best_us;
  for (int32_t groups = 1; groups <= std::min(n, stages + 1); ++groups) {
    if (groups > 1 && (n + groups - 1) / groups == (n + groups - 2) / (groups - 1)) continue;  // the same share
    for (int32_t places = 2; places <= stages + 1; ++places) {
      for (int32_t rows = 2; rows <= places; ++rows) {
        const GuessingUsers users = users_with({groups, places, rows, 1});
        if (MostUs(users, load.acceptance.size()) < 1.03 * without_us) best_us = std::min(best_us, users.MeanUs());
      }
    }
  }
  return best_us;
}

TEST(GuessPlanner, SettlesWithinAFifteenthOfTheBestChoice) {
  for (const double row_us : {1.0, 1000.0}) {
    for (const GuessedLoad& load : Loads()) {
      const auto stages = static_cast<int32_t>(load.fixed_us.size());
      const auto n = static_cast<int64_t>(load.acceptance.size());
      MadeUpPipeline pipeline(Stages(load.fixed_us, row_us), load.hop_us, 0, 0.01);
      GroupPlanner planner = PlannerOf(pipeline, stages);
      GuessingUsers users(&pipeline, load.acceptance);
      users.Run(300 * n, &planner);
      users.Run(1500 * n, &planner);
      const GroupChoice& choice = users.choice();
      EXPECT_LT(users.MeanUs(), BestUs(load, row_us) * 1.067)
          << stages << " stages, the last of " << load.fixed_us.back() << ", a row of " << row_us << ", hops of "
          << load.hop_us << ", " << n << " users, the first right at " << load.acceptance.front()
          << "; chosen: " << choice.groups << " groups, " << choice.guess_places << " places, " << choice.guess_rows
          << " rows from class " << choice.shares_from;
    }
  }
}

// Both on four equal stages whose rows cost as much as steps: R = 2 gives 1 / (0.6 / 2 + 0.4) = 1.43, more would lose.
TEST(GuessPlanner, TwoUsersOfFourStagesShareTheIdleTime) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}, 1000), 10, 0, 0.02);
  GroupPlanner planner = PlannerOf(pipeline, 4);
  GuessingUsers users(&pipeline, {0.6, 0.6});
  users.Pretend({0.625, 0.625});
  users.Run(200, &planner);
  users.Run(4000, &planner);
  EXPECT_EQ(users.choice(), (GroupChoice{.groups = 2, .guess_places = 4, .guess_rows = 2, .shares_from = 10}));
  EXPECT_LT(users.MeanUs(), 4 * 2000 / 1.35);
}

TEST(GuessPlanner, WhoDoesNotGuessLosesNothingBesideOneWhoDoes) {
  for (const double row_us : {1.0, 300.0, 1000.0}) {
    for (const std::vector<double>& fixed_us :
         {std::vector<double>{1000, 1000, 1000, 1000}, {1000, 1000, 1000, 2000}}) {
      MadeUpPipeline pipeline(Stages(fixed_us, row_us), 10, 0, 0.02), without(Stages(fixed_us, row_us), 10, 0, 0.02);
      GroupPlanner planner = PlannerOf(pipeline, 4);
      GuessingUsers users(&pipeline, {0.8, 0}), others(&without, {0.8, 0});
      users.Run(200, &planner);
      users.Run(4000, &planner);
      others.Set({.groups = 2});
      others.Run(4000);
      EXPECT_LT(users.UsAToken(1), others.UsAToken(1) * 1.03) << row_us << " " << fixed_us.back();
      if (fixed_us.back() > 1000 && row_us > 1) continue;  // the slow stage has no time for guesses
      EXPECT_LT(users.UsAToken(0), others.UsAToken(0) * 0.8) << row_us << " " << fixed_us.back();
    }
  }
}

// Rows of a long context take half as much again. Micro-batches keep their order, so the loop of all is that of the
// longest rows, with guesses and without.
TEST(GuessPlanner, WhoDoesNotGuessLosesNothingByTheLongerContextsOfThoseWhoDo) {
  struct Case {
    std::vector<double> acceptance, more_us;
    double last, most;  // of the last stage's time; of the first user's time without guesses
  };
  const std::vector<Case> cases = {{{0.8, 0}, {500, 0}, 1, 0.6},
                                   {{0.8, 0}, {0, 500}, 1, 0.6},
                                   {{0.8, 0}, {500, 0}, 2, 1.03},
                                   {{0.8, 0.8, 0, 0}, {500, 500, 0, 0}, 1, 1.03}};
  for (const auto& [acceptance, more_us, last, most] : cases) {
    for (const double hop_us : {10.0, 220.0}) {  // with the longer ones there is time for one row more
      for (const double row_us : {1.0, 1000.0}) {
        const double fixed_us = 1001 - row_us;
        const std::vector<MadeUpStage> stages = Stages({fixed_us, fixed_us, fixed_us, last * fixed_us}, row_us);
        MadeUpPipeline pipeline(stages, hop_us, 0, 0.02), without(stages, hop_us, 0, 0.02);
        GroupPlanner planner = PlannerOf(pipeline, 4);
        GuessingUsers users(&pipeline, acceptance), others(&without, acceptance);
        for (size_t user = 0; user < more_us.size(); ++user) {
          users.Deepen(user, more_us[user]);
          others.Deepen(user, more_us[user]);
        }
        users.Run(400, &planner);
        users.Run(4000, &planner);
        others.Set({.groups = static_cast<int32_t>(acceptance.size())});
        others.Run(4000);
        const size_t other = acceptance.size() - 1;
        const auto at = ::testing::PrintToString(std::vector{more_us[0], more_us[1], hop_us, row_us, last});
        EXPECT_LT(users.UsAToken(other), others.UsAToken(other) * 1.03) << at;
        EXPECT_LT(users.UsAToken(0), others.UsAToken(0) * most) << at;
      }
    }
  }
}

// What a row costs beside another one: from trying it, unless prompts have told before; and for good.
TEST(GuessPlanner, RowsThatCostAsMuchAsReadingShareAMicroBatchOnceAtMost) {
  for (const bool prompt : {false, true}) {
    MadeUpPipeline pipeline(Stages({10, 10, 10, 10}, 1000), 10);
    GroupPlanner planner = PlannerOf(pipeline, 4);
    const std::vector<StageTimes> times(4, {.start_us = 0, .end_us = 32'000});
    if (prompt) planner.Confirmed({0, 32, 1, 130'000, times});
    GuessingUsers users(&pipeline, {0.8, 0});
    users.Set({.groups = 2});
    for (int i = 0; i < 20; ++i) {
      users.Run(400, &planner);
      EXPECT_EQ(users.choice(), (GroupChoice{.groups = 2, .guess_places = 4, .guess_rows = 3, .shares_from = 13})) << i;
    }
    EXPECT_EQ(users.changes(), prompt ? 1 : 2)
        << "to guesses" << (prompt ? "" : ", through one group for a trip or two");
  }
}

TEST(GuessPlanner, GuessesThatAreAlwaysWrongCostNothingThatShows) {
  for (const std::vector<double>& fixed_us : {std::vector<double>{1000, 1000, 1000, 1000}, {1000, 1000, 1000, 2000}}) {
    MadeUpPipeline pipeline(Stages(fixed_us), 10), without(Stages(fixed_us), 10);
    GroupPlanner planner = PlannerOf(pipeline, 4);
    GuessingUsers user(&pipeline, {0}), other(&without, {0});
    user.Pretend({0.5});
    user.Run(4000, &planner);
    other.Set({.groups = 1});
    other.Run(4000);
    EXPECT_GT(user.guesses(), 1000);
    EXPECT_LT(user.UsAToken(0), other.UsAToken(0) / 0.97) << fixed_us.back();
  }
}

TEST(GuessPlanner, NobodyGuessesWhereGroupsKeepEveryStageBusy) {
  const std::vector<MadeUpStage> stages = Stages({10, 10, 10, 10}, 1000);
  for (const size_t n : {4, 5, 12}) {
    MadeUpPipeline pipeline(stages, 10, 0, 0.02);
    GroupPlanner planner = PlannerOf(pipeline, 4);
    GuessingUsers users(&pipeline, std::vector<double>(n, 0.9));
    users.Run(4000, &planner);
    EXPECT_EQ(users.guesses(), 0) << n;
  }
  // Whatever rows cost, where the number of groups is given.
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}), 10);
  GroupPlanner planner = PlannerOf(pipeline, 4, {}, {.guess_rows = 16, .groups = 4});
  GuessingUsers users(&pipeline, std::vector<double>(8, 0.9));
  users.Run(4000, &planner);
  EXPECT_EQ(users.guesses(), 0);
  EXPECT_EQ(users.choice().groups, 4);
}

TEST(GuessPlanner, AGivenNumberOfGroupsLeavesItsIdleTimeToGuesses) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}), 10);
  GroupPlanner planner = PlannerOf(pipeline, 4, {}, {.guess_rows = 16, .groups = 2});
  GuessingUsers users(&pipeline, {0.75, 0.75});
  users.Run(2000, &planner);
  EXPECT_EQ(users.choice(), (GroupChoice{.groups = 2, .guess_places = 4, .guess_rows = 2, .shares_from = 12}));
}

// What counts is micro-batches in flight, however many sequences are in one.
TEST(GuessPlanner, EightInOneGroupFillTheStagesThatItLeavesIdle) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}), 10);
  GroupPlanner planner = PlannerOf(pipeline, 4, {}, {.guess_rows = 16, .groups = 1});
  GuessingUsers users(&pipeline, std::vector<double>(8, 0.75));
  users.Run(4000, &planner);
  EXPECT_EQ(users.choice(), (GroupChoice{.groups = 1, .guess_places = 4, .guess_rows = 4, .shares_from = 12}));
  users.Run(4000, &planner);
  EXPECT_LT(users.MeanUs(), 4050 / 1.8);
}

// Two rows in a micro-batch of experts read half as much again as one.
TEST(GuessPlanner, KnowsWhatGuessedRowsOfExpertsRead) {
  const ReadCurve experts = {.experts = 0.93, .chosen = 8.0 / 128};
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}, 1), 10, 0, 0.02, experts);
  GroupPlanner planner = PlannerOf(pipeline, 4, experts);
  GuessingUsers users(&pipeline, {0.5, 0.5});
  users.Run(1000, &planner);
  EXPECT_EQ(users.choice().groups, 2);
  EXPECT_EQ(users.choice().guess_rows, 2);
  MadeUpPipeline dense(Stages({1000, 1000, 1000, 1000}, 1), 10, 0, 0.02);
  GroupPlanner of_dense = PlannerOf(dense, 4);
  GuessingUsers others(&dense, {0.5, 0.5});
  others.Run(1000, &of_dense);
  EXPECT_EQ(others.choice(), (GroupChoice{.groups = 1, .guess_places = 4, .guess_rows = 4, .shares_from = 8}));
}

TEST(GuessPlanner, GoesNoFartherAheadThanTheGuesserIsFast) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}), 10);
  GroupPlanner planner = PlannerOf(pipeline, 4);
  GuessingUsers user(&pipeline, {0.75});
  user.Run(200, &planner, /*guess_us=*/2100);
  EXPECT_EQ(user.choice().guess_rows, 2) << "two more guesses would take longer than the way through four stages";
  user.Run(200, &planner, /*guess_us=*/5000);
  EXPECT_EQ(user.choice().guess_places, 0);
}

// Two stages of one host, each of which halves the other's speed.
TEST(GuessPlanner, StagesThatShareAHostDoNotGuessOnAHunch) {
  MadeUpPipeline pipeline(Stages({1000, 1000}, 1, /*one_host=*/true), 10, 1), without = pipeline;
  GroupPlanner planner = PlannerOf(pipeline, 2);
  GuessingUsers user(&pipeline, {0.9}), other(&without, {0.9});
  user.Run(GuessPlanner::kHunchGap, &planner);
  EXPECT_EQ(user.guesses(), 0);
  user.Run(16000, &planner);
  other.Set({.groups = 1});
  other.Run(16000);
  EXPECT_GT(user.guesses(), 0);
  EXPECT_LT(user.guesses(), 16000 / 100);
  EXPECT_LT(user.UsAToken(0), other.UsAToken(0) / 0.99);
}

TEST(GuessPlanner, StagesThatShareAHostGuessOnceATrialHasShownThatTheyGain) {
  MadeUpPipeline pipeline(Stages({1000, 1000}, 1, /*one_host=*/true), 10, 0.1);  // two NUMA nodes
  GroupPlanner planner = PlannerOf(pipeline, 2);
  GuessingUsers user(&pipeline, {0.9});
  user.Run(GuessPlanner::kHunchGap, &planner);
  user.Run(1000, &planner);
  EXPECT_EQ(user.choice().guess_rows, 2);
  EXPECT_LT(user.UsAToken(0), 2030 * 0.7);
}

// Steps are so short that a host's few cores have more to do with sending them than with computing.
TEST(GuessPlanner, StagesThatShareAHostStopWhereATrialHasShownThatHopsBecomeSlow) {
  for (const double right : {0.125, 0.4, 0.5}) {
    MadeUpPipeline pipeline(Stages({70, 70}, 1, /*one_host=*/true), 50, 0.1, 0.1);
    pipeline.CrowdHops(60);
    MadeUpPipeline without = pipeline;
    GroupPlanner planner = PlannerOf(pipeline, 2);
    GuessingUsers user(&pipeline, {right}), other(&without, {right});
    other.Set({.groups = 1});
    user.Run(16000, &planner);
    other.Run(16000);
    EXPECT_EQ(user.guesses() > 0, right > 2 * GuessPlanner::kSharedGain)
        << "two rows in flight spare half of it at most";
    EXPECT_LT(user.guesses(), 16000 / 100);
    EXPECT_LT(user.UsAToken(0), other.UsAToken(0) / 0.99);
  }
}

TEST(GuessPlanner, StepsThatUseNoCoreAreInNobodysWay) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}, 1, /*one_host=*/true), 10, 0.02);
  GroupPlanner planner = PlannerOf(pipeline, 4, {}, {.guess_rows = 16, .idle_us = 950});
  GuessingUsers user(&pipeline, {0.9});
  user.Run(100, &planner);
  EXPECT_GE(user.choice().guess_rows, 3);
}

TEST(GuessPlanner, StopsWhenGuessesGoWrongAndChangesItsMindSeldom) {
  MadeUpPipeline pipeline(Stages({1000, 1100, 900, 1000}, 100), 50, 0, 0.3);
  GroupPlanner planner = PlannerOf(pipeline, 4);
  GuessingUsers users(&pipeline, {0.75, 0.5, 0.25});
  users.Run(10000, &planner);
  EXPECT_GT(users.choice().guess_places, 0);
  EXPECT_LT(users.changes(), 60) << "of about 600 looks";
  users.Pretend({0, 0, 0});
  users.Run(100, &planner);
  EXPECT_EQ(users.choice().guess_places, 0);
}

TEST(GuessPlanner, FollowsStagesThatBecomeSlowerOrFaster) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 2000}, 1), 10);
  GroupPlanner planner = PlannerOf(pipeline, 4);
  GuessingUsers users(&pipeline, {0.75});
  for (const double factor : {1.0, 4.0, 0.5}) {  // longer contexts, then a short one
    pipeline.SlowDown(factor);
    users.Run(600, &planner);
    EXPECT_EQ(users.choice().guess_rows, 3) << factor;
  }
}

TEST(GuessPlanner, SharesOfMoreSequencesThanDecodeAreCutFromTheLowest) {
  GroupPlanner planner({0, 1, 2, 3}, 5, {}, {.guess_rows = 16});
  const std::vector<StageTimes> times(4, {.start_us = 0, .end_us = 1000});
  for (int i = 0; i < 20; ++i) planner.Confirmed({1, 0, 1, 4010, times});
  GuessShares shares{};
  shares[0] = 100;
  EXPECT_EQ(planner.Choose(1, shares, 0).guess_places, 0);
  shares[14] = 1;
  for (int i = 0; i < 20; ++i) planner.Confirmed({1, 0, 1, 4010, times});
  EXPECT_EQ(planner.Choose(1, shares, 0), (GroupChoice{1, 4, 4, 14}));
  EXPECT_EQ(planner.Choose(0, {}, 0).groups, 1);
}

TEST(GuessPlanner, NobodyGuessesWhereAJobHasNoRoomForGuesses) {
  MadeUpPipeline pipeline(Stages({1000, 1000, 1000, 1000}), 10);
  GroupPlanner planner(pipeline.hosts(), 5);
  GuessingUsers user(&pipeline, {1});
  user.Run(1000, &planner);
  EXPECT_EQ(user.guesses(), 0);
}

// By count: a look visits each stage for every choice, and there are few looks.
TEST(GuessPlanner, VisitsAStageNoOftenerForAResultWhereThereAreManyStages) {
  for (const int32_t stages : {8, 64, 512}) {
    GroupPlanner planner(std::vector<int>(static_cast<size_t>(stages), 0), stages + 1, {}, {.guess_rows = 16});
    const std::vector<StageTimes> times(static_cast<size_t>(stages), {.received_us = 0, .start_us = 0, .end_us = 1000});
    GuessShares shares{};
    shares.fill(stages / 16);
    const auto confirm = [&](int results) {
      for (int i = 0; i < results; ++i) {
        planner.Confirmed({2, 0, stages, 1000 * stages + 200, times});
        planner.Choose(stages, shares, 0);
      }
    };
    confirm(40 * stages);
    const uint64_t before = planner.visits();
    confirm(20 * stages);
    EXPECT_LT(static_cast<double>(planner.visits() - before) / (20.0 * stages), 70.0 * stages) << stages;
  }
}

TEST(GuessPlanner, DecidesTheSameForTheSameResults) {
  std::vector<std::pair<int64_t, double>> ran;
  for (int i = 0; i < 2; ++i) {
    MadeUpPipeline pipeline(Stages({1000, 1500, 1000}, 100), 100, 0, 0.2);
    GroupPlanner planner = PlannerOf(pipeline, 3);
    GuessingUsers users(&pipeline, {0.8, 0.4});
    users.Run(3000, &planner);
    ran.emplace_back(users.guesses(), users.MeanUs());
  }
  EXPECT_EQ(ran[0], ran[1]);
}

}  // namespace
}  // namespace stagecoach
