// A job with a draft: a second model on a stage_worker of its own, in the same world. Answers are those of a job
// without one, whatever the draft draws.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "common/model/model_description.h"
#include "common/text/vocabulary.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/job/draft_setup.h"
#include "coordinator/job/job_setup.h"
#include "coordinator/pipeline/roster.h"
#include "tests/testing/cluster/loopback_cluster.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::ClusterAnswer;
using testing::ClusterRequest;
using testing::ClusterRun;
using testing::StatusIs;
using testing::TinyArchitecture;
using testing::WriteTinyArchitecture;

class DraftedJob : public ::testing::Test {
 protected:
  // Greedy, and sampled with penalties.
  static std::vector<ClusterRequest> Requests() {
    std::vector<ClusterRequest> requests(2);
    for (int t = 0; t < 40; ++t) requests[0].prompt.push_back((t * 31 + 5) % 300);
    requests[0].sampling = requests[1].sampling = testing::GreedyParams();
    requests[0].max_new_tokens = requests[1].max_new_tokens = 24;
    requests[1].prompt = {4, 5, 6};
    requests[1].sampling.set_temperature(0.9f);
    requests[1].sampling.set_seed(17);
    requests[1].sampling.set_frequency_penalty(0.5f);
    return requests;
  }
  pb::ConfigureJob Job(const std::string& model, const std::string& draft) const {
    pb::ConfigureJob job = testing::DefaultJob(model);
    job.set_block_tokens(16);
    if (draft.empty()) return job;
    job.set_draft_model_path(draft);
    job.set_speculate("draft");
    job.set_micro_batches(3);
    job.set_guess_rows(3);
    job.set_stage_delay_us(2000);  // so that the draft gets ahead
    return job;
  }
  // The statistics of a job whose answers are those of one without a draft.
  ClusterRun RunAsWithout(int stages, const std::string& model, const std::string& draft,
                          const std::vector<ClusterRequest>& requests) {
    const ClusterRun plain = testing::RunCluster(1, Job(model, ""), requests).value();
    const absl::StatusOr<ClusterRun> run = testing::RunCluster(stages + 1, Job(model, draft), requests);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return {};
    EXPECT_EQ(run->ready.stages_size(), stages) << "the draft is none of the model's";
    EXPECT_EQ(run->ready.speculation(), "guesses by draft, up to 3 rows of a sequence in flight, whatever that costs");
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(run->answers[i].Bits(), plain.answers[i].Bits());
    return *run;
  }
  std::string Tiny(const std::string& name, const std::string& architecture, uint64_t seed) {
    testing::TinyArchitectureOptions options = TinyArchitecture(architecture);
    options.seed = seed;
    return WriteTinyArchitecture(dir_.File(name), options);
  }

  testing::TempDir dir_;
};

TEST_F(DraftedJob, GuessesRightWhereBothModelsHaveOneDistribution) {
  for (const std::string architecture : {"qwen3", "qwen35"}) {
    SCOPED_TRACE(architecture);
    const std::string model = Tiny("m.gguf", architecture, 1);
    const pb::JobStatistics job = RunAsWithout(2, model, model, Requests()).statistics;
    EXPECT_GT(job.guesses_right(), 10u);
    EXPECT_EQ(job.guesses_void(), 0u) << "greedy and sampled alike";
    ASSERT_EQ(job.guessers_size(), 1);
    EXPECT_EQ(job.guessers(0).name(), "draft");
    EXPECT_EQ(job.draft().rank(), testing::RankOfStage(2, 3)) << "the last one";
    EXPECT_GT(job.draft().weight_bytes(), 0u);
    EXPECT_GT(job.draft().kv_bytes(), 0u);
    EXPECT_EQ(job.guessers(0).tried(), job.guessers(0).right());
  }
}

