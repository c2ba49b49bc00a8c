#include "coordinator/bench/sweep_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/emulated_link.h"
#include "common/job/job_choices.h"

namespace stagecoach {
namespace {

// Every configuration with every value of one list in one of its fields.
template <typename Value, typename Member>
void Multiply(const std::vector<Value>& values, Member field, std::vector<SweepConfig>* configs) {
  std::vector<SweepConfig> product;
  for (const SweepConfig& config : *configs) {
    for (const Value& value : values) {
      product.push_back(config);
      product.back().*field = value;
    }
  }
  *configs = std::move(product);
}

Arrivals::Kind KindOf(const SweepConfig& config) {
  const absl::StatusOr<Arrivals> arrivals = ParseArrivals(config.arrivals);
  return arrivals.ok() ? arrivals->kind : Arrivals::Kind::kClosedLoop;
}

// Lists that mean nothing for this kind of arrivals have one value; RequestsOf refuses what is no kind.
std::vector<SweepConfig> LoadsOf(const SweepLists& lists, const SweepConfig& job) {
  std::vector<SweepConfig> loads;
  for (const std::string& arrivals : lists.arrivals) {
    SweepConfig load = job;
    load.arrivals = arrivals;
    const Arrivals::Kind kind = KindOf(load);
    std::vector<SweepConfig> of_kind = {load};
    if (kind == Arrivals::Kind::kClosedLoop) Multiply(lists.concurrency, &SweepConfig::concurrency, &of_kind);
    if (kind != Arrivals::Kind::kTrace) {
      Multiply(lists.prompts, &SweepConfig::prompt, &of_kind);
      Multiply(lists.outputs, &SweepConfig::output, &of_kind);
    }
    for (SweepConfig& config : of_kind) {
      if (kind == Arrivals::Kind::kTrace) config.prompt = config.output = "trace";
      if (config.requests == 0 && config.duration_s == 0) {
        if (kind == Arrivals::Kind::kClosedLoop)
          config.requests = std::max(kFewestRequests, kRoundsOfClosedLoop * config.concurrency);
        if (kind == Arrivals::Kind::kPoisson) config.requests = kRequestsOfPoisson;
      }
      loads.push_back(std::move(config));
    }
  }
  return loads;
}

int64_t RequestsToDraw(const SweepConfig& point, const Arrivals& arrivals) {
  if (point.requests > 0) return std::min(point.requests, kMostRequests);
  if (arrivals.kind == Arrivals::Kind::kClosedLoop) return kMostTimedRequests;
  // So many that all that come in this time are among them, but for one run in a million.
  const double expected = std::min(arrivals.rate_per_s * point.duration_s, 1e9);
  return std::min(kMostTimedRequests, static_cast<int64_t>(expected + 5 * std::sqrt(expected)) + 16);
}

}  // namespace

std::vector<SweepConfig> PointsOf(const SweepLists& lists) {
  std::vector<int64_t> max_num_seqs = lists.max_num_seqs;
  if (max_num_seqs.empty()) {
    max_num_seqs = {SweepLists::kFewestSeqs};
    for (const int64_t concurrency : lists.concurrency) max_num_seqs[0] = std::max(max_num_seqs[0], concurrency);
  }
  std::vector<SweepConfig> jobs = {lists.base};
  std::vector<int64_t> repetitions;
  for (int64_t i = 0; i < lists.repetitions; ++i) repetitions.push_back(i);
  Multiply(repetitions, &SweepConfig::repetition, &jobs);
  Multiply(lists.links, &SweepConfig::emulated_link, &jobs);
  Multiply(lists.policies, &SweepConfig::policy, &jobs);
  Multiply(lists.chunkings, &SweepConfig::chunking, &jobs);
  Multiply(lists.wire_types, &SweepConfig::wire_type, &jobs);
  Multiply(lists.kv_types, &SweepConfig::kv_type, &jobs);
  Multiply(lists.block_tokens, &SweepConfig::block_tokens, &jobs);
  Multiply(lists.max_num_batched_tokens, &SweepConfig::max_num_batched_tokens, &jobs);
  Multiply(lists.prefill_chunks, &SweepConfig::prefill_chunk, &jobs);
  Multiply(max_num_seqs, &SweepConfig::max_num_seqs, &jobs);
  Multiply(lists.micro_batches, &SweepConfig::micro_batches, &jobs);
  Multiply(lists.decode_groups, &SweepConfig::decode_groups, &jobs);
  Multiply(lists.threads, &SweepConfig::threads, &jobs);
  Multiply(lists.stages, &SweepConfig::stages, &jobs);
  std::vector<SweepConfig> points;
  std::set<std::string> keys;
  for (const SweepConfig& job : jobs) {
    for (SweepConfig& point : LoadsOf(lists, job)) {
      if (keys.insert(SweepKey(point)).second) points.push_back(std::move(point));
    }
  }
  return points;
}

absl::Status CheckPointCount(const SweepLists& lists) {
  auto points = static_cast<double>(lists.repetitions);
  for (const size_t values :
       {lists.links.size(), lists.policies.size(), lists.chunkings.size(), lists.wire_types.size(),
        lists.kv_types.size(), lists.block_tokens.size(), lists.max_num_batched_tokens.size(),
        lists.prefill_chunks.size(), std::max<size_t>(lists.max_num_seqs.size(), 1), lists.micro_batches.size(),
        lists.decode_groups.size(), lists.threads.size(), lists.stages.size(), lists.arrivals.size(),
        lists.concurrency.size(), lists.prompts.size(), lists.outputs.size()}) {
    points *= static_cast<double>(values);
  }
  if (points <= kMostPoints) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the lists make ", points, " points, expected at most ", kMostPoints,
                                                 "; shorten them, or split them over several sweeps"));
}

