// How often the guessers are right on texts as people write them.

#include "coordinator/guess/suffix_guesser.h"
#include "tests/testing/guess/text_alpha.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using testing::GuessSource;

TEST(GuessAlpha, IsHighOnAnEditedFileAndLowInProse) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  const auto alpha = [&](int text, GuessSource source) {
    return testing::MeasureAlpha(testing::GuessedTexts()[static_cast<size_t>(text)], *tokenizer, source,
                                 SuffixGuesser::Limits().least_match);
  };
  const auto edit = alpha(0, GuessSource::kSuffix), summary = alpha(1, GuessSource::kSuffix);
  const auto prose = alpha(2, GuessSource::kSuffix), form = alpha(3, GuessSource::kSuffix);
  const auto like_earlier = alpha(3, GuessSource::kEarlier);
  EXPECT_GT(edit.Alpha(), 0.85);
  EXPECT_GT(alpha(0, GuessSource::kPrediction).Alpha(), 0.8);
  EXPECT_GT(summary.Alpha(), 0.5);
  EXPECT_LT(prose.Alpha(), 0.1);
  EXPECT_GT(like_earlier.Alpha(), form.Alpha() + 0.4) << "earlier forms tell of this one";
  // What a guess promises is what it keeps, where it matters.
  for (const auto& measured : {edit, like_earlier}) {
    EXPECT_NEAR(measured.confidence, static_cast<double>(measured.right) / static_cast<double>(measured.guessed), 0.05);
  }
}

TEST(GuessAlpha, MakesOneUserOnFourStagesAsMuchFasterAsTheFormulaSays) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  const std::vector<testing::GuessedText> texts = testing::GuessedTexts();
  const double least[] = {2.8, 1.6, 1, 2.3};
  for (size_t i = 0; i < texts.size(); ++i) {
    const testing::GuessedRun run = testing::RunGuessed(texts[i], *tokenizer, 4);
    const double alpha = static_cast<double>(run.right) / static_cast<double>(run.tokens);
    EXPECT_NEAR(run.Speedup(4), 1 / (alpha / 4 + 1 - alpha), 0.1) << texts[i].name;
    EXPECT_GE(run.Speedup(4), least[i]) << texts[i].name;
  }
}

TEST(GuessAlpha, TakesOneStepATokenWhereAllGuessesAreRight) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  testing::GuessedText text = testing::GuessedTexts()[0];
  text.output = text.prediction;
  for (const int stages : {2, 4, 8}) {
    const testing::GuessedRun run = testing::RunGuessed(text, *tokenizer, stages);
    EXPECT_EQ(run.void_rows, 0);
    // The first row passes all stages, and one step goes by until the prediction is indexed.
    EXPECT_LE(run.steps, run.tokens + stages + 1);
  }
}

}  // namespace
}  // namespace stagecoach
