#include "coordinator/session/journal.h"

#include "coordinator/session/run_summary.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using Finished = pb::RequestFinished;

GenerationRequest Journaled(std::vector<TokenId> prompt, int64_t max_new_tokens, std::vector<TokenId> stop = {}) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  request.stop_tokens = std::move(stop);
  request.sampling.seed = 0xfedcba9876543210;
  request.sampling.temperature = 0.5f;
  request.sampling.logit_bias = {{3, -1.5f}};
  return request;
}

pb::TokenDelta Tokens(RequestId id, int32_t position, const std::vector<TokenId>& tokens) {
  pb::TokenDelta delta;
  delta.set_request(id);
  for (const TokenId token : tokens) {
    pb::SampledToken* sampled = delta.add_tokens();
    sampled->set_position(position++);
    sampled->set_token(token);
    sampled->set_logprob(-0.25f);
  }
  return delta;
}

pb::TokenDelta Scores(RequestId id, int32_t start, const std::vector<float>& scores) {
  pb::TokenDelta delta;
  delta.set_request(id);
  pb::TargetLogprobs* entry = delta.add_scores();
  entry->set_start(start);
  for (const float score : scores) entry->add_logprobs(score);
  return delta;
}

// Beside the score of row r the tokens 10 r and 10 r + 1.
pb::TokenDelta ScoresWithTops(RequestId id, int32_t start, const std::vector<float>& scores) {
  pb::TokenDelta delta = Scores(id, start, scores);
  pb::TargetLogprobs* entry = delta.mutable_scores(0);
  for (int row = start; row < start + entry->logprobs_size(); ++row) {
    for (const int place : {0, 1}) {
      entry->add_top_tokens(10 * row + place);
      entry->add_top_logprobs(-1.f);
    }
  }
  return delta;
}

pb::RequestFinished End(RequestId id, Finished::Reason reason) {
  pb::RequestFinished finished;
  finished.set_request(id);
  finished.set_reason(reason);
  return finished;
}

std::vector<TokenId> NewTokens(const absl::StatusOr<std::optional<SessionEvent>>& event) {
  std::vector<TokenId> tokens;
  if (!event.ok() || !event->has_value()) return tokens;
  for (const SampledToken& token : (*event)->tokens) tokens.push_back(token.token);
  return tokens;
}

struct JournalTest : ::testing::Test {
  // Under the first id that the journal takes.
  RequestId Add(const GenerationRequest& request) {
    RequestId id = 1;
    while (absl::IsInvalidArgument(journal_.Add(id, request))) ++id;
    return id;
  }

  static void ExpectInternal(const absl::Status& status, const std::string& message = "") {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr(message))) << status;
  }

  RequestJournal journal_;
};

TEST_F(JournalTest, PassesEachPositionOnOnce) {
  const RequestId id = Add(Journaled({1, 2}, 10));
  EXPECT_THAT(NewTokens(journal_.RecordTokens(Tokens(id, 2, {7, 8}))), ElementsAre(7, 8));
  EXPECT_FALSE(journal_.RecordTokens(Tokens(id, 2, {7, 8})).value().has_value());
  EXPECT_THAT(NewTokens(journal_.RecordTokens(Tokens(id, 3, {8, 9}))), ElementsAre(9));
  EXPECT_EQ(journal_.progress(), 3u);
}