TEST_F(DraftedJob, ADraftThatIsWrongChangesNoAnswer) {
  const std::string model = Tiny("m.gguf", "qwen3", 1), draft = Tiny("d.gguf", "gpt-oss", 9);
  const pb::JobStatistics job = RunAsWithout(3, model, draft, Requests()).statistics;
  EXPECT_GT(job.guesses(), 10u);
  EXPECT_GT(job.guesses_void(), 0u);
}

TEST_F(DraftedJob, TheDraftFollowsTheGrammarOfARequest) {
  const std::string model = Tiny("m.gguf", "qwen3", 1);
  std::vector<ClusterRequest> requests = Requests();
  for (ClusterRequest& request : requests) {
    request.grammar = testing::RunOfBytes('0', '9', 24);
    request.stop_tokens = {static_cast<int32_t>(TinyArchitecture("qwen3").vocab - 1)};  // its end of a text
  }
  const pb::JobStatistics job = RunAsWithout(2, model, model, requests).statistics;
  EXPECT_GT(job.guesses_right(), 10u);
  EXPECT_EQ(job.guesses_void(), 0u);
}

TEST_F(DraftedJob, IsRefusedWithTheFirstTokenThatDiffers) {
  const std::string model = Tiny("m.gguf", "qwen3", 1);
  testing::TinyArchitectureOptions options = TinyArchitecture("qwen3");
  options.vocab = 300;
  const std::string other = WriteTinyArchitecture(dir_.File("other.gguf"), options);
  pb::ConfigureJob job = Job(model, other);
  absl::Status refused = testing::RunCluster(3, job, Requests()).status();
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("other.gguf"), HasSubstr("token 299 is \""), HasSubstr(" in the model and \""),
                             HasSubstr("give a draft of the same family"))));
  EXPECT_EQ(LostStage(refused), std::nullopt) << "the job's";
  *job.mutable_fingerprints() = ToProto(OpenModel(model).value()->file->fingerprints());
  refused = testing::RunCluster(3, job, Requests()).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token 299 is \"")));
  EXPECT_EQ(LostStage(refused), 2) << "at a relaunch the draft's, without which the job goes on";
  EXPECT_THAT(
      testing::RunCluster(1, Job(model, model), Requests()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs a stage_worker beside those of the model")));
}

// Models of which nothing but the tokens differs.
class DraftTokens : public ::testing::Test {
 protected:
  struct Tokens {
    std::vector<std::string> texts, merges;
    std::vector<int32_t> types;
  };
  DraftTokens() : model_(Write("model.gguf", std::nullopt)) {
    const Vocabulary vocabulary = ReadVocabulary(model_->file->metadata()).value();
    own_.texts = vocabulary.texts;
    own_.merges = vocabulary.merges;
    for (const TokenType type : vocabulary.types) own_.types.push_back(static_cast<int32_t>(type));
  }
  std::shared_ptr<const ModelDescription> Write(const std::string& name, const std::optional<Tokens>& tokens) {
    testing::TinyArchitectureOptions options = TinyArchitecture("qwen3");
    if (tokens.has_value()) options.vocab = static_cast<int64_t>(tokens->texts.size());
    GgufWriter writer = testing::TinyArchitectureModel(options);
    if (tokens.has_value()) {
      writer.Set("tokenizer.ggml.tokens", tokens->texts);
      writer.Set("tokenizer.ggml.token_type", tokens->types);
      writer.Set("tokenizer.ggml.merges", tokens->merges);
      const auto end = static_cast<uint32_t>(own_.texts.size() - 1);
      writer.Set("tokenizer.ggml.bos_token_id", end);
      writer.Set("tokenizer.ggml.eos_token_id", end);
    }
    return OpenModel(testing::WriteModel(dir_.File(name), writer)).value();
  }
  absl::Status With(const Tokens& draft) { return CheckSameTokens(*model_, *Write("draft.gguf", draft)); }

  testing::TempDir dir_;
  const std::shared_ptr<const ModelDescription> model_;
  Tokens own_;
};

TEST_F(DraftTokens, MayDifferWhereNoTextHasThem) {
  EXPECT_TRUE(With(own_).ok()) << With(own_);
  Tokens padded = own_;
  for (int i = 0; i < 9; ++i) {
    padded.texts.push_back(absl::StrCat("[PAD", i, "]"));
    padded.types.push_back(static_cast<int32_t>(TokenType::kUnused));
  }
  EXPECT_TRUE(With(padded).ok()) << With(padded);
}

TEST_F(DraftTokens, AreRefusedWithTheFirstThatDiffers) {
  const auto refused = [&](const Tokens& draft, const std::string& why) {
    EXPECT_THAT(With(draft), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("draft.gguf' cannot guess tokens of '"), HasSubstr(why))));
  };
  Tokens other = own_;
  std::swap(other.texts[270], other.texts[280]);
  refused(other, absl::StrCat("token 270 is \"", own_.texts[270], "\" in the model and \"", own_.texts[280],
                              "\" in the draft"));
  other = own_;
  other.types[290] = static_cast<int32_t>(TokenType::kUnused);
  refused(other, absl::StrCat("token 290 is \"", own_.texts[290], "\" in the model and no token in the draft"));
  other = own_;
  other.types[290] = static_cast<int32_t>(TokenType::kControl);
  refused(other, absl::StrCat("and \"", own_.texts[290], "\" (not of plain text) in the draft"));
}

