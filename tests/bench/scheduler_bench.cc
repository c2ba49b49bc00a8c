// What the scheduler costs the engine's loop: Next and Confirm of a micro-batch, by the number of sequences that run.
// Stages are made up: every wanted token comes back at once. Prints VALID when every sequence produced all of its
// tokens in order and nobody was preempted, then medians over the micro-batches in microseconds.
//
//   scheduler_bench
//
// admit: Next and Confirm of one micro-batch that admits all of them; decode: of one that takes the decode rows of its
// share of them; mean: of Next, for the prefix cache has work only where rows fill blocks, which they all do at once.

#include <cstdint>
#include <cstdio>
#include <deque>
#include <numeric>
#include <optional>
#include <string>

#include "coordinator/schedule/scheduler.h"
#include "tests/bench/measuring.h"

namespace stagecoach {
namespace {

constexpr int64_t kPrompt = 4;
constexpr int64_t kNewTokens = 200;

struct Costs {
  double next_us = 0, confirm_us = 0;
};

StepResult ResultOf(const MicroBatch& batch) {
  StepResult result{.number = batch.number};
  for (const SequenceSlice& slice : batch.slices) {
    if (!slice.sample) continue;
    result.sampled.push_back({.sequence = slice.sequence, .position = slice.start + slice.count, .token = 7});
  }
  return result;
}

// One run of `running` sequences from admission to their last token.
class Run {
 public:
  Run(int32_t running, int32_t micro_batches, bool prefix_caching)
      : running_(running),
        scheduler_({{.max_num_seqs = running,
                     .policy = Policy::kInterleaved,
                     .max_num_batched_tokens = static_cast<int32_t>(running * kPrompt),
                     .prefix_caching = prefix_caching},
                    {.group_blocks = {static_cast<int32_t>(running * 8)},
                     .context = 256,
                     .micro_batches = micro_batches,
                     .max_open_tokens = running * kPrompt + 256}}),
        produced_(running) {
    for (int32_t i = 0; i < running; ++i) {
      SequenceSpec spec{.id = static_cast<SequenceId>(i), .max_new_tokens = kNewTokens};
      spec.prompt.assign(kPrompt, i % 100);
      if (absl::Status status = scheduler_.Add(std::move(spec)); !status.ok()) Fail(status);
    }
  }

  // OK when all went as it must.
  absl::Status Go() {
    while (scheduler_.HasUnfinished() && error_.ok()) {
      while (Submit()) {
      }
      Confirm();
    }
    if (error_.ok() && std::any_of(produced_.begin(), produced_.end(), [](int64_t n) { return n != kNewTokens; })) {
      Fail(absl::InternalError("a sequence has not got its tokens"));
    }
    if (scheduler_.counters().preemptions > 0) Fail(absl::InternalError("a sequence was preempted"));
    if (absl::Status status = scheduler_.CheckIntegrity(); !status.ok()) Fail(status);
    return error_;
  }

  Costs admit() const { return admit_; }
  Costs decode() const { return {Median(next_us_), Median(confirm_us_)}; }
  double mean_next_us() const { return std::accumulate(next_us_.begin(), next_us_.end(), 0.0) / next_us_.size(); }
  size_t rows() const { return (running_ + micro_batches() - 1) / micro_batches(); }

 private:
  void Fail(const absl::Status& status) {
    if (error_.ok()) error_ = status;
  }

  bool Submit() {
    const double begin = WallSeconds();
    std::optional<MicroBatch> batch = scheduler_.Next();
    const double us = 1e6 * (WallSeconds() - begin);
    if (!batch) return false;
    if (!batch->open.empty()) {
      admit_.next_us = us;
    } else {
      next_us_.push_back(us);
    }
    results_.push_back(ResultOf(*batch));
    return true;
  }

  void Confirm() {
    const bool admission = results_.front().number == 0;
    const double begin = WallSeconds();
    const absl::StatusOr<std::vector<SequenceEvent>> events = scheduler_.Confirm(results_.front());
    const double us = 1e6 * (WallSeconds() - begin);
    results_.pop_front();
    if (!events.ok()) return Fail(events.status());
    if (admission) {
      admit_.confirm_us = us;
    } else {
      confirm_us_.push_back(us);
    }
    for (const SequenceEvent& event : *events) {
      for (const SampledToken& token : event.tokens) {
        if (token.position != kPrompt + produced_[event.sequence]++) Fail(absl::InternalError("a token out of order"));
      }
    }
  }

  size_t micro_batches() const { return std::max<size_t>(scheduler_.counters().micro_batches / kNewTokens, 1); }

  const size_t running_;
  Scheduler scheduler_;
  std::vector<int64_t> produced_;
  std::deque<StepResult> results_;
  absl::Status error_;
  Costs admit_;
  std::vector<double> next_us_, confirm_us_;
};

int Main() {
  std::string table;
  for (const int32_t running : {64, 256, 1024, 4096}) {
    for (const int32_t micro_batches : {1, 4}) {
      for (const bool cache : {false, true}) {
        Run run(running, micro_batches, cache);
        if (absl::Status status = run.Go(); !status.ok()) {
          std::printf("INVALID: %d running, %d micro-batches: %s\n", running, micro_batches,
                      std::string(status.message()).c_str());
          return 1;
        }
        const Costs admit = run.admit(), decode = run.decode();
        char line[160];
        std::snprintf(line, sizeof line, "%8d %14d %12s %12.1f %12.1f %12zu %12.1f %12.1f %12.1f\n", running,
                      micro_batches, cache ? "on" : "off", admit.next_us, admit.confirm_us, run.rows(), decode.next_us,
                      run.mean_next_us(), decode.confirm_us);
        table += line;
      }
    }
  }
  std::printf("VALID\n%8s %14s %12s %12s %12s %12s %12s %12s %12s\n%s", "running", "micro-batches", "prefix cache",
              "admit: Next", "Confirm", "decode rows", "Next", "mean", "Confirm", table.c_str());
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main() { return stagecoach::Main(); }
