// A recurrent layer's result depends on the rows before it and nothing else: not on how they were cut into chunks,
// stages and threads, nor on who ran beside them; and a state lives in the slots that slices name.

#include <cstring>

#include "common/base/counter_rng.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

using Hidden = std::vector<std::vector<float>>;  // [sequences] rows behind the last layer, [rows, D]

std::shared_ptr<const ModelDescription> WriteRecurrent(const TempDir& dir, const std::string& architecture,
                                                       TensorType type = TensorType::kF32) {
  return OpenModel(WriteTinyArchitecture(dir.File("m.gguf"), TinyArchitecture(architecture, type))).value();
}

std::vector<TokenId> TokensOf(uint64_t sequence, int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(MixBits(sequence * 1000 + static_cast<uint64_t>(i)) % 300));
  }
  return tokens;
}

// Sequences of these lengths, in chunks; together, in steps that hold as many rows as fit, or one after the other.
Hidden RunSequences(std::shared_ptr<const ModelDescription> model, const RigOptions& options,
                    const std::vector<int32_t>& lengths, int32_t chunk, bool together) {
  const auto width = static_cast<size_t>(model->hyper.hidden);
  PipelineRig rig(std::move(model), options);
  Hidden hidden(lengths.size());
  std::vector<SequenceId> ids;
  for (size_t i = 0; i < lengths.size(); ++i) ids.push_back(rig.Open(TokensOf(i, lengths[i])));
  std::vector<int32_t> done(lengths.size());
  const auto step = [&](size_t first, size_t end) {
    std::vector<std::pair<size_t, size_t>> fed;  // sequence, rows
    int32_t room = PipelineRig::kMaxRows;
    for (size_t i = first; i < end; ++i) {
      const int32_t count = std::min({chunk, lengths[i] - done[i], room});
      if (count == 0) continue;
      const std::vector<TokenId> tokens = TokensOf(i, lengths[i]);
      rig.Feed(ids[i], {tokens.begin() + done[i], tokens.begin() + done[i] + count}, false);
      done[i] += count;
      room -= count;
      fed.emplace_back(i, count);
    }
    if (fed.empty()) return false;
    rig.Step();
    auto row = rig.hidden().begin();
    for (const auto& [sequence, rows] : fed) {
      hidden[sequence].insert(hidden[sequence].end(), row, row + static_cast<int64_t>(rows * width));
      row += static_cast<int64_t>(rows * width);
    }
    return true;
  };
  if (together) {
    while (step(0, lengths.size())) {
    }
  } else {
    for (size_t i = 0; i < lengths.size(); ++i) {
      while (step(i, i + 1)) {
      }
    }
  }
  return hidden;
}

bool SameHiddenBits(const Hidden& a, const Hidden& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

class RecurrentEquality : public ::testing::TestWithParam<std::pair<std::string, TensorType>> {};

TEST_P(RecurrentEquality, OverChunksThreadsStagesAndNeighbours) {
  const TempDir dir;
  const auto model = WriteRecurrent(dir, GetParam().first, GetParam().second);
  // Few steps: barriers of threads that wait for a core take most of the time on a busy machine.
  const std::vector<int32_t> lengths = kSanitized ? std::vector<int32_t>{23, 1, 9} : std::vector<int32_t>{66, 1, 19, 4};
  const Hidden expected = RunSequences(model, {}, lengths, 64, false);
  // Layers 0, 1 and 3 are recurrent: stages with one kind alone, and that begin and end with either.
  const std::vector<std::vector<int64_t>> cuts = {{}, {1}, {2}, {3}, {2, 3}, {1, 2, 3}};
  size_t plays = 0;
  for (const int32_t chunk : {1, 7, 64}) {
    for (const int threads : {1, 2, 3}) {
      const size_t play = plays++;
      if (kSanitized && play % 4 != 0) continue;
      const bool together = play % 2 == 0;
      const RigOptions options = {.cuts = cuts[play % cuts.size()], .threads = threads};
      EXPECT_TRUE(SameHiddenBits(expected, RunSequences(model, options, lengths, chunk, together)))
          << "chunks of " << chunk << ", " << threads << " threads, " << options.cuts.size() + 1 << " stages"
          << (together ? ", together" : "");
    }
  }
}

TEST_P(RecurrentEquality, OfTheScalarTwinAndTheBestInstructionSet) {
  const TempDir dir;
  const auto model = WriteRecurrent(dir, GetParam().first, GetParam().second);
  const std::vector<int32_t> lengths = {40, 3};
  EXPECT_TRUE(SameHiddenBits(RunSequences(model, {.isa = TwinIsa()}, lengths, 64, false),
                             RunSequences(model, {.isa = "scalar"}, lengths, 17, true)));
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentEquality,
                         ::testing::Values(std::pair("qwen35", TensorType::kF32),
                                           std::pair("qwen35moe", TensorType::kQ8_0),
                                           std::pair("qwen3next", TensorType::kBF16)),
                         [](const auto& info) { return info.param.first; });

// --- slots -----------------------------------------------------------------------------------------------------------

// The tokens that a sequence goes on with, greedily.
std::vector<SampledToken> GoOn(PipelineRig* rig, SequenceId sequence, const std::vector<TokenId>& rest) {
  std::vector<SampledToken> sampled;
  std::vector<TokenId> tokens = rest;
  for (int i = 0; i < 6; ++i) {
    rig->Feed(sequence, tokens, true);
    const StepResult result = rig->Step();
    EXPECT_EQ(result.sampled.size(), 1u);
    if (result.sampled.size() != 1) break;
    sampled.push_back(result.sampled[0]);
    sampled.back().sequence = 0;
    tokens = {sampled.back().token};
  }
  return sampled;
}

class StateSlots : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int32_t kShared = 64;  // two blocks
  StateSlots() : model_(WriteRecurrent(dir_, GetParam())) {}

  // Of a sequence that has all to itself.
  std::vector<SampledToken> Alone(const std::vector<TokenId>& tokens) const {
    PipelineRig rig(model_, {});
    return GoOn(&rig, rig.Open(tokens, {.logprobs = 2}), tokens);
  }

  const TempDir dir_;
  const std::shared_ptr<const ModelDescription> model_;
};

