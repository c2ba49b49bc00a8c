// What a stage books of a step: times of every thread that add up, and bytes of the matrices that were multiplied.

#include <chrono>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/stage_model.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

size_t At(StepPart part) { return static_cast<size_t>(part); }

size_t BytesOf(const std::vector<PackedMatrix>& matrices, size_t count) {
  return matrices.empty() ? 0 : count * matrices[0].bytes();
}

// What one row reads, of the parts that multiply matrices.
std::vector<int64_t> MatrixBytes(const ModelDescription& model, const StageWeights& weights) {
  std::vector<size_t> bytes(At(StepPart::kHead) + 1);
  const auto add = [&](StepPart part, size_t more) { bytes[At(part)] += more; };
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& w = weights.layers[i];
    const LayerSpec& spec = model.hyper.layers[i];
    const LatentWeights& latent = w.latent;
    const DeltaNetWeights& delta = w.delta_net;
    const bool is_latent = !spec.recurrent() && spec.attention.latent();
    add(is_latent ? StepPart::kLatent : StepPart::kQkv, w.q.bytes() + w.k.bytes() + w.v.bytes() + w.attn_gate.bytes());
    add(StepPart::kLatent, latent.q_a.bytes() + latent.q_b.bytes() + latent.kv_a.bytes() +
                               BytesOf(latent.k_b, latent.k_b.size()) + BytesOf(latent.v_b, latent.v_b.size()));
    add(StepPart::kDeltaNetIn, delta.qkv.bytes() + delta.z.bytes() + delta.beta.bytes() + delta.alpha.bytes());
    add(spec.recurrent() ? StepPart::kDeltaNetOutput : StepPart::kAttentionOutput, w.attn_output.bytes());
    const bool experts = spec.ffn.kind == FfnKind::kExperts;
    const auto used = static_cast<size_t>(spec.ffn.experts_used);
    add(StepPart::kRouter, w.experts.router.bytes());
    add(experts ? StepPart::kExpertsGateUp : StepPart::kGateUp, w.gate.bytes() + w.up.bytes());
    add(experts ? StepPart::kExpertsDown : StepPart::kDown, w.down.bytes());
    add(StepPart::kExpertsGateUp, BytesOf(w.experts.gate, used) + BytesOf(w.experts.up, used));
    add(StepPart::kExpertsDown, BytesOf(w.experts.down, used));
  }
  add(StepPart::kHead, weights.output.bytes());
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> AllTinyArchitectures() {
  std::vector<std::string> names = TinyArchitectureNames();
  names.insert(names.end(), TinyRecurrentArchitectureNames().begin(), TinyRecurrentArchitectureNames().end());
  return names;
}

class StepAccountOf : public ::testing::TestWithParam<std::string> {};

TEST_P(StepAccountOf, HasTheBytesOfTheMatricesThatARowMultipliesWhateverTheThreads) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyArchitecture(dir.File("m.gguf"), TinyArchitecture(GetParam()))).value();
  Gang gang(1, {});
  std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
  const StageWeightsRequest request = {.first_layer = 0,
                                       .last_layer = model->hyper.layer_count(),
                                       .owns_embedding = true,
                                       .owns_head = true,
                                       .gang = &gang};
  const StageWeights weights =
      LoadStageWeights(*model, request, **SelectKernels("auto"), &to_load, &touched, &loaded).value();
  const std::vector<int64_t> expected = MatrixBytes(*model, weights);
  for (const int threads : {1, 3}) {
    PipelineRig rig(model, {.threads = threads});
    const SequenceId sequence = rig.Open({1, 2, 3, 4});
    rig.Feed(sequence, {1, 2, 3}, false);
    rig.Step();
    rig.stage(0).TakeAccount();
    rig.Feed(sequence, {4}, true);
    rig.Step();
    const StepAccount account = rig.stage(0).TakeAccount();
    ASSERT_EQ(account.size(), kStepParts);
    for (size_t part = 0; part < expected.size(); ++part) {
      EXPECT_EQ(account[part].bytes, expected[part]) << NameOf(kStepPartNames, static_cast<StepPart>(part));
      EXPECT_EQ(account[part].busy_ns > 0, expected[part] > 0) << NameOf(kStepPartNames, static_cast<StepPart>(part));
    }
    // The four positions are in one tile of every KV head and layer; a delta rule reads and writes its matrices.
    const HyperParameters& hyper = model->hyper;
    int64_t kv = 0, states = 0;
    for (const LayerSpec& layer : hyper.layers) {
      if (layer.recurrent()) {
        states += 2 * 4 * layer.delta_net.value_heads * layer.delta_net.head_dim * layer.delta_net.head_dim;
      } else if (layer.attention.latent()) {
        kv += static_cast<int64_t>(KvTileBytes(KvType::kF16, layer.attention.key_dim()));
      } else {
        kv += 2 * layer.attention.kv_heads * static_cast<int64_t>(KvTileBytes(KvType::kF16, layer.attention.head_dim));
      }
    }
    EXPECT_EQ(account[At(StepPart::kAttention)].bytes, kv);
    EXPECT_EQ(account[At(StepPart::kDeltaRule)].bytes, states);
    for (size_t part = At(StepPart::kInput); part < kStepParts; ++part) EXPECT_EQ(account[part].bytes, 0) << part;
    for (const StepPart part : {StepPart::kInput, StepPart::kSampling, StepPart::kOther}) {
      EXPECT_GT(account[At(part)].busy_ns, 0) << NameOf(kStepPartNames, part);
    }
    if (threads == 1) {
      for (const StepPartTotals& part : account) EXPECT_EQ(part.wait_ns, 0) << "there is nobody to wait for";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, StepAccountOf, ::testing::ValuesIn(AllTinyArchitectures()), ArchitectureTestName);

TEST(StepAccount, AddsUpToTheTimeOfItsStep) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyArchitecture(dir.File("m.gguf"), TinyArchitecture("qwen3moe"))).value();
  for (const int threads : {1, 2, 5}) {
    PipelineRig rig(model, {.threads = threads});
    const SequenceId sequence = rig.Open({1, 2, 3, 4});
    rig.Feed(sequence, {1, 2, 3, 4}, true);
    rig.stage(0).TakeAccount();
    const auto begin = std::chrono::steady_clock::now();
    rig.Step();
    const auto wall = std::chrono::steady_clock::now() - begin;
    const StepAccount account = rig.stage(0).TakeAccount();
    // The rest of Step is outside of the gang.
    EXPECT_LE(GangNs(account), wall.count() + 100);
    EXPECT_GT(GangNs(account), 0);
    EXPECT_EQ(GangNs(rig.stage(0).TakeAccount()), 0) << "what was taken is gone";
  }
}

}  // namespace
}  // namespace stagecoach::testing