TEST_F(JournalTest, RefusesWhatNoSoundEngineReports) {
  const RequestId id = Add(Journaled({1, 2}, 2));
  GenerationRequest scoring = Journaled({1, 2, 3, 4}, 0);
  scoring.score_from = 1;
  const RequestId scored = Add(scoring);
  ExpectInternal(journal_.RecordTokens(Tokens(id, 3, {7})).status(), "a token for position 3, expected 2");
  ExpectInternal(journal_.RecordTokens(Tokens(id, 2, {-1})).status(), "token -1 is none");
  ExpectInternal(journal_.RecordTokens(Tokens(0, 2, {1})).status(), "there is no such request");
  ExpectInternal(journal_.RecordTokens(Tokens(3, 2, {1})).status(), "there is no such request");
  ExpectInternal(journal_.RecordTokens(Tokens(id, 2, {5, 6, 7})).status(),
                 "a token more than the 2 that were asked for");
  ExpectInternal(journal_.RecordTokens(Scores(scored, 1, {-1})).status(), "scores from row 1, expected 0");
  ExpectInternal(journal_.RecordTokens(Scores(scored, -1, {-1, -1})).status(), "scores from row -1");
  ExpectInternal(journal_.RecordFinished(End(9, Finished::REASON_STOP)).status(), "there is no such request");
  ExpectInternal(journal_.RecordFinished(End(id, Finished::REASON_UNSPECIFIED)).status(), "unknown reason 0");
  ExpectInternal(journal_.RecordFinished(End(id, Finished::REASON_STOP)).status(), "a stop token that did not arrive");
  ExpectInternal(journal_.RecordFinished(End(scored, Finished::REASON_SCORED)).status(),
                 "without the scores from row 0 to 2");
  pb::TokenDelta wide = Tokens(scored, 4, {1});
  for (int i = 0; i <= kMaxLogprobs; ++i) wide.mutable_tokens(0)->add_top();
  ExpectInternal(journal_.RecordTokens(wide).status(), "129 log-probabilities for one token");
}

TEST_F(JournalTest, IgnoresWhatComesAfterTheEnd) {
  const RequestId id = Add(Journaled({1}, 5, {9}));
  EXPECT_THAT(NewTokens(journal_.RecordTokens(Tokens(id, 1, {9}))), ElementsAre(9));
  const auto end = journal_.RecordFinished(End(id, Finished::REASON_STOP)).value().value();
  EXPECT_EQ(end.finished->reason(), Finished::REASON_STOP);
  EXPECT_FALSE(journal_.RecordTokens(Tokens(id, 2, {1})).value().has_value());
  EXPECT_FALSE(journal_.RecordFinished(End(id, Finished::REASON_STOP)).value().has_value());
  EXPECT_TRUE(journal_.empty());
}

pb::RequestCost Cost(int64_t queue_us, int64_t prefill_us, int64_t cached, int64_t preemptions) {
  pb::RequestCost cost;
  cost.set_queue_us(queue_us);
  cost.set_prefill_us(prefill_us);
  cost.set_cached_tokens(cached);
  cost.set_preemptions(preemptions);
  return cost;
}

TEST_F(JournalTest, WhatARequestTookIsThatOfTheJobThatGaveItsFirstTokenAndAllPreemptions) {
  const RequestId begun = Add(Journaled({1, 2}, 10)), waiting = Add(Journaled({1, 2}, 10));
  const auto say = [&](RequestId id, int32_t position, const pb::RequestCost& cost) {
    pb::TokenDelta delta = Tokens(id, position, {7});
    *delta.mutable_cost() = cost;
    const auto told = journal_.RecordTokens(delta).value().value();
    EXPECT_EQ(told.cost->prefill_us(), id == begun ? 200 : 40) << "known from the first token on";
  };
  say(begun, 2, Cost(100, 200, 1, 0));
  say(begun, 3, Cost(100, 200, 1, 2));
  EXPECT_TRUE(journal_.FinishComplete(0).empty());
  // The next job computes both from the start.
  say(begun, 4, Cost(70, 80, 0, 0));
  say(begun, 5, Cost(70, 80, 0, 1));
  say(waiting, 2, Cost(30, 40, 2, 0));
  EXPECT_TRUE(journal_.FinishComplete(0).empty());
  pb::RequestFinished end = End(begun, Finished::REASON_CANCELLED);
  *end.mutable_cost() = Cost(1, 2, 3, 1);
  const auto ended = journal_.RecordFinished(end).value().value();
  const pb::RequestCost& cost = ended.finished->cost();
  EXPECT_EQ(cost.queue_us(), 100);
  EXPECT_EQ(cost.prefill_us(), 200);
  EXPECT_EQ(cost.cached_tokens(), 1);
  EXPECT_EQ(cost.preemptions(), 4);
  const SessionEvent cancelled = *journal_.FinishCancelled(waiting);
  EXPECT_EQ(cancelled.finished->cost().prefill_us(), 40) << "an end that no engine tells has it too";
}

