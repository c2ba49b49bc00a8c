// How the ways to take prompts in compare: the real engine and scheduler over stages that cost time instead of work, in
// virtual time. Deterministic; prints VALID when in every run each request got all of its tokens in order, nothing was
// computed twice and the scheduler's books were right, then its tables.
//
//   prefill_bench
//
// gaps: 8 sequences decode while prompts arrive at once, over two stages: 60 of 900 tokens; 12 and one of 4,096, dense
//   and with experts. The gaps between two tokens of those that decode, and the rate of all rows computed, from the
//   prompts' arrival to the last one's first token.
// long prompt: from arrival to the first token of one prompt, over four stages.
// offline: 256 requests of mixed lengths at once, over four stages; all rows by the time it took.
//
// A stage takes for a micro-batch of r rows: step + max(read * w(r), r * row) + pair * sum over slices of
// C * (C + 2 * H), for C rows behind H others; w: how much more r rows read than one (ReadCurve). That is not the
// curve that the scheduler fits, as no real stage is.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/engine/engine.h"

namespace stagecoach {
namespace {

struct StageCost {
  double step_us = 0, read_us = 0, row_us = 0, pair_us = 0;
  ReadCurve reads;
};

class VirtualClock : public EngineClock {
 public:
  int64_t NowUs() override { return now_us; }
  void Pause(const WaitPolicy::Pause&) override { now_us = std::max(now_us, next_us); }  // nothing else happens before
  int64_t now_us = 0;
  int64_t next_us = 0;  // when the next result is there
};

class CostPipeline : public Pipeline {
 public:
  CostPipeline(int stages, const StageCost& cost, VirtualClock* clock)
      : cost_(cost), clock_(clock), free_us_(static_cast<size_t>(stages)) {}
  int stages() const override { return static_cast<int>(free_us_.size()); }

  absl::Status Submit(const MicroBatch& batch) override {
    double us = cost_.step_us + std::max(cost_.read_us * cost_.reads.Of(batch.rows()), cost_.row_us * batch.rows());
    StepResult result{.number = batch.number};
    us += cost_.pair_us * AttentionPairs(batch);
    for (const SequenceSlice& slice : batch.slices) {
      const int32_t position = slice.start + slice.count;
      if (slice.sample) result.sampled.push_back({.sequence = slice.sequence, .position = position, .token = 7});
    }
    int64_t at_us = clock_->now_us;
    for (size_t stage = 0; stage < free_us_.size(); ++stage) {
      const int64_t start_us = std::max(at_us, free_us_[stage]);
      at_us = free_us_[stage] = start_us + static_cast<int64_t>(us);
      result.times.push_back({.stage = static_cast<int32_t>(stage), .start_us = start_us, .end_us = at_us});
    }
    results_.push_back({at_us, std::move(result)});
    clock_->next_us = results_.front().first;
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<StepResult>> Poll() override {
    if (results_.empty() || results_.front().first > clock_->now_us) return std::optional<StepResult>();
    std::optional<StepResult> result = std::move(results_.front().second);
    results_.pop_front();
    clock_->next_us = results_.empty() ? clock_->now_us : results_.front().first;
    return result;
  }

 private:
  const StageCost cost_;
  VirtualClock* const clock_;
  std::vector<int64_t> free_us_;  // [stages] when each has done what it has
  std::deque<std::pair<int64_t, StepResult>> results_;
};

struct Request {
  int64_t prompt = 0, new_tokens = 0;
};

// Submits what it is told to, and keeps when each token came.
class TimingFront : public Front {
 public:
  void Submit(const Request& request) {
    SubmitCommand command;
    command.request = static_cast<RequestId>(asked_.size());
    command.spec.prompt.assign(static_cast<size_t>(request.prompt), 1);
    command.spec.max_new_tokens = request.new_tokens;
    asked_.push_back(request);
    token_us.emplace_back();
    commands_.push_back(std::move(command));
  }
  absl::StatusOr<std::optional<FrontCommand>> Next() override {
    if (commands_.empty()) return std::optional<FrontCommand>();
    std::optional<FrontCommand> command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }
  absl::Status Publish(const RequestEvents& events) override {
    for (const RequestDelta& delta : events.deltas) {
      std::vector<int64_t>& times = token_us[delta.request];
      for (const SampledToken& token : delta.tokens) {
        if (token.position != asked_[delta.request].prompt + static_cast<int64_t>(times.size())) {
          return absl::InternalError("a token is out of order");
        }
        times.push_back(events.at_us);
      }
    }
    ended += events.ends.size();
    return absl::OkStatus();
  }
  absl::Status Report(const EngineStatus&) override { return absl::OkStatus(); }
  bool Behind() override { return false; }
  bool Wait(int64_t) override { return false; }

  size_t requests() const { return asked_.size(); }
  bool complete() const {
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (static_cast<int64_t>(token_us[i].size()) != asked_[i].new_tokens) return false;
    }
    return true;
  }

