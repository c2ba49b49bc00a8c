#include "coordinator/plan/partitioner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr double kRounding = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

absl::Status CheckStages(int64_t layers, int stages) {
  if (stages < 1) return absl::InvalidArgumentError(absl::StrCat("there are ", stages, " stages, must be at least 1"));
  if (stages > layers) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", stages, " stages for ", layers,
                                                   " layers; every stage needs at least one, so use at most ", layers,
                                                   " stages"));
  }
  return absl::OkStatus();
}

absl::Status CheckInput(const PartitionInput& input) {
  RETURN_IF_ERROR(CheckStages(static_cast<int64_t>(input.layer_cost.size()), input.stages));
  const auto check_cost = [](absl::string_view what, double cost) {
    if (std::isfinite(cost) && cost >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the cost of ", what, " is ", cost, ", must be finite and at least 0"));
  };
  for (size_t i = 0; i < input.layer_cost.size(); ++i) {
    RETURN_IF_ERROR(check_cost(absl::StrCat("layer ", i), input.layer_cost[i]));
  }
  RETURN_IF_ERROR(check_cost("the embedding", input.embedding_cost));
  RETURN_IF_ERROR(check_cost("the head", input.head_cost));
  if (!input.stage_speed.empty() && static_cast<int64_t>(input.stage_speed.size()) != input.stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", input.stage_speed.size(), " stage speeds for ", input.stages, " stages"));
  }
  for (size_t s = 0; s < input.stage_speed.size(); ++s) {
    if (!std::isfinite(input.stage_speed[s]) || input.stage_speed[s] <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the speed of stage ", s, " is ", input.stage_speed[s], ", must be finite and above 0"));
    }
  }
  return absl::OkStatus();
}

class Partitioner {
 public:
  explicit Partitioner(const PartitionInput& input)
      : input_(input), layers_(static_cast<int64_t>(input.layer_cost.size())), cost_before_(layers_ + 1, 0.0) {
    for (int64_t i = 0; i < layers_; ++i) cost_before_[i + 1] = cost_before_[i] + input.layer_cost[i];
  }

  std::vector<LayerRange> Solve() const {
    const auto largest = [](double time, double rest) { return std::max(time, rest); };
    const auto sum_of_squares = [](double time, double rest) { return time * time + rest; };
    const double least_maximum = Optimize(kInfinity, largest).best;
    return Optimize(least_maximum * (1 + kRounding), sum_of_squares).split;
  }

 private:
  struct Solution {
    double best = 0;
    std::vector<LayerRange> split;
  };

  double Time(int stage, int64_t begin, int64_t end) const {
    double cost = cost_before_[end] - cost_before_[begin];
    if (stage == 0) cost += input_.embedding_cost;
    if (stage == input_.stages - 1) cost += input_.head_cost;
    return input_.stage_speed.empty() ? cost : cost / input_.stage_speed[stage];
  }

  // best[s][b]: the least combined value of stages s and later over the layers from b on, with no stage above `limit`.
  template <typename Combine>
  Solution Optimize(double limit, const Combine& combine) const {
    const int stages = input_.stages;
    std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers_ + 1, kInfinity));
    std::vector<std::vector<int64_t>> end_of(stages, std::vector<int64_t>(layers_ + 1, -1));
    best[stages][layers_] = 0;
    for (int s = stages - 1; s >= 0; --s) {
      for (int64_t begin = s; begin <= layers_ - (stages - s); ++begin) {
        for (int64_t end = layers_ - (stages - s - 1); end > begin; --end) {  // from the longest: it wins among equals
          const double time = Time(s, begin, end);
          if (time > limit || (s + 1 < stages ? end_of[s + 1][end] < 0 : end != layers_)) continue;
          const double value = combine(time, best[s + 1][end]);
          if (end_of[s][begin] >= 0 && value >= best[s][begin] * (1 - kRounding)) continue;
          best[s][begin] = value;
          end_of[s][begin] = end;
        }
      }
    }
    Solution solution{.best = best[0][0]};
    for (int64_t s = 0, begin = 0; s < stages; ++s) {
      const int64_t end = end_of[s][begin];
      CHECK_GT(end, begin);
      solution.split.push_back({begin, end});
      begin = end;
    }
    return solution;
  }

  const PartitionInput& input_;
  const int64_t layers_;
  std::vector<double> cost_before_;  // [layers + 1]
};

}  // namespace

absl::StatusOr<std::vector<LayerRange>> PartitionLayers(const PartitionInput& input) {
  RETURN_IF_ERROR(CheckInput(input));
  return Partitioner(input).Solve();
}

absl::StatusOr<std::vector<LayerRange>> ParseLayerSplit(absl::string_view split, int64_t layers, int stages) {
  RETURN_IF_ERROR(CheckStages(layers, stages));
  const auto refuse = [split](const auto&... detail) {
    return absl::InvalidArgumentError(absl::StrCat("layer split '", split, "' ", detail...));
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(split, ',');
  if (static_cast<int64_t>(parts.size()) != stages) {
    return refuse("has ", parts.size(), " numbers for ", stages, " stages");
  }
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  for (const absl::string_view part : parts) {
    int32_t count = 0;
    if (!absl::SimpleAtoi(part, &count)) {
      return refuse("holds '", part, "', expected ", stages, " numbers of layers like 10,9,9");
    }
    if (count < 1) return refuse("gives a stage ", count, " layers, every stage needs at least one");
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  if (begin != layers) return refuse("adds up to ", begin, " layers, the model has ", layers);
  return ranges;
}

}  // namespace stagecoach
