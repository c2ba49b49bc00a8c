// Answers that follow a grammar: what they are, and that they are the same bits whatever the job does.

#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterAnswer;
using testing::ClusterRequest;
using testing::TextEnd;

constexpr int64_t kVocab = 320;
constexpr TokenId kEnd = 319;

std::vector<TokenId> TokensOf(const ClusterAnswer& answer) {
  std::vector<TokenId> tokens;
  for (const pb::SampledToken& token : answer.tokens) tokens.push_back(token.token());
  return tokens;
}

// Greedy and drawn ones, with and without the other rules; two share a grammar, and the first has none.
std::vector<ClusterRequest> MixedRequests() {
  std::vector<ClusterRequest> requests;
  for (int i = 0; i < 6; ++i) {
    ClusterRequest& request = requests.emplace_back(testing::RequestOf(5 + 13 * i, i, 24));
    request.sampling.set_temperature(i % 2 == 0 ? 0.f : 1.5f);
    request.sampling.set_seed(5 + i);
    request.stop_tokens = {kEnd};
    if (i >= 3) {
      request.sampling.set_repeat_penalty(1.3f);
      request.sampling.set_presence_penalty(0.5f);
      request.sampling.set_top_k(20);
    }
  }
  requests[1].grammar = requests[4].grammar = testing::RunOfBytes('a', 'm', 7, 14);
  requests[2].grammar = requests[5].grammar = testing::Lists(2);
  requests[3].grammar = testing::RunOfBytes('0', '9', 3);
  return requests;
}

class GrammarTest : public ::testing::Test {
 protected:
  std::vector<ClusterAnswer> Run(int stages, int chunk, const std::vector<ClusterRequest>& requests,
                                 int64_t preempt_at_output = 0, int max_num_seqs = 0, int threads = 1) {
    pb::ConfigureJob job = testing::DefaultJob(path_);
    job.set_prefill_chunk(chunk);
    job.set_threads(threads);
    if (max_num_seqs > 0) job.set_max_num_seqs(max_num_seqs);
    return testing::RunCluster(stages, job, requests, nullptr, preempt_at_output).value().answers;
  }
  ClusterAnswer RunOne(const ClusterRequest& request) { return Run(2, 512, {request})[0]; }

  const testing::TempDir directory_;
  const std::string path_ = testing::WriteTinyModel(directory_.File("m.gguf"), {.layers = 3});
  const std::shared_ptr<const GrammarVocabulary> vocabulary_ = testing::VocabularyOf(path_, kVocab);
};

TEST_F(GrammarTest, HoldsEveryAnswerAndLeavesOthersAsTheyAreWithoutIt) {
  std::vector<ClusterRequest> requests = MixedRequests();
  const std::vector<ClusterAnswer> answers = Run(2, 512, requests);
  std::vector<ClusterRequest> free = requests;
  for (ClusterRequest& request : free) request.grammar.clear();
  const std::vector<ClusterAnswer> without = Run(2, 512, free);
  size_t complete = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].grammar.empty()) {
      EXPECT_EQ(answers[i].Bits(), without[i].Bits()) << i;
      continue;
    }
    const std::vector<TokenId> tokens = TokensOf(answers[i]);
    const TextEnd end = testing::HowItEnds(requests[i].grammar, vocabulary_, tokens);
    ASSERT_NE(end, TextEnd::kForbidden) << i;
    EXPECT_EQ(testing::HowItEnds(requests[i].grammar, vocabulary_, TokensOf(without[i])), TextEnd::kForbidden) << i;
    const bool stopped = answers[i].finished.reason() == pb::RequestFinished::REASON_STOP;
    EXPECT_EQ(stopped, end == TextEnd::kComplete) << i;
    EXPECT_TRUE(stopped || tokens.size() == 24u) << i;
    complete += stopped ? 1 : 0;
  }
  EXPECT_GT(complete, 0u);
}

