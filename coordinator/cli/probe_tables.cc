#include "coordinator/cli/probe_tables.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/text_table.h"

namespace stagecoach {
namespace {

std::string Number(double value) { return absl::StrFormat("%.*f", value < 100 ? 1 : 0, value); }
std::string Gib(uint64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / 1073741824.0); }
std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string HostTable(const HostProfile& profile) {
  TextTable table(
      {"host", "instruction set", "stages", "cores", "threads", "NUMA nodes", "GiB free", "of", "huge pages"});
  for (const HostFacts& host : profile.hosts) {
    const std::string& isa = !host.isa.empty() || host.isas.empty() ? host.isa : host.isas.front();
    table.Add({host.name, OrDash(isa), absl::StrCat(host.slots), absl::StrCat(host.cores),
               absl::StrCat(host.hardware_threads), absl::StrCat(host.numa_nodes), Gib(host.available_bytes),
               Gib(host.memory_bytes), OrDash(host.huge_pages)});
  }
  return table.Text();
}

std::string SpeedTable(const HostProfile& profile) {
  TextTable table({"host", "stages at once", "threads each", "read GB/s", "int8 GOP/s", "bf16 GOP/s", "f32 GOP/s"}, 1);
  for (const HostFacts& host : profile.hosts) {
    for (const HostSpeed& speed : host.speeds) {
      table.Add({host.name, absl::StrCat(speed.stages), absl::StrCat(speed.threads), Number(speed.read_gbps),
                 Number(speed.int8_gops), speed.bf16_gops > 0 ? Number(speed.bf16_gops) : "-", Number(speed.f32_gops)});
    }
  }
  return table.Text();
}

std::string EndName(const HostProfile& profile, int host, int stage) {
  const std::string& name = profile.hosts[static_cast<size_t>(host)].name;
  if (stage == LinkFacts::kNoStage) return name;
  return absl::StrCat(stage < 0 ? "coordinator" : absl::StrCat("stage ", stage), " on ", name);
}

std::string LinkTable(const HostProfile& profile) {
  TextTable table({"link from", "to", "latency us", "Gbit/s", "clock there us", "+-"});
  for (const LinkFacts& link : profile.links) {
    const bool clock = link.from_stage == LinkFacts::kCoordinator;
    const ProbedStage stage = clock ? profile.stages[static_cast<size_t>(link.to_stage)] : ProbedStage();
    table.Add({EndName(profile, link.from, link.from_stage), EndName(profile, link.to, link.to_stage),
               Number(link.latency_us), Number(link.bandwidth_gbit_s),
               clock ? absl::StrFormat("%.1f", stage.clock_offset_us) : "-",
               clock ? absl::StrFormat("%.1f", stage.clock_error_us) : "-"});
  }
  return table.Text();
}

std::string StepTable(const HostProfile& profile) {
  TextTable table({"host", "step", "rows", "context", "threads", "a layer us", "head us"});
  for (const HostFacts& host : profile.hosts) {
    for (const StepTime& step : host.steps) {
      table.Add({host.name, step.rows == step.sequences ? "decode" : "chunk", absl::StrCat(step.rows),
                 absl::StrCat(step.context), absl::StrCat(step.threads), Number(step.layer_us),
                 step.head_us > 0 ? Number(step.head_us) : "-"});
    }
  }
  return table.Text();
}

}  // namespace

std::string ProbeTables(const HostProfile& profile) {
  std::string text = absl::StrCat(HostTable(profile), "\n", LinkTable(profile));
  bool speeds = false, steps = false;
  for (const HostFacts& host : profile.hosts) {
    speeds = speeds || !host.speeds.empty();
    steps = steps || !host.steps.empty();
  }
  if (speeds) absl::StrAppend(&text, "\n", SpeedTable(profile));
  if (steps && profile.model.has_value()) {
    absl::StrAppend(&text, "\nlayer ", profile.model->layer, " and the head of ", profile.model->name, "\n",
                    StepTable(profile));
  }
  return text;
}

}  // namespace stagecoach