  std::vector<std::vector<int64_t>> token_us;  // by request
  size_t ended = 0;

 private:
  std::vector<Request> asked_;
  std::deque<FrontCommand> commands_;
};

// One engine over made-up stages.
struct World {
  World(const SchedulerOptions& options, int stages, const StageCost& cost)
      : pipeline(stages, cost, &clock),
        scheduler(options),
        engine(&pipeline, &scheduler, &front, &clock, 100, nullptr) {}

  // Until `done` says so.
  template <typename Done>
  void RunUntil(Done done) {
    while (error.ok() && !done()) {
      error = engine.Step();
      if (clock.now_us > int64_t{1} << 40) error = absl::DeadlineExceededError("no end in sight");
    }
  }
  void Finish() {
    RunUntil([this] { return front.ended == front.requests(); });
    if (error.ok() && !front.complete()) error = absl::InternalError("a request lacks tokens");
    if (error.ok()) error = scheduler.CheckIntegrity();
  }
  uint64_t rows() const { return scheduler.counters().prefill_rows + scheduler.counters().decode_rows; }

  VirtualClock clock;
  CostPipeline pipeline;
  Scheduler scheduler;
  TimingFront front;
  Engine engine;
  absl::Status error;
};

SchedulerOptions Options(int stages) {
  return {.max_num_seqs = 24,
          .max_num_batched_tokens = 512,
          .prefill_chunk = 512,
          .group_blocks = {3000},
          .context = 65536,
          .micro_batches = stages,
          .max_open_tokens = 1 << 20};
}

double Quantile(std::vector<int64_t> values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return static_cast<double>(*at);
}

std::string error_of_any;  // of the first run that went wrong

void Check(const World& world, const std::string& name) {
  if (!world.error.ok() && error_of_any.empty()) error_of_any = absl::StrCat(name, ": ", world.error.message());
}

// What arrives beside those that decode.
struct Prompts {
  size_t count = 0;
  int64_t tokens = 0;
};

struct Gaps {
  double median_ms = 0, p99_ms = 0, longest_ms = 0, rows_per_s = 0;
};

Gaps MeasureGaps(SchedulerOptions options, const StageCost& cost, const Prompts& prompts, const std::string& name) {
  constexpr size_t kDecoding = 8;
  options.reads = cost.reads;
  World world(options, options.micro_batches, cost);
  for (size_t i = 0; i < kDecoding; ++i) world.front.Submit({16, 4000});
  world.RunUntil([&] { return world.front.token_us[kDecoding - 1].size() >= 20; });
  const int64_t begin_us = world.clock.now_us;
  const uint64_t before = world.rows();
  for (size_t i = 0; i < prompts.count; ++i) world.front.Submit({prompts.tokens, 16});
  world.RunUntil([&] { return !world.front.token_us.back().empty(); });
  const int64_t end_us = world.clock.now_us;
  const uint64_t rows = world.rows() - before;
  std::vector<int64_t> gaps;
  for (size_t i = 0; i < kDecoding; ++i) {
    const std::vector<int64_t>& times = world.front.token_us[i];
    for (size_t t = 1; t < times.size(); ++t) {
      if (times[t] > begin_us && times[t] <= end_us) gaps.push_back(times[t] - times[t - 1]);
    }
  }
  world.Finish();
  if (world.scheduler.counters().preemptions > 0) world.error = absl::InternalError("a sequence was preempted");
  Check(world, name);
  const double seconds = static_cast<double>(end_us - begin_us) / 1e6;
  return {Quantile(gaps, 0.5) / 1e3, Quantile(gaps, 0.99) / 1e3, Quantile(gaps, 1) / 1e3,
          static_cast<double>(rows) / seconds};
}

std::string GapTable(const std::string& title, const StageCost& cost, const Prompts& prompts) {
  struct Row {
    std::string name;
    Gaps gaps;
  };
  std::vector<Row> constant, throttled;
  for (const int32_t chunk : {32, 64, 128, 256, 512}) {
    SchedulerOptions options = Options(2);
    options.max_num_batched_tokens = 4 + chunk;  // beside half of those that decode
    options.prefill_chunk = chunk;
    const std::string name = absl::StrCat("constant ", chunk);
    constant.push_back({name, MeasureGaps(options, cost, prompts, name)});
  }
  for (const double gap_ms : {0.0, 50.0, 80.0, 120.0, 160.0, 250.0, 400.0, 3.6e6}) {
    SchedulerOptions options = Options(2);
    options.max_num_batched_tokens = 4 + 512;
    options.policy = Policy::kThrottled;
    options.slo_itl_us = gap_ms * 1000;
    const std::string name = gap_ms > 0 ? absl::StrCat("throttled ", gap_ms, " ms") : "throttled";
    throttled.push_back({name, MeasureGaps(options, cost, prompts, name)});
  }
  std::string table;
  char line[200];
  std::snprintf(line, sizeof line, "%-18s %10s %10s %10s %10s | beside each constant chunk: gap x, rate %%\n", "gaps",
                "median ms", "p99 ms", "longest", "rows/s");
  table += absl::StrCat(title, ", ", prompts.count, " prompts of ", prompts.tokens, " tokens\n", line);
  for (const std::vector<Row>& rows : {constant, throttled}) {
    for (const Row& row : rows) {
      std::snprintf(line, sizeof line, "%-18s %10.1f %10.1f %10.1f %10.1f |", row.name.c_str(), row.gaps.median_ms,
                    row.gaps.p99_ms, row.gaps.longest_ms, row.gaps.rows_per_s);
      table += line;
      for (const Row& beside : constant) {
        std::snprintf(line, sizeof line, "  %5.2f %3.0f", row.gaps.median_ms / beside.gaps.median_ms,
                      100 * row.gaps.rows_per_s / beside.gaps.rows_per_s);
        table += line;
      }
      table += "\n";
    }
  }
  return table + "\n";
}

// Seconds to the first token; the second such prompt of the job, so that what the first one taught is there.
double SecondsOfPrompt(Chunking chunking, int64_t prompt, const StageCost& cost) {
  SchedulerOptions options = Options(4);
  options.chunking = chunking;
  options.policy = Policy::kPrefillFirst;
  World world(options, 4, cost);
  world.front.Submit({prompt, 1});
  world.Finish();
  const int64_t begin_us = world.clock.now_us;
  world.front.Submit({prompt, 1});
  world.Finish();
  Check(world, absl::StrCat("long prompt, ", NameOf(kChunkings, chunking)));
  return static_cast<double>(world.clock.now_us - begin_us) / 1e6;
}

std::string LongPromptTable(const StageCost& cost) {
  char line[200];
  std::snprintf(line, sizeof line, "%-18s %12s %12s %8s\n", "long prompt", "constant s", "equal-time s", "ratio");
  std::string table = line;
  for (const int64_t prompt : {2048, 4096, 8192, 16384, 32768}) {
    const double constant = SecondsOfPrompt(Chunking::kConstant, prompt, cost);
    const double equal = SecondsOfPrompt(Chunking::kEqualTime, prompt, cost);
    std::snprintf(line, sizeof line, "%-18lld %12.2f %12.2f %8.3f\n", static_cast<long long>(prompt), constant, equal,
                  equal / constant);
    table += line;
  }
  return table;
}

std::string OfflineTable(const StageCost& cost) {
  char line[200];
  std::snprintf(line, sizeof line, "\n%-18s %10s %12s %12s\n", "offline", "places", "rows/s", "again %");
  std::string table = line;
  for (const int32_t places : {32, 128}) {
    for (const auto& [policy, name] : kPolicies) {
      SchedulerOptions options = Options(4);
      options.policy = policy;
      options.max_num_seqs = places;
      options.group_blocks = {places * 12};
      World world(options, 4, cost);
      std::mt19937 random(7);
      uint64_t needed = 0;
      for (int i = 0; i < 256; ++i) {
        const Request request{.prompt = 20 + static_cast<int64_t>(random() % 400),
                              .new_tokens = 20 + static_cast<int64_t>(random() % 200)};
        needed += static_cast<uint64_t>(request.prompt + request.new_tokens - 1);
        world.front.Submit(request);
      }
      world.Finish();
      Check(world, absl::StrCat("offline, ", name));
      std::snprintf(line, sizeof line, "%-18s %10d %12.1f %12.1f\n", name, places,
                    static_cast<double>(needed) * 1e6 / static_cast<double>(world.clock.now_us),
                    100.0 * static_cast<double>(world.rows() - needed) / static_cast<double>(needed));
      table += line;
    }
  }
  return table;
}

int Main() {
  // About half of a Qwen3-0.6B in Q8_0 on one core of a Zen 5; the other tables take a quarter of the layers each.
  const StageCost half{.step_us = 500, .read_us = 9000, .row_us = 860, .pair_us = 0.115};
  const StageCost quarter{.step_us = 250, .read_us = 4500, .row_us = 430, .pair_us = 0.058};
  // And half of a Qwen3-30B-A3B in Q4_0, as if its stage had four times the cores.
  const StageCost experts{.step_us = 500,
                          .read_us = 20000,
                          .row_us = 1600,
                          .pair_us = 0.115,
                          .reads = {.experts = 0.95, .chosen = 8.0 / 128}};
  std::string tables = GapTable("dense", half, {60, 900});
  for (const size_t prompts : {12, 1}) {
    tables += GapTable("dense", half, {prompts, 4096}) + GapTable("experts", experts, {prompts, 4096});
  }
  tables += LongPromptTable(quarter) + OfflineTable(quarter);
  if (!error_of_any.empty()) {
    std::printf("INVALID: %s\n", error_of_any.c_str());
    return 1;
  }
  std::printf("VALID\n%s", tables.c_str());
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main() { return stagecoach::Main(); }