// Read one slot, write another: both go on, each as if it had been alone.
TEST_P(StateSlots, ASnapshotIsReadByTwoThatGoOnApart) {
  const std::vector<TokenId> first = TokensOf(1, kShared + 9);
  std::vector<TokenId> second(first.begin(), first.begin() + kShared);
  for (const TokenId token : TokensOf(2, 5)) second.push_back(token);
  PipelineRig rig(model_, {.cuts = {2}, .threads = 2});
  const SequenceId one = rig.Open(first, {.logprobs = 2});
  rig.Feed(one, {first.begin(), first.begin() + kShared}, false);
  rig.Step();
  const SlotId snapshot = rig.KeepState(one);
  // The other one begins before, beside and after the rows that the first goes on with.
  const SequenceId early = rig.OpenBehind(one, kShared, snapshot, second, {.logprobs = 2});
  EXPECT_EQ(GoOn(&rig, early, {second.begin() + kShared, second.end()}), Alone(second));
  const SequenceId beside = rig.OpenBehind(one, kShared, snapshot, second, {.logprobs = 2});
  rig.Feed(beside, {second.begin() + kShared, second.end() - 1}, false);
  rig.Feed(one, {first.begin() + kShared, first.end() - 1}, false);
  rig.Step();
  EXPECT_EQ(GoOn(&rig, one, {first.back()}), Alone(first));
  EXPECT_EQ(GoOn(&rig, beside, {second.back()}), Alone(second));
  const SequenceId late = rig.OpenBehind(one, kShared, snapshot, second, {.logprobs = 2});
  EXPECT_EQ(GoOn(&rig, late, {second.begin() + kShared, second.end()}), Alone(second));
}

// Sequences come and go through the same slots, whatever the last one left there.
TEST_P(StateSlots, AreClearedByReadingZeros) {
  PipelineRig rig(model_, {});
  const std::vector<TokenId> tokens = TokensOf(3, 30);
  for (int i = 0; i < 3; ++i) {
    const SequenceId other = rig.Open(TokensOf(4, 50));
    rig.Prefill(other, TokensOf(4, 50), 20);
    rig.Close(other);
    const SequenceId sequence = rig.Open(tokens, {.logprobs = 2});
    EXPECT_EQ(GoOn(&rig, sequence, tokens), Alone(tokens)) << i;
    rig.Close(sequence);
  }
}

TEST_P(StateSlots, ASequenceThatBeginsAgainHasTheSameResults) {
  PipelineRig rig(model_, {.cuts = {1, 3}});
  const std::vector<TokenId> tokens = TokensOf(5, 40);
  const SequenceId sequence = rig.Open(tokens, {.logprobs = 2});
  for (int64_t row = 0; row < 30; row += 10) {
    rig.Feed(sequence, {tokens.begin() + row, tokens.begin() + row + 10}, false);
    rig.Step();
  }
  rig.Close(sequence);  // preempted
  rig.Reopen(sequence, tokens, {.logprobs = 2});
  EXPECT_EQ(GoOn(&rig, sequence, tokens), Alone(tokens));
}

INSTANTIATE_TEST_SUITE_P(Models, StateSlots, ::testing::ValuesIn(TinyRecurrentArchitectureNames()),
                         ArchitectureTestName);

// A stage of all layers with four slots.
class StateSlotsOfAStage : public ::testing::Test {
 protected:
  static constexpr int32_t kStageSlots = 4;

  static StageConfig ConfigOf(const ModelDescription& model) {
    return {.last_layer = model.hyper.layer_count(),
            .owns_embedding = true,
            .owns_head = true,
            .group_blocks = {8},
            .state_slots = kStageSlots,
            .context = 64,
            .max_rows = 16,
            .max_slices = 4};
  }
  absl::Status LoadWith(const ModelDescription& model, int32_t slots) {
    StageConfig config = ConfigOf(model);
    config.state_slots = slots;
    StageCounters counters;
    return StageModel::Load(std::make_shared<ModelDescription>(model), config, &counters).status();
  }

