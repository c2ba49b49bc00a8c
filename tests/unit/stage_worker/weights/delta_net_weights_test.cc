// Layers with a recurrent state from a file to panels and vectors.

#include <atomic>
#include <memory>
#include <vector>

#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/weights/stage_weights.h"
#include "tests/testing/matchers.h"
#include "tests/testing/models/model_parts.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// A model of four layers, whose second one has such decays.
absl::StatusOr<StageWeights> LoadWithDecays(std::vector<float> decays) {
  const testing::TempDir dir;
  const auto options = testing::TinyArchitecture("qwen35");
  decays.resize(static_cast<size_t>(options.delta_value_heads), -1);
  GgufWriter writer = testing::TinyArchitectureModel(options);
  writer.SetTensor("blk.1.ssm_a", {options.delta_value_heads}, TensorType::kF32, decays);
  const auto model = OpenModel(testing::WriteModel(dir.File("m.gguf"), writer)).value();
  Gang gang(2, {});
  const StageWeightsRequest request = {.first_layer = 0, .last_layer = 4, .gang = &gang};
  std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
  return LoadStageWeights(*model, request, *SelectKernels("auto").value(), &to_load, &touched, &loaded);
}

TEST(DeltaNetWeights, HaveDecaysThatLetAStateForget) {
  EXPECT_THAT(LoadWithDecays({-1, -2, 0.5f}).status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("tensor 'blk.1.ssm_a' has 0.5 for value head 2, expected at most 0")));
  const auto loaded = LoadWithDecays({-1, 0, -0.0f});  // 16-bit types round the smallest to 0
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<float> expected = {-1, 0, 0, -1, -1, -1};
  EXPECT_EQ(loaded->layers[1].delta_net.decay, expected);
}

}  // namespace
}  // namespace stagecoach
