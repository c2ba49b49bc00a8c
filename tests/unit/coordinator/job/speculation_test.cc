// A job that guesses: what it says of its guesses, what it records of them, and that nothing of a void row gets out.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/obs/step_log.h"
#include "coordinator/guess/guesser.h"
#include "coordinator/sim/replay.h"
#include "tests/testing/cluster/loopback_cluster.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::ClusterAnswer;
using testing::ClusterRequest;
using testing::ClusterRun;

constexpr int kSpeculatedVocab = 320;
constexpr int64_t kAnswerTokens = 30;

// Right in two of three places of an answer that it knows.
class MostlyRight : public Guesser {
 public:
  MostlyRight(const Sequence& sequence, std::vector<TokenId> answer)
      : prompt_(sequence.spec().prompt.size()), answer_(std::move(answer)) {}
  void Append(TokenId) override { ++known_; }
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override {
    const size_t place = known_ + run.size() - prompt_;
    if (known_ < prompt_ || place >= answer_.size()) return std::nullopt;
    return Guess{(answer_[place] + (place % 3 == 2 ? 1 : 0)) % kSpeculatedVocab, 0.5};
  }

 private:
  const size_t prompt_;
  const std::vector<TokenId> answer_;
  size_t known_ = 0;
};

// Always guesses the same.
class Stubborn : public Guesser {
 public:
  explicit Stubborn(TokenId token) : token_(token) {}
  void Append(TokenId) override {}
  std::optional<Guess> Next(absl::Span<const TokenId>) const override { return Guess{token_, 0.5}; }

 private:
  const TokenId token_;
};

class SpeculatingJob : public ::testing::Test {
 protected:
  SpeculatingJob()
      : path_(testing::WriteTinyModel(dir_.File("tiny.gguf"), {.context = 256, .type = TensorType::kQ8_0})),
        job_(testing::DefaultJob(path_)),
        request_{.sampling = testing::GreedyParams(), .max_new_tokens = kAnswerTokens} {
    for (int t = 0; t < 40; ++t) request_.prompt.push_back((t * 31 + 5) % 300);
    job_.set_block_tokens(16);
  }

  // Without guesses.
  ClusterAnswer Plain() {
    job_.set_speculate("off");
    return testing::RunCluster(1, job_, {request_}).value().answers[0];
  }
  static std::vector<TokenId> TokensOf(const ClusterAnswer& answer) {
    std::vector<TokenId> tokens;
    for (const pb::SampledToken& token : answer.tokens) tokens.push_back(token.token());
    return tokens;
  }
  // With up to so many rows of a sequence in flight.
  ClusterRun Run(int stages, int rows, const std::vector<ClusterRequest>& requests, testing::GuesserHook hook,
                 int64_t preempt_at_output = 0) {
    job_.set_speculate("suffix");
    job_.set_guess_rows(rows);
    job_.set_micro_batches(rows);
    return testing::RunCluster(stages, job_, requests, nullptr, preempt_at_output, std::move(hook)).value();
  }
  static testing::GuesserHook Knows(const ClusterAnswer& answer) {
    return [tokens = TokensOf(answer)](const Sequence& sequence) {
      return std::make_unique<MostlyRight>(sequence, tokens);
    };
  }

  testing::TempDir dir_;
  const std::string path_;
  pb::ConfigureJob job_;
  ClusterRequest request_;
};

TEST_F(SpeculatingJob, SaysWhatBecameOfItsGuesses) {
  const ClusterAnswer plain = Plain();
  const ClusterRun run = Run(2, 3, {request_}, Knows(plain));
  EXPECT_EQ(run.answers[0].Bits(), plain.Bits());
  const pb::JobStatistics& job = run.statistics;
  EXPECT_EQ(run.ready.speculation(), "guesses by suffix, up to 3 rows of a sequence in flight, whatever that costs");
  // A right guess spares its token a row of its own; every row that was void cost one more.
  EXPECT_GT(job.guesses_right(), static_cast<uint64_t>(kAnswerTokens) / 2);
  EXPECT_GT(job.guesses_void(), 0u);
  EXPECT_EQ(job.decode_rows() + job.guesses_right(), static_cast<uint64_t>(kAnswerTokens) - 1);
  EXPECT_EQ(job.guesses_right() + job.guesses_void(), job.guesses());
  EXPECT_GT(job.void_s(), 0);
  ASSERT_EQ(job.stages_size(), 2);
  EXPECT_NEAR(job.stages(0).void_s() + job.stages(1).void_s(), job.void_s(), 1e-6);
  for (const pb::StageSummary& stage : job.stages()) EXPECT_LE(stage.void_s(), stage.compute_s());
  ASSERT_EQ(job.guessers_size(), 1);
  EXPECT_EQ(job.guessers(0).name(), "draft") << "where a test's guesser stands";
  EXPECT_EQ(job.guessers(0).right(), job.guesses_right());
  EXPECT_GT(job.guessers(0).tried(), job.guesses_right());
  EXPECT_LE(job.guessers(0).tried(), job.guesses());
}

