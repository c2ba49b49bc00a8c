// A hit of the prefix cache gives the bits that computing gives: whatever chunks wrote the shared blocks, on whatever
// stages, and whatever was given up or preempted in between.

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "common/step/step.h"
#include "tests/testing/cluster/loopback_cluster.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

using testing::ClusterRequest;

constexpr int kTinyVocab = 320;

// Several turns of one conversation, each of which begins with all of the one before; the same request again, drawn
// with another seed; siblings of one prompt; and one that scores its prompt.
std::vector<ClusterRequest> Conversation() {
  std::vector<ClusterRequest> requests;
  const auto ask = [&requests](int length, int salt) -> ClusterRequest& {
    ClusterRequest& request = requests.emplace_back();
    for (int t = 0; t < length; ++t)
      request.prompt.push_back((t * 7919 + (t < 140 ? 0 : salt) + 17) % (kTinyVocab - 1));
    request.sampling = testing::GreedyParams();
    request.max_new_tokens = 5;
    return request;
  };
  ask(64, 0);
  for (const int length : {65, 97, 150, 270}) ask(length, 0).after_others = true;
  ask(200, 3).after_others = true;
  for (int sibling = 0; sibling < 3; ++sibling) {
    ClusterRequest& request = ask(230, 5);
    request.after_others = sibling == 0;
    request.sampling.set_temperature(0.9f);
    request.sampling.set_repeat_penalty(1.1f);
    request.sampling.set_seed(static_cast<uint64_t>(sibling));
  }
  ask(150, 0).score_from = 100;
  ClusterRequest& whole = ask(150, 0);
  whole.score_from = 1;
  whole.sampling.set_prompt_logprobs(kMaxPromptLogprobs);
  return requests;
}

std::string Bits(const testing::ClusterAnswer& answer) {
  std::string bits = answer.Bits();
  std::vector<float> scores;
  std::vector<int32_t> tops;
  for (const pb::TargetLogprobs& some : answer.scores) {
    scores.insert(scores.end(), some.logprobs().begin(), some.logprobs().end());
    tops.insert(tops.end(), some.top_tokens().begin(), some.top_tokens().end());
  }
  for (const pb::TargetLogprobs& some : answer.scores) {
    scores.insert(scores.end(), some.top_logprobs().begin(), some.top_logprobs().end());
  }
  for (const float score : scores) absl::StrAppend(&bits, absl::Hex(absl::bit_cast<uint32_t>(score)), " ");
  for (const int32_t token : tops) absl::StrAppend(&bits, token, " ");
  return bits;
}

class PrefixCache : public ::testing::TestWithParam<pb::KvType> {
 protected:
  PrefixCache() : path_(testing::WriteTinyModel(directory_.File("tiny.gguf"), {.type = TensorType::kQ8_0})) {}

  pb::ConfigureJob Job(bool cache) const {
    pb::ConfigureJob job = testing::DefaultJob(path_);
    job.set_kv_type(GetParam());
    job.set_prefix_caching(cache);
    job.set_max_prompt_logprobs(kMaxPromptLogprobs);
    return job;
  }

  // Of each request alone, without the cache.
  std::vector<std::string> Expected() const {
    std::vector<std::string> expected;
    for (const ClusterRequest& request : Conversation()) {
      expected.push_back(Bits(testing::RunCluster(1, Job(false), {request}).value().answers[0]));
    }
    EXPECT_EQ(absl::c_count(expected.back(), ' '), 149 * (1 + 2 * kMaxPromptLogprobs));
    return expected;
  }

  const testing::TempDir directory_;
  const std::string path_;
};

