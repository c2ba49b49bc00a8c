#include "coordinator/cli/sweep_prediction.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/plan/cluster_plan.h"

namespace stagecoach {
namespace {

PlanLoad MeanLoad(const std::vector<ArrivingRequest>& requests) {
  double prompt = 0, output = 0;
  for (const ArrivingRequest& request : requests) {
    prompt += static_cast<double>(request.prompt_tokens);
    output += static_cast<double>(request.output_tokens);
  }
  const double n = static_cast<double>(requests.size());
  return {.prompt_tokens = std::max<int64_t>(1, std::llround(prompt / n)),
          .output_tokens = std::max<int64_t>(1, std::llround(output / n))};
}

// The hosts with as many slots as the stages need, spread evenly; those that a profile gives first.
void PlaceMoreStages(int64_t stages, PlanPlaces* places) {
  const int64_t known = static_cast<int64_t>(places->stage_hosts.size());
  if (stages <= known || known == 0) return;
  std::vector<int> hosts;
  for (int64_t s = 0; s < stages; ++s) hosts.push_back(places->stage_hosts[static_cast<size_t>(s * known / stages)]);
  places->stage_hosts = std::move(hosts);
}

// Output tokens a second if the pipeline never were behind: the last request ends as soon as it does alone.
double OfferedRate(const std::vector<ArrivingRequest>& requests, const ClusterPlan& alone) {
  double tokens = 0;
  for (const ArrivingRequest& request : requests) tokens += static_cast<double>(request.output_tokens);
  const ArrivingRequest& last = requests.back();
  const double gaps = static_cast<double>(last.output_tokens - 1);
  return tokens / (last.arrival_s - requests.front().arrival_s + alone.prefill.ttft_s + gaps * alone.decode.itl_s);
}

}  // namespace

void AddEmulatedLink(const EmulatedLink& emulated, HostProfile* profile) {
  if (emulated == EmulatedLink()) return;
  const double us_per_gbit = emulated.bytes_per_s > 0 ? 1e9 / 8 / emulated.bytes_per_s * 1e6 : 0;
  std::vector<LinkFacts> links;
  for (int from = 0; from < static_cast<int>(profile->hosts.size()); ++from) {
    for (int to = 0; to < static_cast<int>(profile->hosts.size()); ++to) {
      std::optional<LinkFacts> link = LinkBetween(*profile, from, to);
      if (!link.has_value()) continue;
      LinkFacts& slower = links.emplace_back();
      slower.from = from;
      slower.to = to;
      slower.latency_us = link->latency_us + emulated.latency_s * 1e6;
      slower.jitter_us = link->jitter_us;
      slower.bandwidth_gbit_s = 1e6 / (1e6 / link->bandwidth_gbit_s + us_per_gbit);
    }
  }
  profile->links = std::move(links);
}

SweepPrediction PredictionOf(const ClusterPlan& plan) {
  SweepPrediction p;
  p.measured_steps = plan.measured;
  p.sequences = plan.sequences;
  p.prefill_tokens_per_s = plan.prefill.tokens_per_s;
  p.decode_tokens_per_s = plan.decode.tokens_per_s;
  p.output_tokens_per_s = plan.output_tokens_per_s;
  p.ttft_s = plan.prefill.ttft_s;
  p.itl_s = plan.decode.itl_s;
  p.decode_groups = plan.decode.groups;
  p.bubble = plan.decode.bubble;
  p.bubble_few = plan.decode.bubble_few;
  p.bubble_imbalance = plan.decode.bubble_imbalance;
  p.bubble_hop = plan.decode.bubble_hop + plan.decode.bubble_coordinator;
  p.prefill_bubble = plan.prefill.bubble;
  p.bottleneck_stage = plan.decode.bottleneck;
  p.bottleneck_is_link = plan.decode.link_is_bottleneck;
  return p;
}

absl::StatusOr<SweepPrediction> PredictPoint(const SweepConfig& point, const std::vector<ArrivingRequest>& requests,
                                             ClusterOptions options, const PlaceSources& sources,
                                             const LaunchOptions& launch,
                                             const std::shared_ptr<const ModelDescription>& model) {
  const bool described = !sources.cluster.empty() || !sources.profile.empty();
  if (described) {
    options.hosts.clear();
    options.hostfile.clear();
    options.stages = 0;  // all slots; what is missing or too much is settled below
  }
  ASSIGN_OR_RETURN(PlanPlaces places, FindPlaces(options, sources, launch));
  if (described && point.stages > 0) {
    PlaceMoreStages(point.stages, &places);
    places.stage_hosts.resize(static_cast<size_t>(point.stages));
  }
  AddEmulatedLink(options.emulated_link, &places.profile);
  ClusterQuestion question;
  question.model = model;
  question.profile = places.profile;
  question.stage_hosts = places.stage_hosts;
  question.job = launch.job;
  question.load = MeanLoad(requests);
  RETURN_IF_ERROR(SplitAsRun(&question));
  const int64_t in_flight =
      point.micro_batches > 0 ? point.micro_batches : static_cast<int64_t>(places.stage_hosts.size());
  // Without a number of their own there are as many in flight as decode rows have groups.
  question.job.set_micro_batches(
      static_cast<int32_t>(point.micro_batches > 0 ? in_flight : std::max(in_flight, point.decode_groups)));
  if (point.concurrency > 0) {
    question.job.set_max_num_seqs(static_cast<int32_t>(std::min(point.concurrency, point.max_num_seqs)));
  }
  ASSIGN_OR_RETURN(const ClusterPlan plan, PlanCluster(question));
  SweepPrediction prediction = PredictionOf(plan);
  if (point.concurrency == 0) {
    question.job.set_max_num_seqs(1);
    ASSIGN_OR_RETURN(const ClusterPlan alone, PlanCluster(question));
    prediction.output_tokens_per_s = std::min(prediction.output_tokens_per_s, OfferedRate(requests, alone));
  }
  prediction.source = !sources.profile.empty()   ? absl::StrCat("profile ", sources.profile)
                      : !sources.cluster.empty() ? absl::StrCat("cluster ", sources.cluster)
                                                 : "assumed";
  return prediction;
}

}  // namespace stagecoach
