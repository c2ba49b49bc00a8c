#include "coordinator/plan/choice/host_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace stagecoach {
namespace {

// Facts that make two hosts the same for a plan.
HostFacts WithoutName(HostFacts host) {
  host.name.clear();
  return host;
}

// The number of a value that is seen for the first time is the next one.
template <typename Value>
int NumberOf(const Value& value, std::vector<Value>* seen) {
  const auto known = std::find(seen->begin(), seen->end(), value);
  const auto number = static_cast<int>(known - seen->begin());
  if (known == seen->end()) seen->push_back(value);
  return number;
}

}  // namespace

HostCandidates::HostCandidates(const ClusterQuestion* question, bool coarse)
    : question_(question),
      weight_bytes_(static_cast<double>(
          StageWeightBytes(*question->model, 0, question->model->hyper.layer_count(), true, true))) {
  for (const int host : question->stage_hosts) {
    const auto known = std::find_if(all_.begin(), all_.end(),
                                    [host](const HostCandidate& candidate) { return candidate.host == host; });
    if (known == all_.end()) {
      all_.push_back({.host = host});
    } else {
      ++known->slots;
    }
  }
  FindKinds();
  FindSpeeds();
  CompareLinks();
  if (coarse) FindCoarseKinds();
}

void HostCandidates::FindKinds() {
  const HostProfile& profile = question_->profile;
  std::set<int> named = {profile.coordinator};
  for (const LinkFacts& link : profile.links) {
    if (link.from != link.to) named.insert({link.from, link.to});
  }
  std::vector<std::tuple<HostFacts, int, int, int>> kinds;
  for (HostCandidate& candidate : all_) {
    for (size_t u = 0; u < profile.uplinks.size(); ++u) {
      const std::vector<int>& behind = profile.uplinks[u].hosts;
      if (std::find(behind.begin(), behind.end(), candidate.host) != behind.end())
        candidate.uplink = static_cast<int>(u);
    }
    candidate.kind = NumberOf({WithoutName(profile.hosts[static_cast<size_t>(candidate.host)]), candidate.slots,
                               candidate.uplink, named.count(candidate.host) > 0 ? candidate.host : -1},
                              &kinds);
  }
}

