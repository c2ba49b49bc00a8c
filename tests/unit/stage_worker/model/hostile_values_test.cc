// Files that open and whose types, widths or values are unusual: the whole model computes them, or says why not.

#include <algorithm>
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach::testing {
namespace {

struct ManyAndOne {
  std::vector<std::vector<float>> logits;
  bool invalid = false;  // of what was sampled last
};

// Many rows, then one.
ManyAndOne RunManyAndOne(const std::string& path, int threads, const std::string& isa) {
  PipelineRig rig(OpenModel(path).value(), {.threads = threads, .isa = isa, .allow_damaged = true});
  std::vector<TokenId> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(static_cast<TokenId>((i * 37 + 5) % 300));
  const SequenceId sequence = rig.Open(tokens);
  ManyAndOne run;
  StepResult result = rig.Prefill(sequence, tokens, 40);
  for (int64_t row = 0; row < 40; ++row) run.logits.push_back(rig.Logits(row));
  rig.Feed(sequence, {7}, true);
  result = rig.Step();
  run.logits.push_back(rig.Logits(0));
  EXPECT_EQ(result.sampled.size(), 1u);
  run.invalid = !result.sampled.empty() && result.sampled[0].invalid_logits;
  return run;
}

bool AllFinite(const ManyAndOne& run) {
  for (const auto& row : run.logits) {
    for (const float logit : row) {
      if (!std::isfinite(logit)) return false;
    }
  }
  return !run.logits.empty();
}

// Each matrix in the type that its width allows: the others fall back to F16.
TEST(HostileValues, EachMatrixMayHaveAnotherTypeAndNoWidthNeedsToBeOneOfBlocks) {
  const TempDir dir;
  for (const std::string& name : TinyExpertArchitectureNames()) {
    for (const TensorType type : {TensorType::kQ8_0, TensorType::kMXFP4}) {
      TinyArchitectureOptions options = TinyArchitecture(name, TensorType::kQ8_0, type);
      options.expert_ffn = 38;
      options.ffn = 74;
      if (options.kv_rank > 0) {
        options.q_rank = 26;
        options.kv_rank = 34;
        options.plain_dim = 14;
        options.rotated = 10;
        options.value_dim = 18;
      }
      SCOPED_TRACE(name);
      const std::string path = WriteTinyArchitecture(dir.File("m.gguf"), options);
      const ManyAndOne one = RunManyAndOne(path, 1, "auto"), two = RunManyAndOne(path, 2, "auto");
      EXPECT_TRUE(AllFinite(one));
      EXPECT_EQ(one.logits, two.logits);
    }
  }
}

TEST(HostileValues, ARowOfAnOddNumberOfShortFloatsIsRefusedByName) {
  const TempDir dir;
  TinyArchitectureOptions options = TinyArchitecture("qwen3moe", TensorType::kF16);
  options.expert_ffn = 37;
  const auto model = OpenModel(WriteTinyArchitecture(dir.File("m.gguf"), options)).value();
  const StageConfig config = {.last_layer = 3,
                              .owns_embedding = true,
                              .owns_head = true,
                              .group_blocks = {4},
                              .context = 64,
                              .max_rows = 4,
                              .max_slices = 4};
  StageCounters counters;
  EXPECT_THAT(std::string(StageModel::Load(model, config, &counters).status().message()),
              ::testing::HasSubstr("tensor 'blk.0.ffn_down_exps.weight' of type F16 has rows of 37 elements"));
}

TEST(HostileValues, OneExpertIsAsGoodAsMany) {
  const TempDir dir;
  for (const std::string& name : TinyExpertArchitectureNames()) {
    TinyArchitectureOptions options = TinyArchitecture(name);
    options.experts = options.experts_used = 1;
    options.groups = options.groups_used = 0;
    EXPECT_TRUE(AllFinite(RunManyAndOne(WriteTinyArchitecture(dir.File("m.gguf"), options), 2, "auto"))) << name;
  }
}

TEST(HostileValues, NumbersThatAreNoneInARouterOrItsBiasesAreInvalidLogitsAtWorst) {
  const TempDir dir;
  for (const std::string& name : TinyExpertArchitectureNames()) {
    const TinyArchitectureOptions options = TinyArchitecture(name);
    const GgufWriter good = TinyArchitectureModel(options);
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()}) {
      for (const bool all : {false, true}) {
        // One expert's row, or the whole router.
        std::vector<float> router(static_cast<size_t>(options.hidden * options.experts), 0.25f);
        std::fill(router.begin(), all ? router.end() : router.begin() + options.hidden, value);
        GgufWriter writer = good;
        writer.SetTensor("blk.2.ffn_gate_inp.weight", {options.hidden, options.experts}, TensorType::kF32, router);
        if (options.selection_bias && all) {
          writer.SetTensor("blk.2.exp_probs_b.bias", {options.experts}, TensorType::kF32,
                           std::vector<float>(static_cast<size_t>(options.experts), value));
        }
        ASSERT_TRUE(writer.Write(dir.File("m.gguf")).ok());
        for (const char* isa : {"auto", "scalar"}) {
          if (kSanitized && (isa[0] == 'a') != all) continue;  // it looks at each once
          const ManyAndOne run = RunManyAndOne(dir.File("m.gguf"), 2, isa);
          EXPECT_EQ(run.logits.size(), 41u);
          if (all && std::isnan(value)) {
            EXPECT_TRUE(run.invalid) << name;  // every weight is one
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
