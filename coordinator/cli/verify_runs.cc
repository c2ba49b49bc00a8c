#include "coordinator/cli/verify_runs.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

constexpr const char* kRounded =
    "hidden states are rounded between stages here (--wire-dtype), so that other splits give other bits; with f32 they "
    "do not";

}  // namespace

std::vector<std::vector<int64_t>> OtherSplits(const std::vector<int64_t>& planned, int64_t most) {
  const size_t stages = planned.size();
  const int64_t layers = std::accumulate(planned.begin(), planned.end(), int64_t{0});
  std::vector<std::vector<int64_t>> splits;
  const auto add = [&](std::vector<int64_t> split) {
    const bool known = split == planned || std::find(splits.begin(), splits.end(), split) != splits.end();
    const bool whole = std::all_of(split.begin(), split.end(), [](int64_t part) { return part > 0; });
    if (!known && whole && static_cast<int64_t>(splits.size()) < most) splits.push_back(std::move(split));
  };
  const auto shifted = [&](size_t to, size_t from) {
    std::vector<int64_t> split = planned;
    ++split[to];
    --split[from];
    return split;
  };
  const auto uneven = [&](size_t heavy) {
    std::vector<int64_t> split(stages, 1);
    split[heavy] = layers - static_cast<int64_t>(stages) + 1;
    return split;
  };
  if (stages < 2) return splits;
  const size_t before = (stages - 1) / 2;  // of the stages in the middle
  add(shifted(before, before + 1));
  add(uneven(stages - 1));
  add(uneven(0));
  add(shifted(before + 1, before));
  for (size_t fewer = stages - 1; fewer > 1; --fewer) {
    std::vector<int64_t> split(fewer, layers / static_cast<int64_t>(fewer));
    for (int64_t i = 0; i < layers % static_cast<int64_t>(fewer); ++i) ++split[static_cast<size_t>(i)];
    add(std::move(split));
  }
  return splits;
}

int64_t LargestChunk(const pb::ConfigureJob& job) {
  return std::min<int64_t>(job.prefill_chunk(), job.max_num_batched_tokens());
}

std::vector<VerifyRun> RunsBeside(const std::vector<int64_t>& planned, const pb::ConfigureJob& job,
                                  const VerifyWays& ways) {
  std::vector<VerifyRun> runs;
  VerifyRun one_by_one = {.name = "one after the other"};
  one_by_one.one_by_one = one_by_one.same_job = true;
  runs.push_back(one_by_one);
  const int64_t planned_chunk = LargestChunk(job), most = job.max_num_batched_tokens();
  std::vector<int64_t> known = {job.prefill_chunk()};
  for (const int64_t chunk : ways.chunks) {
    if (std::find(known.begin(), known.end(), chunk) != known.end()) continue;
    known.push_back(chunk);
    runs.push_back({.name = absl::StrCat("chunks of ", chunk)});
    runs.back().prefill_chunk = chunk;
    if (std::min(chunk, most) == planned_chunk) {
      runs.back().left_out = absl::StrCat("no step has more than ", most, " rows (--max-num-batched-tokens)");
    } else if (std::min(chunk, planned_chunk) >= ways.longest_prompt) {  // both cut nothing
      runs.back().left_out =
          absl::StrCat("the longest prompt has ", ways.longest_prompt, " tokens, which are one chunk anyway");
    }
  }
  runs.push_back({.name = "restarted"});
  runs.back().restarted = true;
  for (std::vector<int64_t>& split : OtherSplits(planned, ways.splits)) {
    runs.push_back({.name = "another split"});
    runs.back().layer_split = std::move(split);
    if (!ways.exact_wire) runs.back().left_out = kRounded;
  }
  if (planned.size() > 1) {
    runs.push_back({.name = "one stage"});
    runs.back().one_stage = true;
    if (!ways.exact_wire) runs.back().left_out = kRounded;
  }
  return runs;
}

LaunchOptions LaunchOfRun(const VerifyRun& run, LaunchOptions launch, const std::vector<int64_t>& planned) {
  const std::vector<int64_t>& split = run.layer_split.empty() ? planned : run.layer_split;
  launch.stages = run.one_stage ? 1 : static_cast<int>(split.size());
  launch.job.clear_layer_split();
  if (!run.one_stage) launch.job.mutable_layer_split()->Add(split.begin(), split.end());
  if (run.optional()) launch.job.clear_planned_for();  // it is another one on purpose
  if (run.prefill_chunk > 0) launch.job.set_prefill_chunk(static_cast<int32_t>(run.prefill_chunk));
  return launch;
}

int64_t KeptTokens(size_t index, size_t count, int64_t new_tokens) {
  const int64_t most = std::max<int64_t>(new_tokens - 1, 0);
  if (count < 2 || most < 2) return std::min<int64_t>(most, 1);
  return 1 + static_cast<int64_t>(index) * (most - 1) / static_cast<int64_t>(count - 1);
}

}  // namespace stagecoach
