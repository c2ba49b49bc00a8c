#include "coordinator/verify/verify_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