TEST_P(PrefixCache, HitsGiveTheBitsOfComputing) {
  const std::vector<std::string> expected = Expected();
  const std::vector<ClusterRequest> requests = Conversation();
  const bool all_chunks = GetParam() == pb::KV_TYPE_F16 && !testing::kSanitized;  // the cache is the same for all types
  const std::vector<int> chunks = all_chunks ? std::vector<int>{7, 33, 512} : std::vector<int>{33};
  for (const int stages : {1, 3}) {
    for (const int chunk : chunks) {
      for (const int block : {16, 32}) {
        for (const int preempt_at : {0, 2}) {
          pb::ConfigureJob job = Job(true);
          job.set_prefill_chunk(chunk);
          job.set_block_tokens(block);
          job.set_threads(stages == 1 ? 2 : 1);
          const std::string name =
              absl::StrCat(stages, " stages, chunk ", chunk, ", block ", block, preempt_at > 0 ? ", preempted" : "");
          const auto run = testing::RunCluster(stages, job, requests, nullptr, preempt_at);
          ASSERT_TRUE(run.ok()) << name << ": " << run.status();
          for (size_t i = 0; i < requests.size(); ++i) {
            ASSERT_EQ(Bits(run->answers[i]), expected[i]) << name << ", request " << i;
          }
          const auto cached = [&run](size_t i) { return run->answers[i].finished.cost().cached_tokens(); };
          EXPECT_EQ(cached(0), 0) << name;
          EXPECT_EQ(cached(1), 64) << name << ": blocks that end with the prompt";
          EXPECT_EQ(cached(4), block == 16 ? 144 : 128) << name;
          EXPECT_EQ(cached(5), 128) << name << ": up to the last block before token 140";
          EXPECT_EQ(cached(6), 128) << name;
          for (const size_t sibling : {7, 8}) EXPECT_EQ(cached(sibling), 224) << name << ": all full blocks";
          EXPECT_LE(cached(9), 99) << name << ": rows from 99 on are scored";
          EXPECT_EQ(cached(10), 0) << name << ": all rows are scored";
          EXPECT_GE(run->statistics.prefix_hit_tokens(), 64u + 64 + 128 + 128 + 128 + 2 * 224) << name;
        }
      }
    }
  }
}

// A pool that holds little more than the longest request: what is kept has to be given up again and again. All at once
// they are of three tenants and classes, whose order is another, and whose blocks are shared all the same.
TEST_P(PrefixCache, ASmallPoolGivesTheSameBits) {
  const std::vector<std::string> expected = Expected();
  const std::vector<ClusterRequest> requests = Conversation();
  for (const bool together : {false, true}) {
    std::vector<ClusterRequest> all = requests;
    for (ClusterRequest& request : all) request.after_others = request.after_others && !together;
    for (int again = 0; again < 4; ++again) all.push_back(ClusterRequest(all[again]));
    for (size_t i = 0; together && i < all.size(); ++i) {
      all[i].tenant = absl::StrCat("tenant ", i % 3);
      all[i].weight = 1 + static_cast<double>(i % 3);
      all[i].priority_class = static_cast<int32_t>(i / 2 % 3);
    }
    for (const int stages : {1, 2}) {
      pb::ConfigureJob job = Job(true);
      job.set_context(288);
      job.set_block_tokens(16);
      job.set_prefill_chunk(40);
      job.set_max_num_seqs(4);
      const auto roomy = testing::RunCluster(stages, job, {requests[0]}).value();
      uint64_t block_bytes = 0;
      for (const pb::StageSummary& stage : roomy.ready.stages()) {
        block_bytes = std::max(block_bytes, stage.kv_bytes() / static_cast<uint64_t>(roomy.ready.blocks()));
      }
      job.set_kv_cache_bytes(20 * block_bytes);
      const auto run = testing::RunCluster(stages, job, all).value();
      EXPECT_LE(run.ready.blocks(), 21);
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(Bits(run.answers[i]), expected[i % requests.size()])
            << stages << " stages, request " << i << (together ? ", all at once" : ", in turns");
      }
    }
  }
}

TEST_P(PrefixCache, OffOrUnderAnotherSaltNothingIsShared) {
  std::vector<ClusterRequest> requests = Conversation();
  auto run = testing::RunCluster(1, Job(false), requests);
  ASSERT_TRUE(run.ok()) << run.status();
  for (const testing::ClusterAnswer& answer : run->answers) EXPECT_EQ(answer.finished.cost().cached_tokens(), 0);
  EXPECT_EQ(run->statistics.prefix_query_tokens(), 0u);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].cache_salt = absl::StrCat("tenant ", i);
  run = testing::RunCluster(1, Job(true), requests);
  ASSERT_TRUE(run.ok()) << run.status();
  for (const testing::ClusterAnswer& answer : run->answers) EXPECT_EQ(answer.finished.cost().cached_tokens(), 0);
  EXPECT_GT(run->statistics.prefix_query_tokens(), 1000u);
}

// Bits of every type are compared where they are computed as fast as they can be.
INSTANTIATE_TEST_SUITE_P(KvTypes, PrefixCache,
                         ::testing::ValuesIn(testing::kSanitized
                                                 ? std::vector<pb::KvType>{pb::KV_TYPE_F16}
                                                 : std::vector<pb::KvType>{pb::KV_TYPE_F16, pb::KV_TYPE_F32,
                                                                           pb::KV_TYPE_BF16, pb::KV_TYPE_Q8_0}));

}  // namespace
}  // namespace stagecoach
