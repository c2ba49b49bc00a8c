// Guessed rows in a whole stage, from frame to frame.

#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/unit/stage_worker/stage_loop_rig.h"

namespace stagecoach {
namespace {

using StageGuessesTest = StageLoopTest;

TEST_F(StageGuessesTest, GuessesArePassedOnWithTheirTokens) {
  const MicroBatch guess = Row(1, kRows, 70, true), next = Row(2, kRows + 1, 71, true), known = Row(3, kRows, 9, false);
  StartWith(1, 3, [](auto* assignment) { assignment->set_most_guesses(3); });
  for (const MicroBatch& batch : {Step(0), guess, next, known}) Send(batch);
  ExpectShutdownAfter(4);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(passed_on_[1].batch, guess);
  EXPECT_EQ(passed_on_[2].batch, next);
  EXPECT_EQ(passed_on_[3].batch, WithoutTokens(known));
}

TEST_F(StageGuessesTest, TheLastStageJudgesGuessesAndRefusesToGoBackOverATokenThatItGave) {
  StartWith(0, 1, [](auto* assignment) { assignment->set_most_guesses(3); });
  uint64_t number = 0;
  const auto result_of = [&](const MicroBatch& batch) {
    Send(batch);
    ++number;
    EXPECT_TRUE(Poll([&] { return results_.size() == number || heard_.failure.has_value(); }));
    return results_.size() == number ? results_.back().sampled.at(0) : SampledToken();
  };
  const auto is_void = [](int32_t position) {
    return SampledToken{.sequence = 1, .position = position, .is_void = true};
  };
  const TokenId first = result_of(Step(0)).token;
  const SampledToken second = result_of(Row(1, kRows, first, true));
  EXPECT_EQ(second.position, kRows + 1);
  EXPECT_FALSE(second.is_void);
  EXPECT_EQ(result_of(Row(2, kRows + 1, second.token == 1 ? 2 : 1, true)), is_void(kRows + 2));
  EXPECT_EQ(result_of(Row(3, kRows + 2, 1, true)), is_void(kRows + 3));
  EXPECT_EQ(result_of(Row(4, kRows + 1, second.token, false)).position, kRows + 2);
  EXPECT_EQ(result_of(Row(5, kRows + 2, results_.back().sampled[0].token, true)).position, kRows + 3);
  Send(Row(6, kRows + 2, 1, false));
  ExpectFailure(absl::StatusCode::kDataLoss, "sequence 1 is sampled for position 6, expected 7");
}

TEST_F(StageGuessesTest, GuessesAreFewerThanMicroBatchesInFlight) {
  for (const int32_t most : {-1, 4, 64, std::numeric_limits<int32_t>::max()}) {
    SCOPED_TRACE(most);
    StartWith(1, 3, [most](auto* assignment) { assignment->set_most_guesses(most); });
    ExpectFailure(absl::StatusCode::kInvalidArgument, absl::StrCat("`most_guesses` is ", most, ", expected 0 to 3"));
    if (HasFatalFailure()) return;
  }
}

TEST_F(StageGuessesTest, ADraftIsCorrectedFromFrameToFrameAndIsOneStage) {
  StartWith(0, 1, [](auto* assignment) {
    assignment->set_most_guesses(3);
    assignment->set_cuts_history(true);
  });
  for (const MicroBatch& batch :
       {Step(0), Row(1, kRows, 9, false), Row(2, kRows + 1, 9, false), Row(3, kRows, 70, false)}) {
    Send(batch);
  }
  ExpectShutdownAfter(4);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(results_.at(3).sampled.at(0).position, kRows + 1);
  StartWith(1, 3, [](auto* assignment) { assignment->set_cuts_history(true); });
  ExpectFailure(absl::StatusCode::kInvalidArgument, "one of the 3 stages of a draft, expected the only one");
}

}  // namespace
}  // namespace stagecoach