TEST(DraftTrace, NamesTheDraftsHost) {
  JobPlan plan;
  plan.stages.resize(1);
  std::vector<pb::Hello> hellos(3);
  hellos[2].set_host("n9");
  EXPECT_THAT(TraceHeaderOf({}, plan, hellos).options, Contains(Pair("draft_host", "n9")));
  hellos.pop_back();
  EXPECT_THAT(TraceHeaderOf({}, plan, hellos).options, ::testing::IsEmpty());
}

TEST_F(DraftedJob, ItsLossNamesTheDraft) {
  const std::string model = Tiny("m.gguf", "qwen3", 1);
  pb::ConfigureJob job = Job(model, model);
  // Damaged on the way to the draft, which is the last of three stages.
  constexpr int kRank = testing::RankOfStage(2, 3);
  const FaultHook faults = [](Channel channel, int /*source*/, int destination, uint64_t index) -> Fault {
    if (channel != Channel::kStep || destination != kRank || index != 2) return {};
    return {.kind = Fault::Kind::kCorrupt, .offset = 20};
  };
  const absl::Status lost = testing::RunCluster(3, job, Requests(), faults).status();
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the draft: ")));
  EXPECT_EQ(LostStage(lost), 2);
}

// The class of the answers is fixed at a relaunch; the draft's tokens are none.
TEST_F(DraftedJob, TheDraftsHostNeedsNotTheInstructionsThatTheAnswersAreComputedWith) {
  const std::shared_ptr<const ModelDescription> model = OpenModel(Tiny("m.gguf", "qwen3", 1)).value();
  pb::ConfigureJob job = Job(model->file->path(), model->file->path());
  job.set_bf16_dot(true);
  std::vector<pb::Hello> hosts;
  for (const auto& [name, isa] : {std::pair("a", InstructionSet::kAvx512Bf16), std::pair("b", InstructionSet::kAvx2)}) {
    pb::Hello& hello = hosts.emplace_back(MakeHello(pb::Hello::ROLE_STAGE, {isa}));
    hello.set_host(name);
    hello.set_rank(static_cast<int32_t>(hosts.size()));
  }
  const JobPlan plan = PlanJob(job, {hosts[0]}, *model, {.run_id = 1, .epoch = 1}).value();
  ASSERT_TRUE(plan.bf16_dot);
  const absl::StatusOr<JobPlan> draft = PlanDraft(job, plan, *model, hosts, *model, {.run_id = 1, .epoch = 2});
  ASSERT_TRUE(draft.ok()) << draft.status();
  EXPECT_FALSE(draft->bf16_dot);
}

}  // namespace
}  // namespace stagecoach
