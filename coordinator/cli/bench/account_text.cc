#include "coordinator/cli/bench/account_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/options/printing.h"

namespace stagecoach {
namespace {

// One load's numbers, a step.
class Account {
 public:
  explicit Account(const LoadAccount& load)
      : load_(load), steps_(static_cast<double>(std::max<int64_t>(1, load.steps))) {}

  double Ms(int64_t us) const { return static_cast<double>(us) / steps_ * 1e-3; }
  double NsToMs(int64_t ns) const { return static_cast<double>(ns) / steps_ * 1e-6; }
  double wall_ms() const { return Ms(load_.wall_us); }

  static std::string MsText(double ms) { return absl::StrFormat("%.3f", ms); }
  std::string ShareText(double ms) const {
    return wall_ms() > 0 ? absl::StrFormat("%.1f %%", 100 * ms / wall_ms()) : "-";
  }

  std::string StageText(const LoadAccount::Stage& stage, const AccountedStage& about) const {
    TextTable table({about.name, "ms", "wait ms", "share", "MB", "GB/s", "%bw"}, 1);
    StepPartTotals all;
    for (size_t i = 0; i < stage.parts.size(); ++i) {
      const StepPartTotals& part = stage.parts[i];
      if (part == StepPartTotals()) continue;
      AddPart(NameOf(kStepPartNames, static_cast<StepPart>(i)), part, about, &table);
      all.busy_ns += part.busy_ns;
      all.wait_ns += part.wait_ns;
      all.bytes += part.bytes;
    }
    AddPart("outside of the threads", {.busy_ns = stage.outside_ns()}, about, &table);
    all.busy_ns += stage.outside_ns();
    AddPart("= computing", all, about, &table);
    return table.Text();
  }

  std::string StepText(const std::vector<AccountedStage>& stages) const {
    TextTable table({"step", "ms", "share"}, 1);
    int64_t sum_us = 0, queues_us = 0;
    const auto line = [&](const std::string& name, int64_t us) {
      table.Add({name, MsText(Ms(us)), ShareText(Ms(us))});
    };
    const auto add = [&](const std::string& name, int64_t us) {
      line(name, us);
      sum_us += us;
    };
    for (size_t i = 0; i < load_.stages.size(); ++i) {
      add(absl::StrCat("stage ", i, " computing"), load_.stages[i].compute_us);
      queues_us += load_.stages[i].queue_us;
    }
    add(stages.size() == 1 ? "queue of the stage" : "queues of the stages", queues_us);
    add("hops", load_.hops_us());
    add("coordinator", load_.coordinator_us);
    line("= sum", sum_us);
    line("wall", load_.wall_us);
    // The lines of steps that overlap add up to more than the wall.
    if (load_.in_flight() > 1) table.Add({"steps in flight", absl::StrFormat("%.2f", load_.in_flight()), ""});
    return table.Text();
  }

 private:
  // Bandwidths are of the time that the threads were busy.
  void AddPart(const std::string& name, const StepPartTotals& part, const AccountedStage& about,
               TextTable* table) const {
    const double ms = NsToMs(part.busy_ns), wait_ms = NsToMs(part.wait_ns);
    const double gbps = part.busy_ns > 0 ? static_cast<double>(part.bytes) / static_cast<double>(part.busy_ns) : 0;
    const bool reads = part.bytes > 0;
    table->Add({name, MsText(ms), part.wait_ns > 0 ? MsText(wait_ms) : "-", ShareText(ms + wait_ms),
                reads ? absl::StrFormat("%.2f", static_cast<double>(part.bytes) / steps_ * 1e-6) : "-",
                reads ? absl::StrFormat("%.1f", gbps) : "-",
                reads && about.read_gbps > 0 ? absl::StrFormat("%.0f", 100 * gbps / about.read_gbps) : "-"});
  }

  const LoadAccount& load_;
  const double steps_;
};

}  // namespace

std::string AccountText(const std::string& load, const LoadAccount& account,
                        const std::vector<AccountedStage>& stages) {
  const Account text(account);
  std::string all = absl::StrCat("\n", load, ": ", account.steps, account.steps == 1 ? " step" : " steps", " of ",
                                 Account::MsText(text.wall_ms()), " ms\n");
  for (size_t i = 0; i < account.stages.size(); ++i)
    absl::StrAppend(&all, text.StageText(account.stages[i], stages[i]));
  absl::StrAppend(&all, text.StepText(stages));
  return all;
}

}  // namespace stagecoach