TEST_F(GrammarTest, TheAnswerIsTheSameForAnyStagesChunksMixesPreemptionsAndAfterARestart) {
  const std::vector<ClusterRequest> requests = MixedRequests();
  std::vector<ClusterAnswer> expected;
  testing::RunEachAlone(testing::DefaultJob(path_), requests, &expected);
  const auto expect_same = [&](const std::vector<ClusterAnswer>& answers, const std::string& how) {
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(answers[i].Bits(), expected[i].Bits()) << how << " " << i;
  };
  for (const int stages : {1, 2, 3}) {
    for (const int chunk : {7, 512}) expect_same(Run(stages, chunk, requests), absl::StrCat(stages, " ", chunk));
  }
  expect_same(Run(2, 7, requests, 0, /*max_num_seqs=*/2), "two at once");
  expect_same(Run(1, 512, requests, 0, 0, /*threads=*/3), "three threads");
  for (const int64_t at : {1, 3}) expect_same(Run(2, 7, requests, at), absl::StrCat("preempted ", at));
  for (const size_t known : {size_t{1}, size_t{2}}) {
    std::vector<ClusterRequest> resumed = requests;
    std::vector<ClusterAnswer> rest = expected;
    for (size_t i = 0; i < resumed.size(); ++i) {
      ASSERT_GT(expected[i].tokens.size(), known);
      for (size_t t = 0; t < known; ++t) resumed[i].output.push_back(expected[i].tokens[t].token());
      rest[i].tokens.erase(rest[i].tokens.begin(), rest[i].tokens.begin() + static_cast<int64_t>(known));
    }
    const std::vector<ClusterAnswer> answers = Run(3, 7, resumed);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(answers[i].Bits(), rest[i].Bits()) << known << " " << i;
  }
}

TEST_F(GrammarTest, ATextThatIsCompleteEndsBeforeTheLeastLengthAndOneThatIsNotGoesOn) {
  ClusterRequest request = testing::RequestOf(9, 1, 24);
  request.stop_tokens = {kEnd};
  request.sampling.set_min_new_tokens(12);
  request.sampling.add_end_tokens(kEnd);
  for (const auto& [token, bias] : {std::pair{kEnd, 100.f}, {kEnd, -100.f}}) {
    request.sampling.clear_logit_bias();
    request.sampling.add_logit_bias()->set_token(token);
    request.sampling.mutable_logit_bias(0)->set_bias(bias);
    request.grammar = testing::RunOfBytes('a', 'b', 1, 1);
    const ClusterAnswer only = RunOne(request);
    EXPECT_EQ(only.finished.reason(), pb::RequestFinished::REASON_STOP);
    EXPECT_EQ(only.tokens.size(), 2u) << "a letter, and the end";
    // Two letters and more are complete: it ends there if the end is likely.
    request.grammar = testing::RunOfBytes('a', 'b', 2);
    const ClusterAnswer any = RunOne(request);
    if (bias > 0) {
      EXPECT_EQ(any.finished.reason(), pb::RequestFinished::REASON_STOP);
      EXPECT_LE(any.tokens.size(), 3u);
    } else {
      EXPECT_EQ(any.finished.reason(), pb::RequestFinished::REASON_LENGTH);
      EXPECT_EQ(any.tokens.size(), 24u);
    }
  }
}

TEST_F(GrammarTest, GoesBeforeBiasesThatForbidAllItAllows) {
  ClusterRequest request = testing::RequestOf(9, 2, 24);
  request.stop_tokens = {kEnd};
  request.grammar = testing::RunOfBytes('x', 'z', 4, 4);
  const GrammarMatcher start(GrammarProgram::Decode(request.grammar).value(), vocabulary_);
  for (TokenId token = 0; token < kVocab; ++token) {
    if (!GrammarMatcher(start).Append(token)) continue;
    request.sampling.add_logit_bias()->set_token(token);
    request.sampling.mutable_logit_bias(request.sampling.logit_bias_size() - 1)
        ->set_bias(-std::numeric_limits<float>::infinity());
  }
  const ClusterAnswer answer = RunOne(request);
  EXPECT_EQ(answer.finished.reason(), pb::RequestFinished::REASON_STOP);
  EXPECT_EQ(testing::HowItEnds(request.grammar, vocabulary_, TokensOf(answer)), TextEnd::kComplete);
}

