// A model with recurrent states gives the same bits wherever a sequence begins: at zeros, behind a snapshot that
// another one left at a block boundary, beside a second one that reads the same slot, and again after a preemption;
// also where slots and blocks are so few that snapshots come and go.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterAnswer;
using testing::ClusterRequest;

constexpr int kSnapshotBlock = 16, kAtOnce = 3;

// Turns of a conversation, each of which begins with what the one before was given; another one that parts from it in
// the middle of a block, far from any snapshot; and three of one prompt, drawn with different seeds.
std::vector<ClusterRequest> SnapshotTurns(int64_t vocab) {
  std::vector<ClusterRequest> requests;
  const auto ask = [&](int length, int parts_at, int salt) -> ClusterRequest& {
    ClusterRequest& request = requests.emplace_back(testing::RequestOf(length, 0, 5, vocab));
    for (int t = parts_at; t < length; ++t) request.prompt[static_cast<size_t>(t)] = (t * 31 + salt) % 300;
    return request;
  };
  ask(40, 40, 0);
  for (const int length : {75, 140}) ask(length, length, 0).after_others = true;
  ask(130, 104, 3).after_others = true;
  for (int sibling = 0; sibling < 3; ++sibling) {
    ClusterRequest& request = ask(100, 20, 5);
    request.after_others = sibling == 0;
    request.sampling.set_temperature(0.9f);
    request.sampling.set_seed(static_cast<uint64_t>(sibling));
  }
  return requests;
}

class StateSnapshots : public ::testing::TestWithParam<std::string> {
 protected:
  StateSnapshots()
      : options_(testing::TinyArchitecture(GetParam())),
        path_(testing::WriteTinyArchitecture(directory_.File("tiny.gguf"), options_)),
        requests_(SnapshotTurns(options_.vocab)) {
    pb::ConfigureJob job = Job();
    job.set_prefix_caching(false);
    testing::RunEachAlone(job, requests_, &expected_);
  }

  pb::ConfigureJob Job() const {
    pb::ConfigureJob job = testing::DefaultJob(path_);
    job.set_prefix_caching(true);
    job.set_block_tokens(kSnapshotBlock);
    job.set_context(160);
    job.set_max_num_seqs(kAtOnce);
    return job;
  }

  const testing::TempDir directory_;
  const testing::TinyArchitectureOptions options_;
  const std::string path_;
  const std::vector<ClusterRequest> requests_;
  std::vector<ClusterAnswer> expected_;
};

TEST_P(StateSnapshots, GiveTheBitsOfComputing) {
  for (const int stages : {1, 3}) {
    for (const int chunk : {7, 512}) {
      for (const int preempt_at : {0, 2}) {
        if (testing::kSlow && (stages == 1) != (chunk == 7)) continue;
        SCOPED_TRACE(absl::StrCat(stages, " stages, chunk ", chunk, preempt_at > 0 ? ", preempted" : ""));
        pb::ConfigureJob job = Job();
        job.set_prefill_chunk(chunk);
        job.set_threads(stages == 1 ? 2 : 1);
        const auto run = testing::RunCluster(stages, job, requests_, nullptr, preempt_at);
        testing::ExpectSameBits(run, expected_);
        if (HasFailure()) return;
        const auto cached = [&run](size_t i) { return run->answers[i].finished.cost().cached_tokens(); };
        EXPECT_EQ(cached(0), 0);
        EXPECT_EQ(cached(1), 32) << "the last block before the last row of the first turn";
        EXPECT_EQ(cached(2), 64);
        EXPECT_GT(run->statistics.prefix_stateless_tokens(), 0u) << "of the one that parts at 104";
        EXPECT_LT(cached(3), 96);
        for (const size_t sibling : {5, 6}) EXPECT_EQ(cached(sibling), 96) << "they read one slot";
      }
    }
  }
}

// As many blocks as the longest sequence and a few more, and as few snapshots as there can be.
TEST_P(StateSnapshots, OfASmallPoolGiveTheSameBits) {
  const auto model = OpenModel(path_).value();
  const int64_t state_bytes = StateBytes(model->hyper, 0, model->hyper.layer_count());
  int64_t token_bytes = 0;
  for (const LayerSpec& layer : model->hyper.layers) {
    token_bytes += layer.recurrent() ? 0 : KvBytesPerTokenLayer(layer.attention, KvType::kF16).value();
  }
  std::vector<ClusterRequest> all;
  std::vector<ClusterAnswer> expected;
  for (int again = 0; again < 3; ++again) {
    all.insert(all.end(), requests_.begin(), requests_.end());
    expected.insert(expected.end(), expected_.begin(), expected_.end());
  }
  for (const bool together : {false, true}) {
    for (ClusterRequest& request : all) request.after_others = request.after_others && !together;
    pb::ConfigureJob job = Job();
    job.set_prefill_chunk(40);
    job.set_kv_cache_bytes(static_cast<uint64_t>((kAtOnce + 4) * state_bytes + 12 * kSnapshotBlock * token_bytes));
    const auto run = testing::RunCluster(1, job, all);
    testing::ExpectSameBits(run, expected);
    if (HasFailure()) return;
    EXPECT_EQ(run->ready.blocks(), 12);
    EXPECT_GT(run->statistics.prefix_hit_tokens(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, StateSnapshots, ::testing::ValuesIn(testing::TinyRecurrentArchitectureNames()),
                         testing::ArchitectureTestName);

}  // namespace
}  // namespace stagecoach
