#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "common/step/sampling.h"
#include "common/step/step.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int64_t kVocab = 10;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

OpenSequence Open() { return {.sequence = 3, .prompt = {0, 9}, .output = {9}, .sampling = {}}; }

TEST(StepCheck, AcceptsDefaultsAndTheEndsOfTheRanges) {
  OpenSequence open = Open();
  EXPECT_TRUE(CheckOpenSequence(open, kVocab).ok());
  SamplingParams& s = open.sampling;
  s.temperature = 100;
  s.top_k = std::numeric_limits<int32_t>::max();
  s.top_p = 1;
  s.min_p = 1;
  s.repeat_penalty = 100;
  s.presence_penalty = -100;
  s.frequency_penalty = 100;
  s.repeat_last_n = -1;
  s.logprobs = kMaxLogprobs;
  s.prompt_logprobs = kMaxPromptLogprobs;
  s.logit_bias.assign(kMaxLogitBias, {9, -1e6f});
  s.min_new_tokens = std::numeric_limits<int32_t>::max();
  s.end_tokens.assign(kMaxEndTokens, 9);
  EXPECT_TRUE(CheckOpenSequence(open, kVocab).ok()) << CheckOpenSequence(open, kVocab);
  s.top_p = s.repeat_penalty = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(CheckOpenSequence(open, kVocab).ok());
}

TEST(StepCheck, ABiasMayForbidATokenButNotForceIt) {
  SamplingParams sampling;
  sampling.logit_bias = {{1, 2.0f}, {9, -kInfinity}};
  EXPECT_TRUE(CheckSamplingParams(sampling, kVocab).ok());
  sampling.logit_bias[1].second = kInfinity;
  EXPECT_EQ(CheckSamplingParams(sampling, kVocab).message(),
            "sampling.logit_bias[1].bias is inf, expected -1000000 to 1000000 or -inf");
}

// Positions [0, 16) are block 0, and so on.
TEST(WindowBlocks, TheFirstPlaceSeenIsThatOfTheWindowsFirstPosition) {
  EXPECT_EQ(FirstPlaceSeen(1000, 0, 16), 0) << "no window";
  EXPECT_EQ(FirstPlaceSeen(30, 16, 16), 0) << "sees 15 to 30";
  EXPECT_EQ(FirstPlaceSeen(31, 16, 16), 1) << "sees 16 to 31";
  EXPECT_EQ(FirstPlaceSeen(5, 100, 16), 0);
  EXPECT_EQ(FirstPlaceSeen(48, 1, 16), 3) << "sees itself alone";
}

TEST(WindowBlocks, NoRowsSeeMoreBlocksThanTheMost) {
  for (int64_t window = 1; window < 40; ++window) {
    for (int64_t rows = 1; rows < 40; ++rows) {
      int64_t most = 0;
      for (int64_t start = 0; start < 100; ++start) {
        most = std::max(most, (start + rows - 1) / 8 - FirstPlaceSeen(start, window, 8) + 1);
      }
      EXPECT_EQ(MostBlocksSeen(rows, window, 8), most) << window << ", " << rows;
    }
  }
}

TEST(StepCheck, NothingIsReleasedThatARowOfTheSliceSees) {
  SequenceSlice slice{.sequence = 1, .start = 31, .count = 40};
  EXPECT_TRUE(CheckReleasedBlocks(slice, 2, {}, 16).ok()) << "nothing is said";
  slice.released_blocks = {0, 1};
  EXPECT_TRUE(CheckReleasedBlocks(slice, 2, {0, 16}, 16).ok());
  EXPECT_EQ(
      CheckReleasedBlocks(slice, 2, {0, 17}, 16).message(),
      "released_blocks[1] is 1, expected 0 to 0, of what the row at position 31 does not see, with a window of 17");
  EXPECT_EQ(CheckReleasedBlocks(slice, 2, {}, 16).message(),
            "released_blocks[1] is 1, expected 0 to 0, of a block group without a window");
  EXPECT_EQ(CheckReleasedBlocks(slice, 3, {0, 16, 0}, 16).message(),
            "released_blocks has 2 entries, expected none or 3, one a block group");
}

TEST(StepCheck, NamesTheFieldTheValueAndTheRange) {
  struct Case {
    std::function<void(OpenSequence*)> spoil;
    const char* message;
  };
  const auto sampling = [](std::function<void(SamplingParams*)> change) {
    return [change](OpenSequence* open) { change(&open->sampling); };
  };
  const std::vector<Case> cases = {
      {[](auto* o) { o->prompt.clear(); }, "prompt is empty, expected at least one token"},
      {[](auto* o) { o->prompt[1] = 10; }, "prompt[1] is 10, expected 0 to 9"},
      {[](auto* o) { o->output = {-1}; }, "output[0] is -1, expected 0 to 9"},
      {sampling([](auto* s) { s->temperature = -0.5f; }), "temperature is -0.5, expected 0 to 100"},
      {sampling([](auto* s) { s->temperature = kNan; }), "temperature is nan"},
      {sampling([](auto* s) { s->temperature = kInfinity; }), "temperature is inf"},
      {sampling([](auto* s) { s->top_k = -1; }), "top_k is -1, expected 0 to"},
      {sampling([](auto* s) { s->top_p = 0; }), "top_p is 0, expected more than 0 and up to 1"},
      {sampling([](auto* s) { s->top_p = 1.5f; }), "top_p is 1.5"},
      {sampling([](auto* s) { s->min_p = 2; }), "min_p is 2, expected 0 to 1"},
      {sampling([](auto* s) { s->min_p = kNan; }), "min_p is nan"},
      {sampling([](auto* s) { s->repeat_penalty = 0; }), "repeat_penalty is 0, expected more than 0"},
      {sampling([](auto* s) { s->presence_penalty = kInfinity; }), "presence_penalty is inf"},
      {sampling([](auto* s) { s->frequency_penalty = -101; }), "frequency_penalty is -101, expected -100 to"},
      {sampling([](auto* s) { s->repeat_last_n = -2; }), "repeat_last_n is -2, expected -1 to"},
      {sampling([](auto* s) { s->logprobs = 129; }), "logprobs is 129, expected -1 to 128"},
      {sampling([](auto* s) { s->logprobs = -2; }), "logprobs is -2"},
      {sampling([](auto* s) { s->logit_bias.resize(1025); }), "logit_bias entries is 1025, expected 0 to 1024"},
      {sampling([](auto* s) { s->logit_bias.emplace_back(10, 1.0f); }), "logit_bias[0].token is 10, expected 0 to 9"},
      {sampling([](auto* s) { s->logit_bias.emplace_back(1, kNan); }), "logit_bias[0].bias is nan"},
      {sampling([](auto* s) { s->logit_bias.emplace_back(1, 2e6f); }), "logit_bias[0].bias is 2e+06"},
      {sampling([](auto* s) { s->min_new_tokens = -1; }), "min_new_tokens is -1"},
      {sampling([](auto* s) { s->end_tokens.assign(257, 1); }), "end_tokens entries is 257, expected 0 to 256"},
      {sampling([](auto* s) {
         s->end_tokens.assign({1, 10});
       }),
       "end_tokens[1] is 10, expected 0 to 9"},
  };
  for (const Case& c : cases) {
    OpenSequence open = Open();
    c.spoil(&open);
    EXPECT_THAT(CheckOpenSequence(open, kVocab),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)))
        << c.message;
  }
}

}  // namespace
}  // namespace stagecoach
