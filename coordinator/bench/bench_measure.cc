#include "coordinator/bench/bench_measure.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/counter_rng.h"
#include "common/base/status_macros.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr uint64_t kPromptSeed = 20240229;
constexpr int64_t kWarmUpTokens = 4;

}  // namespace

TokenId RandomToken(uint64_t seed, uint64_t position, int64_t vocab) {
  const int64_t token = static_cast<int64_t>(UniformAt(seed, position) * static_cast<double>(vocab));
  return static_cast<TokenId>(std::min(token, vocab - 1));
}

void DecodeWindow::Note(uint64_t sequence, int64_t at_us, int64_t tokens, int64_t position) {
  if (done_ || missed_) return;
  if (start_us_ < 0) {
    started_[sequence] += tokens;
    missed_ = started_[sequence] > most_before_;
    if (static_cast<int64_t>(started_.size()) == sequences_) start_us_ = at_us;
    return;
  }
  if (at_us <= start_us_) return;  // of the result that brought the last first token
  if (at_us != open_.at_us) {
    Close(open_);
    open_ = {.at_us = at_us};
  }
  open_.tokens += tokens;
  for (int64_t i = 0; i < tokens; ++i) open_.positions += position - i;
}

void DecodeWindow::Ended() {
  if (done_ || missed_) return;
  if (start_us_ >= 0) Close(open_);
  done_ = 2 * sample_.tokens >= wanted_;
  missed_ = !done_;
}

void DecodeWindow::Close(const Arrival& arrival) {
  if (arrival.tokens == 0) return;
  sample_.begin_us = start_us_;
  sample_.us = arrival.at_us - start_us_;
  sample_.tokens += arrival.tokens;
  sample_.positions += arrival.positions;
  ++sample_.passes;
  done_ = sample_.tokens >= wanted_;
}

absl::Status BenchRunner::SubmitAll(const BenchTest& test) {
  std::vector<GenerationRequest> requests(static_cast<size_t>(test.sequences));
  for (GenerationRequest& request : requests) {
    if (test.equal && &request != &requests.front()) {
      request.prompt = requests.front().prompt;
    } else {
      for (int64_t i = 0; i < test.prompt_tokens(); ++i) {
        request.prompt.push_back(RandomToken(kPromptSeed, drawn_++, vocab_));
      }
    }
    request.sampling = sampling_;
    request.max_new_tokens = MaxNewTokens(test, settings_);
  }
  ASSIGN_OR_RETURN(RequestId id, cluster_->SubmitAll(std::move(requests)));
  for (int64_t i = 0; i < test.sequences; ++i) running_.insert(id++);
  return absl::OkStatus();
}

absl::StatusOr<SessionEvent> BenchRunner::NextEvent() {
  while (true) {
    if (cluster_->StopRequested()) return absl::CancelledError("interrupted");
    ASSIGN_OR_RETURN(std::optional<SessionEvent> event, cluster_->Next());
    if (!event.has_value() || !running_.contains(event->request)) continue;
    if (event->finished.has_value()) {
      running_.erase(event->request);
      if (event->finished->reason() == pb::RequestFinished::REASON_FAILED) {
        return absl::UnavailableError(std::string(event->finished->error()));
      }
      if (event->finished->reason() == pb::RequestFinished::REASON_REJECTED) {
        return UsageError(absl::StrCat("rejected: ", event->finished->error()));
      }
    }
    return *std::move(event);
  }
}

// Cancels what runs and waits until nothing does.
absl::Status BenchRunner::EndAll() {
  for (RequestId request : running_) cluster_->Cancel(request);
  while (!running_.empty() && !cluster_->GiveUp()) {
    ASSIGN_OR_RETURN(const std::optional<SessionEvent> event, cluster_->Next());
    if (event.has_value() && event->finished.has_value()) running_.erase(event->request);
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchSample> BenchRunner::Run(const BenchTest& test) {
  absl::StatusOr<BenchSample> sample = test.prefill() ? RunPrefill(test) : RunDecode(test);
  if (sample.ok() || absl::IsCancelled(sample.status())) {
    if (absl::Status ended = EndAll(); !ended.ok() && sample.ok()) return ended;
  }
  return sample;
}

absl::Status BenchRunner::WarmUp(const BenchTest& test) {
  BenchTest small = test;
  small.prompt = std::min(test.prompt, settings_.prefill_chunk);
  small.depth = 0;
  small.generated = std::min(test.generated, kWarmUpTokens);
  return Run(small).status();
}

absl::StatusOr<BenchSample> BenchRunner::RunPrefill(const BenchTest& test) {
  const int64_t begin_us = MonotonicUs();
  RETURN_IF_ERROR(SubmitAll(test));
  BenchSample sample;
  while (!running_.empty()) {
    ASSIGN_OR_RETURN(const SessionEvent event, NextEvent());
    if (!event.tokens.empty()) sample = {event.at_us - begin_us, test.prompt, 0, 0, begin_us};
  }
  if (sample.us <= 0) return absl::InternalError(absl::StrCat(test.Name(), ": the prompt ended without a token"));
  return sample;
}

absl::StatusOr<BenchSample> BenchRunner::RunDecode(const BenchTest& test) {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    DecodeWindow window(test.sequences, test.tokens(), MaxNewTokens(test, settings_) - test.generated);
    RETURN_IF_ERROR(SubmitAll(test));
    RETURN_IF_ERROR(Await(&window));
    if (window.done()) return window.sample();
    RETURN_IF_ERROR(EndAll());
  }
  return absl::UnavailableError(
      absl::StrCat(test.Name(), ": in ", kMostAttempts,
                   " attempts the sequences never all decoded at the same time; something else takes this host's "
                   "processors: end it, or ask for fewer sequences or more tokens of each"));
}

absl::Status BenchRunner::Await(DecodeWindow* window) {
  while (!window->done() && !window->missed()) {
    ASSIGN_OR_RETURN(const SessionEvent event, NextEvent());
    if (!event.tokens.empty()) {
      window->Note(event.request, event.at_us, static_cast<int64_t>(event.tokens.size()), event.tokens.back().position);
    }
    if (event.finished.has_value()) window->Ended();
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
