#include "stage_worker/weights/panel_shares.h"

#include <sys/resource.h>

#include <atomic>
#include <map>
#include <memory>

#include "common/model/model_description.h"
#include "stage_worker/kernels/select.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

// The shares of all threads follow each other and make up the whole, also where threads get nothing.
template <typename Share>
void ExpectWhole(int64_t panels, int threads, const Share& share) {
  int64_t end = 0;
  for (int thread = 0; thread < threads; ++thread) {
    const Gang::Part part = share(thread);
    EXPECT_EQ(part.begin, end) << panels << " panels, thread " << thread << " of " << threads;
    EXPECT_GE(part.end, part.begin) << panels << " panels, thread " << thread << " of " << threads;
    end = part.end;
  }
  EXPECT_EQ(end, panels) << threads << " threads";
}

TEST(PanelShares, MakeUpTheWholeMatrix) {
  for (int64_t panels = 1; panels <= 12; ++panels) {
    const PackedMatrix matrix = {.rows = panels * kPanelRows - 6};
    for (int threads = 1; threads <= 9; ++threads) {
      ExpectWhole(panels, threads, [&](int thread) { return SharePanels(matrix, thread, threads); });
      ExpectWhole(panels, threads, [&](int thread) {
        const Gang::Part part = SharePanelPairs(matrix, thread, threads);
        EXPECT_TRUE(part.begin % 2 == 0 || part.begin == panels) << part.begin;
        return part;
      });
    }
  }
}

std::shared_ptr<const ModelDescription> Write(const testing::TempDir& dir, const testing::TinyModelOptions& options) {
  return OpenModel(testing::WriteTinyModel(dir.File("model.gguf"), options)).value();
}

StageWeights Load(const ModelDescription& model, Gang* gang) {
  const StageWeightsRequest request = {.first_layer = 0,
                                       .last_layer = static_cast<int64_t>(model.hyper.layers.size()),
                                       .owns_embedding = true,
                                       .owns_head = true,
                                       .gang = gang};
  std::atomic<uint64_t> to_load{0}, touched{0}, loaded{0};
  StageWeights weights =
      LoadStageWeights(model, request, *SelectKernels("auto").value(), &to_load, &touched, &loaded).value();
  EXPECT_EQ(touched.load() > 0, gang->threads() > 1) << "one thread has nothing to touch first";
  return weights;
}

// The shares of all threads follow each other without a gap from the begin of each matrix to its end.
void ExpectEveryByteOnce(const ModelDescription& model) {
  Gang gang(1, {});
  const StageWeights weights = Load(model, &gang);
  std::map<const uint8_t*, size_t> matrices = {{weights.embedding.data, weights.embedding.bytes()},
                                               {weights.output.data, weights.output.bytes()}};
  for (const LayerWeights& layer : weights.layers) {
    const DeltaNetWeights& net = layer.delta_net;
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.attn_gate, &net.qkv, &net.z, &net.beta, &net.alpha, &layer.attn_output,
          &layer.gate, &layer.up, &layer.down, &layer.experts.router}) {
      if (matrix->rows > 0) matrices[matrix->data] = matrix->bytes();
    }
    for (const auto* of_experts : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
      for (const PackedMatrix& matrix : *of_experts) matrices[matrix.data] = matrix.bytes();
    }
  }
  for (int threads : {1, 2, 3, 7, 40}) {
    std::map<const uint8_t*, size_t> shares;
    for (int thread = 0; thread < threads; ++thread) {
      for (absl::Span<const uint8_t> share : SharesOfWeights(weights, model.hyper.layers, thread, threads)) {
        EXPECT_TRUE(shares.emplace(share.data(), share.size()).second) << "two shares begin at the same place";
      }
    }
    auto share = shares.begin();
    for (const auto& [begin, bytes] : matrices) {
      const uint8_t* at = begin;
      // The next matrix may begin where this one ends.
      for (; share != shares.end() && share->first == at && at < begin + bytes; ++share) at += share->second;
      EXPECT_EQ(at, begin + bytes) << threads << " threads";
    }
    EXPECT_EQ(share, shares.end());
  }
}

TEST(SharesOfWeights, AreEveryByteOfEveryMatrixOnce) {
  const testing::TempDir dir;
  // Heads of whole panels, and of parts of one; layers that differ.
  for (int64_t head_dim : {32, 24}) {
    ModelDescription model = *Write(dir, {.layers = 2, .head_dim = head_dim, .tied = false});
    model.hyper.layers[1].attention.qk_norm = QkNorm::kWhole;
    ExpectEveryByteOnce(model);
  }
}

TEST(SharesOfWeights, AreEveryByteOfExpertsOnce) {
  const testing::TempDir dir;
  ExpectEveryByteOnce(
      *OpenModel(testing::WriteTinyArchitecture(dir.File("m.gguf"), testing::TinyArchitecture("glm4moe"))).value());
}

TEST(SharesOfWeights, AreEveryByteOfRecurrentLayersOnce) {
  const testing::TempDir dir;
  for (const std::string& name : testing::TinyRecurrentArchitectureNames()) {
    auto options = testing::TinyArchitecture(name);
    options.tied = false;
    ExpectEveryByteOnce(*OpenModel(testing::WriteTinyArchitecture(dir.File("m.gguf"), options)).value());
  }
}

// Page faults of the calling thread so far that needed no disk.
int64_t PageFaults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(TouchShares, EveryThreadFirstTouchesWhatItWillRead) {
  const testing::TempDir dir;
  // Three matrices of 16 MiB, far larger than a huge page.
  const auto model = Write(dir, {.layers = 1, .hidden = 512, .ffn = 8192});
  constexpr int kThreads = 2;
  Gang gang(kThreads, {});
  std::vector<int64_t> faults(kThreads);
  gang.Run([&](int thread) { faults[thread] = PageFaults(); });
  const StageWeights weights = Load(*model, &gang);
  gang.Run([&](int thread) { faults[thread] = PageFaults() - faults[thread]; });
  size_t bytes = 0;
  for (absl::Span<const uint8_t> share : SharesOfWeights(weights, model->hyper.layers, 1, kThreads))
    bytes += share.size();
  ASSERT_GT(bytes, size_t{20} << 20);
  // A fault a page, and the pages have 2 MiB at most; at the ends of a share they may be another thread's. The second
  // thread of the gang does nothing else while weights are loaded, and nobody but a gang thread may touch first.
  EXPECT_GE(faults[1], static_cast<int64_t>(bytes >> 21) - 6) << "of " << bytes << " bytes";
}

}  // namespace
}  // namespace stagecoach
