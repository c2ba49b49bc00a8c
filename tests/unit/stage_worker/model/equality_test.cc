// The answer does not depend on the machinery: hidden states, tokens and log-probabilities are the same to the bit.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

struct Play {
  RigOptions rig;
  int chunk = 64;
  bool together = false;  // chunks and decode rows of all sequences in the same micro-batches
  bool preempt = false;   // every sequence is freed and opened again in the middle of its output
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

class Player {
 public:
  Player(std::shared_ptr<const ModelDescription> model, const Play& play)
      : play_(play), hidden_(model->hyper.hidden), rig_(model, play.rig) {
    for (const int length : play.lengths) {
      Sequence sequence;
      for (int i = 0; i < length; ++i) {
        sequence.tokens.push_back(
            static_cast<TokenId>(MixBits(static_cast<uint64_t>(length * 1000 + i)) % model->hyper.vocab));
      }
      sequence.prompt = length;
      sequence.sampling = {.temperature = 0.8f,
                           .top_k = 40,
                           .top_p = 0.95f,
                           .repeat_penalty = 1.1f,
                           .presence_penalty = 0.2f,
                           .frequency_penalty = 0.1f,
                           .seed = static_cast<uint64_t>(length),
                           .logprobs = 3};
      sequences_.push_back(std::move(sequence));
    }
  }

  std::vector<Trace> Run() {
    std::vector<std::vector<Sequence*>> groups;
    for (Sequence& sequence : sequences_) {
      if (!play_.together || groups.empty()) groups.emplace_back();
      groups.back().push_back(&sequence);
    }
    for (const std::vector<Sequence*>& group : groups) {
      for (Sequence* sequence : group) OpenAgain(sequence);
      while (RunOneStep(group)) {
      }
      for (Sequence* sequence : group) rig_.Close(sequence->id);
    }
    std::vector<Trace> traces;
    for (Sequence& sequence : sequences_) traces.push_back(sequence.trace);
    return traces;
  }

 private:
  static constexpr size_t kOutput = 12;

  struct Sequence {
    SequenceId id = 0;
    std::vector<TokenId> tokens;  // prompt and output
    int prompt = 0;
    SamplingParams sampling;
    size_t fed = 0;
    bool preempted = false;
    Trace trace;
  };

  void OpenAgain(Sequence* sequence) {
    const auto border = sequence->tokens.begin() + sequence->prompt;
    sequence->id = rig_.Open({sequence->tokens.begin(), border}, sequence->sampling, {border, sequence->tokens.end()});
    sequence->fed = 0;
    sequence->trace.hidden.clear();
  }

  bool RunOneStep(const std::vector<Sequence*>& group) {
    std::vector<std::pair<Sequence*, size_t>> fed;
    size_t budget = PipelineRig::kMaxRows;
    for (Sequence* sequence : group) {
      if (sequence->trace.sampled.size() == kOutput) continue;
      if (play_.preempt && !sequence->preempted && sequence->trace.sampled.size() == kOutput / 2) {
        sequence->preempted = true;
        rig_.Close(sequence->id);
        OpenAgain(sequence);
      }
      const size_t count =
          std::min({sequence->tokens.size() - sequence->fed, static_cast<size_t>(play_.chunk), budget});
      if (count == 0) continue;
      const auto begin = sequence->tokens.begin() + static_cast<int64_t>(sequence->fed);
      sequence->fed += count;
      budget -= count;
      rig_.Feed(sequence->id, {begin, begin + static_cast<int64_t>(count)}, sequence->fed == sequence->tokens.size());
      fed.emplace_back(sequence, count);
    }
    if (fed.empty()) return false;
    const StepResult result = rig_.Step();
    auto row = rig_.hidden().begin();
    for (auto& [sequence, count] : fed) {
      sequence->trace.hidden.insert(sequence->trace.hidden.end(), row, row + static_cast<int64_t>(count) * hidden_);
      row += static_cast<int64_t>(count) * hidden_;
      for (SampledToken sampled : result.sampled) {
        if (sampled.sequence != sequence->id) continue;
        sampled.sequence = 0;  // ids differ between plays
        sequence->tokens.push_back(sampled.token);
        sequence->trace.sampled.push_back(sampled);
      }
    }
    return true;
  }

  const Play play_;
  const int64_t hidden_;
  PipelineRig rig_;
  std::vector<Sequence> sequences_;
};

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
    expected_ = Player(model_, Base()).Run();
  }

  static Play Base() { return {.rig = {.kv_type = GetParam().second}}; }
  void ExpectSameAsBase(const Play& play, const std::string& what) {
    ExpectSame(expected_, Player(model_, play).Run(), what);
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

TEST_P(EqualityTest, OverBatchMixesAndPreemption) {
  Play play = Base();
  play.together = true;
  ExpectSameAsBase(play, "together");
  play.preempt = true;
  ExpectSameAsBase(play, "together, preempted");
  play.rig = {.stages = 2, .threads = 2, .block_tokens = 16, .kv_type = GetParam().second};
  play.chunk = 7;
  ExpectSameAsBase(play, "everything at once");
}

TEST_P(EqualityTest, OfTheScalarTwinAndTheBestInstructionSet) {
  Play play = Base();
  // What the twin does beyond one granule the sanitizers see in the attention kernels' own tests.
  if (kSanitized) play.lengths = {70, 1, 37};
  play.rig.isa = TwinIsa();
  expected_ = Player(model_, play).Run();
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
  const std::vector<Trace> expected = Player(model, {.chunk = 64, .lengths = lengths}).Run();
  constexpr int kChunks[] = {10, 90, 96};
  for (int i = 0; i < 9; ++i) {
    const int chunk = kChunks[i % 3], threads = 1 + i / 3;
    if (kSanitized && i % 3 != i / 3) continue;  // the sanitizers see each chunk and each number of threads once
    ExpectSame(expected, Player(model, {.rig = {.threads = threads}, .chunk = chunk, .lengths = lengths}).Run(),
               "chunks of " + std::to_string(chunk) + ", " + std::to_string(threads) + " threads");
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
