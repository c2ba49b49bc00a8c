// The answer does not depend on the machinery: identical tokens and log-probabilities, bit for bit, for every way of
// splitting the work, on the loopback transport. The suite runs so many points of the product of the dimensions that
// all combinations of values of a few of them meet (a covering array); the campaign every_cut runs the whole product.

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/job_choices.h"
#include "common/quant/supported_types.h"
#include "common/wire/job_proto.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/models/tiny_model.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterRequest;

// Of how many dimensions all combinations of values meet. The sanitizers see fewer, with half of the requests.
constexpr int kStrength = testing::kSanitized ? 2 : 3;
constexpr int kFewStrength = testing::kSanitized ? 1 : 2;
constexpr size_t kStepOfTypes = 593;  // the types begin their search at points far from each other
constexpr int kPolicyStride =
    testing::kSanitized ? 3 : 1;  // every policy, chunking, number of stages and preemption still
constexpr int kRequests = testing::kSanitized ? 4 : 8;
constexpr TokenId kEndToken = 319;

std::vector<ClusterRequest> Requests() {
  std::vector<ClusterRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    // The last one is beyond a granule of attention.
    ClusterRequest& request = requests.emplace_back(testing::RequestOf(i == kRequests - 1 ? 262 : 3 + 14 * i, i, 6));
    if (i % 2 == 1) {  // every rule of the sampler, addressed by seed and position
      request.sampling.set_temperature(0.9f);
      request.sampling.set_top_k(40);
      request.sampling.set_top_p(0.95f);
      request.sampling.set_min_p(0.01f);
      request.sampling.set_repeat_penalty(1.1f);
      request.sampling.set_presence_penalty(0.2f);
      request.sampling.set_frequency_penalty(0.1f);
      request.sampling.set_seed(1234 + i);
    }
    // Texts that cannot be complete after so few tokens, by two grammars.
    if (i % 4 < 2) continue;
    request.grammar = i % 4 == 2 ? testing::Lists(4) : testing::RunOfBytes('a', 'm', 64);
    request.stop_tokens = {kEndToken};
  }
  return requests;
}

struct Point {
  int stages, chunk, sequences, micro_batches, threads, block;
  bool preempt;
  bool cache = false;
  std::vector<std::pair<const char*, int>> Values() const {
    return {{"stages", stages},   {"chunk", chunk}, {"sequences", sequences}, {"micro-batches", micro_batches},
            {"threads", threads}, {"block", block}, {"preempt", preempt},     {"cache", cache}};
  }
  std::string Name() const {
    return absl::StrCat(stages, " stages, chunk ", chunk, ", ", sequences, " sequences, ", micro_batches,
                        " micro-batches, ", threads, " threads, block ", block, preempt ? ", preempted" : "",
                        cache ? ", prefix cache" : "");
  }
};

std::vector<Point> FullProduct(const std::vector<int>& thread_counts) {
  std::vector<Point> points;
  for (const int stages : {1, 2, 3, 4})
    for (const int chunk : {1, 7, 64, 512})
      for (const int sequences : {1, kRequests})
        for (const int micro_batches : {1, 4})
          for (const int threads : thread_counts)
            for (const int block : {16, 32})
              for (const bool preempt : {false, true})
                points.push_back({stages, chunk, sequences, micro_batches, threads, block, preempt});
  // With no stride's period. What is preempted goes on behind its full blocks; prefix_cache_test.cc has the rest.
  for (size_t p = 0; p < points.size(); ++p) points[p].cache = p % 7 < 4;
  return points;
}

// The numbers, from 0 on, of the combinations of `strength` values that each point has.
std::vector<std::vector<size_t>> CombinationsOf(const std::vector<Point>& points, int strength) {
  std::map<std::vector<std::pair<const char*, int>>, size_t> numbers;
  std::vector<std::vector<size_t>> of_point(points.size());
  for (size_t p = 0; p < points.size(); ++p) {
    const auto values = points[p].Values();
    for (unsigned chosen = 0; chosen < 1u << values.size(); ++chosen) {
      if (std::popcount(chosen) != strength) continue;
      std::vector<std::pair<const char*, int>> combination;
      for (size_t d = 0; d < values.size(); ++d)
        if ((chosen >> d & 1) != 0) combination.push_back(values[d]);
      of_point[p].push_back(numbers.try_emplace(std::move(combination), numbers.size()).first->second);
    }
  }
  return of_point;
}

