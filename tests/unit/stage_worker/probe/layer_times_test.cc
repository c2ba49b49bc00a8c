#include "stage_worker/probe/layer_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "common/base/counter_rng.h"
#include "gtest/gtest.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// The experts that rows choose of a random router are as many as rows that have nothing in common choose on average:
// E (1 - (1 - k / E)^rows).
TEST(ProbeRows, ChooseAsManyExpertsAsStrangersDo) {
  constexpr int64_t kHidden = 256, kExperts = 128, kUsed = 8;
  std::vector<float> router(kExperts * kHidden);
  for (size_t i = 0; i < router.size(); ++i) router[i] = static_cast<float>(UniformAt(7, i) - 0.5);
  for (const int64_t rows : {2, 8, 32}) {
    const std::vector<float> values = ProbeRows(rows, kHidden);
    std::set<int64_t> chosen;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<float> logits(kExperts);
      for (int64_t e = 0; e < kExperts; ++e) {
        logits[static_cast<size_t>(e)] = std::inner_product(
            values.begin() + row * kHidden, values.begin() + (row + 1) * kHidden, router.begin() + e * kHidden, 0.0f);
      }
      std::vector<int64_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + kUsed, order.end(), [&](int64_t a, int64_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      chosen.insert(order.begin(), order.begin() + kUsed);
    }
    const double expected = kExperts * (1 - std::pow(1 - static_cast<double>(kUsed) / kExperts, rows));
    EXPECT_NEAR(static_cast<double>(chosen.size()), expected, 0.15 * expected) << rows << " rows";
  }
}

TEST(MeasureLayerTimes, TimesLayersOfEitherKindOfAModelWithRecurrentLayers) {
  const testing::TempDir dir;
  const auto model =
      OpenModel(testing::WriteTinyArchitecture(dir.File("m.gguf"), testing::TinyArchitecture("qwen35"))).value();
  for (const int64_t layer : {1, 2}) {
    ASSERT_EQ(model->hyper.layers[static_cast<size_t>(layer)].recurrent(), layer == 1);
    const std::vector<LayerTime> times =
        MeasureLayerTimes({.model = model, .layer = layer, .threads = 2, .stage_bytes = 1 << 20}).value();
    EXPECT_GT(times.size(), 8u);
    for (const LayerTime& time : times) {
      EXPECT_GT(time.layer_us, 0) << layer;
      EXPECT_EQ(time.head_us > 0, time.rows == time.sequences) << layer;
    }
  }
}

}  // namespace
}  // namespace stagecoach
