#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "coordinator/verify/verify_report.h"
#include "coordinator/verify/verify_requests.h"
#include "coordinator/verify/verify_runs.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using Split = std::vector<int64_t>;

constexpr int64_t kVerifyLayers = 3;

VerifyRequest AskedRequest() { return {"prompt 1, greedy", {5, 6, 7}, {}, 2}; }

// Of AskedRequest: two scores, tokens at positions 3 and 4, checksums of rows 0 to 3.
VerifyAnswer WholeAnswer() {
  VerifyAnswer answer;
  answer.prompt_logprobs = {-1.5f, -2.5f};
  answer.tokens = {{.position = 3, .token = 8, .logprob = -0.5f, .top = {{8, -0.5f}, {9, -1.0f}}},
                   {.position = 4, .token = 9, .logprob = -0.25f, .top = {{9, -0.25f}, {2, -3.0f}}}};
  answer.Take({.start = 0, .rows = 3, .values = {10, 11, 12, 20, 21, 22, 30, 31, 32}});
  answer.Take({.start = 3, .rows = 1, .values = {13, 23, 33}});
  return answer;
}

std::optional<AnswerDifference> Difference(const VerifyAnswer& a, const VerifyAnswer& b) {
  const VerifyRequest request = AskedRequest();
  return FirstDifference({&request, 1}, {&a, 1}, {&b, 1});
}

float NextFloat(float value) { return std::nextafter(value, std::numeric_limits<float>::infinity()); }

TEST(VerifyAnswer, TakesChecksumsLayerByLayerAndKeepsThemRowByRow) {
  const VerifyAnswer answer = WholeAnswer();
  EXPECT_THAT(answer.checksums.at(0), ElementsAre(10, 20, 30));
  EXPECT_THAT(answer.checksums.at(2), ElementsAre(12, 22, 32));
  EXPECT_THAT(answer.checksums.at(3), ElementsAre(13, 23, 33));
  EXPECT_EQ(answer.unsteady_row, std::nullopt);
}

TEST(VerifyAnswer, NoticesARowThatIsAnotherOneWhenItIsComputedAgain) {
  VerifyAnswer answer = WholeAnswer();
  answer.Take({.start = 1, .rows = 2, .values = {11, 12, 21, 22, 31, 32}});
  EXPECT_EQ(answer.unsteady_row, std::nullopt);
  answer.Take({.start = 1, .rows = 2, .values = {11, 12, 21, 29, 31, 32}});
  EXPECT_EQ(answer.unsteady_row, 2);
}

TEST(VerifyAnswer, IsWholeOrSaysWhatItLacks) {
  const VerifyRequest request = AskedRequest();
  EXPECT_EQ(CheckAnswer(request, WholeAnswer(), /*kept=*/0, kVerifyLayers), absl::OkStatus());
  VerifyAnswer answer = WholeAnswer();
  answer.tokens.pop_back();
  EXPECT_THAT(CheckAnswer(request, answer, 0, 0).message(), HasSubstr("has 1 tokens, expected 2"));
  answer = WholeAnswer();
  answer.tokens.erase(answer.tokens.begin());
  EXPECT_EQ(CheckAnswer(request, answer, /*kept=*/1, kVerifyLayers), absl::OkStatus());
  answer.tokens[0].position = 5;
  EXPECT_THAT(CheckAnswer(request, answer, 1, 0).message(), HasSubstr("position 5, expected 4"));
  answer = WholeAnswer();
  answer.prompt_logprobs.pop_back();
  EXPECT_THAT(CheckAnswer(request, answer, 0, 0).message(), HasSubstr("has 1 log-probabilities"));
  answer = WholeAnswer();
  answer.checksums.erase(2);
  EXPECT_EQ(CheckAnswer(request, answer, 0, 0), absl::OkStatus());
  EXPECT_THAT(CheckAnswer(request, answer, 0, kVerifyLayers).message(),
              HasSubstr("0 checksums of position 2, expected 3"));
}

