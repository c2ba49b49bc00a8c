// What a job costs while it has nothing to do, and how long its first token takes then: the real programs on this
// machine, the engine and some stages, watched from outside. Prints VALID when every answer, in work and after
// idleness, is the same text, then one JSON object:
//   busy_token_ms        a request for one token while the job is at work (median of 20)
//   before_idle_percent  processor time of engine and stages together, of one core, from 2 s of idleness on
//   idle_percent         the same once the job has been idle for the time asked for; wake_ups_per_s: of one stage then
//   first_token_ms       a request for one token after that, and after 6 s of idleness each (median and worst of 4)
//
//   idle_bench [seconds of idleness before the second measurement: 60] [stages: 3] [model.gguf]

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/base/check.h"
#include "common/json/json_value.h"
#include "tests/bench/measuring.h"
#include "tests/testing/comes_true.h"
#include "tests/testing/paths.h"
#include "tests/testing/process_tree.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/subprocess.h"

namespace stagecoach {
namespace {

using nlohmann::json;

constexpr double kWindowS = 10;
constexpr double kAnswerTimeoutS = 60;

// A batch whose input pipe stays open: the job waits for more.
class IdleJob {
 public:
  IdleJob(const std::string& model, int stages)
      : front_(testing::CoordinatorProgram(),
               {"batch", "-m", model, "--pp", std::to_string(stages), "-t", "1", "-i", "-", "-o", out_, "-q"}) {}

  // Seconds until the answer to a request for one token has been written; negative when none came. The text must be
  // what it was before.
  double Ask() {
    const json line = {{"custom_id", std::to_string(++asked_)},
                       {"method", "POST"},
                       {"url", "/v1/completions"},
                       {"body", {{"prompt", "The king of Assyria"}, {"max_tokens", 1}, {"temperature", 0}}}};
    const double begin = WallSeconds();
    front_.Write(line.dump() + "\n");
    while (WallSeconds() - begin < kAnswerTimeoutS) {
      if (TakeAnswer()) return WallSeconds() - begin;
      testing::SleepFor(0.0002);
    }
    valid_ = false;
    return -1;
  }

  // Processor seconds of engine and stages, and sleeps of one stage.
  testing::SchedulingCounts Counts() const {
    testing::SchedulingCounts sum;
    for (const testing::ProcessInfo& process : testing::DescendantsNamed(front_.pid(), "")) {
      const testing::SchedulingCounts counts = testing::SchedulingCountsOf(process.pid);
      sum.cpu_s += counts.cpu_s;
      if (process.command.find("stage_worker") != std::string::npos) sum.sleeps = counts.sleeps;
    }
    return sum;
  }

  bool Finish() { return front_.Wait(30).exit_code == 0 && valid_; }

 private:
  bool TakeAnswer() {
    if (!std::filesystem::exists(out_)) return false;
    const std::string text = testing::ReadFileOrDie(out_);
    if (std::count(text.begin(), text.end(), '\n') < asked_) return false;
    const size_t begin = text.rfind('\n', text.size() - 2) + 1;  // 0 for the first line
    const json answer = json::parse(text.substr(begin), nullptr, false);
    if (answer.is_discarded() || !answer.contains("response")) {
      valid_ = false;
      return true;
    }
    const std::string token = answer["response"]["body"]["choices"][0]["text"];
    if (expected_.empty()) expected_ = token;
    valid_ = valid_ && !token.empty() && token == expected_;
    return true;
  }

  const testing::TempDir dir_;
  const std::string out_ = dir_.File("out.jsonl");
  testing::Subprocess front_;
  int asked_ = 0;
  std::string expected_;
  bool valid_ = true;
};

struct Window {
  double percent;
  double wake_ups_per_s;
};

Window Measure(const IdleJob& job) {
  const testing::SchedulingCounts before = job.Counts();
  const double begin = WallSeconds();
  testing::SleepFor(kWindowS);
  const testing::SchedulingCounts after = job.Counts();
  const double seconds = WallSeconds() - begin;
  return {100 * (after.cpu_s - before.cpu_s) / seconds, static_cast<double>(after.sleeps - before.sleeps) / seconds};
}

int Run(double idle_s, int stages, const std::string& model) {
  IdleJob job(model, stages);
  job.Ask();  // the launch
  std::vector<double> busy, first;
  for (int i = 0; i < 20; ++i) busy.push_back(job.Ask());
  const double idle_since = WallSeconds();
  testing::SleepFor(2);
  const Window before = Measure(job);
  testing::SleepFor(std::max(0.0, idle_s - (WallSeconds() - idle_since)));
  const Window idle = Measure(job);
  first.push_back(job.Ask());
  for (int i = 0; i < 3; ++i) {
    testing::SleepFor(6);
    first.push_back(job.Ask());
  }
  std::printf("%s\n", job.Finish() ? "VALID" : "INVALID");
  const json result = {{"stages", stages},
                       {"busy_token_ms", 1000 * Median(busy)},
                       {"before_idle_percent", before.percent},
                       {"idle_s", idle_s},
                       {"idle_percent", idle.percent},
                       {"wake_ups_per_s", idle.wake_ups_per_s},
                       {"first_token_ms", 1000 * Median(first)},
                       {"first_token_worst_ms", 1000 * *std::max_element(first.begin(), first.end())}};
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  const double idle_s = argc > 1 ? std::atof(argv[1]) : 60;
  const int stages = argc > 2 ? std::max(1, std::atoi(argv[2])) : 3;
  return stagecoach::Run(idle_s, stages, argc > 3 ? argv[3] : stagecoach::testing::DemoModelPath());
}
