#include "coordinator/sim/sim_front.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "coordinator/sim/sim_pipeline.h"

namespace stagecoach {

SimFront::SimFront(RequestFeed feed, int64_t vocab, RequestMeter meter, double hand_over_s, VirtualClock* clock)
    : feed_(std::move(feed)),
      at_once_(std::all_of(feed_.requests().begin(), feed_.requests().end(),
                           [](const ArrivingRequest& request) { return request.arrival_s == 0; })),
      vocab_(vocab),
      meter_(std::move(meter)),
      hand_over_ns_(NsOf(hand_over_s)),
      clock_(clock),
      requests_(feed_.requests().size()) {}

absl::StatusOr<std::optional<FrontCommand>> SimFront::Next() {
  if (!again_.empty()) {
    const size_t number = again_.front();
    again_.pop_front();
    return std::optional<FrontCommand>(CommandFor(number));
  }
  if (!cancels_.empty()) {  // behind the above: the next job knows what it is to cancel
    const CancelCommand cancel = {cancels_.front()};
    cancels_.pop_front();
    return std::optional<FrontCommand>(cancel);
  }
  const std::optional<double> due_s = feed_.NextAt();
  if (!due_s.has_value() || NextNs() > clock_->now_ns()) return std::optional<FrontCommand>();
  const int64_t begin_ns = NextNs() - hand_over_ns_;
  free_ns_ = begin_ns + hand_over_ns_;
  const std::optional<size_t> number = feed_.Take(*due_s);
  CHECK(number.has_value());
  SimulatedRequest& request = requests_[*number];
  const double arrival_s = feed_.requests()[*number].arrival_s;
  request.arrived_ns = at_once_ ? begin_ns : NsOf(arrival_s);
  meter_.Arrived(static_cast<RequestId>(*number + 1), request.arrived_ns / 1000,
                 feed_.requests()[*number].prompt_tokens);
  ++unfinished_;
  if (feed_.requests()[*number].cancel_after == 0) cancels_.push_back(static_cast<RequestId>(*number + 1));
  return std::optional<FrontCommand>(CommandFor(*number));
}

SubmitCommand SimFront::CommandFor(size_t number) const {
  const ArrivingRequest& shape = feed_.requests()[number];
  SubmitCommand command;
  command.request = static_cast<RequestId>(number + 1);
  command.spec.prompt.reserve(static_cast<size_t>(shape.prompt_tokens));
  const uint64_t first = MixBits(number + 1);
  for (int64_t i = 0; i < shape.prompt_tokens; ++i) {
    command.spec.prompt.push_back(
        static_cast<TokenId>(MixBits(first + static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab_)));
  }
  command.spec.output.assign(static_cast<size_t>(requests_[number].tokens), kSimulatedToken);
  command.spec.max_new_tokens = shape.output_tokens;
  command.spec.tenant = shape.tenant;
  command.spec.grammar = shape.grammar;
  command.spec.weight = shape.weight;
  command.spec.priority_class = shape.priority_class;
  return command;
}

absl::Status SimFront::Publish(const RequestEvents& events) {
  const int64_t now_ns = clock_->now_ns();
  for (const RequestDelta& delta : events.deltas) Take(delta, now_ns);
  for (const RequestEnd& end : events.ends) Finish(end);
  return absl::OkStatus();
}

void SimFront::Take(const RequestDelta& delta, int64_t now_ns) {
  SimulatedRequest& request = requests_[static_cast<size_t>(delta.request) - 1];
  const auto tokens = static_cast<int64_t>(delta.tokens.size());
  if (tokens == 0) return;
  if (request.tokens == 0) request.first_ns = now_ns;
  request.last_ns = now_ns;
  const int64_t cancel_after = feed_.requests()[static_cast<size_t>(delta.request) - 1].cancel_after;
  if (request.tokens < cancel_after && request.tokens + tokens >= cancel_after) cancels_.push_back(delta.request);
  request.tokens += tokens;
  produced_ += tokens;
  meter_.Tokens(delta.request, now_ns / 1000, tokens);
}

void SimFront::Finish(const RequestEnd& end) {
  SimulatedRequest& request = requests_[static_cast<size_t>(end.request) - 1];
  CHECK(!request.ended);
  request.ended = true;
  request.error = end.error;
  if (end.reason.has_value() && end.reason != FinishReason::kCancelled) {
    meter_.Ended(end.request);
  } else {
    meter_.Failed(end.request);
  }
  --unfinished_;
  feed_.Finished();
  free_ns_ = std::max(free_ns_, clock_->now_ns());
}

bool SimFront::Wait(int64_t most_us) {
  to_next_event_(most_us);
  return NextNs() <= clock_->now_ns();
}

void SimFront::Resubmit() {
  again_.clear();
  while (oldest_ < requests_.size() && requests_[oldest_].ended) ++oldest_;
  for (size_t number = oldest_; number < requests_.size() && requests_[number].arrived_ns >= 0; ++number) {
    if (!requests_[number].ended) again_.push_back(number);
  }
}

int64_t SimFront::NextNs() const {
  if (!again_.empty() || !cancels_.empty()) return 0;
  const std::optional<double> next_s = feed_.NextAt();
  return next_s.has_value() ? std::max(NsOf(*next_s), free_ns_) + hand_over_ns_ : kNeverNs;
}

}  // namespace stagecoach
