// Where the weights come from changes nothing of the answer, and each stage gets its own tensors once and no more.

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/model_description.h"
#include "common/wire/weight_frame.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterRequest;

std::vector<ClusterRequest> ShortRequests() {
  return {testing::RequestOf(5, 0, 6), testing::RequestOf(25, 1, 6), testing::RequestOf(45, 2, 6)};
}

// Files of several chunks, split ones too; qkv in one matrix, biases, and a head of its own.
testing::TinyModelOptions Model(int shards) {
  testing::TinyModelOptions options = {.layers = 6, .ffn = 4800, .tied = false, .fused_qkv = true, .biases = true};
  options.architecture = "llama";
  options.head_dim = 16;
  options.shards = shards;
  return options;
}

pb::ConfigureJob Job(const std::string& path, pb::WeightSource weights, int threads = 1) {
  pb::ConfigureJob job = testing::DefaultJob(path);
  job.set_weights(weights);
  job.set_threads(threads);
  return job;
}

TEST(StreamedWeights, GiveTheSameBitsAsFilesForAnyNumberOfStagesAndShards) {
  const testing::TempDir directory;
  for (const int shards : {1, 3}) {
    const std::string path = testing::WriteTinyModel(directory.File(absl::StrCat("m", shards, ".gguf")), Model(shards));
    for (const int stages : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", shards, " shards"));
      const auto file = testing::RunCluster(stages, Job(path, pb::WEIGHT_SOURCE_FILE), ShortRequests());
      const auto stream = testing::RunCluster(stages, Job(path, pb::WEIGHT_SOURCE_STREAM, stages), ShortRequests());
      ASSERT_TRUE(file.ok()) << file.status();
      testing::ExpectSameBits(stream, file->answers);
      if (HasFatalFailure()) return;
      for (const testing::ClusterAnswer& answer : stream->answers) EXPECT_EQ(answer.tokens.size(), 6u);
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(stream->ready.stages(stage).tensor_bytes_read(), file->ready.stages(stage).tensor_bytes_read());
      }
    }
  }
}

// What the stages got from the coordinator beside the headers.
uint64_t Streamed(const testing::ClusterRun& run, const std::string& path) {
  const auto model = OpenModel(path);
  uint64_t bytes = 0, headers = 0;
  for (const uint64_t header : (*model)->file->opened_bytes()) headers += header;
  for (const pb::StageSummary& stage : run.ready.stages()) bytes += stage.streamed_bytes() - headers;
  return bytes;
}

uint64_t TensorBytes(const testing::ClusterRun& run) {
  uint64_t bytes = 0;
  for (const pb::StageSummary& stage : run.ready.stages()) bytes += stage.tensor_bytes_read();
  return bytes;
}

TEST(StreamedWeights, ACacheIsAskedFirstAndWhatItLacksOrHasDamagedIsStreamed) {
  const testing::TempDir directory;
  const std::string path = testing::WriteTinyModel(directory.File("m.gguf"), Model(2));
  pb::ConfigureJob job = Job(path, pb::WEIGHT_SOURCE_STREAM, /*threads=*/2);
  const auto plain = testing::RunCluster(2, job, ShortRequests());
  job.set_weights_cache(directory.File("cache"));
  const auto first = testing::RunCluster(2, job, ShortRequests());
  const auto second = testing::RunCluster(2, job, ShortRequests());
  ASSERT_TRUE(plain.ok() && first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(Streamed(*plain, path), TensorBytes(*plain));
  EXPECT_EQ(Streamed(*first, path), TensorBytes(*plain));
  EXPECT_EQ(Streamed(*second, path), 0u);
  EXPECT_EQ(TensorBytes(*second), TensorBytes(*plain));

  // One tensor is gone, one damaged, and the layers are split otherwise: the rest still comes from the cache.
  const GgufTensor gone = *(*OpenModel(path))->file->FindTensor("blk.1.ffn_up.weight");
  const GgufTensor damaged = *(*OpenModel(path))->file->FindTensor("blk.4.ffn_up.weight");
  int touched = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.File("cache"))) {
    const std::string name = entry.path().string();
    const auto is = [&name](const GgufTensor& tensor) {
      return absl::StrContains(name, absl::StrCat("-", tensor.shard, "-", tensor.file_offset, "-", tensor.bytes, "."));
    };
    if (!is(gone) && !is(damaged)) continue;
    ++touched;
    std::string contents = testing::ReadFileOrDie(name);
    contents[100] ^= 1;
    is(gone) ? static_cast<void>(std::filesystem::remove(name)) : testing::WriteFileOrDie(name, contents);
  }
  EXPECT_EQ(touched, 2);
  job.mutable_layer_split()->Add(4);
  job.mutable_layer_split()->Add(2);
  const auto third = testing::RunCluster(2, job, ShortRequests());
  ASSERT_TRUE(third.ok()) << third.status();
  // Of the damaged one at least the chunk; others of it may have been read before that was found.
  EXPECT_GE(Streamed(*third, path), gone.bytes + kMaxWeightChunkBytes);
  EXPECT_LE(Streamed(*third, path), gone.bytes + damaged.bytes);
  const auto fourth = testing::RunCluster(2, job, ShortRequests());
  ASSERT_TRUE(fourth.ok()) << fourth.status();
  EXPECT_EQ(Streamed(*fourth, path), damaged.bytes) << "its file was removed when the damage was found";
  for (const auto* run : {&first, &second, &third, &fourth}) testing::ExpectSameBits(*run, plain->answers);
}

