// What a stage says of the hidden states behind each of its layers.

#include <numeric>
#include <vector>

#include "common/base/crc32c.h"
#include "gmock/gmock.h"
#include "stage_worker/model/stage_model.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach::testing {
namespace {

constexpr int64_t kChecksummedLayers = 4;

StageConfig ChecksummedConfig(int64_t first, int64_t last, int threads) {
  return {.first_layer = first,
          .last_layer = last,
          .owns_embedding = first == 0,
          .owns_head = last == kChecksummedLayers,
          .group_blocks = {8},
          .threads = threads,
          .context = 64,
          .max_rows = 16,
          .max_slices = 2,
          .layer_checksums = true};
}

MicroBatch RowsOfOneSequence(int32_t rows) {
  MicroBatch batch;
  std::vector<TokenId> tokens(static_cast<size_t>(rows));
  std::iota(tokens.begin(), tokens.end(), 3);
  batch.open.push_back({.sequence = 1, .prompt = tokens});
  batch.slices.push_back({.sequence = 1, .count = rows, .tokens = tokens, .new_blocks = {{2}}});
  return batch;
}

TEST(LayerChecksums, AreThoseOfEveryRowBehindEveryLayerHoweverLayersAndThreadsAreCut) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  const auto width = static_cast<size_t>(model->hyper.hidden);
  const MicroBatch batch = RowsOfOneSequence(5);
  // A stage a layer: what each hands on is what is behind its layer.
  std::vector<float> hidden(5 * width);
  std::vector<uint32_t> expected;
  for (int64_t layer = 0; layer < kChecksummedLayers; ++layer) {
    StageCounters counters;
    const auto stage = StageModel::Load(model, ChecksummedConfig(layer, layer + 1, 1), &counters).value();
    ASSERT_TRUE(stage->Begin(batch).ok());
    stage->Forward(batch, hidden.data());
    for (size_t row = 0; row < 5; ++row) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(hidden.data() + row * width);
      expected.push_back(Crc32c({bytes, width * sizeof(float)}));
    }
    const auto own = stage->layer_checksums();
    EXPECT_EQ(std::vector<uint32_t>(own.begin(), own.end()), std::vector<uint32_t>(expected.end() - 5, expected.end()));
  }
  for (const int threads : {1, 3}) {
    StageCounters counters;
    const auto whole = StageModel::Load(model, ChecksummedConfig(0, kChecksummedLayers, threads), &counters).value();
    ASSERT_TRUE(whole->Begin(batch).ok());
    std::vector<float> states(5 * width);
    whole->Forward(batch, states.data());
    EXPECT_THAT(whole->layer_checksums(), ::testing::ElementsAreArray(expected));
    EXPECT_EQ(states, hidden);
  }
}

TEST(LayerChecksums, AreNotThereWhereNobodyAsksForThem) {
  const TempDir dir;
  const auto model = OpenModel(WriteTinyModel(dir.File("tiny.gguf"), {})).value();
  StageConfig config = ChecksummedConfig(0, kChecksummedLayers, 1);
  config.layer_checksums = false;
  StageCounters counters;
  const auto stage = StageModel::Load(model, config, &counters).value();
  const MicroBatch batch = RowsOfOneSequence(5);
  ASSERT_TRUE(stage->Begin(batch).ok());
  std::vector<float> hidden(5 * static_cast<size_t>(model->hyper.hidden));
  stage->Forward(batch, hidden.data());
  EXPECT_TRUE(stage->layer_checksums().empty());
}

}  // namespace
}  // namespace stagecoach::testing