TEST_F(JournalTest, ProgressOfAPromptOnlyGrowsAndEndsWithTheFirstToken) {
  GenerationRequest request = Journaled({1, 2, 3, 4, 5, 6}, 10);
  request.report_progress = true;
  const RequestId id = Add(request);
  EXPECT_TRUE(journal_.Submission(id).report_progress());
  const auto say = [&](int64_t processed, int64_t total, int64_t cached) {
    pb::PrefillProgress progress;
    progress.set_request(id);
    progress.set_processed(processed);
    progress.set_total(total);
    progress.set_cached(cached);
    return journal_.RecordPrefill(progress);
  };
  const auto first = say(4, 6, 2).value().value();
  EXPECT_EQ(first.prefill->processed(), 4);
  EXPECT_EQ(first.prefill->cached(), 2);
  for (const int64_t earlier : {2, 4}) {  // as after a loss
    EXPECT_FALSE(say(earlier, 6, 0).value().has_value()) << earlier;
  }
  EXPECT_FALSE(say(7, 6, 0).ok());
  EXPECT_FALSE(say(5, 7, 0).ok());
  EXPECT_FALSE(say(5, 6, 6).ok());
  EXPECT_FALSE(say(5, 6, -1).ok());
  ASSERT_TRUE(journal_.RecordTokens(Tokens(id, 6, {7})).ok());
  EXPECT_FALSE(say(6, 6, 0).value().has_value());
  EXPECT_FALSE(journal_.Submission(id).report_progress());
}

TEST_F(JournalTest, HoldsStopTokensBackOnlyWhereALeastLengthIsWanted) {
  GenerationRequest request = Journaled({1, 2}, 10, {99, 98});
  EXPECT_EQ(journal_.Submission(Add(request)).sampling().end_tokens_size(), 0);
  request.min_new_tokens = 4;
  const RequestId held = Add(request);
  EXPECT_THAT(journal_.Submission(held).sampling().end_tokens(), ElementsAre(99, 98));
  EXPECT_EQ(journal_.Submission(held).sampling().min_new_tokens(), 4);
  EXPECT_THAT(journal_.Submission(held).stop_tokens(), ElementsAre(99, 98));
}

TEST_F(JournalTest, SubmitsThoseFirstThatHaveTokensInTheOrderInWhichTheyBegan) {
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Add(Journaled({1, 2}, 10)));
  ASSERT_TRUE(journal_.RecordTokens(Tokens(ids[3], 2, {7})).ok());
  ASSERT_TRUE(journal_.RecordTokens(Tokens(ids[1], 2, {7})).ok());
  ASSERT_TRUE(journal_.RecordTokens(Tokens(ids[3], 3, {7})).ok());
  EXPECT_THAT(journal_.OrderOfResubmission(), ElementsAre(ids[3], ids[1], ids[0], ids[2], ids[4]));
}

TEST_F(JournalTest, SubmitsAgainWithTheSamePredictionAndHasItsCountsFromTheLastJob) {
  GenerationRequest request = Journaled({1, 2}, 10, {99});
  const RequestId plain = Add(request);
  request.prediction = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{7, 8});
  const RequestId predicted = Add(request);
  for (const int32_t position : {2, 3}) {
    EXPECT_THAT(journal_.Submission(predicted).prediction(), ElementsAre(7, 8));
    EXPECT_EQ(journal_.Submission(plain).prediction_size(), 0);
    pb::TokenDelta delta = Tokens(predicted, position, {7});
    delta.mutable_cost()->set_predicted_right(position);
    EXPECT_TRUE(journal_.RecordTokens(delta).ok());
    EXPECT_TRUE(journal_.FinishComplete(100).empty());
  }
  pb::RequestFinished end = End(predicted, Finished::REASON_CANCELLED);
  end.mutable_cost()->set_predicted_right(4);
  end.mutable_cost()->set_predicted_wrong(1);
  const auto ended = journal_.RecordFinished(end).value().value();
  EXPECT_EQ(ended.finished->cost().predicted_right(), 4);
  EXPECT_EQ(ended.finished->cost().predicted_wrong(), 1);
}