TEST_F(SpeculatingJob, SaysWhyNothingIsGuessed) {
  const auto ready = [this](int stages) {
    return testing::RunCluster(stages, job_, {request_}).value().ready.speculation();
  };
  EXPECT_EQ(ready(2), "");
  job_.set_speculate("auto");
  EXPECT_EQ(ready(2),
            "guesses by suffix, up to 3 rows of a sequence in flight where the stages' times say that it pays");
  EXPECT_EQ(ready(1), "nothing is guessed: one stage is never idle");
  job_.set_micro_batches(1);
  EXPECT_EQ(ready(2), "nothing is guessed: only one micro-batch may be in flight");
  job_.set_micro_batches(3);
  job_.set_guess_rows(1);
  EXPECT_EQ(ready(2), "nothing is guessed: only one row of a sequence may be in flight");
}

TEST_F(SpeculatingJob, GuessesFromAPredictionAndSaysHowMuchOfItCame) {
  const ClusterAnswer plain = Plain();
  ClusterRequest predicted = request_;
  for (const TokenId token : TokensOf(plain)) predicted.prediction.push_back(token);
  predicted.prediction[10] = (predicted.prediction[10] + 1) % 300;
  ClusterRequest invalid = request_;
  invalid.prediction = {5, kSpeculatedVocab};
  const ClusterRun run = Run(3, 4, {predicted, invalid}, nullptr);
  EXPECT_EQ(run.answers[0].Bits(), plain.Bits());
  const pb::RequestCost& cost = run.answers[0].finished.cost();
  EXPECT_GE(cost.predicted_right(), kAnswerTokens - 8);
  EXPECT_GE(cost.predicted_wrong(), 1);
  EXPECT_LE(cost.predicted_right() + cost.predicted_wrong(), kAnswerTokens);
  ASSERT_GE(run.statistics.guessers_size(), 1);
  EXPECT_EQ(run.statistics.guessers(0).name(), "prediction");
  EXPECT_GT(run.statistics.guessers(0).right(), 10u);
  EXPECT_EQ(run.answers[1].finished.reason(), pb::RequestFinished::REASON_REJECTED);
  EXPECT_THAT(run.answers[1].finished.error(), AllOf(HasSubstr("prediction"), HasSubstr("320")));
}

TEST_F(SpeculatingJob, ReportsTheChecksumsOfRowsThatHeldAlone) {
  job_.set_layer_checksums(true);
  const auto rows_of = [](const ClusterAnswer& answer) {
    std::map<int32_t, std::vector<uint32_t>> rows;
    for (const pb::RowChecksums& part : answer.checksums) {
      for (int i = 0; i < part.values_size(); ++i) rows[part.start() + i % part.rows()].push_back(part.values(i));
    }
    return rows;
  };
  const ClusterAnswer plain = Plain();
  const ClusterRun run = Run(3, 4, {request_}, Knows(plain));
  EXPECT_GT(run.statistics.guesses_void(), 0u);
  EXPECT_EQ(rows_of(run.answers[0]), rows_of(plain));
}

TEST_F(SpeculatingJob, RecordsEachGuessAndWhatBecameOfItSoThatItsLogReplays) {
  const ClusterAnswer plain = Plain();
  const std::string path = dir_.File("steps.jsonl");
  job_.set_step_log(path);
  job_.set_prefix_caching(true);
  ClusterRequest other = request_;
  other.prompt[0] = 7;
  const ClusterRun run = Run(3, 4, {request_, other}, Knows(plain));
  const std::vector<StepRecord> records = ReadStepLog(path).value();
  int64_t guesses = 0, voids = 0, rows = 0;
  for (const StepRecord& record : records) {
    guesses += record.guess_rows();
    voids += record.void_rows();
    rows += record.decode_rows();
  }
  EXPECT_EQ(static_cast<uint64_t>(guesses), run.statistics.guesses());
  EXPECT_EQ(static_cast<uint64_t>(voids), run.statistics.guesses_void());
  EXPECT_EQ(static_cast<uint64_t>(rows), run.statistics.decode_rows());
  EXPECT_EQ(records.front().inputs.job->most_guesses, 3);
  const auto replayed = Replay(records);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(replayed->front().status.counters.guesses_right, run.statistics.guesses_right());
  EXPECT_EQ(replayed->front().tokens, 2 * kAnswerTokens);
}

