#include "coordinator/sim/sim_pipeline.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace stagecoach {

SimPipeline::SimPipeline(const SimCluster* cluster, VirtualClock* clock, uint64_t seed, int64_t fails_at_ns,
                         int64_t detect_ns)
    : cluster_(cluster),
      clock_(clock),
      fails_at_ns_(fails_at_ns),
      detect_ns_(detect_ns),
      network_(&cluster->pipeline, seed),
      stages_(cluster->pipeline.stages.size()) {
  std::map<int, int> numbers;
  for (const PipelineStage& stage : cluster->pipeline.stages) {
    host_of_.push_back(numbers.try_emplace(stage.host, static_cast<int>(numbers.size())).first->second);
  }
  computing_.resize(numbers.size());
  for (size_t s = 0; s < stages_.size(); ++s) {
    stages_[s].step_s.resize(static_cast<size_t>(std::count(host_of_.begin(), host_of_.end(), host_of_[s])));
  }
}

absl::Status SimPipeline::Submit(const MicroBatch& batch) {
  CHECK_EQ(batch.number, first_number_ + flights_.size());
  clock_->AdvanceTo(clock_->now_ns() + NsOf(cluster_->turn_s));
  Flight& flight = flights_.emplace_back();
  flight.result = answers_.To(batch);
  flight.load = LoadOf(batch, cluster_->pipeline.window(), &flight.result);
  flight.result.times.resize(stages_.size());
  Push(clock_->now_ns() + NsOf(cluster_->pipeline.to_first_s + cluster_->wake_s), Event::Kind::kArrival, 0,
       batch.number);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StepResult>> SimPipeline::Poll() {
  const int64_t now_ns = clock_->now_ns();
  RunUntil(now_ns);
  if (flights_.empty() || flights_.front().ready_ns > now_ns) {
    if (fails_at_ns_ < now_ns && fails_at_ns_ + detect_ns_ <= now_ns) {
      return absl::UnavailableError(
          absl::StrFormat("a stage was lost at %.3f s of simulated time", SecondsOf(fails_at_ns_)));
    }
    return std::optional<StepResult>();
  }
  std::optional<StepResult> result = std::move(flights_.front().result);
  flights_.pop_front();
  ++first_number_;
  return result;
}

std::optional<int64_t> SimPipeline::NextNs(int64_t limit_ns) {
  const int64_t lost_ns = fails_at_ns_ == kNeverNs ? kNeverNs : fails_at_ns_ + std::max<int64_t>(detect_ns_, 1);
  limit_ns = std::min(limit_ns, lost_ns);
  while (!events_.empty() && events_.front().at_ns <= std::min(limit_ns, fails_at_ns_)) {
    if (!flights_.empty() && flights_.front().ready_ns <= events_.front().at_ns) break;
    RunUntil(events_.front().at_ns);
  }
  if (!flights_.empty() && flights_.front().ready_ns <= limit_ns) return flights_.front().ready_ns;
  if (lost_ns <= limit_ns && lost_ns != kNeverNs) return lost_ns;
  return std::nullopt;
}

void SimPipeline::Push(int64_t at_ns, Event::Kind kind, int stage, uint64_t subject) {
  events_.push_back({at_ns, next_order_++, kind, stage, subject});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

void SimPipeline::RunUntil(int64_t limit_ns) {
  limit_ns = std::min(limit_ns, fails_at_ns_);
  while (!events_.empty() && events_.front().at_ns <= limit_ns) {
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    const Event event = events_.back();
    events_.pop_back();
    Take(event);
  }
}

void SimPipeline::Take(const Event& event) {
  if (event.kind == Event::Kind::kArrival) {
    OnArrival(event.stage, event.subject, event.at_ns);
  } else if (event.kind == Event::Kind::kSent) {
    if (event.subject == sent_plan_) TakeSent(event.at_ns);
  } else if (event.kind == Event::Kind::kStepOver) {
    EndStep(event.stage, event.at_ns);
    BeginNext(event.stage, event.at_ns);
  } else if (stages_[static_cast<size_t>(event.stage)].plan == event.subject) {
    OnComputed(event.stage, event.at_ns);
  }
}

void SimPipeline::OnArrival(int stage, uint64_t number, int64_t now_ns) {
  Flight& flight = FlightOf(number);
  if (stage == stages()) {
    flight.ready_ns = now_ns;
    return;
  }
  flight.result.times[static_cast<size_t>(stage)].received_us = now_ns / 1000;
  Stage& at = stages_[static_cast<size_t>(stage)];
  at.waiting.push_back(number);
  if (!at.busy) Begin(stage, now_ns);
}

void SimPipeline::Begin(int stage, int64_t now_ns) {
  Stage& at = stages_[static_cast<size_t>(stage)];
  const int host = host_of_[static_cast<size_t>(stage)];
  std::vector<int>& computing = computing_[static_cast<size_t>(host)];
  at.number = at.waiting.front();
  at.waiting.pop_front();
  at.busy = true;
  at.left = 1;
  at.since_ns = now_ns;
  std::fill(at.step_s.begin(), at.step_s.end(), -1.0);
  StageTimes& times = FlightOf(at.number).result.times[static_cast<size_t>(stage)];
  times.stage = stage;
  times.start_us = now_ns / 1000;
  ReportLastSend(now_ns, &at, &times);
  const int before = static_cast<int>(computing.size());
  computing.push_back(stage);
  RescheduleHost(host, std::max(before, 1), now_ns);
}

void SimPipeline::OnComputed(int stage, int64_t now_ns) {
  const bool has_rows = FlightOf(stages_[static_cast<size_t>(stage)].number).load.rows > 0;
  if (cluster_->stage_delay_s > 0 && has_rows) {
    LeaveHost(stage, now_ns);
    Push(now_ns + NsOf(cluster_->stage_delay_s), Event::Kind::kStepOver, stage, 0);
    return;
  }
  EndStep(stage, now_ns);
  LeaveHost(stage, now_ns);
  BeginNext(stage, now_ns);
}

void SimPipeline::EndStep(int stage, int64_t now_ns) {
  Stage& at = stages_[static_cast<size_t>(stage)];
  FlightOf(at.number).result.times[static_cast<size_t>(stage)].end_us = now_ns / 1000;
  at.sends.push_back({.begin_ns = now_ns});
  Send(stage, at.number, now_ns);
}

void SimPipeline::BeginNext(int stage, int64_t now_ns) {
  Stage& at = stages_[static_cast<size_t>(stage)];
  at.busy = false;
  if (!at.waiting.empty()) Begin(stage, now_ns);
}

void SimPipeline::LeaveHost(int stage, int64_t now_ns) {
  const int host = host_of_[static_cast<size_t>(stage)];
  std::vector<int>& computing = computing_[static_cast<size_t>(host)];
  const int before = static_cast<int>(computing.size());
  computing.erase(std::find(computing.begin(), computing.end(), stage));
  if (!computing.empty()) RescheduleHost(host, before, now_ns);
}

void SimPipeline::Send(int stage, uint64_t number, int64_t now_ns) {
  const double rows = FlightOf(number).load.rows;
  if (!network_.SharesItsWay(stage)) {
    Deliver(stage, number, network_.Send(stage, number, rows, now_ns));
    return;
  }
  std::deque<uint64_t>& to_send = stages_[static_cast<size_t>(stage)].to_send;
  to_send.push_back(number);
  if (to_send.size() > 1) return;
  network_.Begin(stage, rows, now_ns);
  ScheduleNextSent();
}

void SimPipeline::TakeSent(int64_t now_ns) {
  for (const int stage : network_.TakeSent(now_ns)) {
    std::deque<uint64_t>& to_send = stages_[static_cast<size_t>(stage)].to_send;
    Deliver(stage, to_send.front(), network_.FrameSent(stage, to_send.front(), now_ns));
    to_send.pop_front();
    if (!to_send.empty()) network_.Begin(stage, FlightOf(to_send.front()).load.rows, now_ns);
  }
  ScheduleNextSent();
}

// Other frames share their ways now: from here on they are sent at other times.
void SimPipeline::ScheduleNextSent() {
  ++sent_plan_;
  if (const int64_t next_ns = network_.NextSentNs(); next_ns != kNeverNs) {
    Push(next_ns, Event::Kind::kSent, 0, sent_plan_);
  }
}

void SimPipeline::Deliver(int stage, uint64_t number, const SimNetwork::Delivery& delivery) {
  std::deque<Sending>& sends = stages_[static_cast<size_t>(stage)].sends;
  const auto sending =
      std::find_if(sends.begin(), sends.end(), [](const Sending& send) { return send.end_ns == kNeverNs; });
  sending->end_ns = delivery.sent_ns;
  Push(delivery.arrives_ns + NsOf(cluster_->wake_s), Event::Kind::kArrival, stage + 1, number);
}

void SimPipeline::ReportLastSend(int64_t now_ns, Stage* stage, StageTimes* times) {
  std::deque<Sending>& sends = stage->sends;
  while (sends.size() > 1 && sends[1].end_ns <= now_ns) sends.pop_front();
  if (sends.empty() || sends.front().end_ns > now_ns) return;
  times->send_start_us = sends.front().begin_ns / 1000;
  times->send_us = sends.front().end_ns / 1000 - times->send_start_us;
}

double SimPipeline::StepSeconds(Stage& stage, int number, int active) {
  double& seconds = stage.step_s[static_cast<size_t>(active) - 1];
  if (seconds < 0) seconds = StageSeconds(cluster_->pipeline, number, FlightOf(stage.number).load, active);
  return seconds;
}

// The stages that compute on the host are now others, or another number: from here on they go at another speed.
void SimPipeline::RescheduleHost(int host, int active_before, int64_t now_ns) {
  const std::vector<int>& computing = computing_[static_cast<size_t>(host)];
  const int active = static_cast<int>(computing.size());
  for (const int number : computing) {
    Stage& stage = stages_[static_cast<size_t>(number)];
    if (stage.since_ns < now_ns) {
      const double whole = StepSeconds(stage, number, active_before);
      stage.left = whole > 0 ? std::max(0.0, stage.left - SecondsOf(now_ns - stage.since_ns) / whole) : 0;
      stage.since_ns = now_ns;
    }
    ++stage.plan;
    Push(now_ns + NsOf(stage.left * StepSeconds(stage, number, active)), Event::Kind::kComputed, number, stage.plan);
  }
}

StepResult AnswerTo(const MicroBatch& batch) {
  StepResult result{.number = batch.number};
  for (const SequenceSlice& slice : batch.slices) {
    if (slice.sample) {
      result.sampled.push_back(
          {.sequence = slice.sequence, .position = slice.start + slice.count, .token = kSimulatedToken});
    }
    if (!slice.targets.empty()) {
      result.targets.push_back(
          {slice.sequence, slice.start, std::vector<float>(slice.targets.size(), 0.0f), /*invalid_logits=*/false});
    }
  }
  return result;
}

StepResult SimAnswers::To(const MicroBatch& batch) {
  for (const SequenceId sequence : batch.free) tokens_.erase(sequence);
  StepResult result = AnswerTo(batch);
  auto sampled = result.sampled.begin();
  for (const SequenceSlice& slice : batch.slices) {
    if (!slice.sample) continue;
    SampledToken& answer = *sampled++;
    int64_t& tokens = tokens_[slice.sequence];
    if (!slice.guess || GuessHolds(slice.start, slice.tokens[0], tokens, kSimulatedToken)) {
      tokens = answer.position + 1;
    } else {
      answer = {.sequence = slice.sequence, .position = answer.position, .token = kNoToken, .is_void = true};
    }
  }
  return result;
}

StepLoad LoadOf(const MicroBatch& batch, int64_t window, const StepResult* result) {
  StepLoad load;
  size_t sampled = 0;
  for (const SequenceSlice& slice : batch.slices) {
    const bool is_void = slice.sample && result != nullptr && result->sampled[sampled].is_void;
    sampled += slice.sample ? 1 : 0;
    const StepLoad rows = StepLoad::Chunk(slice.count, slice.start, slice.sample && !is_void, window);
    load.rows += rows.rows;
    load.sequences += 1;
    load.positions += rows.positions;
    load.kv_tokens += rows.kv_tokens;
    load.window_positions += rows.window_positions;
    load.window_kv_tokens += rows.window_kv_tokens;
    const auto targets =
        slice.targets.size() - static_cast<size_t>(std::count(slice.targets.begin(), slice.targets.end(), kNoToken));
    load.head_rows += std::max(rows.head_rows, static_cast<double>(targets));
  }
  return load;
}

}  // namespace stagecoach
