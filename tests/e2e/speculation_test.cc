// Guesses in runs of the real programs, counted.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/support/programs.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/reciting_model.h"

namespace stagecoach::testing {
namespace {

constexpr int kWords = 200;

// A request that quotes a text: the model writes all of its prompt once more, and then ends.
class Quoting : public ::testing::Test {
 protected:
  Quoting() {
    std::vector<std::string> words;
    for (int i = 0; i < kWords; ++i) words.push_back(absl::StrCat("word ", i, "; "));
    text_ = absl::StrJoin(words, "");
    model_ = WriteModel(directory_.File("quoting.gguf"), RecitingModel(words, /*layers=*/4));
  }
  Json Quote(const Words& more) const {
    return CoordinatorJson(Joined({"generate", "-m", model_, "--raw", "-p", text_ + "\n", "-n",
                                   absl::StrCat(2 * kWords), "--logprobs", "2", "--output", "json"},
                                  more));
  }

  const TempDir directory_;
  std::string text_, model_;
};

TEST_F(Quoting, OverFourStagesHasMostTokensWithoutAStepOfTheirOwn) {
  const Json plain = Quote({"--pp", "4", "--speculate", "off"});
  EXPECT_EQ(plain["text"], text_);
  EXPECT_FALSE(plain["timings"].contains("guesses")) << "there are to be none";
  const std::string steps = directory_.File("steps.jsonl");
  const Json guessed = Quote({"--pp", "4", "--stage-delay-us", "4000", "--step-log", steps});
  for (const char* same : {"text", "tokens", "logprobs", "finish_reason"})
    EXPECT_EQ(guessed[same], plain[same]) << same;
  // Its first tokens teach how long a step takes. From the second word on the prompt says every next one.
  const Json& timings = guessed["timings"];
  EXPECT_GE(timings["guesses_right"].get<int>(), kWords * 85 / 100) << timings;
  EXPECT_EQ(timings["decode_rows"].get<int>() + timings["guesses_right"].get<int>(), kWords);
  EXPECT_LE(timings["guesses_void"].get<int>(), 4 * 4) << timings;
  // Every micro-batch comes out of a replay as it was.
  const Json replay = CoordinatorJson({"simulate", "--replay", steps, "--json"});
  EXPECT_EQ(replay["replayed"][0]["tokens"], kWords + 1) << replay;
}

// It ends within a word that was guessed, and more words are on their way.
TEST_F(Quoting, EndsAtAStopStringWithinAGuessAsWithoutGuesses) {
  const Words stop = {"--pp", "4", "--stop", "rd 150;"};
  const Json plain = Quote(Joined(stop, {"--speculate", "off"}));
  const Json guessed = Quote(Joined(stop, {"--stage-delay-us", "4000"}));
  EXPECT_EQ(plain["text"], text_.substr(0, text_.find("rd 150;")));
  for (const char* same : {"text", "tokens", "logprobs", "finish_reason"})
    EXPECT_EQ(guessed[same], plain[same]) << same;
  const Json& timings = guessed["timings"];
  EXPECT_GE(timings["guesses_right"].get<int>(), 150 / 2) << timings;
  EXPECT_GT(timings["guesses"].get<int>(), timings["guesses_right"].get<int>() + timings["guesses_void"].get<int>())
      << "some were in flight at the end";
}

TEST_F(Quoting, OneStageHasNoDraft) {
  EXPECT_THAT(
      Coordinator({"generate", "-m", model_, "--raw", "-p", text_, "-n", "3", "--draft-model", model_}),
      EndsWithCode(0, HasSubstr("one stage waits for no other, so nothing is guessed; the job goes on without")));
}

}  // namespace
}  // namespace stagecoach::testing