TEST(VerifyComparison, FindsNothingInEqualAnswersAndTheLastBitInOthers) {
  EXPECT_FALSE(Difference(WholeAnswer(), WholeAnswer()).has_value());
  VerifyAnswer other = WholeAnswer();
  other.prompt_logprobs[1] = NextFloat(other.prompt_logprobs[1]);
  auto difference = Difference(WholeAnswer(), other);
  EXPECT_EQ(difference.value().output->position, 2);
  EXPECT_TRUE(difference->output->prompt);
  EXPECT_EQ(difference->output->of, 7);
  EXPECT_EQ(difference->output->logprobs[1], other.prompt_logprobs[1]);
  EXPECT_FALSE(difference->hidden.has_value());

  other = WholeAnswer();
  other.tokens[1].top[1].logprob = NextFloat(other.tokens[1].top[1].logprob);
  difference = Difference(WholeAnswer(), other);
  EXPECT_EQ(difference.value().output->position, 4);
  EXPECT_EQ(difference->output->of, 2);
  EXPECT_FALSE(difference->output->prompt);

  other = WholeAnswer();
  other.tokens[0].token = 1;
  difference = Difference(WholeAnswer(), other);
  EXPECT_EQ(difference.value().output->position, 3);
  EXPECT_THAT(difference->output->tokens, ElementsAre(8, 1));
}

TEST(VerifyComparison, ZeroHasASignAndWhatIsNoNumberIsItself) {
  VerifyAnswer a = WholeAnswer(), b = WholeAnswer();
  a.prompt_logprobs[0] = b.prompt_logprobs[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Difference(a, b).has_value());
  a.prompt_logprobs[0] = 0.0f;
  b.prompt_logprobs[0] = -0.0f;
  EXPECT_TRUE(Difference(a, b).has_value());
}

TEST(VerifyComparison, NamesTheFirstPositionAndOfItTheFirstLayer) {
  VerifyAnswer other = WholeAnswer();
  other.checksums[3] = {0, 0, 0};
  other.checksums[2][1] = other.checksums[2][2] = 99;
  const auto difference = Difference(WholeAnswer(), other);
  EXPECT_FALSE(difference.value().output.has_value());
  EXPECT_EQ(difference->hidden.value().position, 2);
  EXPECT_EQ(difference->hidden->layer, 1);
}

TEST(VerifyComparison, ComparesWhatBothHaveAfterARestart) {
  VerifyAnswer restarted = WholeAnswer();
  restarted.tokens.erase(restarted.tokens.begin());
  EXPECT_FALSE(Difference(WholeAnswer(), restarted).has_value());
  const VerifyRequest request = AskedRequest();
  const VerifyAnswer whole = WholeAnswer();
  const VerifyCount count = CountCompared({&request, 1}, {&whole, 1}, {&restarted, 1});
  EXPECT_EQ(count.tokens, 1);
  EXPECT_EQ(count.logprobs, 2 + 3);
  EXPECT_EQ(count.checksums, 4 * kVerifyLayers);
  restarted.tokens[0].logprob = NextFloat(restarted.tokens[0].logprob);
  EXPECT_EQ(Difference(whole, restarted)->output->position, 4);
}

TEST(VerifyComparison, SaysWhichRunsAgree) {
  const VerifyRequest request = AskedRequest();
  VerifyAnswer other = WholeAnswer(), third = WholeAnswer();
  other.tokens[1].token = 4;
  third.checksums[0][0] = 1;
  const std::vector<std::vector<VerifyAnswer>> runs = {{WholeAnswer()}, {other}, {WholeAnswer()}, {third}, {other}};
  EXPECT_THAT(AgreeingRuns({&request, 1}, runs), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 4), ElementsAre(3)));
}

VerifyQuestion QuestionOfWindow(int64_t window, int64_t context) {
  return {.context = context, .vocab = 300, .window = window, .block_tokens = 32};
}

VerifyAsked AskedOfWindow(int64_t window, int64_t context) {
  return VerifyRequests(QuestionOfWindow(window, context), /*tokenizer=*/nullptr);
}

TEST(VerifyPrompts, AreCutToTheContextAndThatIsKnown) {
  const VerifyAsked whole = AskedOfWindow(0, 4096);
  EXPECT_EQ(whole.requests.size(), 4u);
  EXPECT_EQ(whole.cut_to, 0);
  const VerifyAsked cut = AskedOfWindow(0, 20);
  EXPECT_EQ(cut.cut_to, 4);
  for (const VerifyRequest& request : cut.requests) EXPECT_EQ(request.prompt.size(), 4u);
}

