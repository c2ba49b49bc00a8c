#include "coordinator/plan/partitioner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

absl::Status CheckCost(absl::string_view what, double cost) {
  if (std::isfinite(cost) && cost >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the cost of ", what, " is ", cost, ", must be finite and at least 0"));
}

absl::Status CheckCosts(const PartCosts& costs, const std::string& where) {
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    RETURN_IF_ERROR(CheckCost(absl::StrCat("layer ", i, where), costs.layers[i]));
  }
  RETURN_IF_ERROR(CheckCost("the embedding" + where, costs.embedding));
  return CheckCost("the head" + where, costs.head);
}

absl::Status CheckLength(absl::string_view what, size_t length, size_t expected, absl::string_view of) {
  if (length == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there are ", length, " ", what, " for ", expected, " ", of));
}

absl::Status CheckMemory(const PartitionMemory& memory, size_t layers, int stages) {
  if (memory.hosts.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckLength("sizes of layers", memory.layer_bytes.size(), layers, "layers"));
  RETURN_IF_ERROR(CheckLength("sizes of stages", memory.stage_bytes.size(), static_cast<size_t>(stages), "stages"));
  int next = 0;
  for (const HostMemory& host : memory.hosts) {
    if (host.first_stage != next || host.last_stage <= next) {
      return absl::InvalidArgumentError(absl::StrCat("host ", host.host, " has stages ", host.first_stage, " to ",
                                                     host.last_stage, " (exclusive), expected them to begin with ",
                                                     next));
    }
    next = host.last_stage;
  }
  if (next == stages) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the hosts have ", next, " stages, expected ", stages));
}

absl::Status CheckInput(const PartitionInput& input) {
  const size_t layers = input.layer_cost.size(), stages = static_cast<size_t>(std::max(input.stages, 0));
  RETURN_IF_ERROR(CheckStages(static_cast<int64_t>(layers), input.stages));
  RETURN_IF_ERROR(CheckCosts({input.layer_cost, input.embedding_cost, input.head_cost}, ""));
  if (!input.stage_speed.empty()) {
    RETURN_IF_ERROR(CheckLength("stage speeds", input.stage_speed.size(), stages, "stages"));
  }
  for (size_t s = 0; s < input.stage_speed.size(); ++s) {
    if (!std::isfinite(input.stage_speed[s]) || input.stage_speed[s] <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the speed of stage ", s, " is ", input.stage_speed[s], ", must be finite and above 0"));
    }
  }
  if (!input.stage_costs.empty()) {
    RETURN_IF_ERROR(CheckLength("stages' own costs", input.stage_costs.size(), stages, "stages"));
  }
  for (size_t s = 0; s < input.stage_costs.size(); ++s) {
    RETURN_IF_ERROR(CheckLength("costs of layers", input.stage_costs[s].layers.size(), layers, "layers"));
    RETURN_IF_ERROR(CheckCosts(input.stage_costs[s], absl::StrCat(" on stage ", s)));
  }
  if (!input.hop_cost.empty()) {
    RETURN_IF_ERROR(CheckLength("costs of hops", input.hop_cost.size(), stages, "stages"));
  }
  for (size_t s = 0; s < input.hop_cost.size(); ++s) {
    RETURN_IF_ERROR(CheckCost(absl::StrCat("the hop of stage ", s), input.hop_cost[s]));
  }
  return CheckMemory(input.memory, layers, input.stages);
}

template <typename Number>
std::vector<Number> RunningSums(const std::vector<Number>& values) {
  std::vector<Number> sums(values.size() + 1, Number{});
  for (size_t i = 0; i < values.size(); ++i) sums[i + 1] = sums[i] + values[i];
  return sums;
}

class Partitioner {
 public:
  explicit Partitioner(const PartitionInput& input)
      : input_(input), layers_(static_cast<int64_t>(input.layer_cost.size())) {
    if (input.stage_costs.empty()) cost_before_.push_back(RunningSums(input.layer_cost));
    for (const PartCosts& costs : input.stage_costs) cost_before_.push_back(RunningSums(costs.layers));
    layer_bytes_before_ = RunningSums(input.memory.layer_bytes);
    host_of_.resize(static_cast<size_t>(input.stages));
    for (size_t host = 0; host < input.memory.hosts.size(); ++host) {
      const HostMemory& has = input.memory.hosts[host];
      std::fill(host_of_.begin() + has.first_stage, host_of_.begin() + has.last_stage, host);
      const auto bytes = input.memory.stage_bytes.begin();
      host_bytes_.push_back(std::accumulate(bytes + has.first_stage, bytes + has.last_stage, uint64_t{0}));
    }
  }

  absl::StatusOr<std::vector<LayerRange>> Solve() const {
    const std::vector<LayerRange> best = SolveWith(&Partitioner::OptimizeFreely);
    if (Fits(best)) return best;
    RETURN_IF_ERROR(CheckThatSomethingFits());
    return SolveWith(&Partitioner::OptimizeWithinMemory);
  }

 private:
  struct Solution {
    double best = 0;
    std::vector<LayerRange> split;
  };
  // How the time of a stage and the value of those behind it combine.
  using Combine = double (*)(double time, double rest);
  using Optimizer = Solution (Partitioner::*)(double limit, Combine combine) const;

  std::vector<LayerRange> SolveWith(Optimizer optimize) const {
    const Combine largest = [](double time, double rest) { return std::max(time, rest); };
    const Combine sum_of_squares = [](double time, double rest) { return time * time + rest; };
    const double least_maximum = (this->*optimize)(kInfinity, largest).best;
    return (this->*optimize)(least_maximum * (1 + kRounding), sum_of_squares).split;
  }

  double Time(int stage, int64_t begin, int64_t end) const {
    const bool own = !input_.stage_costs.empty();
    const std::vector<double>& before = cost_before_[own ? static_cast<size_t>(stage) : 0];
    double cost = before[end] - before[begin];
    if (stage == 0) cost += own ? input_.stage_costs[stage].embedding : input_.embedding_cost;
    if (stage == input_.stages - 1) cost += own ? input_.stage_costs[stage].head : input_.head_cost;
    if (!input_.stage_speed.empty()) cost /= input_.stage_speed[stage];
    return input_.hop_cost.empty() ? cost : std::max(cost, input_.hop_cost[stage]);
  }

  // The latest layer that `stage` may end at, when every later one needs a layer.
  int64_t LastEnd(int stage) const { return layers_ - (input_.stages - stage - 1); }

  // What the host's stages hold when they have layers [begin, end) together.
  uint64_t BytesOf(size_t host, int64_t begin, int64_t end) const {
    const PartitionMemory& memory = input_.memory;
    uint64_t bytes = layer_bytes_before_[end] - layer_bytes_before_[begin] + host_bytes_[host];
    if (begin == 0) bytes += memory.embedding_bytes;
    if (end == layers_) bytes += memory.head_bytes;
    const bool both_ends = begin == 0 && end == layers_ && input_.stages == 1;
    return both_ends ? bytes - memory.tied_bytes : bytes;
  }

  bool Fits(const std::vector<LayerRange>& split) const {
    for (size_t host = 0; host < input_.memory.hosts.size(); ++host) {
      const HostMemory& has = input_.memory.hosts[host];
      if (BytesOf(host, split[has.first_stage].begin, split[has.last_stage - 1].end) > has.available_bytes)
        return false;
    }
    return true;
  }

  // best[s][b]: the least combined value of stages s and later over the layers from b on, with no stage above `limit`.
  Solution OptimizeFreely(double limit, Combine combine) const {
    const int stages = input_.stages;
    std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers_ + 1, kInfinity));
    std::vector<std::vector<int64_t>> end_of(stages, std::vector<int64_t>(layers_ + 1, -1));
    best[stages][layers_] = 0;
    for (int s = stages - 1; s >= 0; --s) {
      for (int64_t begin = s; begin <= layers_ - (stages - s); ++begin) {
        for (int64_t end = LastEnd(s); end > begin; --end) {  // from the longest: it wins among equals
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

  // The same where what a stage may take depends on where its host's first stage began: one more dimension. Both are
  // counted from the earliest layer that is possible.
  struct Choice {
    double best = kInfinity;
    int64_t end = -1;
  };
  class Table {
   public:
    Table(int64_t starts, int64_t begins) : begins_(begins), choices_(static_cast<size_t>(starts * begins)) {}
    Choice& at(int64_t start, int64_t begin) { return choices_[static_cast<size_t>(start * begins_ + begin)]; }

   private:
    int64_t begins_;
    std::vector<Choice> choices_;
  };

  Solution OptimizeWithinMemory(double limit, Combine combine) const {
    const int stages = input_.stages;
    const int64_t width = layers_ - stages + 1;  // of places where a stage can begin
    std::vector<Table> tables(static_cast<size_t>(stages), Table(0, 0));
    for (int s = stages - 1; s >= 0; --s) {
      const HostMemory& host = input_.memory.hosts[host_of_[s]];
      const bool first = s == host.first_stage;
      tables[s] = Table(first ? 1 : width, width);
      for (int64_t begin = s; begin < s + width; ++begin) {
        const int64_t last_start = host.first_stage + (first ? 0 : begin - s);
        for (int64_t start = host.first_stage; start <= last_start; ++start) {
          const int64_t host_begin = first ? begin : start;
          tables[s].at(start - host.first_stage, begin - s) = BestEnd(s, host_begin, begin, limit, combine, &tables);
        }
      }
    }
    Solution solution{.best = tables[0].at(0, 0).best};
    int64_t begin = 0, host_begin = 0;
    for (int s = 0; s < stages; ++s) {
      const int first = input_.memory.hosts[host_of_[s]].first_stage;
      if (s == first) host_begin = begin;
      const int64_t end = tables[s].at(s == first ? 0 : host_begin - first, begin - s).end;
      CHECK_GT(end, begin);
      solution.split.push_back({begin, end});
      begin = end;
    }
    return solution;
  }

  Choice BestEnd(int s, int64_t host_begin, int64_t begin, double limit, Combine combine,
                 std::vector<Table>* tables) const {
    const HostMemory& host = input_.memory.hosts[host_of_[s]];
    const bool last_of_host = s + 1 == host.last_stage;
    Choice choice;
    for (int64_t end = LastEnd(s); end > begin; --end) {
      if (s + 1 == input_.stages && end != layers_) break;
      const double time = Time(s, begin, end);
      if (time > limit) continue;
      if (last_of_host && BytesOf(host_of_[s], host_begin, end) > host.available_bytes) continue;
      double rest = 0;
      if (s + 1 < input_.stages) {
        const Choice& next = (*tables)[s + 1].at(last_of_host ? 0 : host_begin - host.first_stage, end - (s + 1));
        if (next.end < 0) continue;
        rest = next.best;
      }
      const double value = combine(time, rest);
      if (choice.end >= 0 && value >= choice.best * (1 - kRounding)) continue;
      choice = {value, end};
    }
    return choice;
  }

  // Finds the split over hosts whose largest lack of memory is least.
  absl::Status CheckThatSomethingFits() const {
    const std::vector<HostMemory>& hosts = input_.memory.hosts;
    const auto lack = [&](size_t host, int64_t begin, int64_t end) -> uint64_t {
      const uint64_t bytes = BytesOf(host, begin, end);
      return bytes > hosts[host].available_bytes ? bytes - hosts[host].available_bytes : 0;
    };
    constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
    std::vector<std::vector<uint64_t>> least(hosts.size() + 1, std::vector<uint64_t>(layers_ + 1, kNever));
    std::vector<std::vector<int64_t>> end_of(hosts.size(), std::vector<int64_t>(layers_ + 1, -1));
    least[hosts.size()][layers_] = 0;
    for (size_t h = hosts.size(); h-- > 0;) {
      for (int64_t begin = hosts[h].first_stage; begin < layers_; ++begin) {
        for (int64_t end = LastEnd(hosts[h].last_stage - 1); end >= begin + hosts[h].last_stage - hosts[h].first_stage;
             --end) {
          if (least[h + 1][end] == kNever) continue;
          const uint64_t value = std::max(lack(h, begin, end), least[h + 1][end]);
          if (value >= least[h][begin]) continue;
          least[h][begin] = value;
          end_of[h][begin] = end;
        }
      }
    }
    if (least[0][0] == 0) return absl::OkStatus();
    std::vector<std::string> lacking;
    for (size_t h = 0, begin = 0; h < hosts.size(); ++h) {
      const int64_t end = end_of[h][begin];
      if (const uint64_t bytes = lack(h, static_cast<int64_t>(begin), end); bytes > 0) {
        lacking.push_back(Lack(hosts[h], static_cast<int64_t>(begin), end, bytes));
      }
      begin = static_cast<size_t>(end);
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("the layers fit in no split; in the one that lacks least ", absl::StrJoin(lacking, "; "),
                     ". Use more hosts, hosts with more memory, a smaller model file or less KV cache"));
  }

  static std::string Lack(const HostMemory& host, int64_t begin, int64_t end, uint64_t bytes) {
    const std::string stages = host.last_stage - host.first_stage == 1
                                   ? absl::StrCat("stage ", host.first_stage)
                                   : absl::StrCat("stages ", host.first_stage, " to ", host.last_stage - 1);
    return absl::StrCat(stages, " on ", host.host, " with layers ", begin, " to ", end - 1, " would need ",
                        host.available_bytes + bytes, " bytes of memory, but ", host.available_bytes,
                        " are available: ", bytes, " too few");
  }

  const PartitionInput& input_;
  const int64_t layers_;
  std::vector<std::vector<double>> cost_before_;  // [1 or stages][layers + 1]
  std::vector<uint64_t> layer_bytes_before_;      // [layers + 1]
  std::vector<uint64_t> host_bytes_;              // [hosts] of their stages whatever the layers
  std::vector<size_t> host_of_;                   // [stages]
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