// Of a prompt as many chunks leave before the first result as the job has places for guesses.
TEST_F(SpeculatingJob, SaysHowManyPlacesItBeganWithSoThatItsLogReplays) {
  const ClusterAnswer plain = Plain();
  const std::string path = dir_.File("steps.jsonl");
  job_.set_step_log(path);
  job_.set_speculate("suffix");
  job_.set_guess_rows(3);
  job_.set_prefill_chunk(8);
  const auto run = testing::RunCluster(2, job_, {request_}, nullptr, 0, Knows(plain));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_GT(run->statistics.guesses(), 0u);
  std::vector<StepRecord> records = ReadStepLog(path).value();
  RecordedJob& job = *records.front().inputs.job;
  EXPECT_EQ(job.micro_batches, 2);
  EXPECT_EQ(job.guess_places, 3);
  const auto replayed = Replay(records);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(replayed->front().tokens, kAnswerTokens);
  job.guess_places = 0;
  EXPECT_THAT(Replay(records).status().message(), HasSubstr("after 1 result"));
  job.guess_places = 4;
  EXPECT_THAT(Replay(records).status().message(), HasSubstr("4 places for guesses, but 3 micro-batches"));
}

// A request that begins in the middle of its output, as after a loss: ten letters are allowed, and then the end.
TEST_F(SpeculatingJob, GuessesNothingThatTheGrammarRefusesBehindTheOutput) {
  request_.grammar = testing::RunOfBytes('a', 'm', 10, 10);
  request_.stop_tokens = {kSpeculatedVocab - 1};
  pb::LogitBias* bias = request_.sampling.add_logit_bias();  // one letter a token
  bias->set_token('c' - 33);
  bias->set_bias(100);
  const ClusterAnswer plain = Plain();
  ASSERT_EQ(plain.tokens.size(), 11u);
  ClusterRequest resumed = request_;
  std::vector<TokenId> rest = TokensOf(plain);
  resumed.output.assign(rest.begin(), rest.begin() + 4);
  rest.erase(rest.begin(), rest.begin() + 4);
  const auto guessed = [&](char letter) {  // output tokens
    const std::string path = dir_.File(std::string("steps.") + letter);
    job_.set_step_log(path);
    const ClusterRun run =
        Run(3, 4, {resumed}, [letter](const Sequence&) { return std::make_unique<Stubborn>(letter - 33); });
    EXPECT_EQ(TokensOf(run.answers[0]), rest);
    const std::vector<StepRecord> records = ReadStepLog(path).value();
    std::set<int64_t> places;
    for (const StepRecord& record : records) {
      for (const StepRecord::Slice& slice : record.slices) {
        if (slice.guess != GuessRecord::kNone)
          places.insert(slice.start - static_cast<int64_t>(request_.prompt.size()));
      }
    }
    return places;
  };
  EXPECT_THAT(guessed('z'), IsEmpty());
  EXPECT_THAT(guessed('c'), ElementsAre(5, 6, 7, 8, 9));
}

// Rows 46 and 47 are on their way as guesses when the sequence is preempted; both hold, and the second one fills a
// block that is no longer the sequence's.
TEST_F(SpeculatingJob, RecordsNoBlockThatAGuessFilledForASequenceThatWasPreempted) {
  const ClusterAnswer plain = Plain();
  const std::string path = dir_.File("steps.jsonl");
  job_.set_step_log(path);
  job_.set_prefix_caching(true);
  const ClusterRun run = Run(3, 4, {request_}, Knows(plain), /*preempt_at_output=*/7);
  EXPECT_EQ(run.answers[0].Bits(), plain.Bits());
  EXPECT_EQ(run.statistics.preemptions(), 1u);
  std::map<int64_t, std::set<uint64_t>> hashes;  // by block
  const std::vector<StepRecord> records = ReadStepLog(path).value();
  for (const StepRecord& record : records) {
    for (const RecordedBlock& block : record.inputs.blocks) hashes[block.block].insert(block.hash);
  }
  EXPECT_EQ(hashes.count(3), 1u) << "computed again";
  for (const auto& [block, found] : hashes) EXPECT_EQ(found.size(), 1u) << block;
}

// Whoever stops a request, at a stop string for example, does so while guesses are on their way.
TEST_F(SpeculatingJob, ACancelLeavesGuessesInFlightThatNobodyHearsOf) {
  const ClusterAnswer plain = Plain();
  std::vector<ClusterRequest> requests(3, request_);
  for (size_t i = 0; i < 2; ++i) requests[i].cancel_after = 5 + static_cast<int>(i);
  job_.set_stage_delay_us(2000);
  requests[2].after_others = true;
  const ClusterRun run = Run(3, 4, requests, Knows(plain));
  EXPECT_EQ(run.answers[2].Bits(), plain.Bits());
  for (size_t i = 0; i < 2; ++i) {
    const std::string bits = run.answers[i].Bits();
    EXPECT_EQ(plain.Bits().substr(0, bits.size()), bits);
    EXPECT_GE(run.answers[i].tokens.size(), 5u + i);
  }
  // The job may end before they are back.
  const ClusterRun last = Run(3, 4, {requests[0]}, Knows(plain));
  EXPECT_GT(last.statistics.guesses(), 0u);
  EXPECT_EQ(last.answers[0].finished.reason(), pb::RequestFinished::REASON_CANCELLED);
}

}  // namespace
}  // namespace stagecoach