void HostCandidates::FindCoarseKinds() {
  const auto step = [](double value, double steps) { return std::llround(steps * std::log2(std::max(value, 1e-9))); };
  const HostProfile& profile = question_->profile;
  std::map<int, std::map<int, double>> links;  // in Gbit/s, of a host to others
  for (const LinkFacts& link : profile.links) {
    if (link.from == link.to) continue;
    for (const auto& [from, to] : {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
      const auto [known, is_new] = links[from].try_emplace(to, link.bandwidth_gbit_s);
      known->second = std::min(known->second, link.bandwidth_gbit_s);
    }
  }
  const auto best_link = [&](int host) {
    const auto known = links.find(host);
    if (known == links.end()) return 0.0;
    const bool all = known->second.size() + 1 >= profile.hosts.size() || !profile.default_link.has_value();
    double best = all ? 0 : profile.default_link->bandwidth_gbit_s;
    for (const auto& [other, gbit_s] : known->second) best = std::max(best, gbit_s);
    return best;
  };
  std::vector<std::tuple<int64_t, int64_t, int64_t, int, int, int>> kinds;
  for (HostCandidate& candidate : all_) {
    const HostFacts& host = profile.hosts[static_cast<size_t>(candidate.host)];
    candidate.kind = NumberOf({step(candidate.rate, 32), step(static_cast<double>(host.available_bytes), 8),
                               step(best_link(candidate.host), 4), candidate.slots, host.cores, candidate.uplink},
                              &kinds);
  }
}

void HostCandidates::FindSpeeds() {
  ClusterQuestion question = *question_;
  question.job.clear_layer_split();
  question.job.set_kv_cache_bytes(0);
  for (HostFacts& host : question.profile.hosts) {
    host.available_bytes = std::max<uint64_t>(host.available_bytes, uint64_t{1} << 50);
  }
  const int64_t largest = std::min<int64_t>(question.job.max_num_batched_tokens(), question.load.prompt_tokens);
  std::map<int, HostCandidate> of_kind;
  for (HostCandidate& candidate : all_) {
    const auto [known, is_new] = of_kind.try_emplace(candidate.kind);
    HostCandidate& of = known->second;
    question.stage_hosts = {candidate.host};
    const absl::StatusOr<ClusterPlan> plan = is_new ? PlanCluster(question) : absl::UnknownError("");
    if (plan.ok()) {
      of.alone = plan->pipeline;
      of.rate = plan->output_tokens_per_s;
      const StageCosts& costs = of.alone->costs.front();
      const std::vector<PartWork>& layers = of.alone->parts.layers;
      layers_alike_ = std::all_of(layers.begin(), layers.end(), [&](const PartWork& l) { return l == layers.front(); });
      of.prompt_s.assign(layers.size(), std::numeric_limits<double>::infinity());
      for (int64_t chunk = std::min(kSmallestChunk, largest);; chunk = std::min(2 * chunk, largest)) {
        const PromptChunks chunks = ChunksOf(question.load.prompt_tokens, chunk, costs.window());
        std::vector<double> seconds(layers.size(), 0);
        for (const StepLoad& load : chunks.loads) costs.AddLayers(load, 1, chunks.each, &seconds);
        for (size_t i = 0; i < seconds.size(); ++i) of.prompt_s[i] = std::min(of.prompt_s[i], seconds[i]);
        if (chunk == largest) break;
      }
    }
    candidate.alone = of.alone;
    candidate.rate = of.rate;
    candidate.prompt_s = of.prompt_s;
  }
}

void HostCandidates::CompareLinks() {
  const HostProfile& profile = question_->profile;
  links_alike_ = profile.uplinks.empty();
  if (profile.links.empty() || !links_alike_) return;
  std::optional<StageLink> first;
  for (const HostCandidate& from : all_) {
    std::vector<std::pair<int, int>> pairs = {{profile.coordinator, from.host}, {from.host, profile.coordinator}};
    for (const HostCandidate& to : all_) pairs.emplace_back(from.host, to.host);
    for (const auto& [a, b] : pairs) {
      if (a == b) continue;
      const StageLink link = LinkOf(a, b);
      if (!first.has_value()) first = link;
      links_alike_ = links_alike_ && link.latency_s == first->latency_s && link.bytes_per_s == first->bytes_per_s;
    }
  }
}

bool HostCandidates::HaveMemory(const std::vector<int>& hosts, double times) const {
  double available = 0;
  for (const int i : hosts) {
    available += static_cast<double>(question_->profile.hosts[static_cast<size_t>((*this)[i].host)].available_bytes);
  }
  return available >= times * weight_bytes_;
}

StageLink HostCandidates::LinkOf(int from, int to) const {
  const std::optional<LinkFacts> link = LinkBetween(question_->profile, from, to);
  if (!link.has_value()) return {};
  return {.latency_s = link->latency_us * 1e-6, .bytes_per_s = link->bytes_per_s()};
}

// The slowest stage takes no less than any weighted mean of all, so no less than the layers do, each where it costs
// least of that mean. Weights by speed: where layers are alike this is the perfectly even split. `seconds`: of each
// host's layers.
double HostCandidates::EvenSeconds(const std::vector<std::vector<double>>& seconds) {
  std::vector<double> weights;
  for (const std::vector<double>& of_host : seconds) {
    weights.push_back(1 / std::accumulate(of_host.begin(), of_host.end(), 0.0));
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double bound = 0;
  for (size_t layer = 0; layer < seconds.front().size(); ++layer) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < seconds.size(); ++i) least = std::min(least, weights[i] / sum * seconds[i][layer]);
    bound += least;
  }
  return bound;
}

HostCandidates::Hops HostCandidates::HopsOf(const std::vector<int>& hosts) const {
  const std::vector<UplinkFacts>& uplinks = question_->profile.uplinks;
  const int coordinator = question_->profile.coordinator;
  const double row_bytes = (*this)[hosts.front()].alone->model.row_bytes;
  Hops hops{.latency_s = LinkOf(coordinator, (*this)[hosts.front()].host).latency_s};
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool last = i + 1 == hosts.size();
    const HostCandidate &from = (*this)[hosts[i]], &to = (*this)[hosts[last ? i : i + 1]];
    StageLink link = LinkOf(from.host, last ? coordinator : to.host);
    hops.latency_s += link.latency_s;
    if (last || link.bytes_per_s <= 0) continue;
    for (const int uplink : {from.uplink, to.uplink}) {
      if (uplink < 0 || from.uplink == to.uplink) continue;
      link.bytes_per_s = std::min(link.bytes_per_s, uplinks[static_cast<size_t>(uplink)].bytes_per_s());
    }
    hops.row_s += row_bytes / link.bytes_per_s;
    hops.most_row_s = std::max(hops.most_row_s, row_bytes / link.bytes_per_s);
  }
  return hops;
}