TEST(VerifyPrompts, OneIsLongerThanTheWindowByTwoBlocks) {
  const VerifyAsked asked = AskedOfWindow(512, 8192);
  ASSERT_EQ(asked.requests.size(), 5u);
  EXPECT_TRUE(asked.long_prompt);
  EXPECT_EQ(asked.requests.back().prompt.size(), 512u + 64u);
  EXPECT_THAT(asked.note, IsEmpty());
  EXPECT_EQ(AskedOfWindow(512, 512 + 32 + 16).requests.back().prompt.size(), 512u + 32u);
}

TEST(VerifyPrompts, NoLongOneIsMadeWhereAnotherPromptIsLongEnough) {
  const VerifyAsked asked = AskedOfWindow(64, 8192);
  EXPECT_EQ(asked.requests.size(), 4u);
  EXPECT_FALSE(asked.long_prompt);
  EXPECT_THAT(asked.note, IsEmpty());
}

TEST(VerifyPrompts, ANoteSaysWhyNoneIsLongerThanTheWindow) {
  const VerifyAsked short_context = AskedOfWindow(512, 512 + 32 + 15);
  EXPECT_FALSE(short_context.long_prompt);
  EXPECT_THAT(short_context.note, HasSubstr("that takes a context of 560 tokens, and it is 559"));
  EXPECT_TRUE(AskedOfWindow(4096, 1 << 20).long_prompt);
  const VerifyAsked wide = AskedOfWindow(4097, 1 << 20);
  EXPECT_FALSE(wide.long_prompt);
  EXPECT_THAT(wide.note, HasSubstr("for windows up to 4096"));
}

TEST(VerifyRuns, OtherSplitsAreOthersAndOfAllLayers) {
  EXPECT_THAT(OtherSplits({4, 4}, 3), ElementsAre(Split{5, 3}, Split{1, 7}, Split{7, 1}));
  EXPECT_THAT(OtherSplits({2, 2, 2}, 9),
              ElementsAre(Split{2, 3, 1}, Split{1, 1, 4}, Split{4, 1, 1}, Split{2, 1, 3}, Split{3, 3}));
  EXPECT_THAT(OtherSplits({1, 1}, 2), IsEmpty());
  EXPECT_THAT(OtherSplits({1, 2}, 9), ElementsAre(Split{2, 1}));
  EXPECT_THAT(OtherSplits({8}, 2), IsEmpty());
  EXPECT_THAT(OtherSplits({4, 4}, 0), IsEmpty());
  for (const Split& planned : {Split{3, 9, 1, 7, 2}, Split{1, 1, 1, 1}, Split{10, 1}}) {
    for (const Split& split : OtherSplits(planned, 64)) {
      EXPECT_NE(split, planned);
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}),
                std::accumulate(planned.begin(), planned.end(), int64_t{0}));
      EXPECT_GT(*std::min_element(split.begin(), split.end()), 0);
    }
  }
}

pb::ConfigureJob ChunksOf(int32_t prefill_chunk, int32_t most_rows = 512) {
  pb::ConfigureJob job;
  job.set_prefill_chunk(prefill_chunk);
  job.set_max_num_batched_tokens(most_rows);
  return job;
}

TEST(VerifyRuns, LeaveOutWhatWouldBeTheSameAgain) {
  std::vector<std::string> names;
  for (const VerifyRun& run : RunsBeside({8}, ChunksOf(64), {{7, 64, 7}, 2, 100})) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("one after the other", "chunks of 7", "restarted", "with guesses"));
  names.clear();
  for (const VerifyRun& run : RunsBeside({4, 4}, ChunksOf(512), {{7, 64, 7}, 1, 100})) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("one after the other", "chunks of 7", "chunks of 64", "restarted", "with guesses",
                                 "another split", "one stage"));
}