TEST_F(JournalTest, SubmitsAgainUnderTheSameGrammar) {
  GenerationRequest request = Journaled({1, 2}, 10, {99});
  const RequestId plain = Add(request);
  request.grammar = std::make_shared<const std::string>("pro\0gram", 8);
  const RequestId held = Add(request);
  EXPECT_FALSE(journal_.Submission(plain).ByteSizeLong() >= journal_.Submission(held).ByteSizeLong());
  for (int submission = 0; submission < 2; ++submission) {
    EXPECT_EQ(journal_.Submission(held).grammar(), *request.grammar);
    EXPECT_TRUE(journal_.Submission(plain).grammar().empty());
    EXPECT_TRUE(journal_.FinishComplete(100).empty());
  }
}

TEST_F(JournalTest, SubmitsAgainWithTheTokensSoFar) {
  GenerationRequest request = Journaled({1, 2}, 10, {99});
  request.tenant = "ann";
  request.weight = 2.5;
  request.conversation_tokens = 1;
  request.priority_class = PriorityClass::kInteractive;
  const RequestId id = Add(request);
  ASSERT_TRUE(journal_.RecordTokens(Tokens(id, 2, {7, 8})).ok());
  const pb::SubmitRequest submission = journal_.Submission(id);
  EXPECT_EQ(submission.request(), id);
  EXPECT_THAT(submission.prompt(), ElementsAre(1, 2));
  EXPECT_THAT(submission.output(), ElementsAre(7, 8));
  EXPECT_THAT(submission.stop_tokens(), ElementsAre(99));
  EXPECT_EQ(submission.max_new_tokens(), 10);
  EXPECT_EQ(submission.sampling().seed(), 0xfedcba9876543210);
  EXPECT_EQ(submission.sampling().logit_bias(0).bias(), -1.5f);
  EXPECT_EQ(submission.tenant(), "ann");
  EXPECT_EQ(submission.weight(), 2.5);
  EXPECT_EQ(submission.conversation_tokens(), 1);
  EXPECT_EQ(submission.priority_class(), 0);
  EXPECT_FALSE(submission.score_prompt());
}

TEST_F(JournalTest, AsksOnlyForTheScoresThatAreMissing) {
  GenerationRequest request = Journaled({1, 2, 3, 4, 5, 6}, 0);
  request.score_from = 2;  // rows 1 to 4
  const RequestId id = Add(request);
  EXPECT_TRUE(journal_.Submission(id).score_prompt());
  EXPECT_FALSE(journal_.Submission(id).has_conversation_tokens());
  EXPECT_EQ(journal_.Submission(id).score_from(), 2);

  auto event = journal_.RecordTokens(Scores(id, 0, {0, -1, -2}));
  ASSERT_TRUE(event.ok() && event->has_value());
  ASSERT_THAT((*event)->scores, SizeIs(1));
  EXPECT_EQ((*event)->scores[0].start, 1);
  EXPECT_THAT((*event)->scores[0].logprobs, ElementsAre(-1, -2));
  EXPECT_EQ(journal_.Submission(id).score_from(), 4);
  EXPECT_THAT(journal_.FinishComplete(100), SizeIs(0));

  // The new job repeats one row and reports the last one, whose target lies beyond the prompt.
  event = journal_.RecordTokens(Scores(id, 2, {-2, -3, -4, 0}));
  ASSERT_TRUE(event.ok() && event->has_value());
  EXPECT_EQ((*event)->scores[0].start, 3);
  EXPECT_THAT((*event)->scores[0].logprobs, ElementsAre(-3, -4));
  const std::vector<SessionEvent> complete = journal_.FinishComplete(100);
  ASSERT_THAT(complete, SizeIs(1));
  EXPECT_EQ(complete[0].finished->reason(), Finished::REASON_SCORED);
}

TEST_F(JournalTest, PassesTheMostProbableTokensOnWithTheirRows) {
  GenerationRequest request = Journaled({1, 2, 3, 4, 5, 6}, 0);
  request.score_from = 2;
  request.sampling.prompt_logprobs = 2;
  const RequestId id = Add(request);
  EXPECT_EQ(journal_.Submission(id).sampling().prompt_logprobs(), 2);
  const auto tokens = [](const SessionEvent& event) {
    std::vector<TokenId> tokens;
    for (const TokenLogprob& top : event.scores.at(0).top) tokens.push_back(top.token);
    return tokens;
  };
  auto event = journal_.RecordTokens(ScoresWithTops(id, 0, {0, -1, -2}));
  ASSERT_TRUE(event.ok() && event->has_value()) << event.status();
  EXPECT_THAT(tokens(**event), ElementsAre(10, 11, 20, 21));
  event = journal_.RecordTokens(ScoresWithTops(id, 2, {-2, -3, -4, 0}));
  ASSERT_TRUE(event.ok() && event->has_value()) << event.status();
  EXPECT_THAT(tokens(**event), ElementsAre(30, 31, 40, 41));
}

