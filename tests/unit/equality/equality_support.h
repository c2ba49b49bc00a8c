#ifndef STAGECOACH_TESTS_UNIT_EQUALITY_EQUALITY_SUPPORT_H_
#define STAGECOACH_TESTS_UNIT_EQUALITY_EQUALITY_SUPPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/testing/cluster/loopback_cluster.h"

namespace stagecoach::testing {

// A greedy request whose prompt differs from those of other salts.
inline ClusterRequest RequestOf(int length, int salt, int64_t max_new_tokens, int64_t vocab = 320) {
  ClusterRequest request = {.sampling = GreedyParams(), .max_new_tokens = max_new_tokens};
  for (int t = 0; t < length; ++t) {
    request.prompt.push_back(static_cast<int32_t>((t * 7919 + salt * 104729 + 17) % (vocab - 1)));
  }
  return request;
}

// The reference: each request alone on one stage.
inline void RunEachAlone(const pb::ConfigureJob& job, const std::vector<ClusterRequest>& requests,
                         std::vector<ClusterAnswer>* answers) {
  for (const ClusterRequest& request : requests) {
    const auto run = RunCluster(1, job, {request});
    ASSERT_TRUE(run.ok()) << run.status();
    answers->push_back(run->answers[0]);
  }
}

inline void ExpectSameBits(const absl::StatusOr<ClusterRun>& run, absl::Span<const ClusterAnswer> expected) {
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->answers.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(run->answers[i].Bits(), expected[i].Bits()) << "request " << i;
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_EQUALITY_EQUALITY_SUPPORT_H_
