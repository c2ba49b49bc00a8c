#include "coordinator/pipeline/roster.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

bool CountersMoved(const pb::Heartbeat& before, const pb::Heartbeat& after) {
  return before.bytes_touched() != after.bytes_touched() || before.bytes_loaded() != after.bytes_loaded() ||
         before.layers_done() != after.layers_done() || before.steps_done() != after.steps_done() ||
         before.bytes_streamed() != after.bytes_streamed() || before.grammar_mask_ns() != after.grammar_mask_ns();
}

constexpr char kStagePayload[] = "stagecoach/stage";

std::string Seconds(int64_t us) { return absl::StrFormat("%.1f s", us * 1e-6); }

}  // namespace

absl::Status WithStage(int stage, absl::Status status) {
  status.SetPayload(kStagePayload, absl::Cord(absl::StrCat(stage)));
  return status;
}

std::optional<int> LostStage(const absl::Status& status) {
  const auto payload = status.GetPayload(kStagePayload);
  int stage = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &stage)) return std::nullopt;
  return stage;
}

Roster::Roster(const std::vector<pb::Hello>& hellos, int64_t progress_timeout_us, int64_t now_us)
    : progress_timeout_us_(progress_timeout_us), moved_us_(now_us) {
  for (const pb::Hello& hello : hellos) {
    CHECK(!StageOfRank(hello.rank()).has_value());
    records_.push_back({.rank = hello.rank(),
                        .host = hello.host(),
                        .pid = hello.pid(),
                        .processor = hello.processor(),
                        .cores = hello.allowed_cores(),
                        .memory_bytes = hello.memory_bytes(),
                        .heard_us = now_us});
  }
}

std::optional<int> Roster::StageOfRank(int rank) const {
  for (int stage = 0; stage < stages(); ++stage) {
    if (records_[stage].rank == rank) return stage;
  }
  return std::nullopt;
}

void Roster::Heard(const pb::Heartbeat& heartbeat, int64_t now_us) {
  StageRecord& record = records_[heartbeat.stage()];
  if (CountersMoved(record.heartbeat, heartbeat)) moved_us_ = now_us;
  record.heartbeat = heartbeat;
  record.heard_us = now_us;
}

void Roster::Heard(const pb::StageReady& ready, int64_t now_us) {
  StageRecord& record = records_[ready.stage()];
  record.ready = ready;
  record.is_ready = true;
  record.heard_us = moved_us_ = now_us;
}

void Roster::ResultArrived(int64_t now_us) { moved_us_ = now_us; }
void Roster::WorkHandedOut(int64_t now_us) { moved_us_ = std::max(moved_us_, now_us); }

bool Roster::AllReady() const {
  return std::all_of(records_.begin(), records_.end(), [](const StageRecord& r) { return r.is_ready; });
}

uint64_t Roster::bytes_loaded() const {
  uint64_t sum = 0;
  for (const StageRecord& record : records_) sum += record.heartbeat.bytes_loaded();
  return sum;
}

uint64_t Roster::bytes_to_load() const {
  uint64_t sum = 0;
  for (const StageRecord& record : records_) sum += record.heartbeat.bytes_to_load();
  return sum;
}

std::string Roster::Describe(int stage) const {
  return absl::StrCat(StageName(stage, records_[stage].host), " (process ", records_[stage].pid, ")");
}

absl::Status Roster::CheckAlive(int64_t now_us, int64_t oldest) const {
  for (int stage = 0; stage < stages(); ++stage) {
    const int64_t silent_us = now_us - records_[stage].heard_us;
    if (silent_us > kSilenceUs) {
      return WithStage(stage, absl::UnavailableError(
                                  absl::StrCat("lost ", Describe(stage), ": no heartbeat for ", Seconds(silent_us))));
    }
  }
  const bool loading = !AllReady();
  if ((!loading && oldest < 0) || now_us - moved_us_ <= progress_timeout_us_) return absl::OkStatus();
  // The frame sits with the first stage that has not done it.
  for (int stage = 0; stage < stages(); ++stage) {
    const StageRecord& record = records_[stage];
    const bool holds_it = loading ? !record.is_ready : static_cast<int64_t>(record.heartbeat.steps_done()) <= oldest;
    if (holds_it) {
      return WithStage(
          stage, absl::UnavailableError(absl::StrCat("lost ", Describe(stage), ": ", loading ? "loading" : "working",
                                                     " without progress for ", Seconds(now_us - moved_us_))));
    }
  }
  return absl::UnavailableError(absl::StrCat("lost the result of micro-batch ", oldest,
                                             ": every stage has passed it on, none arrived for ",
                                             Seconds(now_us - moved_us_)));
}

}  // namespace stagecoach
