#include "coordinator/cli/bench/load_account.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

absl::Status LacksAccount(const StepRecord& record, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("micro-batch ", record.number, " has ", what, "; do all stages have the coordinator's version?"));
}

absl::Status AddStep(const StepRecord& record, int64_t free_us, LoadAccount* load) {
  if (load->steps == 0) load->stages.resize(record.times.size());
  if (record.times.size() != load->stages.size()) {
    return LacksAccount(record, absl::StrCat(record.times.size(), " stages, expected ", load->stages.size()));
  }
  ++load->steps;
  load->latency_us += record.confirm_us - record.submit_us;
  load->coordinator_us += std::max<int64_t>(0, record.submit_us - free_us);
  for (size_t i = 0; i < record.times.size(); ++i) {
    const StageTimes& times = record.times[i];
    LoadAccount::Stage& stage = load->stages[i];
    if (times.account.size() != kStepParts) return LacksAccount(record, absl::StrCat("no account of stage ", i));
    stage.queue_us += times.start_us - times.received_us;
    stage.compute_us += times.end_us - times.start_us;
    stage.parts.resize(kStepParts);
    for (size_t part = 0; part < kStepParts; ++part) {
      stage.parts[part].busy_ns += times.account[part].busy_ns;
      stage.parts[part].wait_ns += times.account[part].wait_ns;
      stage.parts[part].bytes += times.account[part].bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t LoadAccount::hops_us() const {
  int64_t us = latency_us;
  for (const Stage& stage : stages) us -= stage.queue_us + stage.compute_us;
  return us;
}

double LoadAccount::in_flight() const {
  return wall_us > 0 ? static_cast<double>(latency_us) / static_cast<double>(wall_us) : 0;
}

absl::StatusOr<LoadAccount> AccountOf(absl::Span<const StepRecord> records, absl::Span<const LoadWindow> windows) {
  LoadAccount load;
  for (const LoadWindow& window : windows) {
    const int64_t before = load.steps;
    int64_t free_us = window.begin_us;  // since when nothing is in flight, as far as the steps so far say
    for (const StepRecord& record : records) {
      if (record.confirm_us <= window.begin_us || record.confirm_us > window.begin_us + window.us) continue;
      RETURN_IF_ERROR(AddStep(record, free_us, &load));
      free_us = record.confirm_us;
    }
    if (load.steps == before) {
      return absl::DataLossError("the step log has no step of a load; is the disk that it is written to full?");
    }
    load.wall_us += window.us;
  }
  return load;
}

Json LoadAccountJson(const LoadAccount& account) {
  const auto mean_ns = [&](int64_t sum_ns) { return sum_ns / std::max<int64_t>(1, account.steps); };
  Json stages = Json::array();
  for (size_t i = 0; i < account.stages.size(); ++i) {
    const LoadAccount::Stage& stage = account.stages[i];
    Json parts = Json::array();
    for (size_t part = 0; part < stage.parts.size(); ++part) {
      const StepPartTotals& totals = stage.parts[part];
      if (totals == StepPartTotals()) continue;
      parts.push_back({{"part", NameOf(kStepPartNames, static_cast<StepPart>(part))},
                       {"busy_ns", mean_ns(totals.busy_ns)},
                       {"wait_ns", mean_ns(totals.wait_ns)},
                       {"bytes", mean_ns(totals.bytes)}});
    }
    stages.push_back({{"stage", i},
                      {"queue_ns", mean_ns(stage.queue_us * 1000)},
                      {"compute_ns", mean_ns(stage.compute_us * 1000)},
                      {"outside_ns", mean_ns(stage.outside_ns())},
                      {"parts", std::move(parts)}});
  }
  return {{"steps", account.steps},
          {"wall_ns", mean_ns(account.wall_us * 1000)},
          {"latency_ns", mean_ns(account.latency_us * 1000)},
          {"coordinator_ns", mean_ns(account.coordinator_us * 1000)},
          {"hops_ns", mean_ns(account.hops_us() * 1000)},
          {"in_flight", std::round(account.in_flight() * 1000) / 1000},
          {"stages", std::move(stages)}};
}

}  // namespace stagecoach