TEST_F(JournalTest, RefusesMoreOrFewerMostProbableTokensThanWereAskedFor) {
  GenerationRequest request = Journaled({1, 2, 3, 4}, 0);
  request.score_from = 1;
  const RequestId without = Add(request);
  request.sampling.prompt_logprobs = 2;
  const RequestId with = Add(request);
  pb::TokenDelta uneven = ScoresWithTops(with, 0, {-1, -2});
  uneven.mutable_scores(0)->add_top_tokens(1);
  for (const pb::TokenDelta& delta : {ScoresWithTops(without, 0, {-1}), Scores(with, 0, {-1}), uneven}) {
    ExpectInternal(journal_.RecordTokens(delta).status(), delta.request() == with ? "expected " : "expected 0");
  }
}

TEST_F(JournalTest, FinishesByItselfWhatLacksOnlyTheLastWord) {
  const RequestId full = Add(Journaled({1}, 2));
  const RequestId stopped = Add(Journaled({1}, 9, {5}));
  const RequestId crowded = Add(Journaled({1, 2, 3}, 9));
  const RequestId cancelled = Add(Journaled({1}, 9));
  const RequestId running = Add(Journaled({1}, 9));
  const RequestId too_long = Add(Journaled({1, 2, 3, 4, 5}, 9));
  ASSERT_TRUE(journal_.RecordTokens(Tokens(full, 1, {4, 4})).ok());
  ASSERT_TRUE(journal_.RecordTokens(Tokens(stopped, 1, {4, 5})).ok());
  ASSERT_TRUE(journal_.RecordTokens(Tokens(crowded, 3, {4, 4})).ok());
  EXPECT_TRUE(journal_.Cancel(cancelled));
  const std::vector<SessionEvent> events = journal_.FinishComplete(/*context=*/5);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].finished->reason(), Finished::REASON_LENGTH);
  EXPECT_EQ(events[1].finished->reason(), Finished::REASON_STOP);
  EXPECT_EQ(events[2].request, crowded);
  EXPECT_EQ(events[2].finished->reason(), Finished::REASON_LENGTH);
  EXPECT_EQ(events[3].finished->reason(), Finished::REASON_CANCELLED);
  EXPECT_THAT(journal_.unfinished(), ElementsAre(running, too_long));
  EXPECT_FALSE(journal_.Cancel(cancelled));
}

TEST_F(JournalTest, ARequestMayComeWithTokensOfAnEarlierJob) {
  GenerationRequest request = Journaled({1, 2}, 4);
  request.output = {7, 8};
  request.score_from = 1;
  const RequestId id = Add(request);
  const pb::SubmitRequest submission = journal_.Submission(id);
  EXPECT_THAT(submission.prompt(), ElementsAre(1, 2));
  EXPECT_THAT(submission.output(), ElementsAre(7, 8));
  EXPECT_EQ(submission.max_new_tokens(), 4);
  EXPECT_TRUE(submission.score_prompt());
  EXPECT_THAT(NewTokens(journal_.RecordTokens(Tokens(id, 4, {9}))), ElementsAre(9));  // and no others
  EXPECT_EQ(journal_.RecordTokens(Tokens(id, 6, {9})).status().code(), absl::StatusCode::kInternal);
}