TEST(VerifyRuns, AreWithAndWithoutGuesses) {
  for (const char* speculate : {"", "off", "auto", "suffix"}) {
    pb::ConfigureJob job = ChunksOf(512);
    job.set_speculate(speculate);
    std::vector<VerifyRun::Guesses> guesses;
    for (const VerifyRun& run : RunsBeside({4, 4}, job, {{}, 0, 100})) {
      if (run.guesses != VerifyRun::Guesses::kAsPlanned) guesses.push_back(run.guesses);
    }
    if (*speculate == '\0' || job.speculate() == "off") {
      EXPECT_THAT(guesses, ElementsAre(VerifyRun::Guesses::kSent)) << "the planned job has none";
    } else {
      EXPECT_THAT(guesses, ElementsAre(VerifyRun::Guesses::kNone, VerifyRun::Guesses::kSent));
    }
    for (const VerifyRun& run : RunsBeside({8}, job, {{}, 0, 100})) {
      EXPECT_NE(run.guesses, VerifyRun::Guesses::kNone) << "one stage guesses nothing";
    }
  }
}

TEST(VerifyRuns, PredictMostOfAnAnswerAndNotAllOfIt) {
  std::vector<SampledToken> tokens;
  for (const TokenId token : {4, 5, 6, 7, 8, 9, 3, 0, 2}) tokens.push_back({.token = token});
  EXPECT_THAT(PredictionOf(tokens), ElementsAre(4, 5, 6, 6, 8, 9, 3, 1, 2));
}

std::vector<std::string> LeftOut(const std::vector<VerifyRun>& runs) {
  std::vector<std::string> names;
  for (const VerifyRun& run : runs) {
    if (!run.left_out.empty()) names.push_back(run.name);
  }
  return names;
}

TEST(VerifyRuns, LeaveOutChunksThatCutNoPromptAndSplitsBetweenWhichStatesAreRounded) {
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512), {{7, 64}, 1, 65})), IsEmpty());
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512), {{7, 64}, 1, 64})), ElementsAre("chunks of 64"));
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(16), {{7, 64}, 1, 64})), IsEmpty())
      << "the planned chunks are shorter";
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512, 64), {{7, 64, 100}, 1, 300})),
              ElementsAre("chunks of 64", "chunks of 100"))
      << "steps have 64 rows anyway";
  EXPECT_THAT(LeftOut(RunsBeside({4, 4}, ChunksOf(512), {{7}, 1, 100, /*exact_wire=*/false})),
              ElementsAre("another split", "one stage"));
}

TEST(VerifyRuns, ALaunchIsThePlannedOneButForWhatTheRunChanges) {
  LaunchOptions launch;
  launch.stages = 0;
  launch.job.set_prefill_chunk(512);
  launch.job.set_context(100);
  launch.job.mutable_planned_for()->set_layers(8);
  const LaunchOptions same = LaunchOfRun({.name = "restarted"}, launch, {5, 3});
  EXPECT_EQ(same.stages, 2);
  EXPECT_THAT(same.job.layer_split(), ElementsAre(5, 3));
  EXPECT_TRUE(same.job.has_planned_for());
  EXPECT_EQ(same.job.prefill_chunk(), 512);
  VerifyRun other = {.name = "another split"};
  other.layer_split = {1, 7};
  EXPECT_THAT(LaunchOfRun(other, launch, {5, 3}).job.layer_split(), ElementsAre(1, 7));
  EXPECT_FALSE(LaunchOfRun(other, launch, {5, 3}).job.has_planned_for());
  VerifyRun one = {.name = "one stage"};
  one.one_stage = true;
  EXPECT_EQ(LaunchOfRun(one, launch, {5, 3}).stages, 1);
  EXPECT_THAT(LaunchOfRun(one, launch, {5, 3}).job.layer_split(), IsEmpty());
  VerifyRun chunks = {.name = "chunks of 7"};
  chunks.prefill_chunk = 7;
  EXPECT_EQ(LaunchOfRun(chunks, launch, {5, 3}).job.prefill_chunk(), 7);
  EXPECT_EQ(LaunchOfRun(chunks, launch, {5, 3}).job.context(), 100);
  launch.job.set_speculate("auto");
  launch.job.set_micro_batches(6);
  VerifyRun guesses = {.name = "with guesses", .guesses = VerifyRun::Guesses::kSent};
  const pb::ConfigureJob guessing = LaunchOfRun(guesses, launch, {5, 3}).job;
  EXPECT_EQ(guessing.speculate(), "suffix");
  EXPECT_EQ(guessing.guess_rows(), 4);
  EXPECT_EQ(guessing.micro_batches(), 6);
  EXPECT_EQ(guessing.decode_groups(), 1);
  guesses.guesses = VerifyRun::Guesses::kNone;
  EXPECT_EQ(LaunchOfRun(guesses, launch, {5, 3}).job.speculate(), "off");
  EXPECT_EQ(LaunchOfRun(chunks, launch, {5, 3}).job.speculate(), "auto");
}

