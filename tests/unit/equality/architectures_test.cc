// The answer does not depend on where a model is cut: for every architecture, all splits of six layers over one to six
// stages, whatever the chunks, the sequences beside it, the threads, and whether sequences are preempted, give the same
// bits, on the loopback transport. The suite runs every split for every other architecture, and over the splits every
// combination of the other dimensions; the full product is the campaign every_cut. A part of the cuts is repeated with
// weights whose products round activations to eight bits, and a prompt beyond a granule of attention.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterRequest;

constexpr int kLayers = 6;
constexpr int kSequences = 8;
// Every so many points, from another one on for the next architecture.
constexpr size_t kCutStride = 2, kFewCutsStride = 5;
// Tokens of a prompt: more than the largest chunk; and attention sums granules of 256 positions.
constexpr int kBeyondAChunk = 70, kBeyondAGranule = 280;

// As many as run at once, beyond every window, and one more of `longest` tokens.
std::vector<ClusterRequest> CutRequests(int64_t vocab, int longest) {
  std::vector<ClusterRequest> requests;
  for (int i = 0; i <= kSequences; ++i) {
    ClusterRequest& request =
        requests.emplace_back(testing::RequestOf(i == kSequences ? longest : 3 + 5 * i, i, 4, vocab));
    if (i % 2 == 0) continue;
    request.sampling.set_temperature(0.9f);
    request.sampling.set_seed(static_cast<uint64_t>(1234 + i));
  }
  return requests;
}

// Every way to cut the layers into runs of at least one.
std::vector<std::vector<int64_t>> AllSplits() {
  std::vector<std::vector<int64_t>> splits;
  for (int cuts = 0; cuts < 1 << (kLayers - 1); ++cuts) {
    std::vector<int64_t>& split = splits.emplace_back(1, 1);
    for (int layer = 1; layer < kLayers; ++layer) {
      if ((cuts >> (layer - 1) & 1) != 0) {
        split.push_back(1);
      } else {
        ++split.back();
      }
    }
  }
  return splits;
}

struct Cut {
  std::vector<int64_t> split;
  int chunk, sequences, threads;
  bool preempt;
  std::string Name() const {
    return absl::StrCat("layers ", absl::StrJoin(split, "+"), ", chunk ", chunk, ", ", sequences, " sequences, ",
                        threads, " threads", preempt ? ", preempted" : "");
  }
};

std::vector<Cut> FullCuts() {
  std::vector<Cut> cuts;
  for (const std::vector<int64_t>& split : AllSplits())
    for (const int chunk : {1, 7, 64})
      for (const int sequences : {1, kSequences})
        for (const int threads : {1, 2})
          for (const bool preempt : {false, true}) cuts.push_back({split, chunk, sequences, threads, preempt});
  return cuts;
}

// Each split once. Splits outnumber the combinations of the other dimensions, so each of these comes too; the one that
// a split gets differs from one architecture to the next (`shift`), so that all architectures together have most pairs.
std::vector<Cut> CutsWithEveryCombination(size_t shift) {
  const std::vector<std::vector<int64_t>> splits = AllSplits();
  const std::vector<Cut> all = FullCuts();
  const size_t combinations = all.size() / splits.size();
  std::vector<Cut> cuts;
  for (size_t s = 0; s < splits.size(); ++s) cuts.push_back(all[s * combinations + (5 * s + shift) % combinations]);
  return cuts;
}

size_t ShiftOf(const std::string& architecture) {
  std::vector<std::string> names = testing::TinyArchitectureNames();
  for (const std::string& name : testing::TinyRecurrentArchitectureNames()) names.push_back(name);
  return static_cast<size_t>(std::find(names.begin(), names.end(), architecture) - names.begin());
}

void CheckCuts(testing::TinyArchitectureOptions options, int longest, const std::vector<Cut>& cuts, size_t first_cut,
               size_t stride) {
  options.layers = kLayers;
  const testing::TempDir dir;
  const std::vector<ClusterRequest> requests = CutRequests(options.vocab, longest);
  pb::ConfigureJob job = testing::DefaultJob(testing::WriteTinyArchitecture(dir.File("tiny.gguf"), options));
  job.set_block_tokens(16);

  // The reference: one stage, one thread, one sequence at a time, whole prompts.
  std::vector<testing::ClusterAnswer> expected;
  testing::RunEachAlone(job, requests, &expected);
  for (const testing::ClusterAnswer& answer : expected) ASSERT_EQ(answer.tokens.size(), 4u);
  for (size_t c = first_cut; c < cuts.size(); c += stride) {
    const Cut& cut = cuts[c];
    SCOPED_TRACE(cut.Name());
    job.clear_layer_split();
    for (const int64_t layers : cut.split) job.add_layer_split(layers);
    job.set_prefill_chunk(cut.chunk);
    job.set_threads(cut.threads);
    // The longest where that takes few steps; of one sequence the longest there is, which has the most to get wrong.
    const size_t end = cut.chunk * 16 >= longest ? requests.size() : requests.size() - 1;
    const size_t first = end - static_cast<size_t>(cut.sequences);
    const auto at = [&requests](size_t i) { return requests.begin() + static_cast<std::ptrdiff_t>(i); };
    const std::vector<ClusterRequest> these(at(first), at(end));
    const auto run = testing::RunCluster(static_cast<int>(cut.split.size()), job, these, nullptr, cut.preempt ? 2 : 0);
    testing::ExpectSameBits(run, absl::MakeSpan(expected).subspan(first, end - first));
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(run->statistics.preemptions() > 0, cut.preempt);
  }
}

class EveryCut : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCut, GivesTheSameBits) {
  const size_t shift = ShiftOf(GetParam());
  CheckCuts(testing::TinyArchitecture(GetParam()), kBeyondAChunk, CutsWithEveryCombination(shift), shift % kCutStride,
            kCutStride);
}

TEST_P(EveryCut, OfIntegersBeyondAGranuleGivesTheSameBits) {
  const TensorType experts = testing::TinyArchitecture(GetParam()).experts > 0 ? TensorType::kMXFP4 : TensorType::kQ4_0;
  const size_t shift = ShiftOf(GetParam());
  CheckCuts(testing::TinyArchitecture(GetParam(), TensorType::kQ8_0, experts), kBeyondAGranule,
            CutsWithEveryCombination(shift + 7), shift % kFewCutsStride, kFewCutsStride);
}

TEST_P(EveryCut, DISABLED_OfTheFullProductGivesTheSameBits) {
  CheckCuts(testing::TinyArchitecture(GetParam()), kBeyondAChunk, FullCuts(), 0, 1);
}

INSTANTIATE_TEST_SUITE_P(Architectures, EveryCut, ::testing::ValuesIn(testing::TinyArchitectureNames()),
                         testing::ArchitectureTestName);
INSTANTIATE_TEST_SUITE_P(Recurrent, EveryCut, ::testing::ValuesIn(testing::TinyRecurrentArchitectureNames()),
                         testing::ArchitectureTestName);

}  // namespace
}  // namespace stagecoach
