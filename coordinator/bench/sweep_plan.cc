#include "coordinator/bench/sweep_plan.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"

namespace stagecoach {
namespace {

// The lists of a job, outermost first, and the fields that they are of.
template <typename Visitor>
void VisitJobLists(const SweepLists& lists, const Visitor& visit) {
  visit(lists.links, &SweepConfig::emulated_link);
  visit(lists.policies, &SweepConfig::policy);
  visit(lists.chunkings, &SweepConfig::chunking);
  visit(lists.wire_types, &SweepConfig::wire_type);
  visit(lists.kv_types, &SweepConfig::kv_type);
  visit(lists.block_tokens, &SweepConfig::block_tokens);
  visit(lists.max_num_batched_tokens, &SweepConfig::max_num_batched_tokens);
  visit(lists.prefill_chunks, &SweepConfig::prefill_chunk);
  visit(lists.max_num_seqs, &SweepConfig::max_num_seqs);
  visit(lists.micro_batches, &SweepConfig::micro_batches);
  visit(lists.decode_groups, &SweepConfig::decode_groups);
  visit(lists.threads, &SweepConfig::threads);
  visit(lists.stages, &SweepConfig::stages);
  visit(lists.speculations, &SweepConfig::speculate);
  visit(lists.acceptances, &SweepConfig::acceptance);
}

// Every configuration with every value of one list, if it has any, in one of its fields.
template <typename Value, typename Member>
void Multiply(const std::vector<Value>& values, Member field, std::vector<SweepConfig>* configs) {
  if (values.empty()) return;
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
    if (const auto hash = lists.arrivals_hashes.find(arrivals); hash != lists.arrivals_hashes.end()) {
      load.arrivals_hash = hash->second;
    }
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
  // Enough that all arrivals of this time are included, except in one run of a million.
  const double expected = std::min(arrivals.rate_per_s * point.duration_s, 1e9);
  return std::min(kMostTimedRequests, static_cast<int64_t>(expected + 5 * std::sqrt(expected)) + 16);
}

}  // namespace

std::vector<SweepConfig> PointsOf(const SweepLists& lists) {
  SweepConfig base = lists.base;
  base.max_num_seqs = SweepLists::kFewestSeqs;  // where no list says it
  for (const int64_t concurrency : lists.concurrency) base.max_num_seqs = std::max(base.max_num_seqs, concurrency);
  std::vector<SweepConfig> jobs = {std::move(base)};
  std::vector<int64_t> repetitions(static_cast<size_t>(lists.repetitions));
  std::iota(repetitions.begin(), repetitions.end(), 0);
  Multiply(repetitions, &SweepConfig::repetition, &jobs);
  VisitJobLists(lists, [&](const auto& values, auto field) { Multiply(values, field, &jobs); });
  for (SweepConfig& job : jobs) {
    if (job.acceptance > 0 && job.speculate == Speculate::kOff) job.speculate = Speculate::kAuto;
  }
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
  const auto count = [&points](const auto& values, auto... /*field*/) {
    points *= static_cast<double>(std::max<size_t>(values.size(), 1));
  };
  VisitJobLists(lists, count);
  count(lists.arrivals);
  count(lists.concurrency);
  count(lists.prompts);
  count(lists.outputs);
  if (points <= kMostPoints) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the lists make ", points, " points, expected at most ", kMostPoints,
                                                 "; shorten them, or split them over several sweeps"));
}

std::string PointName(const SweepConfig& point) {
  std::string name = point.stages > 0 ? absl::StrCat("pp ", point.stages) : "pp auto";
  if (point.threads > 0) absl::StrAppend(&name, ", t ", point.threads);
  if (point.decode_groups > 0) absl::StrAppend(&name, ", groups ", point.decode_groups);
  if (point.micro_batches > 0) absl::StrAppend(&name, ", micro-batches ", point.micro_batches);
  if (point.speculate != Speculate::kOff) {
    absl::StrAppend(&name, ", speculate ", NameOf(kSpeculations, point.speculate));
  }
  if (point.acceptance > 0) absl::StrAppend(&name, ", acceptance ", point.acceptance);
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
  SweepConfig job;
  static_cast<JobSettings&>(job) = point;
  job.model = point.model;
  job.hosts = point.hosts;
  if (point.policy != Policy::kThrottled) job.slo_itl_s = 0;  // which that keeps to
  return job;
}

std::vector<SweepLaunch> LaunchesOf(const std::vector<SweepConfig>& points) {
  std::vector<SweepLaunch> launches;
  for (const SweepConfig& point : points) {
    const SweepConfig* last = launches.empty() ? nullptr : &launches.back().back();
    if (last == nullptr || last->repetition != point.repetition || JobOf(*last) != JobOf(point)) {
      launches.emplace_back();
    }
    launches.back().push_back(point);
  }
  return launches;
}

absl::StatusOr<std::string> ArrivalsHash(const std::string& arrivals) {
  ASSIGN_OR_RETURN(const Arrivals parsed, ParseArrivals(arrivals));
  if (parsed.kind != Arrivals::Kind::kTrace) return std::string();
  std::ifstream file(parsed.trace_file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) return absl::NotFoundError(absl::StrCat("cannot read '", parsed.trace_file, "'"));
  return ContentHash(text);
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
