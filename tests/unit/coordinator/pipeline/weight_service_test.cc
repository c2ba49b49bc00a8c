// The coordinator's side of streamed weights, with a test in place of the stages.

#include "coordinator/pipeline/weight_service.h"

#include <filesystem>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr JobEpoch kJob = {.run_id = 5, .epoch = 2};
constexpr int kReaders = 2;

struct WeightServiceTest : ::testing::Test {
  WeightServiceTest() {
    path_ = testing::WriteTinyModel(directory_.File("m.gguf"), {.layers = 4, .ffn = 640});
    model_ = OpenModel(path_).value();
    std::vector<pb::StageAssignment> assignments(kReaders);
    for (int stage = 0; stage < kReaders; ++stage) {
      assignments[stage].set_run_id(kJob.run_id);
      assignments[stage].set_epoch(kJob.epoch);
      assignments[stage].set_first_layer(2 * stage);
      assignments[stage].set_last_layer(2 * stage + 2);
      assignments[stage].set_owns_embedding(stage == 0);
      assignments[stage].set_owns_head(stage == 1);
    }
    service_ = std::make_unique<WeightService>(model_, assignments, [] {});
  }

  absl::Status Ask(int stage, const WeightRange& range) {
    FrameBuffer buffer(kMaxWeightHeaderBytes, 0);
    EXPECT_TRUE(EncodeWeightRequest(kJob, asked_[stage]++, range, &buffer).ok());
    asked_for_[stage].push_back(range);
    return service_->Take(stage, buffer.message());
  }
  WeightService::Answer NextAnswer() {
    while (true) {
      if (std::optional<WeightService::Answer> answer = service_->Next()) return *std::move(answer);
      std::this_thread::yield();
    }
  }
  // What the stage gets for its next request.
  std::variant<WeightChunk, absl::Status> Decoded(const WeightService::Answer& answer) {
    const uint64_t number = answered_[answer.stage]++;
    return DecodeWeightAnswer(kJob, answer.frame->message(), number, asked_for_[answer.stage][number]).value();
  }
  absl::Status RefusalOf(int stage, const WeightRange& range) {
    EXPECT_TRUE(Ask(stage, range).ok());
    const WeightService::Answer answer = NextAnswer();
    EXPECT_EQ(answer.stage, stage);
    const auto decoded = Decoded(answer);
    return std::holds_alternative<absl::Status>(decoded) ? std::get<absl::Status>(decoded) : absl::OkStatus();
  }
  WeightRange PartOf(const char* tensor, uint64_t skip, uint64_t bytes) const {
    return {0, model_->file->FindTensor(tensor)->file_offset + skip, bytes};
  }

  testing::TempDir directory_;
  std::string path_;
  std::shared_ptr<const ModelDescription> model_;
  std::unique_ptr<WeightService> service_;
  std::map<int, uint64_t> asked_, answered_;
  std::map<int, std::vector<WeightRange>> asked_for_;
};

TEST_F(WeightServiceTest, SendsTheHeaderAndTheStagesOwnTensors) {
  const WeightRange header = {0, 0, 1000}, part = PartOf("blk.3.ffn_up.weight", 64, 5000);
  for (const WeightRange& range : {header, part}) {
    ASSERT_TRUE(Ask(1, range).ok());
    const WeightService::Answer answer = NextAnswer();
    const auto decoded = Decoded(answer);
    std::vector<uint8_t> expected(range.bytes);
    ASSERT_TRUE(model_->file->ReadShard(0, range.offset, absl::MakeSpan(expected)).ok());
    EXPECT_TRUE(std::get<WeightChunk>(decoded).payload == absl::MakeConstSpan(expected));
  }
  pb::StageReady ready;
  ready.set_stage(1);
  ready.set_streamed_bytes(6000);
  EXPECT_THAT(service_->CheckReceived(ready).message(), HasSubstr("with the checksum 00000000, expected 6000"));
  StreamedRanges received;
  for (const WeightRange& range : {part, header}) {
    std::vector<uint8_t> bytes(range.bytes);
    ASSERT_TRUE(model_->file->ReadShard(0, range.offset, absl::MakeSpan(bytes)).ok());
    received.Add(range, Crc32c(bytes));
  }
  ready.set_streamed_crc32c(received.Checksum());
  EXPECT_TRUE(service_->CheckReceived(ready).ok());
}

