#include "common/transport/link_meter.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr int kReceives = 4;
constexpr int kSmallPings = 300;
constexpr int kFewestSmallPings = 8;
constexpr double kSmallPingsUs = 150000;  // on slow links there are fewer
constexpr int kLargeRuns = 4;             // of which the first one warms up
constexpr double kLargeRunUs = 60000;     // about as long as one of them takes
constexpr int kMostFrames = 64;

}  // namespace

absl::Status OpenPings(Endpoint* endpoint, int source) {
  return endpoint->OpenReceive(Channel::kStep, source, kMaxPingFrameBytes, kReceives);
}

absl::Status OpenPingAnswers(Endpoint* endpoint, int peer) {
  return endpoint->OpenReceive(Channel::kResult, peer, kMaxPingHeaderBytes, kReceives);
}

absl::Status AnswerPing(Endpoint* endpoint, const ReceivedFrame& frame) {
  ASSIGN_OR_RETURN(const PingFrame received, DecodePing(frame.bytes()));
  if (!received.ping.wants_answer()) return absl::OkStatus();
  pb::ProbePing answer;
  answer.set_number(received.ping.number());
  answer.set_at_us(WallUs());
  auto buffer = std::make_shared<FrameBuffer>(kMaxPingHeaderBytes, 0);
  RETURN_IF_ERROR(EncodePing(answer, /*with_payload=*/false, buffer.get()));
  return endpoint->Send(Channel::kResult, frame.source(), std::move(buffer));
}

LinkMeter::LinkMeter(Endpoint* endpoint, int peer, uint32_t number)
    : endpoint_(endpoint), peer_(peer), number_(number) {}

absl::Status LinkMeter::Begin() {
  phase_began_ = Clock::now();
  return SendRun(1, /*large=*/false);
}

absl::Status LinkMeter::SendRun(int frames, bool large) {
  pb::ProbePing ping;
  ping.set_number(number_);
  if (large && large_ == nullptr) {
    for (const bool last : {false, true}) {
      auto buffer = std::make_shared<FrameBuffer>(kMaxPingHeaderBytes, kPingPayloadBytes);
      std::fill_n(buffer->payload(), kPingPayloadBytes, uint8_t{1});
      ping.set_wants_answer(last);
      RETURN_IF_ERROR(EncodePing(ping, /*with_payload=*/true, buffer.get()));
      (last ? last_large_ : large_) = std::move(buffer);
    }
  }
  std::shared_ptr<FrameBuffer> last = last_large_;
  sent_us_ = WallUs();
  if (!large) {
    ping.set_wants_answer(true);
    ping.set_at_us(sent_us_);
    last = std::make_shared<FrameBuffer>(kMaxPingHeaderBytes, 0);
    RETURN_IF_ERROR(EncodePing(ping, /*with_payload=*/false, last.get()));
  }
  frames_ = frames;
  began_ = Clock::now();
  for (int i = 1; i < frames; ++i) RETURN_IF_ERROR(endpoint_->Send(Channel::kStep, peer_, large_));
  return endpoint_->Send(Channel::kStep, peer_, std::move(last));
}

absl::Status LinkMeter::Take(const ReceivedFrame& frame) {
  const Clock::time_point now = Clock::now();
  ASSIGN_OR_RETURN(const PingFrame received, DecodePing(frame.bytes()));
  if (done() || received.ping.number() != number_) return absl::OkStatus();
  if (phase_ == Phase::kSmall) clock_.Add(sent_us_, received.ping.at_us(), WallUs());
  return Next(std::max(std::chrono::duration<double, std::micro>(now - began_).count(), 1e-3));
}

absl::Status LinkMeter::Next(double elapsed_us) {
  ++runs_;
  if (phase_ == Phase::kSmall) {
    shortest_us_ = runs_ == 1 ? elapsed_us : std::min(shortest_us_, elapsed_us);
    const double phase_us = std::chrono::duration<double, std::micro>(Clock::now() - phase_began_).count();
    if (runs_ < kSmallPings && (runs_ < kFewestSmallPings || phase_us < kSmallPingsUs)) return SendRun(1, false);
    phase_ = Phase::kFirstLarge;
    return SendRun(1, true);
  }
  // What a run takes beside its bytes is a small round trip; a link so fast that nothing is left counts what it took.
  const double bytes_us = elapsed_us > 2 * shortest_us_ ? elapsed_us - shortest_us_ : elapsed_us;
  const double bytes_per_s = frames_ * static_cast<double>(kPingPayloadBytes) / bytes_us * 1e6;
  if (phase_ == Phase::kFirstLarge) {
    phase_ = Phase::kLarge;
    runs_ = 0;
    return SendRun(static_cast<int>(std::clamp(kLargeRunUs / bytes_us, 1.0, double{kMostFrames})), true);
  }
  if (runs_ > 1) bytes_per_s_ = std::max(bytes_per_s_, bytes_per_s);
  if (runs_ < kLargeRuns) return SendRun(frames_, true);
  phase_ = Phase::kDone;
  return absl::OkStatus();
}

}  // namespace stagecoach