TEST(StreamedWeights, ACacheThatCannotBeWrittenCostsNoMoreThanItsUse) {
  const testing::TempDir directory;
  const std::string path = testing::WriteTinyModel(directory.File("m.gguf"), Model(1));
  testing::WriteFileOrDie(directory.File("file"), "no directory");
  pb::ConfigureJob job = Job(path, pb::WEIGHT_SOURCE_STREAM);
  job.set_weights_cache(directory.File("file/below"));
  const auto run = testing::RunCluster(1, job, ShortRequests()).value();
  EXPECT_EQ(Streamed(run, path), TensorBytes(run));
}

// A fault of the frames of weights from the coordinator, or to it, that have these numbers.
FaultHook OnWeights(bool from_coordinator, uint64_t first, uint64_t last, Fault fault) {
  return [=](Channel channel, int source, int, uint64_t index) {
    const bool hit = channel == Channel::kWeights && (source == 0) == from_coordinator && index >= first;
    return hit && index <= last ? fault : Fault{};
  };
}

TEST(StreamedWeights, ADamagedAnswerOrRequestLosesTheJobAndTellsWhy) {
  const testing::TempDir directory;
  const pb::ConfigureJob job =
      Job(testing::WriteTinyModel(directory.File("m.gguf"), Model(1)), pb::WEIGHT_SOURCE_STREAM);
  // Such that the front launches it again.
  EXPECT_THAT(testing::RunCluster(1, job, ShortRequests(),
                                  OnWeights(true, 5, 5, {.kind = Fault::Kind::kCorrupt, .offset = 200}))
                  .status(),
              testing::StatusIs(absl::StatusCode::kUnavailable, HasSubstr("received bad weights: frame field")));
  EXPECT_THAT(testing::RunCluster(2, job, ShortRequests(),
                                  OnWeights(false, 2, 2, {.kind = Fault::Kind::kTruncate, .offset = 20}))
                  .status(),
              testing::StatusIs(absl::StatusCode::kUnavailable, HasSubstr("it sent a bad frame")));
}

TEST(StreamedWeights, AnAnswerThatNeverComesEndsTheStageAndItsLoaders) {
  const testing::TempDir directory;
  const std::string path = testing::WriteTinyModel(directory.File("m.gguf"), Model(1));
  pb::ConfigureJob job = Job(path, pb::WEIGHT_SOURCE_STREAM, /*threads=*/2);
  job.set_stage_timeout_s(1.5);
  const FaultHook drop = OnWeights(true, 3, UINT64_MAX, {.kind = Fault::Kind::kDrop});
  EXPECT_EQ(testing::RunCluster(1, job, ShortRequests(), drop).status().code(), absl::StatusCode::kUnavailable);
}

TEST(StreamedWeights, AModelWithoutAFileIsRefusedInOneSentence) {
  EXPECT_THAT(testing::RunCluster(1, Job("dummy://tiny/f32", pb::WEIGHT_SOURCE_STREAM), ShortRequests()).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("`weights` is stream, but 'dummy://tiny/f32' has no file to send")));
}

}  // namespace
}  // namespace stagecoach