TEST_F(WeightServiceTest, RefusesWhatIsNotTheStagesOwnInOneMessage) {
  const uint64_t size = model_->file->fingerprints()[0].size_bytes;
  EXPECT_TRUE(RefusalOf(0, PartOf("blk.1.ffn_up.weight", 0, 100)).ok());
  const absl::Status refusal = RefusalOf(0, PartOf("blk.2.ffn_up.weight", 0, 100));
  EXPECT_THAT(refusal, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stage 0 asked for bytes [")));
  EXPECT_THAT(refusal.message(), HasSubstr("neither a header nor in its own tensors"));
  // The other stage is served on.
  EXPECT_TRUE(RefusalOf(1, PartOf("blk.2.ffn_up.weight", 0, 100)).ok());
  EXPECT_THAT(RefusalOf(1, {0, size - 10, 20}).message(), HasSubstr("asked for bytes"));
}

TEST_F(WeightServiceTest, ARangeThatLiesOutsideInPartOrInAnotherFileIsRefused) {
  const GgufTensor& tensor = *model_->file->FindTensor("blk.2.ffn_down.weight");
  EXPECT_FALSE(RefusalOf(1, PartOf("blk.2.ffn_down.weight", tensor.bytes - 10, 11)).ok());
  EXPECT_FALSE(RefusalOf(0, {1, 0, 10}).ok());
}

TEST_F(WeightServiceTest, AFarOffsetIsRefused) { EXPECT_FALSE(RefusalOf(0, {0, UINT64_MAX - 100, 100}).ok()); }

TEST_F(WeightServiceTest, MoreRequestsThanTheCreditAreABadFrame) {
  for (int i = 0; i < kWeightCredit; ++i) ASSERT_TRUE(Ask(0, {0, 0, 100}).ok());
  EXPECT_THAT(Ask(0, {0, 0, 100}).message(), HasSubstr("expected at most 8"));
  EXPECT_TRUE(Ask(1, {0, 0, 100}).ok());
}

TEST_F(WeightServiceTest, ARequestOutOfTurnIsABadFrame) {
  asked_[0] = 3;
  EXPECT_THAT(Ask(0, {0, 0, 100}).message(), HasSubstr("'sequence_number' is 3, expected 0"));
}

TEST_F(WeightServiceTest, StagesAreServedInTurnAndNoneGetsAheadOfItsHost) {
  for (int i = 0; i < kWeightCredit; ++i) ASSERT_TRUE(Ask(0, PartOf("blk.0.ffn_up.weight", i * 1000, 1000)).ok());
  for (int i = 0; i < kWeightCredit; ++i) ASSERT_TRUE(Ask(1, PartOf("blk.2.ffn_up.weight", i * 1000, 1000)).ok());
  // Nothing that was sent leaves: of each stage so many answers come and no more.
  std::vector<WeightService::Answer> kept;
  for (int i = 0; i < kReaders * WeightService::kChunksOnTheWay; ++i) kept.push_back(NextAnswer());
  std::map<int, int> of_stage;
  for (const WeightService::Answer& answer : kept) ++of_stage[answer.stage];
  EXPECT_EQ(of_stage[0], WeightService::kChunksOnTheWay);
  EXPECT_EQ(of_stage[1], WeightService::kChunksOnTheWay);
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(service_->Next().has_value());
  // What leaves makes room for its own stage alone.
  const int gone = kept.front().stage;
  kept.erase(kept.begin());
  EXPECT_EQ(NextAnswer().stage, gone);
}

TEST_F(WeightServiceTest, AFileThatWasCutMeanwhileIsAFinalError) {
  std::filesystem::resize_file(path_, 2000);
  EXPECT_THAT(RefusalOf(0, PartOf("blk.0.ffn_up.weight", 0, 100)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("changed or was cut while in use")));
}

}  // namespace
}  // namespace stagecoach