TEST(VerifyRuns, ARestartFindsEveryRequestElsewhere) {
  EXPECT_EQ(KeptTokens(0, 4, 16), 1);
  EXPECT_EQ(KeptTokens(1, 4, 16), 5);
  EXPECT_EQ(KeptTokens(3, 4, 16), 15);
  EXPECT_EQ(KeptTokens(2, 4, 2), 1);
  EXPECT_EQ(KeptTokens(0, 1, 16), 1);
}

// Layers 0 to 1 on node1, 2 to 3 on node2.
pb::JobReady ReadyOfTwo() {
  pb::JobReady ready;
  for (int stage = 0; stage < 2; ++stage) {
    pb::StageSummary* summary = ready.add_stages();
    summary->set_stage(stage);
    summary->set_host(stage == 0 ? "node1" : "node2");
    summary->set_first_layer(2 * stage);
    summary->set_last_layer(2 * stage + 2);
  }
  return ready;
}

VerifyAnswer ReportedAnswer(TokenId last) {
  VerifyAnswer answer;
  answer.prompt_logprobs = {-1.5f};
  answer.tokens = {{.position = 2, .token = 8}, {.position = 3, .token = last}};
  return answer;
}

VerifyRecord ReportedRun(int number, const std::string& name, TokenId last) {
  VerifyRecord record = {.number = number, .run = {.name = name}, .ready = ReadyOfTwo(), .prefill_chunk = 512};
  record.answers = {ReportedAnswer(last)};
  return record;
}

VerifyReport TwoRuns(TokenId last) {
  VerifyReport report;
  report.model = "model.gguf";
  report.layers = 4;
  report.requests = {{"prompt 1, greedy", {5, 6}, {}, 2}};
  report.records = {ReportedRun(1, "as planned", 9), ReportedRun(2, "chunks of 7", last)};
  report.agreeing = {{1, 2}};
  return report;
}

VerifyReport DifferentRuns() {
  VerifyReport report = TwoRuns(4);
  report.agreeing = {{1}, {2}};
  report.finding = VerifyFinding{.a = &report.records[0], .b = &report.records[1]};
  report.finding->difference = *FirstDifference(report.requests, report.records[0].answers, report.records[1].answers);
  return report;
}

TEST(VerifyReport, SaysOfEveryRunHowItWasCutAndHowMuchOfItIsIdentical) {
  VerifyReport report = TwoRuns(9);
  EXPECT_EQ(VerifyHeading(report, {2, 2}),
            "model.gguf: 4 layers over 2 stages, 2 new tokens each of prompt 1, greedy (2 tokens)\n");
  EXPECT_EQ(VerifyLine(report, report.records[1]),
            " 2  chunks of 7          layers 2,2, chunk 512: 2 tokens and 3 log-probabilities identical\n");
  EXPECT_EQ(VerifyVerdict(report), "identical: 2 runs, 2 tokens and 3 log-probabilities, bit for bit\n");
  VerifyRecord guesses = ReportedRun(2, "with guesses", 9);
  guesses.guesses = 41;
  guesses.guesses_right = 22;
  EXPECT_EQ(VerifyLine(report, guesses),
            " 2  with guesses         layers 2,2, chunk 512, 41 guesses, 22 right: 2 tokens "
            "and 3 log-probabilities identical\n");
  VerifyRecord left_out = {.number = 3, .run = {.name = "another split"}};
  left_out.run.layer_split = {1, 3};
  left_out.left_out = "stage 1 on node2 lacks memory";
  EXPECT_EQ(VerifyLine(report, left_out),
            " 3  another split        layers 1,3: left out: stage 1 on node2 lacks memory\n");
  report.records.push_back(left_out);
  EXPECT_THAT(VerifyVerdict(report), HasSubstr("identical: 2 runs"));
  EXPECT_THAT(VerifyJson(report), AllOf(HasSubstr("\"verdict\": \"left out\""), HasSubstr("\"layer_split\": [")));
}