// Points that together have every combination of `strength` values that any point has: the greedy covering array, which
// takes the point with most new combinations, the first behind `begin` of equals.
std::vector<Point> Covering(int strength, const std::vector<Point>& points, size_t begin = 0) {
  const std::vector<std::vector<size_t>> combinations = CombinationsOf(points, strength);
  std::set<size_t> missing;
  for (const auto& of_point : combinations) missing.insert(of_point.begin(), of_point.end());
  std::vector<Point> chosen;
  while (!missing.empty()) {
    size_t best = 0, best_new = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const size_t p = (begin + i) % points.size();
      const size_t found =
          std::count_if(combinations[p].begin(), combinations[p].end(), [&](size_t c) { return missing.contains(c); });
      if (found > best_new) best = p, best_new = found;
    }
    for (const size_t c : combinations[best]) missing.erase(c);
    chosen.push_back(points[best]);
  }
  return chosen;
}

std::set<std::pair<const char*, int>> ValuesOf(const std::vector<Point>& points) {
  std::set<std::pair<const char*, int>> values;
  for (const Point& point : points)
    for (const auto& value : point.Values()) values.insert(value);
  return values;
}

// `token_by_token`: the longest prompt in chunks of one, too, where it takes a step a token.
void CheckPoints(const testing::TinyModelOptions& model, pb::KvType kv_type, const std::vector<Point>& points,
                 bool token_by_token = false) {
  const testing::TempDir dir;
  const std::string path = testing::WriteTinyModel(dir.File("tiny.gguf"), model);
  const std::vector<ClusterRequest> requests = Requests();
  pb::ConfigureJob job = testing::DefaultJob(path);
  job.set_kv_type(kv_type);

  // The reference: one stage, one thread, one sequence at a time.
  std::vector<testing::ClusterAnswer> expected;
  testing::RunEachAlone(job, requests, &expected);
  for (const testing::ClusterAnswer& answer : expected) ASSERT_EQ(answer.tokens.size(), 6u);

  for (const Point& point : points) {
    SCOPED_TRACE(point.Name());
    job.set_prefill_chunk(point.chunk);
    job.set_micro_batches(point.micro_batches);
    job.set_threads(point.threads);
    job.set_block_tokens(point.block);
    job.set_prefix_caching(point.cache);
    // One sequence: the longest there is, which has the most to get wrong.
    const std::ptrdiff_t end = point.chunk > 1 || token_by_token ? kRequests : kRequests - 1;
    const std::ptrdiff_t first = point.sequences == 1 ? end - 1 : 0;
    const auto run = testing::RunCluster(point.stages, job, {requests.begin() + first, requests.begin() + end}, nullptr,
                                         point.preempt ? 3 : 0);
    testing::ExpectSameBits(run, absl::MakeSpan(expected).subspan(first, end - first));
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(run->statistics.preemptions() > 0, point.preempt);
  }
}

TEST(EqualityMatrix, ValuesMeetWithInt8Kernels) {
  CheckPoints({.type = TensorType::kQ8_0}, pb::KV_TYPE_F16, Covering(kStrength, FullProduct({1, 2})));
}

TEST(EqualityMatrix, ValuesMeetWithFloatKernels) {
  CheckPoints({.type = TensorType::kF32}, pb::KV_TYPE_F32, Covering(kFewStrength, FullProduct({1, 2}), 100));
}

TEST(EqualityMatrix, ValuesMeetWithBf16) {
  CheckPoints({.type = TensorType::kBF16}, pb::KV_TYPE_BF16, Covering(kFewStrength, FullProduct({1, 2}), 200));
}

TEST(EqualityMatrix, ValuesMeetWithAnInt8Cache) {
  CheckPoints({.type = TensorType::kQ8_0}, pb::KV_TYPE_Q8_0, Covering(kFewStrength, FullProduct({1, 2}), 300));
}

