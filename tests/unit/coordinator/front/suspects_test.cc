#include "coordinator/front/suspects.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stagecoach {
namespace {

// A job that computes what it may: a guilty request kills it, before which the first `progressing` others bring a
// token.
class Trial {
 public:
  Trial(int requests, std::set<RequestId> guilty) : guilty_(std::move(guilty)) {
    for (int i = 1; i <= requests; ++i) unfinished_.push_back(static_cast<RequestId>(i));
  }

  // Runs one job until it dies or is done; true when it died.
  bool Run(size_t progressing) {
    ++jobs_;
    std::vector<RequestId> given;
    const auto give = [&] {
      for (const RequestId request : unfinished_) {
        const bool there = std::find(given.begin(), given.end(), request) != given.end();
        if (!there && suspects_.MayRun(request)) given.push_back(request);
      }
      std::sort(given.begin(), given.end());
    };
    give();
    EXPECT_FALSE(given.empty());
    std::set<RequestId> progressed;
    for (size_t with_guilty = 0; !HasGuilty(given) || with_guilty < progressing; with_guilty += HasGuilty(given)) {
      const auto next = std::find_if(given.begin(), given.end(), [&](RequestId request) {
        return !guilty_.contains(request) && !progressed.contains(request);
      });
      if (next == given.end()) break;
      progressed.insert(*next);
      if (suspects_.Progressed(*next)) give();
    }
    if (!HasGuilty(given)) return false;
    if (const auto found = suspects_.Lost(/*accusing=*/true, given)) {
      EXPECT_TRUE(guilty_.contains(*found)) << *found << " is innocent";
      std::erase(unfinished_, *found);
      found_.insert(*found);
    }
    return true;
  }

  bool HasGuilty(const std::vector<RequestId>& given) const {
    return std::any_of(given.begin(), given.end(), [&](RequestId request) { return guilty_.contains(request); });
  }

  int RunUntilNobodyDies(size_t progressing) {
    while (Run(progressing) && jobs_ < 1000) {
    }
    return jobs_;
  }

  const std::set<RequestId>& found() const { return found_; }
  Suspects& suspects() { return suspects_; }

 private:
  const std::set<RequestId> guilty_;
  std::vector<RequestId> unfinished_;
  std::set<RequestId> found_;
  Suspects suspects_;
  int jobs_ = 0;
};

TEST(Suspects, ALoneRequestIsGuiltyAtTheSecondLoss) {
  Trial trial(1, {1});
  EXPECT_TRUE(trial.Run(0));
  EXPECT_TRUE(trial.found().empty());
  EXPECT_TRUE(trial.Run(0));
  EXPECT_EQ(trial.found(), std::set<RequestId>({1}));
}

TEST(Suspects, FindsTheGuiltyOneAmongManyWhereverItStands) {
  for (RequestId guilty = 1; guilty <= 64; ++guilty) {
    Trial trial(64, {guilty});
    EXPECT_LE(trial.RunUntilNobodyDies(0), 2 + 7 + 2) << guilty;
    EXPECT_EQ(trial.found(), std::set<RequestId>({guilty}));
  }
}

TEST(Suspects, FindsItAlsoWhenOthersBringTokensEachTime) {
  for (const size_t progressing : {1, 5, 31}) {
    Trial trial(32, {20});
    EXPECT_LE(trial.RunUntilNobodyDies(progressing), 12) << progressing;
    EXPECT_EQ(trial.found(), std::set<RequestId>({20}));
  }
}

TEST(Suspects, FindsSeveral) {
  Trial trial(50, {3, 30, 31});
  EXPECT_LT(trial.RunUntilNobodyDies(0), 60);
  EXPECT_EQ(trial.found(), std::set<RequestId>({3, 30, 31}));
}

TEST(Suspects, WhereEveryRequestDiesItIsNoRequest) {
  Trial trial(20, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(trial.Run(0));
  EXPECT_EQ(trial.found().size(), 3u);
}

TEST(Suspects, NobodyIsGuiltyOfAJobThatItWasNotGivenTo) {
  Suspects suspects;
  EXPECT_EQ(suspects.Lost(true, {5, 6}), std::nullopt);
  EXPECT_EQ(suspects.Lost(true, {5, 6}), std::nullopt);
  EXPECT_FALSE(suspects.Progressed(6));
  EXPECT_EQ(suspects.Lost(true, {7}), std::nullopt) << "7 was there, 5 was not";
  EXPECT_EQ(suspects.Lost(true, {5}), 5u);
}

TEST(Suspects, ALossThatAccusesNobodyHoldsNobodyBack) {
  Suspects suspects;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(suspects.Lost(false, {1, 2}), std::nullopt);
  EXPECT_TRUE(suspects.MayRun(1) && suspects.MayRun(2));
  EXPECT_EQ(suspects.Lost(true, {1, 2}), std::nullopt);
  EXPECT_TRUE(suspects.MayRun(1) && suspects.MayRun(2)) << "the first loss that accuses is an accident";
  EXPECT_EQ(suspects.Lost(true, {1, 2}), std::nullopt);
  EXPECT_TRUE(suspects.MayRun(1));
  EXPECT_FALSE(suspects.MayRun(2));
  EXPECT_FALSE(suspects.MayRun(3)) << "who is new waits for the verdict";
}

TEST(Suspects, ProgressOfAllOnTrialLetsTheNextOnesRunAndThenEverybody) {
  Suspects suspects;
  suspects.Lost(true, {1, 2, 3});
  suspects.Lost(true, {1, 2, 3});
  EXPECT_TRUE(suspects.MayRun(1) && suspects.MayRun(2) && !suspects.MayRun(3));
  EXPECT_FALSE(suspects.Progressed(1));
  EXPECT_TRUE(suspects.Ended(2));
  EXPECT_TRUE(suspects.MayRun(3));
  EXPECT_FALSE(suspects.MayRun(4));
  EXPECT_TRUE(suspects.Progressed(3));
  EXPECT_TRUE(suspects.MayRun(4));
}

TEST(Suspects, WhoStandsTrialBesideOthersIsTriedAgainAlone) {
  Suspects suspects;
  suspects.Lost(true, {1, 2});
  suspects.Lost(true, {1, 2});
  EXPECT_TRUE(suspects.Progressed(1));                   // 2 joins the same job
  EXPECT_EQ(suspects.Lost(true, {1, 2}), std::nullopt);  // 1 may have done it after its token
  EXPECT_FALSE(suspects.MayRun(1));
  EXPECT_EQ(suspects.Lost(true, {2}), std::optional<RequestId>(2));
  EXPECT_TRUE(suspects.MayRun(1));
}

}  // namespace
}  // namespace stagecoach