TEST(VerifyReport, SaysThatItsOwnPromptsAreCutAndWhatIsNotLookedAt) {
  VerifyReport report = TwoRuns(9);
  report.cut_to = 4;
  report.note = "no prompt is longer than the window";
  EXPECT_EQ(
      VerifyHeading(report, {2, 2}),
      "model.gguf: 4 layers over 2 stages, 2 new tokens each of prompt 1, greedy (2 tokens); verify's own prompts "
      "are cut to 4 tokens for the context\nnote: no prompt is longer than the window\n");
  EXPECT_THAT(VerifyJson(report), AllOf(HasSubstr("\"own_prompts_cut_to\": 4"), HasSubstr("\"note\": \"no prompt")));
}

TEST(VerifyReport, NamesPositionTokensLayerAndStages) {
  VerifyReport report = DifferentRuns();
  report.finding->looked_again = true;
  report.finding->differed_again = true;
  report.finding->difference.hidden = HiddenDifference{.position = 2, .layer = 3};
  const VerifyReport& r = report;
  EXPECT_FALSE(r.identical());
  EXPECT_THAT(
      VerifyVerdict(r),
      AllOf(HasSubstr("different: prompt 1, greedy: the token at position 3 is 9 in run 1 and 4 in run 2"),
            HasSubstr("differ first at position 2, behind layer 3: stage 1 on node2 in run 1, stage 1 on node2"),
            HasSubstr("runs that agree with each other: 1; 2"),
            HasSubstr("next: compare the SHA-256 of model.gguf on node2 with the original's; if it is the same")));
  EXPECT_EQ(VerifyDifference(r), "runs 1 and 2 differ: prompt 1, greedy, position 3; first behind layer 3");
}

TEST(VerifyReport, SaysWhatASecondLookDidNotFind) {
  VerifyReport report = DifferentRuns();
  report.finding->looked_again = true;
  report.finding->differed_again = true;
  EXPECT_THAT(VerifyVerdict(report), HasSubstr("in the output head or in sampling"));
  report.finding->differed_again = false;
  EXPECT_THAT(VerifyVerdict(report), HasSubstr("the two agreed: what differed does not differ each time"));
  report.finding->trouble = "running run 2 again failed: no room";
  EXPECT_THAT(VerifyVerdict(report), HasSubstr("the layer is not known: running run 2 again failed: no room"));
  EXPECT_THAT(VerifyVerdict(report), Not(HasSubstr("next: ")));
}

TEST(VerifyReport, SaysThatStagesWereLostAndThatNotAllRunsWereMade) {
  VerifyReport report = TwoRuns(9);
  report.records[1].relaunches = 2;
  EXPECT_THAT(VerifyLine(report, report.records[1]), HasSubstr("(after losing stages 2 times) 2 tokens and 3 log-"));
  report.incomplete = "interrupted after 2 runs";
  EXPECT_THAT(VerifyVerdict(report), HasSubstr("incomplete, identical so far: 2 runs"));
  EXPECT_THAT(VerifyJson(report), AllOf(HasSubstr("\"verdict\": \"incomplete\""), HasSubstr("interrupted after 2")));
  VerifyReport different = DifferentRuns();
  different.incomplete = report.incomplete;
  EXPECT_THAT(VerifyVerdict(different), HasSubstr("not all runs were made: interrupted after 2 runs"));
  EXPECT_THAT(VerifyJson(different), HasSubstr("\"verdict\": \"different\""));
}

TEST(VerifyReport, DoesNotBlameTheHeadForWhatThePrefixCacheMayHide) {
  VerifyReport report = DifferentRuns();
  report.finding->looked_again = true;
  report.finding->differed_again = false;
  report.finding->without_cache = true;
  EXPECT_THAT(VerifyVerdict(report),
              HasSubstr("without the prefix cache, the two agreed: what differed is in the cache"));
}

TEST(VerifyReport, ARunThatDiffersWithinItselfIsNotIdentical) {
  VerifyReport report = TwoRuns(9);
  report.unsteady = {"within run 2 position 3 of prompt 1, greedy was computed twice, with different hidden states"};
  EXPECT_FALSE(report.identical());
  EXPECT_THAT(VerifyVerdict(report), HasSubstr("different: within run 2 position 3"));
  EXPECT_THAT(VerifyDifference(report), HasSubstr("within run 2"));
}

}  // namespace
}  // namespace stagecoach