std::string PointName(const SweepConfig& point) {
  std::string name = point.stages > 0 ? absl::StrCat("pp ", point.stages) : "pp auto";
  if (point.threads > 0) absl::StrAppend(&name, ", t ", point.threads);
  if (point.decode_groups > 0) absl::StrAppend(&name, ", groups ", point.decode_groups);
  if (point.micro_batches > 0) absl::StrAppend(&name, ", micro-batches ", point.micro_batches);
  absl::StrAppend(&name, ", ", PolicyName(point.policy), "/", point.prefill_chunk);
  if (point.chunking != Chunking::kConstant) absl::StrAppend(&name, " ", NameOf(kChunkings, point.chunking));
  absl::StrAppend(&name, ", ", WireTypeName(point.wire_type), ", ", point.arrivals);
  if (point.concurrency > 0) absl::StrAppend(&name, " x", point.concurrency);
  if (point.emulated_link != EmulatedLink()) {
    absl::StrAppend(&name, ", emulated ", EmulatedLinkText(point.emulated_link));
  }
  absl::StrAppend(&name, ", ", point.prompt, " -> ", point.output, ", run ", point.repetition + 1);
  return name;
}

SweepConfig JobOf(const SweepConfig& point) {
  const SweepConfig none;
  SweepConfig job = point;
  job.arrivals = none.arrivals;
  job.concurrency = none.concurrency;
  job.prompt = none.prompt;
  job.output = none.output;
  job.requests = none.requests;
  job.duration_s = none.duration_s;
  job.slo_ttft_s = none.slo_ttft_s;
  if (point.policy != Policy::kThrottled) job.slo_itl_s = none.slo_itl_s;  // which that keeps to
  job.seed = none.seed;
  job.repetition = none.repetition;
  return job;
}

std::vector<SweepLaunch> LaunchesOf(const std::vector<SweepConfig>& points) {
  std::vector<SweepLaunch> launches;
  for (const SweepConfig& point : points) {
    const SweepConfig* last = launches.empty() ? nullptr : &launches.back().points.back();
    if (last == nullptr || last->repetition != point.repetition || JobOf(*last) != JobOf(point)) {
      launches.emplace_back();
    }
    launches.back().points.push_back(point);
  }
  return launches;
}

absl::StatusOr<std::vector<ArrivingRequest>> RequestsOf(const SweepConfig& point) {
  RequestLoad load;
  ASSIGN_OR_RETURN(load.arrivals, ParseArrivals(point.arrivals));
  std::vector<ArrivingRequest> requests;
  if (load.arrivals.kind == Arrivals::Kind::kTrace) {
    ASSIGN_OR_RETURN(requests, ReadArrivalTrace(load.arrivals.trace_file));
  } else {
    ASSIGN_OR_RETURN(load.prompt, ParseLengths(point.prompt));
    ASSIGN_OR_RETURN(load.output, ParseLengths(point.output));
    load.requests = RequestsToDraw(point, load.arrivals);
    load.seed = point.seed;
    requests = MakeRequests(load);
  }
  if (point.requests > 0 && static_cast<int64_t>(requests.size()) > point.requests) {
    requests.resize(static_cast<size_t>(point.requests));
  }
  if (point.duration_s > 0) {
    std::erase_if(requests, [&](const ArrivingRequest& request) { return request.arrival_s > point.duration_s; });
  }
  if (!requests.empty()) return requests;
  return absl::InvalidArgumentError(absl::StrCat("`duration`: no request of '", point.arrivals, "' arrives within ",
                                                 point.duration_s, " s; give more"));
}

int64_t ContextOf(const std::vector<ArrivingRequest>& requests) {
  int64_t longest = 1;
  for (const ArrivingRequest& request : requests) {
    longest = std::max(longest, request.prompt_tokens + request.output_tokens);
  }
  return longest;
}

}  // namespace stagecoach