TEST_F(GrammarTest, LogProbabilitiesAreThoseOfTheModel) {
  ClusterRequest request = testing::RequestOf(9, 3, 1);
  const ClusterAnswer free = RunOne(request);
  request.stop_tokens = {kEnd};
  // A byte that is not the most probable one.
  const TokenId best = free.tokens[0].token();
  request.grammar = best == 'a' - 33 ? testing::RunOfBytes('b', 'b', 1, 1) : testing::RunOfBytes('a', 'a', 1, 1);
  const ClusterAnswer held = RunOne(request);
  ASSERT_NE(held.tokens[0].token(), best);
  ASSERT_EQ(held.tokens[0].top_size(), free.tokens[0].top_size());
  for (int i = 0; i < free.tokens[0].top_size(); ++i) {
    EXPECT_EQ(held.tokens[0].top(i).token(), free.tokens[0].top(i).token());
    EXPECT_EQ(held.tokens[0].top(i).logprob(), free.tokens[0].top(i).logprob());
  }
  EXPECT_LT(held.tokens[0].logprob(), free.tokens[0].logprob());
}

TEST_F(GrammarTest, OneThatTakesTooLongToFollowEndsItsRequestAloneWheneverThatTurnsOut) {
  std::vector<ClusterRequest> requests(3, testing::RequestOf(9, 4, 400));
  for (ClusterRequest& request : requests) request.stop_tokens = {kEnd};
  requests[0].grammar = testing::ProgramBytes(testing::ManyCalls(1000));  // when its text has taken too many steps
  requests[0].sampling.add_logit_bias()->set_token(kEnd);
  requests[0].sampling.mutable_logit_bias(0)->set_bias(-100);
  requests[1].grammar = testing::ProgramBytes(testing::CallsInVain());  // at once: no token is found
  requests[2].grammar = testing::RunOfBytes('a', 'z', 2000);
  const std::vector<ClusterAnswer> answers = Run(2, 512, requests);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answers[i].finished.reason(), pb::RequestFinished::REASON_FAILED) << i;
    EXPECT_EQ(answers[i].finished.code(), pb::RequestFinished::CODE_INVALID) << i;
    EXPECT_NE(answers[i].finished.error().find("the request's grammar took too many steps"), std::string::npos)
        << answers[i].finished.error();
  }
  EXPECT_GT(answers[0].tokens.size(), 4u);
  EXPECT_LT(answers[0].tokens.size(), 400u);
  EXPECT_TRUE(answers[1].tokens.empty());
  EXPECT_EQ(answers[2].tokens.size(), 400u);
  // Also after a restart, at the same token.
  const std::vector<TokenId> tokens = TokensOf(answers[0]);
  requests[0].output.assign(tokens.begin(), tokens.end() - 2);
  EXPECT_EQ(RunOne(requests[0]).tokens.size(), 2u);
}

TEST_F(GrammarTest, OneThatCannotBeFollowedEndsItsRequestAlone) {
  std::vector<ClusterRequest> requests(5, testing::RequestOf(9, 4, 4));
  for (ClusterRequest& request : requests) {
    request.stop_tokens = {kEnd};
    request.grammar = testing::RunOfBytes('a', 'z', 1);
  }
  requests[0].grammar = "no program";
  requests[1].stop_tokens.clear();
  requests[2].output = {7};
  GrammarAutomaton atom;
  atom.states.resize(2);
  atom.states[0].atoms = {{kVocab, 1}};
  atom.states[1].accepting = true;
  requests[3].grammar = testing::ProgramBytes(atom);
  const std::vector<ClusterAnswer> answers = Run(2, 512, requests);
  const char* const errors[] = {"a grammar's program begins otherwise than this version's",
                                "token 319, which ends a generation, must be one of its stop tokens",
                                "the grammar does not allow the request's output: token 7 at place 0",
                                "the grammar names token 320, the vocabulary has 0 to 319"};
  for (size_t i = 0; i < std::size(errors); ++i) {
    EXPECT_EQ(answers[i].finished.reason(), pb::RequestFinished::REASON_REJECTED) << i;
    EXPECT_EQ(answers[i].finished.code(), pb::RequestFinished::CODE_INVALID) << i;
    EXPECT_NE(answers[i].finished.error().find(errors[i]), std::string::npos) << answers[i].finished.error();
  }
  EXPECT_EQ(answers[4].tokens.size(), 4u);
}

}  // namespace
}  // namespace stagecoach
