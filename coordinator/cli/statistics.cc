#include "coordinator/cli/statistics.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/json/json_value.h"
#include "common/wire/job_proto.h"
#include "coordinator/cli/options/printing.h"

namespace stagecoach {
namespace {

constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024.0 * kMiB;

// The stages with their times when the job ended in order, else as they were when it was ready.
const google::protobuf::RepeatedPtrField<pb::StageSummary>* Stages(const RunSummary& summary) {
  if (summary.job.has_value() && summary.job->stages_size() > 0) return &summary.job->stages();
  return summary.ready.has_value() ? &summary.ready->stages() : nullptr;
}

// nullptr: the job has none, or no longer.
const pb::StageSummary* Draft(const RunSummary& summary) {
  if (summary.job.has_value() && summary.job->has_draft()) return &summary.job->draft();
  return summary.ready.has_value() && summary.ready->has_draft() ? &summary.ready->draft() : nullptr;
}

double Utilisation(const RunSummary& summary, const pb::StageSummary& stage) {
  if (!summary.job.has_value() || summary.job->busy_s() <= 0) return 0;
  return std::min(1.0, stage.compute_s() / summary.job->busy_s());
}

bool Guessed(const RunSummary& summary) { return summary.job.has_value() && summary.job->guesses() > 0; }

std::string StageTable(const RunSummary& summary) {
  const auto* stages = Stages(summary);
  if (stages == nullptr || stages->empty()) return "";
  const bool timed = summary.job.has_value() && summary.job->stages_size() > 0;
  std::vector<std::string> head = {"stage", "host", "layers", "threads", "CPUs", "compute s"};
  if (Guessed(summary)) head.emplace_back("of it void");
  head.insert(head.end(), {"send s", "wait s", "utilisation", "KV blocks", "resident MiB"});
  TextTable table(std::move(head));
  for (const pb::StageSummary& stage : *stages) {
    const auto seconds = [timed](double value) { return timed ? absl::StrFormat("%.3f", value) : std::string("-"); };
    std::vector<std::string> row = {
        absl::StrCat(stage.stage()),   stage.host(),   absl::StrCat(stage.first_layer(), "-", stage.last_layer() - 1),
        absl::StrCat(stage.threads()), CpuList(stage), seconds(stage.compute_s())};
    if (Guessed(summary)) row.push_back(seconds(stage.void_s()));
    row.insert(row.end(),
               {seconds(stage.send_s()), seconds(stage.wait_s()),
                timed ? absl::StrFormat("%.1f %%", 100 * Utilisation(summary, stage)) : std::string("-"),
                absl::StrCat(stage.blocks_used_peak(), "/", summary.ready.has_value() ? summary.ready->blocks() : 0),
                absl::StrFormat("%.1f", static_cast<double>(stage.resident_bytes()) / kMiB)});
    table.Add(std::move(row));
  }
  if (const pb::StageSummary* draft = Draft(summary); draft != nullptr) {
    std::vector<std::string> row = {"draft", draft->host(),
                                    absl::StrCat(draft->first_layer(), "-", draft->last_layer() - 1),
                                    absl::StrCat(draft->threads()), CpuList(*draft)};
    row.resize(table.columns() - 1, "-");
    row.push_back(absl::StrFormat("%.1f", static_cast<double>(draft->resident_bytes()) / kMiB));
    table.Add(std::move(row));
  }
  return table.Text();
}

}  // namespace

std::string GuessText(const pb::JobStatistics& job) {
  if (job.guesses() == 0) return "";
  std::string text = absl::StrFormat(
      "guesses      %d rows sent ahead: %d right, as many steps saved (accepted %.1f %%); %d void, %.3f s of the "
      "stages' time\n",
      job.guesses(), job.guesses_right(), 100 * AcceptedShare(job), job.guesses_void(), job.void_s());
  if (job.guessers_size() < 2) return text;
  for (const pb::GuesserStatistics& guesser : job.guessers()) {
    absl::StrAppendFormat(&text, "  %-10s %d of %d right\n", guesser.name(), guesser.right(), guesser.tried());
  }
  return text;
}

std::string HugePageText(const google::protobuf::RepeatedPtrField<pb::StageSummary>& stages) {
  constexpr double kEnough = 0.9;
  constexpr uint64_t kFewBytes = 64 << 20;  // the ends of mappings, which fill no huge page, are some of it
  std::string text;
  for (const pb::StageSummary& stage : stages) {
    const double wanted = static_cast<double>(stage.huge_wanted_bytes()),
                 huge = static_cast<double>(stage.huge_bytes());
    if (huge >= kEnough * wanted || stage.huge_wanted_bytes() - stage.huge_bytes() < kFewBytes) continue;
    absl::StrAppendFormat(&text,
                          "huge pages   stage %d on %s has %.1f of %.1f GiB of its weights in huge pages and reads the "
                          "rest more slowly; `coordinator doctor` says why, and what to do\n",
                          stage.stage(), stage.host(), huge / kGiB, wanted / kGiB);
  }
  return text;
}

std::string StatisticsText(const RunSummary& summary) {
  const RunTotals& t = summary.totals;
  std::string text = absl::StrFormat("prompt       %d tokens", t.prompt_tokens);
  if (t.requests > 1) absl::StrAppendFormat(&text, " in %d requests", t.requests);
  if (t.cached_tokens > 0) absl::StrAppendFormat(&text, ", %d of them from the prefix cache", t.cached_tokens);
  absl::StrAppendFormat(&text, "\ndecode       %d tokens in %.3f s, %.1f tokens/s\n", t.decode_tokens, t.decode_s,
                        DecodeRate(t));
  absl::StrAppendFormat(&text, "all          %d tokens in %.3f s, %.1f tokens/s (loading before: %.3f s)\n",
                        t.prompt_tokens + t.decode_tokens, t.seconds, TotalRate(t), t.load_s);
  if (t.requests_with_tokens > 0) {
    absl::StrAppendFormat(&text, "first token  after %.3f s%s\n", t.first_token_s,
                          t.requests_with_tokens > 1 ? " (mean)" : "");
  }
  if (t.failed > 0) absl::StrAppendFormat(&text, "failed       %d\n", t.failed);
  absl::StrAppendFormat(&text, "preemptions  %d\n", t.preemptions);
  if (t.relaunches > 0) absl::StrAppendFormat(&text, "relaunches   %d\n", t.relaunches);
  if (summary.job.has_value()) {
    absl::StrAppendFormat(&text, "bubble       %.1f %% of the stages' time, floor for this work %.1f %%\n",
                          100 * summary.job->bubble(), 100 * summary.job->bubble_floor());
    absl::StrAppend(&text, GuessText(*summary.job));
    // The bubble alone rewards many small passes, and each pass reads all weights again.
    absl::StrAppendFormat(&text,
                          "efficiency   %.1f rows a pass over the weights; where sequences decode, %.1f of them\n",
                          RowsAPass(*summary.job), DecodeRowsAPass(*summary.job));
  }
  if (!summary.emulated_link.empty()) absl::StrAppend(&text, "links        emulated: ", summary.emulated_link, "\n");
  if (const auto* stages = Stages(summary); stages != nullptr) absl::StrAppend(&text, HugePageText(*stages));
  return text + StageTable(summary);
}

void PrintStatistics(const RunSummary& summary) {
  if (GetLogLevel() == LogLevel::kQuiet || !summary.ready.has_value() || summary.totals.requests == 0) return;
  WriteFully(STDERR_FILENO, absl::StrCat("\n", StatisticsText(summary)));
}

Json TimingsJson(const RunSummary& summary) {
  const RunTotals& t = summary.totals;
  Json json = {{"prompt_tokens", t.prompt_tokens},
               {"cached_tokens", t.cached_tokens},
               {"decode_tokens", t.decode_tokens},
               {"load_s", t.load_s},
               {"seconds", t.seconds},
               {"tokens_per_second", TotalRate(t)},
               {"decode_s", t.decode_s},
               {"decode_tokens_per_second", DecodeRate(t)},
               {"time_to_first_token_s", t.first_token_s},
               {"failed", t.failed},
               {"preemptions", t.preemptions},
               {"relaunches", t.relaunches}};
  if (!summary.emulated_link.empty()) json["emulated_link"] = summary.emulated_link;
  if (!summary.job.has_value()) return json;
  const pb::JobStatistics& job = *summary.job;
  json["micro_batches"] = job.micro_batches();
  json["prefill_rows"] = job.prefill_rows();
  json["decode_rows"] = job.decode_rows();
  json["busy_s"] = job.busy_s();
  json["bubble"] = job.bubble();
  json["bubble_floor"] = job.bubble_floor();
  json["decode_micro_batches"] = job.decode_micro_batches();
  json["prefix_query_tokens"] = job.prefix_query_tokens();
  json["prefix_hit_tokens"] = job.prefix_hit_tokens();
  json["prefix_stateless_tokens"] = job.prefix_stateless_tokens();
  if (job.guesses() > 0) {
    json["guesses"] = job.guesses();
    json["guesses_right"] = job.guesses_right();
    json["guesses_accepted_share"] = AcceptedShare(job);
    json["guesses_void"] = job.guesses_void();
    json["void_s"] = job.void_s();
  }
  json["rows_per_pass"] = RowsAPass(job);
  json["decode_rows_per_pass"] = DecodeRowsAPass(job);
  return json;
}

Json DraftJson(const RunSummary& summary) {
  const pb::StageSummary* draft = Draft(summary);
  if (draft == nullptr) return nullptr;
  Json json = {{"host", draft->host()},
               {"pid", draft->pid()},
               {"threads", draft->threads()},
               {"isa", InstructionSetName(draft->isa())},
               {"weight_bytes", draft->weight_bytes()},
               {"kv_bytes", draft->kv_bytes()},
               {"scratch_bytes", draft->scratch_bytes()},
               {"resident_bytes", draft->resident_bytes()}};
  if (!summary.job.has_value()) return json;
  json["guesses"] = DraftGuesses(*summary.job).tried();
  json["guesses_right"] = DraftGuesses(*summary.job).right();
  return json;
}

Json StagesJson(const RunSummary& summary) {
  Json list = Json::array();
  const auto* stages = Stages(summary);
  if (stages == nullptr) return list;
  for (const pb::StageSummary& stage : *stages) {
    list.push_back({{"stage", stage.stage()},
                    {"host", stage.host()},
                    {"pid", stage.pid()},
                    {"first_layer", stage.first_layer()},
                    {"last_layer", stage.last_layer()},
                    {"threads", stage.threads()},
                    {"cpus", std::vector<int32_t>(stage.cpus().begin(), stage.cpus().end())},
                    {"isa", InstructionSetName(stage.isa())},
                    {"compute_s", stage.compute_s()},
                    {"send_s", stage.send_s()},
                    {"wait_s", stage.wait_s()},
                    {"utilisation", Utilisation(summary, stage)},
                    {"kv_blocks_used_peak", stage.blocks_used_peak()},
                    {"kv_blocks", summary.ready.has_value() ? summary.ready->blocks() : 0},
                    {"weight_bytes", stage.weight_bytes()},
                    {"kv_bytes", stage.kv_bytes()},
                    {"scratch_bytes", stage.scratch_bytes()},
                    {"tensor_bytes_read", stage.tensor_bytes_read()},
                    {"resident_bytes", stage.resident_bytes()},
                    {"huge_wanted_bytes", stage.huge_wanted_bytes()},
                    {"huge_bytes", stage.huge_bytes()}});
    if (Guessed(summary)) list.back()["void_s"] = stage.void_s();
  }
  return list;
}

}  // namespace stagecoach