ChoiceFigures HostCandidates::BoundOn(const std::vector<int>& hosts, int64_t sequences, bool ordered) const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // Several stages of a host may be faster than one: by how much is not known, but not more than so many times.
  const auto most_gain = [&](int i) { return static_cast<double>((*this)[i].slots); };
  const Hops hops = ordered ? HopsOf(hosts) : Hops();
  std::vector<std::vector<double>> prompt;
  int64_t most_groups = 0;
  for (const int i : hosts) {
    prompt.push_back((*this)[i].prompt_s);
    for (double& seconds : prompt.back()) seconds /= most_gain(i);
    most_groups += 2 * (*this)[i].slots;
  }
  const double prompt_s =
      std::max(EvenSeconds(prompt), static_cast<double>(question_->load.prompt_tokens) * hops.most_row_s);
  double itl_s = kNever;
  for (int64_t groups = 1; groups <= std::min(most_groups, sequences); ++groups) {
    const auto count = static_cast<double>(groups);
    const double rows = static_cast<double>(sequences) / count;
    std::vector<std::vector<double>> step;
    double head = kNever;
    for (const int i : hosts) {
      const PipelineModel& pipeline = (*this)[i].alone->model;
      const StepLoad load = StepLoad::Decode(rows, question_->load.decode_context(), pipeline.window());
      const StageCosts& costs = *pipeline.stages[0].costs;
      step.emplace_back((*this)[i].prompt_s.size(), 0.0);
      costs.AddLayers(load, 1, 1 / most_gain(i), &step.back());
      head = std::min(head, costs.Head(load, 1) / most_gain(i));
    }
    double round = head + hops.latency_s + rows * hops.row_s;
    for (size_t layer = 0; layer < step.front().size(); ++layer) {
      double least = kNever;
      for (const std::vector<double>& of_host : step) least = std::min(least, of_host[layer]);
      round += least;
    }
    itl_s = std::min(itl_s, std::max({count * EvenSeconds(step), count * rows * hops.most_row_s, round}));
  }
  const auto n = static_cast<double>(sequences), output = static_cast<double>(question_->load.output_tokens);
  return {.output_tokens_per_s = n * output / (n * prompt_s + (output - 1) * itl_s),
          .itl_s = itl_s,
          .ttft_s = prompt_s + hops.latency_s,
          .sequences = sequences};
}

ChoiceFigures HostCandidates::Together(const std::vector<std::vector<int>>& jobs,
                                       std::vector<ChoiceFigures> figures) const {
  const PlanLoad& load = question_->load;
  const double rows = static_cast<double>(load.prompt_tokens + load.output_tokens - 1);
  std::map<std::pair<int, bool>, double> used;  // of an uplink's capacity, in one direction
  const auto for_each_crossing = [&](const std::vector<int>& hosts, const auto& visit) {
    for (size_t i = 0; i + 1 < hosts.size(); ++i) {
      const int from = (*this)[hosts[i]].uplink, to = (*this)[hosts[i + 1]].uplink;
      if (from != to && from >= 0) visit(std::pair(from, true));
      if (from != to && to >= 0) visit(std::pair(to, false));
    }
  };
  for (size_t job = 0; job < jobs.size(); ++job) {
    const double rows_per_s = figures[job].output_tokens_per_s / static_cast<double>(load.output_tokens) * rows;
    const double bytes_per_s = rows_per_s * (*this)[jobs[job].front()].alone->model.row_bytes;
    for_each_crossing(jobs[job], [&](const std::pair<int, bool>& direction) {
      used[direction] += bytes_per_s / question_->profile.uplinks[static_cast<size_t>(direction.first)].bytes_per_s();
    });
  }
  for (size_t job = 0; job < jobs.size(); ++job) {
    double slower = 1;
    for_each_crossing(jobs[job],
                      [&](const std::pair<int, bool>& direction) { slower = std::max(slower, used[direction]); });
    figures[job].output_tokens_per_s /= slower;
    figures[job].itl_s *= slower;
    figures[job].ttft_s *= slower;
  }
  return stagecoach::Together(figures);
}

ChoiceFigures Together(const std::vector<ChoiceFigures>& jobs) {
  ChoiceFigures all;
  for (const ChoiceFigures& job : jobs) {
    all.output_tokens_per_s += job.output_tokens_per_s;
    all.sequences += job.sequences;
    all.itl_s += static_cast<double>(job.sequences) * job.itl_s;
    all.ttft_s += static_cast<double>(job.sequences) * job.ttft_s;
  }
  if (all.sequences > 0) all.itl_s /= static_cast<double>(all.sequences);
  if (all.sequences > 0) all.ttft_s /= static_cast<double>(all.sequences);
  return all;
}

}  // namespace stagecoach
