// Tokens that are held back until the output is long enough: the same bits whatever the job does.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterAnswer;
using testing::ClusterRequest;

constexpr int kLeast = 6;

// Greedy and drawn ones. Half of the vocabulary ends a sequence, so that it would soon.
std::vector<ClusterRequest> EndingRequests() {
  std::vector<ClusterRequest> requests;
  for (int i = 0; i < 4; ++i) {
    ClusterRequest& request = requests.emplace_back(testing::RequestOf(5 + 20 * i, i, 24));
    request.sampling.set_temperature(i % 2 == 0 ? 0.f : 1.f);
    request.sampling.set_seed(7 + i);
    for (int32_t token = i; token < 319; token += 2) request.stop_tokens.push_back(token);
  }
  return requests;
}

void HoldBack(std::vector<ClusterRequest>* requests) {
  for (ClusterRequest& request : *requests) {
    request.sampling.set_min_new_tokens(kLeast);
    for (const int32_t token : request.stop_tokens) request.sampling.add_end_tokens(token);
  }
}

class MinNewTokensTest : public ::testing::Test {
 protected:
  std::vector<ClusterAnswer> Run(int stages, int chunk, const std::vector<ClusterRequest>& requests,
                                 int64_t preempt_at_output = 0) {
    pb::ConfigureJob job = testing::DefaultJob(path_);
    job.set_prefill_chunk(chunk);
    return testing::RunCluster(stages, job, requests, nullptr, preempt_at_output).value().answers;
  }

  const testing::TempDir directory_;
  const std::string path_ = testing::WriteTinyModel(directory_.File("m.gguf"), {.layers = 3});
};

TEST_F(MinNewTokensTest, AStopTokenIsImpossibleBeforeAndEndsTheAnswerAfter) {
  std::vector<ClusterRequest> requests = EndingRequests();
  size_t early = 0;
  for (const ClusterAnswer& answer : Run(2, 512, requests)) early += answer.tokens.size() <= kLeast ? 1 : 0;
  EXPECT_GT(early, 0u) << "nothing was there to be held back";
  HoldBack(&requests);
  const std::vector<ClusterAnswer> answers = Run(2, 512, requests);
  size_t stopped = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_GT(answers[i].tokens.size(), static_cast<size_t>(kLeast)) << i;
    const std::vector<int32_t>& stops = requests[i].stop_tokens;
    for (size_t t = 0; t + 1 < answers[i].tokens.size(); ++t) {
      EXPECT_EQ(std::count(stops.begin(), stops.end(), answers[i].tokens[t].token()), 0) << i << " " << t;
    }
    stopped += answers[i].finished.reason() == pb::RequestFinished::REASON_STOP ? 1 : 0;
  }
  EXPECT_GT(stopped, 0u);
}

TEST_F(MinNewTokensTest, TheAnswerIsTheSameForAnyStagesChunksPreemptionsAndAfterARestart) {
  std::vector<ClusterRequest> requests = EndingRequests();
  HoldBack(&requests);
  const std::vector<ClusterAnswer> expected = Run(1, 512, requests);
  const auto expect_same = [&](const std::vector<ClusterAnswer>& answers, const std::string& how) {
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(answers[i].Bits(), expected[i].Bits()) << how << " " << i;
  };
  for (const int stages : {1, 2, 3}) {
    for (const int chunk : {7, 512}) expect_same(Run(stages, chunk, requests), absl::StrCat(stages, " ", chunk));
  }
  for (const int64_t at : {1, kLeast - 1, kLeast}) expect_same(Run(2, 7, requests, at), absl::StrCat("preempted ", at));
  for (const size_t known : {size_t{2}, size_t{kLeast}}) {
    std::vector<ClusterRequest> resumed = requests;
    std::vector<ClusterAnswer> rest = expected;
    for (size_t i = 0; i < resumed.size(); ++i) {
      for (size_t t = 0; t < known; ++t) resumed[i].output.push_back(expected[i].tokens[t].token());
      rest[i].tokens.erase(rest[i].tokens.begin(), rest[i].tokens.begin() + static_cast<int64_t>(known));
    }
    const std::vector<ClusterAnswer> answers = Run(2, 7, resumed);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(answers[i].Bits(), rest[i].Bits()) << known << " " << i;
  }
}

}  // namespace
}  // namespace stagecoach