TEST_F(JournalTest, PassesChecksumsOfKnownRowsOnAndRefusesOthers) {
  const RequestId id = Add(Journaled({1, 2, 3}, 4));
  const auto record = [&](int32_t start, int32_t rows, int values) {
    pb::TokenDelta delta;
    delta.set_request(id);
    pb::RowChecksums* checksums = delta.add_checksums();
    checksums->set_start(start);
    checksums->set_rows(rows);
    for (int i = 0; i < values; ++i) checksums->add_values(100u + static_cast<uint32_t>(i));
    return journal_.RecordTokens(delta);
  };
  for (int again = 0; again < 2; ++again) {  // a row may be computed again
    const auto event = record(1, 2, 4).value().value();
    const RowChecksums expected = {.start = 1, .rows = 2, .values = {100, 101, 102, 103}};
    EXPECT_THAT(event.checksums, ElementsAre(expected));
  }
  for (const auto& [start, rows, values] :
       {std::tuple(-1, 1, 2), {0, 0, 2}, {0, -1, 2}, {2, 2, 4}, {0, 2, 3}, {0, 1, 0}, {2147483647, 2147483647, 4}}) {
    EXPECT_EQ(record(start, rows, values).status().code(), absl::StatusCode::kInternal) << start << " " << rows;
  }
}

TEST_F(JournalTest, TakesIdsThatGrow) {
  EXPECT_TRUE(journal_.Add(5, Journaled({1}, 2)).ok());
  EXPECT_EQ(journal_.Add(5, Journaled({1}, 2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(journal_.Add(4, Journaled({1}, 2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(journal_.Add(9, Journaled({1}, 2)).ok());
}

TEST_F(JournalTest, TheLargestNeedIsThatOfWhatCouldEverRun) {
  EXPECT_EQ(journal_.LargestNeed(100, 80), 0);
  Add(Journaled({1, 2, 3}, 20));
  EXPECT_EQ(journal_.LargestNeed(100, 80), 22);
  Add(Journaled(std::vector<TokenId>(60, 1), 500));  // would fill the context, which the pool never held
  EXPECT_EQ(journal_.LargestNeed(100, 80), 22);
  EXPECT_EQ(journal_.LargestNeed(100, 100), 99);
  Add(Journaled(std::vector<TokenId>(101, 1), 1));  // no context for it
  EXPECT_EQ(journal_.LargestNeed(100, 100), 99);
}

pb::JobStatistics JobOf(int stages, double compute_s_of_each, double ideal_s) {
  pb::JobStatistics statistics;
  for (int i = 0; i < stages; ++i) statistics.add_stages()->set_compute_s(compute_s_of_each);
  statistics.mutable_stages(stages - 1)->set_grammar_mask_hits(5);
  statistics.set_busy_s(2 * ideal_s);
  statistics.set_bubble(1 - compute_s_of_each / (2 * ideal_s));
  statistics.set_bubble_floor(1 - compute_s_of_each / ideal_s);
  return statistics;
}

// All stages' time in the ideal pipeline, as a reader of the sum finds it.
double IdealTimeOf(const pb::JobStatistics& sum) {
  double compute_s = 0;
  for (const pb::StageSummary& stage : sum.stages()) compute_s += stage.compute_s();
  return compute_s / (1 - sum.bubble_floor());
}

TEST(StatisticsSum, WhatTheIdealPipelineTookOfLateDoesNotDependOnEarlierJobs) {
  for (const int stages_before : {1, 2, 3}) {
    pb::JobStatistics earlier;
    AddStatistics(JobOf(stages_before, 1000, 2500), &earlier);
    pb::JobStatistics sum = earlier, later = earlier;
    AddStatistics(JobOf(2, 3, 4), &sum);
    AddStatistics(JobOf(2, 3 + 9, 4 + 10), &later);
    EXPECT_NEAR(IdealTimeOf(later) - IdealTimeOf(sum), 2 * 10, 1e-6) << stages_before;
  }
}

TEST(StatisticsSum, OfOneJobIsThatJobAndOneThatHasNotBegunLeavesTheFloorAsItWas) {
  pb::JobStatistics sum;
  AddStatistics(JobOf(2, 3, 4), &sum);
  EXPECT_EQ(sum.bubble_floor(), 0.25);
  EXPECT_DOUBLE_EQ(sum.bubble(), 0.625);
  EXPECT_EQ(sum.stages(1).compute_s(), 3);
  AddStatistics({}, &sum);
  EXPECT_EQ(sum.stages(1).grammar_mask_hits(), 5u);
  EXPECT_DOUBLE_EQ(sum.bubble_floor(), 0.25);
  EXPECT_EQ(sum.stages_size(), 2);
}

}  // namespace
}  // namespace stagecoach
