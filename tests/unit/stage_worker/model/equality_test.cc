// The answer does not depend on the machinery of a stage: hidden states, tokens and log-probabilities are the same to
// the bit.

#include <algorithm>
#include <cstring>
#include <map>

#include "common/base/counter_rng.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

struct Play {
  RigOptions rig;
  int chunk = 64;
  bool preempt = false;  // every sequence is freed and opened again in the middle of its output
  // Of the prompts. One sequence crosses granules of attention, one has a single token.
  std::vector<int> lengths = {300, 1, 37};
};

// What the outside sees of one sequence.
struct Trace {
  std::vector<float> hidden;  // [rows, D], last layer
  std::vector<SampledToken> sampled;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Of each sequence, one after the other.
std::vector<Trace> PlayAll(std::shared_ptr<const ModelDescription> model, const Play& play) {
  constexpr int kOutput = 12;
  PipelineRig rig(model, play.rig);
  std::vector<Trace> traces;
  for (const int length : play.lengths) {
    std::vector<TokenId> prompt, output;
    for (int i = 0; i < length; ++i) {
      prompt.push_back(static_cast<TokenId>(MixBits(static_cast<uint64_t>(length * 1000 + i)) % model->hyper.vocab));
    }
    const SamplingParams sampling = {.temperature = 0.8f,
                                     .top_k = 40,
                                     .top_p = 0.95f,
                                     .repeat_penalty = 1.1f,
                                     .presence_penalty = 0.2f,
                                     .frequency_penalty = 0.1f,
                                     .seed = static_cast<uint64_t>(length),
                                     .logprobs = 3};
    const SequenceId id = rig.Open(prompt, sampling);
    std::vector<TokenId> tokens = prompt;  // that are to be fed
    Trace& trace = traces.emplace_back();
    while (trace.sampled.size() < kOutput) {
      const size_t count = std::min(tokens.size(), static_cast<size_t>(play.chunk));
      const auto end = tokens.begin() + static_cast<int64_t>(count);
      rig.Feed(id, {tokens.begin(), end}, end == tokens.end());
      tokens.erase(tokens.begin(), end);
      const StepResult result = rig.Step();
      trace.hidden.insert(trace.hidden.end(), rig.hidden().begin(), rig.hidden().end());
      if (result.sampled.empty()) {
        if (!tokens.empty()) continue;
        ADD_FAILURE() << "the last row has no sample";
        break;
      }
      trace.sampled.push_back(result.sampled[0]);
      output.push_back(result.sampled[0].token);
      tokens.push_back(output.back());
      if (!play.preempt || output.size() != kOutput / 2) continue;
      rig.Close(id);
      rig.Reopen(id, prompt, sampling, output);
      tokens = prompt;
      tokens.insert(tokens.end(), output.begin(), output.end());
      trace.hidden.clear();  // all of it is computed again
    }
    rig.Close(id);
  }
  return traces;
}

void ExpectSame(const std::vector<Trace>& expected, const std::vector<Trace>& actual, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].sampled, actual[i].sampled) << what << ", sequence " << i;
    EXPECT_TRUE(SameBits(expected[i].hidden, actual[i].hidden)) << what << ", sequence " << i;
  }
}

class EqualityTest : public ::testing::TestWithParam<std::pair<TensorType, KvType>> {
 protected:
  EqualityTest() {
    TinyModelOptions options;
    options.type = GetParam().first;
    model_ = OpenModel(WriteTinyModel(dir_.File("tiny.gguf"), options)).value();
    expected_ = PlayAll(model_, Base());
  }

  static Play Base() { return {.rig = {.kv_type = GetParam().second}}; }
  void ExpectSameAsBase(const Play& play, const std::string& what) {
    ExpectSame(expected_, PlayAll(model_, play), what);
  }

  // The base with other values of one of its options.
  void ExpectSameWith(int RigOptions::*option, const std::vector<int>& values) {
    for (const int value : values) {
      Play play = Base();
      play.rig.*option = value;
      ExpectSameAsBase(play, std::to_string(value));
    }
  }

  TempDir dir_;
  std::shared_ptr<const ModelDescription> model_;
  std::vector<Trace> expected_;
};

TEST_P(EqualityTest, TheBaseProducesTextThatVaries) {
  std::map<TokenId, int> counts;
  for (const Trace& trace : expected_) {
    ASSERT_EQ(trace.sampled.size(), 12u);
    for (const SampledToken& sampled : trace.sampled) ++counts[sampled.token];
  }
  EXPECT_GT(counts.size(), 10u);
}