  const TempDir dir_;
};

TEST_F(StateSlotsOfAStage, AreThereIfAndOnlyIfTheModelHasRecurrentLayers) {
  const auto recurrent = WriteRecurrent(dir_, "qwen35"), plain = WriteRecurrent(dir_, "qwen3");
  EXPECT_TRUE(LoadWith(*recurrent, 1).ok());
  EXPECT_TRUE(LoadWith(*plain, 0).ok());
  EXPECT_THAT(LoadWith(*recurrent, 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr("0 state slots, but the model has recurrent layers")));
  EXPECT_THAT(LoadWith(*plain, 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("2 state slots, but the model has no recurrent layers")));
  EXPECT_THAT(LoadWith(*recurrent, -3), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("`state_slots` is -3")));
}

// Layer 2 has attention alone: nothing is kept there, and names are checked all the same.
TEST_F(StateSlotsOfAStage, CostMemoryWhereThereAreRecurrentLayersAlone) {
  const auto model = WriteRecurrent(dir_, "qwen35");
  ASSERT_FALSE(model->hyper.layers[2].recurrent());
  const uint64_t kv =
      8u * 32 * static_cast<uint64_t>(*KvBytesPerTokenLayer(model->hyper.layers[2].attention, KvType::kF16));
  for (const auto& [first, last] : {std::pair(0, 2), std::pair(0, 4), std::pair(2, 3), std::pair(3, 4)}) {
    StageConfig config = ConfigOf(*model);
    config.first_layer = first;
    config.last_layer = last;
    StageCounters counters;
    const auto stage = StageModel::Load(model, config, &counters).value();
    const bool attends = first <= 2 && 2 < last;
    EXPECT_EQ(stage->kv_bytes(),
              static_cast<uint64_t>(kStageSlots * StateBytes(model->hyper, first, last)) + (attends ? kv : 0));
    MicroBatch batch;
    batch.open.push_back({.sequence = 1, .prompt = {5, 6, 7}});
    batch.slices.push_back({.sequence = 1, .start = 0, .count = 2, .tokens = {5, 6}, .new_blocks = {{0}}});
    batch.slices[0].state_write = kStageSlots;
    EXPECT_THAT(stage->Begin(batch), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("state slot 4")));
    batch.slices[0].state_write = 3;
    EXPECT_TRUE(stage->Begin(batch).ok());
    batch = {.number = 1, .slices = {{.sequence = 1, .start = 2, .count = 1, .tokens = {7}}}};
    batch.slices[0].state_write = 3;
    EXPECT_THAT(stage->Begin(batch), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reads no state slot")));
    batch.slices[0].state_read = 2;
    EXPECT_THAT(stage->Begin(batch), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("was never written")));
    batch.slices[0].state_read = 3;
    EXPECT_TRUE(stage->Begin(batch).ok()) << "what was refused has changed nothing";
  }
}

TEST_F(StateSlotsOfAStage, NumbersThatAreNoneStayInTheirSequence) {
  GgufWriter writer = TinyArchitectureModel(TinyArchitecture("qwen35"));
  const auto model = OpenModel(WriteTinyArchitecture(dir_.File("m.gguf"), TinyArchitecture("qwen35"))).value();
  // A token whose embedding is no number.
  std::vector<float> embedding(static_cast<size_t>(model->hyper.vocab * model->hyper.hidden), 0.5f);
  for (size_t i = 0; i < embedding.size(); ++i) embedding[i] = static_cast<float>(MixBits(i) % 1000) / 500 - 1;
  std::fill_n(embedding.begin() + 7 * model->hyper.hidden, model->hyper.hidden, NAN);
  writer.SetTensor("token_embd.weight", {model->hyper.hidden, model->hyper.vocab}, TensorType::kF32, embedding);
  ASSERT_TRUE(writer.Write(dir_.File("bad.gguf")).ok());
  PipelineRig rig(OpenModel(dir_.File("bad.gguf")).value(), {.threads = 2, .allow_damaged = true});
  const SequenceId bad = rig.Open({1, 7, 2}), good = rig.Open({1, 3, 2});
  rig.Feed(bad, {1, 7, 2}, true);
  rig.Feed(good, {1, 3, 2}, true);
  StepResult result = rig.Step();
  ASSERT_EQ(result.sampled.size(), 2u);
  EXPECT_TRUE(result.sampled[0].invalid_logits);
  EXPECT_FALSE(result.sampled[1].invalid_logits);
  rig.Close(bad);
  const SequenceId after = rig.Open({1, 3, 2});  // in the slot of the bad one
  rig.Feed(after, {1, 3, 2}, true);
  const StepResult again = rig.Step();
  EXPECT_EQ(again.sampled.at(0).token, result.sampled[1].token);
  EXPECT_FALSE(again.sampled[0].invalid_logits);
}

}  // namespace
}  // namespace stagecoach::testing
