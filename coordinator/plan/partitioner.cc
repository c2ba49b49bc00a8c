#include "coordinator/plan/partitioner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/last_that_fits.h"
#include "common/base/status_macros.h"
#include "coordinator/plan/choice/split_choice.h"

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

bool IsCost(double cost) { return std::isfinite(cost) && cost >= 0; }

absl::Status CheckCost(absl::string_view what, double cost) {
  if (IsCost(cost)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the cost of ", what, " is ", cost, ", must be finite and at least 0"));
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

int64_t LayersOf(const PartitionInput& input) {
  return input.costs.empty() ? 0 : static_cast<int64_t>(input.costs.front().layers.size());
}

absl::Status CheckInput(const PartitionInput& input) {
  const auto layers = static_cast<size_t>(LayersOf(input)), stages = static_cast<size_t>(std::max(input.stages, 0));
  RETURN_IF_ERROR(CheckStages(LayersOf(input), input.stages));
  const bool alike = input.costs.size() == 1;
  if (!alike) RETURN_IF_ERROR(CheckLength("stages' own costs", input.costs.size(), stages, "stages"));
  for (size_t s = 0; s < input.costs.size(); ++s) {
    const PartCosts& costs = input.costs[s];
    const std::string where = alike ? "" : absl::StrCat(" on stage ", s);
    RETURN_IF_ERROR(CheckLength("costs of layers", costs.layers.size(), layers, "layers"));
    for (size_t i = 0; i < layers; ++i) {
      if (!IsCost(costs.layers[i])) return CheckCost(absl::StrCat("layer ", i, where), costs.layers[i]);
    }
    RETURN_IF_ERROR(CheckCost("the head" + where, costs.head));
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
  // `hosts`: whose memory bounds the split.
  Partitioner(const PartitionInput& input, std::vector<HostMemory> hosts)
      : input_(input), hosts_(std::move(hosts)), layers_(LayersOf(input)) {
    for (const PartCosts& costs : input.costs) cost_before_.push_back(RunningSums(costs.layers));
    layer_bytes_before_ = RunningSums(input.memory.layer_bytes);
    stage_bytes_before_ = RunningSums(input.memory.stage_bytes);
    host_of_.resize(static_cast<size_t>(input.stages));
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const HostMemory& has = hosts_[host];
      std::fill(host_of_.begin() + has.first_stage, host_of_.begin() + has.last_stage, host);
    }
  }

  // CHECK: something fits.
  std::vector<LayerRange> Solve() const {
    const Combine largest = [](double cost, double hop, double rest) { return std::max({cost, hop, rest}); };
    const Combine sum_of_squares = [](double cost, double /*hop*/, double rest) { return cost * cost + rest; };
    double least_maximum = Optimize(GreedyMaximum() * (1 + kRounding), largest).best;
    if (least_maximum == kInfinity) least_maximum = Optimize(kInfinity, largest).best;
    return Optimize(least_maximum * (1 + kRounding), sum_of_squares).split;
  }

  // From a split that fits.
  std::vector<LayerRange> SolveFor(const SplitLoad& load, std::vector<LayerRange> split) const {
    const auto fits = [this](size_t host, int64_t begin, int64_t end) { return Lack(host, begin, end) == 0; };
    return BestSplit(load, hosts_, fits, std::move(split));
  }

  bool Fits(const std::vector<LayerRange>& split) const {
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const HostMemory& has = hosts_[host];
      if (Lack(host, split[has.first_stage].begin, split[has.last_stage - 1].end) > 0) return false;
    }
    return true;
  }

  // Finds the split over hosts whose largest lack of memory is least.
  absl::Status CheckThatSomethingFits() const {
    constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
    std::vector<std::vector<uint64_t>> least(hosts_.size() + 1, std::vector<uint64_t>(layers_ + 1, kNever));
    std::vector<std::vector<int64_t>> end_of(hosts_.size(), std::vector<int64_t>(layers_ + 1, -1));
    least[hosts_.size()][layers_] = 0;
    for (size_t h = hosts_.size(); h-- > 0;) {
      const HostMemory& host = hosts_[h];
      for (int64_t begin = host.first_stage; begin < layers_; ++begin) {
        for (int64_t end = LastEnd(host.last_stage - 1); end >= begin + host.last_stage - host.first_stage; --end) {
          if (least[h + 1][end] == kNever) continue;
          const uint64_t value = std::max(Lack(h, begin, end), least[h + 1][end]);
          if (value >= least[h][begin]) continue;
          least[h][begin] = value;
          end_of[h][begin] = end;
        }
      }
    }
    if (least[0][0] == 0) return absl::OkStatus();
    std::vector<std::string> lacking;
    int64_t begin = 0;
    for (size_t h = 0; h < hosts_.size(); ++h) {
      const int64_t end = end_of[h][begin];
      if (const uint64_t bytes = Lack(h, begin, end); bytes > 0) {
        lacking.push_back(LackText(hosts_[h], begin, end, bytes));
      }
      begin = end;
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("the layers fit in no split; in the one that lacks least ", absl::StrJoin(lacking, "; "),
                     ". Use more hosts, hosts with more memory, a smaller model file or less KV cache"));
  }

 private:
  struct Solution {
    double best = 0;
    std::vector<LayerRange> split;
  };
  // How the cost of a stage, its hop and the value of those behind it combine.
  using Combine = double (*)(double cost, double hop, double rest);

  double Cost(int stage, int64_t begin, int64_t end) const {
    const size_t own = input_.costs.size() > 1 ? static_cast<size_t>(stage) : 0;
    const double cost = cost_before_[own][end] - cost_before_[own][begin];
    return stage == input_.stages - 1 ? cost + input_.costs[own].head : cost;
  }

  // The latest layer that `stage` may end at, when every later one needs a layer.
  int64_t LastEnd(int stage) const { return layers_ - (input_.stages - stage - 1); }

  // The latest end of a stage that begins there with which neither its cost nor its host's memory is above a limit;
  // `begin` where there is none. `host_begin`: where its host's first stage begins.
  int64_t LatestEnd(int stage, int64_t host_begin, int64_t begin, double limit) const {
    const bool last_of_host = stage + 1 == hosts_[host_of_[stage]].last_stage;
    const auto fits = [&](int64_t end) {
      return Cost(stage, begin, end) <= limit && (!last_of_host || Lack(host_of_[stage], host_begin, end) == 0);
    };
    // Of many stages each has few layers: the search begins with those.
    int64_t low = begin, high = LastEnd(stage);
    for (int64_t layers = 1; low < high; layers *= 2) {
      const int64_t end = std::min(begin + layers, high);
      if (!fits(end)) {
        high = end - 1;
        break;
      }
      low = end;
    }
    return LastThatFits(low, high, fits);
  }

  // The largest stage time of a split in which every stage takes what it can: not the least one where several stages
  // share a host's memory. Infinite: none was found.
  double GreedyMaximum() const {
    constexpr int kRounds = 60;
    double low = 0, high = 0;
    for (int s = 0; s < input_.stages; ++s) {
      if (!input_.hop_cost.empty()) low = std::max(low, input_.hop_cost[s]);
      high = std::max({high, low, Cost(s, 0, layers_)});
    }
    const auto fits = [&](double limit) {
      int64_t begin = 0, host_begin = 0;
      for (int s = 0; s < input_.stages; ++s) {
        if (s == hosts_[host_of_[s]].first_stage) host_begin = begin;
        const int64_t end = LatestEnd(s, host_begin, begin, limit);
        if (end == begin) return false;
        begin = end;
      }
      return begin == layers_;
    };
    if (!fits(high)) return kInfinity;
    for (int i = 0; i < kRounds && low < high * (1 - kRounding); ++i) {
      const double middle = low + (high - low) / 2;
      (fits(middle) ? high : low) = middle;
    }
    return high;
  }

  // How many bytes the host's stages lack when they have layers [begin, end) together.
  uint64_t Lack(size_t host, int64_t begin, int64_t end) const {
    const HostMemory& has = hosts_[host];
    if (has.available_bytes == std::numeric_limits<uint64_t>::max()) return 0;
    const PartitionMemory& memory = input_.memory;
    uint64_t bytes = layer_bytes_before_[end] - layer_bytes_before_[begin] + stage_bytes_before_[has.last_stage] -
                     stage_bytes_before_[has.first_stage];
    if (begin == 0) bytes += memory.embedding_bytes;
    if (end == layers_) bytes += memory.head_bytes;
    if (begin == 0 && end == layers_ && input_.stages == 1) bytes -= memory.tied_bytes;
    return bytes > has.available_bytes ? bytes - has.available_bytes : 0;
  }

  // The least combined value of a stage and those behind it over the layers from `begin` on, with no stage above a
  // limit, and where the stage ends then. What it may take depends on where its host's first stage began, too: `start`.
  // Both are counted from the earliest layer that is possible.
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

  Solution Optimize(double limit, Combine combine) const {
    const int stages = input_.stages;
    const int64_t width = layers_ - stages + 1;  // of places where a stage can begin
    std::vector<Table> tables(static_cast<size_t>(stages), Table(0, 0));
    for (int s = stages - 1; s >= 0; --s) {
      const HostMemory& host = hosts_[host_of_[s]];
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
    if (solution.best == kInfinity) return solution;
    int64_t begin = 0, host_begin = 0;
    for (int s = 0; s < stages; ++s) {
      const int first = hosts_[host_of_[s]].first_stage;
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
    const HostMemory& host = hosts_[host_of_[s]];
    const bool last_of_host = s + 1 == host.last_stage;
    const double hop = input_.hop_cost.empty() ? 0 : input_.hop_cost[s];
    Choice choice;
    if (hop > limit) return choice;
    for (int64_t end = LatestEnd(s, host_begin, begin, limit); end > begin; --end) {
      if (s + 1 == input_.stages && end != layers_) break;
      const double cost = Cost(s, begin, end);
      double rest = 0;
      if (s + 1 < input_.stages) {
        const Choice& next = (*tables)[s + 1].at(last_of_host ? 0 : host_begin - host.first_stage, end - (s + 1));
        if (next.end < 0) continue;
        rest = next.best;
      }
      const double value = combine(cost, hop, rest);
      if (choice.end >= 0 && value >= choice.best * (1 - kRounding)) continue;
      choice = {value, end};
    }
    return choice;
  }

  static std::string LackText(const HostMemory& host, int64_t begin, int64_t end, uint64_t bytes) {
    const std::string stages = host.last_stage - host.first_stage == 1
                                   ? absl::StrCat("stage ", host.first_stage)
                                   : absl::StrCat("stages ", host.first_stage, " to ", host.last_stage - 1);
    return absl::StrCat(stages, " on ", host.host, " with layers ", begin, " to ", end - 1, " would need ",
                        host.available_bytes + bytes, " bytes of memory, but ", host.available_bytes,
                        " are available: ", bytes, " too few");
  }

  const PartitionInput& input_;
  const std::vector<HostMemory> hosts_;
  const int64_t layers_;
  std::vector<std::vector<double>> cost_before_;  // [1 or stages][layers + 1]
  std::vector<uint64_t> layer_bytes_before_;      // [layers + 1]
  std::vector<uint64_t> stage_bytes_before_;      // [stages + 1]
  std::vector<size_t> host_of_;                   // [stages]
};

}  // namespace

absl::StatusOr<std::vector<LayerRange>> PartitionLayers(const PartitionInput& input) {
  RETURN_IF_ERROR(CheckInput(input));
  std::vector<HostMemory> unbounded;  // each stage with memory enough of its own
  unbounded.reserve(static_cast<size_t>(input.stages));
  for (int s = 0; s < input.stages; ++s) unbounded.push_back({"", s, s + 1, std::numeric_limits<uint64_t>::max()});
  std::vector<LayerRange> best = Partitioner(input, unbounded).Solve();
  const Partitioner within(input, input.memory.hosts.empty() ? unbounded : input.memory.hosts);
  if (!within.Fits(best)) {
    RETURN_IF_ERROR(within.CheckThatSomethingFits());
    best = within.Solve();
  }
  return input.load == nullptr ? best : within.SolveFor(*input.load, std::move(best));
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