TEST(EqualityMatrix, DISABLED_TheFullProductGivesTheSameBits) {
  CheckPoints({.type = TensorType::kQ8_0}, pb::KV_TYPE_F16, FullProduct({1, 2}), true);
  CheckPoints({.type = TensorType::kF32}, pb::KV_TYPE_F32, FullProduct({1, 2}), true);
  CheckPoints({.type = TensorType::kBF16}, pb::KV_TYPE_BF16, FullProduct({1, 2}), true);
  CheckPoints({.type = TensorType::kQ8_0}, pb::KV_TYPE_Q8_0, FullProduct({1, 2}), true);
}

// Whatever a micro-batch is made of, and however times that differ from run to run steer that.
TEST(EqualityMatrix, EveryPolicyAndChunkingGivesTheSameBits) {
  const testing::TempDir dir;
  const std::string path = testing::WriteTinyModel(dir.File("tiny.gguf"), {.type = TensorType::kQ8_0});
  const std::vector<ClusterRequest> requests = Requests();
  pb::ConfigureJob job = testing::DefaultJob(path);
  std::vector<testing::ClusterAnswer> expected;
  testing::RunEachAlone(job, requests, &expected);
  job.set_max_num_seqs(3);  // prompts wait while others decode
  job.set_max_num_batched_tokens(100);
  size_t point = 0;
  for (const auto& [policy, policy_name] : kPolicies) {
    for (const auto& [chunking, chunking_name] : kChunkings) {
      for (const int stages : {1, 3}) {
        for (const bool preempt : {false, true}) {
          if (point++ % kPolicyStride != 0) continue;
          job.set_policy(NameOf(kPolicies, policy));
          job.set_chunking(NameOf(kChunkings, chunking));
          job.set_prefill_chunk(stages == 1 ? 70 : 100);
          job.set_prefix_caching(stages == 3);
          job.set_slo_itl_s(policy == Policy::kThrottled && stages == 1 ? 0.002 : 0);
          SCOPED_TRACE(absl::StrCat(policy_name, ", ", chunking_name, ", ", stages, " stages"));
          testing::ExpectSameBits(testing::RunCluster(stages, job, requests, nullptr, preempt ? 3 : 0), expected);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every type meets every value of every dimension, thread counts beyond the machine's cores among them. Under the
// sanitizers the types meet them together, a point each: what splits the work knows of no type, and the kernels' own
// tests have every size of every type.
class EqualityOfType : public ::testing::TestWithParam<TensorType> {};

std::vector<Point> PointsOf(TensorType type) {
  const std::vector<Point> all = FullProduct({1, 2, 3, 5});
  const auto types = SupportedTypes();
  const size_t index = std::find(types.begin(), types.end(), type) - types.begin();
  const size_t begin = index * kStepOfTypes % all.size();
  if (testing::kSanitized) return {all[begin]};
  return Covering(1, all, begin);
}

TEST(EqualityMatrix, TheTypesMeetEveryValueOfEveryDimension) {
  std::vector<Point> met;
  for (const TensorType type : SupportedTypes()) {
    for (const Point& point : PointsOf(type)) met.push_back(point);
    if (testing::kSanitized) continue;
    EXPECT_EQ(ValuesOf(PointsOf(type)), ValuesOf(FullProduct({1, 2, 3, 5}))) << GetTensorType(type).name;
  }
  EXPECT_EQ(ValuesOf(met), ValuesOf(FullProduct({1, 2, 3, 5})));
}

TEST_P(EqualityOfType, HoldsOverStagesChunksBatchesBlocksPreemptionAndThreadCounts) {
  CheckPoints(testing::WideTinyModel(GetParam()), pb::KV_TYPE_F16, PointsOf(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(EqualityMatrix, EqualityOfType,
                         ::testing::ValuesIn(SupportedTypes().begin(), SupportedTypes().end()),
                         [](const auto& info) { return std::string(GetTensorType(info.param).name); });

}  // namespace
}  // namespace stagecoach