// The layers take turns. With four stages no stage has layers of both.
TEST_P(EqualityTest, WithLayersInTwoBlockGroups) {
  const auto grouped = std::make_shared<ModelDescription>(*model_);
  for (size_t i = 0; i < grouped->hyper.layers.size(); ++i) {
    grouped->hyper.layers[i].block_group = static_cast<int32_t>(i % 2);
  }
  EXPECT_EQ(grouped->hyper.block_groups(), 2);
  model_ = grouped;
  for (const int stages : {1, 2, 4}) {
    Play play = Base();
    play.rig.stages = stages;
    play.rig.threads = 2;
    play.preempt = true;
    ExpectSameAsBase(play, std::to_string(stages) + " stages");
  }
}

// Mixed batches, by whole jobs: tests/unit/equality.
TEST_P(EqualityTest, OverStages) { ExpectSameWith(&RigOptions::stages, {2, 4}); }

TEST_P(EqualityTest, OverChunkSizes) {
  for (const int chunk : {1, 7, 96}) {
    Play play = Base();
    play.chunk = chunk;
    ExpectSameAsBase(play, "chunks of " + std::to_string(chunk));
  }
}

// Five cannot share the eight heads evenly.
TEST_P(EqualityTest, OverThreads) { ExpectSameWith(&RigOptions::threads, {2, 3, 5, 8}); }

TEST_P(EqualityTest, OverBlockSizes) { ExpectSameWith(&RigOptions::block_tokens, {16, 64, 48}); }

TEST_P(EqualityTest, OfTheScalarTwinAndTheBestInstructionSet) {
  Play play = Base();
  // What the twin does beyond one granule the sanitizers see in the attention kernels' own tests.
  if (kSanitized) play.lengths = {70, 1, 37};
  play.rig.isa = TwinIsa();
  expected_ = PlayAll(model_, play);
  play.rig.isa = "scalar";
  play.chunk = 96;
  ExpectSameAsBase(play, "scalar");
}

// Products whose outputs are used in several blocks; how many panels a block has depends on the rows of the step.
TEST(EqualityOfLargeMatrices, OverChunkSizesAndThreads) {
  const TempDir dir;
  const TinyModelOptions options = {
      .layers = 2, .hidden = 1536, .heads = 64, .kv_heads = 2, .ffn = 3072, .type = TensorType::kQ8_0};
  const auto model = OpenModel(WriteTinyModel(dir.File("large.gguf"), options)).value();
  const std::vector<int> lengths = {100};  // a full chunk and a part of one
  // A power of two: blocks of whole groups.
  const std::vector<Trace> expected = PlayAll(model, {.chunk = 64, .lengths = lengths});
  constexpr int kChunks[] = {10, 90, 96};
  for (int i = 0; i < 9; ++i) {
    const int chunk = kChunks[i % 3], threads = 1 + i / 3;
    if (kSanitized && i % 3 != i / 3) continue;  // the sanitizers see each chunk and each number of threads once
    ExpectSame(expected, PlayAll(model, {.rig = {.threads = threads}, .chunk = chunk, .lengths = lengths}),
               "chunks of " + std::to_string(chunk) + ", " + std::to_string(threads) + " threads");
  }
}

// Most of them have no part of a matrix, of the heads or of the rows.
TEST(EqualityOfManyThreads, OverMoreThreadsThanPanels) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {.type = TensorType::kQ8_0})).value();
  const std::vector<int> lengths = {40, 1};
  const std::vector<Trace> expected = PlayAll(model, {.chunk = 16, .lengths = lengths});
  for (const int threads : kSanitized ? std::vector<int>{17} : std::vector<int>{17, 64}) {
    ExpectSame(expected, PlayAll(model, {.rig = {.threads = threads}, .chunk = 16, .lengths = lengths}),
               std::to_string(threads) + " threads");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, EqualityTest,
    ::testing::Values(std::pair(TensorType::kF32, KvType::kF32), std::pair(TensorType::kF16, KvType::kBF16),
                      std::pair(TensorType::kBF16, KvType::kF16), std::pair(TensorType::kQ8_0, KvType::kF16),
                      std::pair(TensorType::kQ8_0, KvType::kQ8_0)),
    [](const auto& info) {
      return std::string(GetTensorType(info.param.first).name) + "With_" + KvTypeName(info.param.second);
    });

}  // namespace
}  // namespace stagecoach::testing
