#include "coordinator/bench/serve_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

// Beyond this, arrivals were not what was asked for.
constexpr double kMostLateMs = 50;

double PercentileOf(const std::vector<double>& sorted, double percent) {
  const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

LatencyFigures FiguresOf(std::vector<double> values, const std::vector<double>& percentiles) {
  LatencyFigures figures;
  figures.percentiles.assign(percentiles.size(), 0);
  if (values.empty()) return figures;
  std::sort(values.begin(), values.end());
  figures.count = static_cast<int64_t>(values.size());
  figures.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  figures.median = PercentileOf(values, 50);
  for (size_t i = 0; i < percentiles.size(); ++i) figures.percentiles[i] = PercentileOf(values, percentiles[i]);
  return figures;
}

double Ms(int64_t us) { return static_cast<double>(us) / 1e3; }

// One token has no gap.
std::optional<double> TpotMs(const ServeOutcome& outcome) {
  if (outcome.output_tokens < 2) return std::nullopt;
  return Ms(outcome.last_us() - outcome.first_us()) / static_cast<double>(outcome.output_tokens - 1);
}

bool IsGood(const ServeOutcome& outcome, const Goodput& goodput) {
  const auto within = [](double value, const std::optional<double>& most) {
    return !most.has_value() || value <= *most;
  };
  return within(Ms(outcome.first_us() - outcome.sent_us), goodput.ttft_ms) &&
         within(TpotMs(outcome).value_or(0), goodput.tpot_ms) &&
         within(Ms(outcome.last_us() - outcome.sent_us), goodput.e2el_ms);
}

// The fullest of the seconds since the start. An event may bring several tokens: each counts as its answer's mean.
double PeakTokensPerSecond(const ServeRun& run) {
  std::map<int64_t, double> seconds;
  for (const ServeOutcome& outcome : run.outcomes) {
    if (!outcome.ok() || outcome.text_at_us.empty()) continue;
    const double tokens = static_cast<double>(outcome.output_tokens) / static_cast<double>(outcome.text_at_us.size());
    for (const int64_t at : outcome.text_at_us) seconds[(at - run.start_us) / 1'000'000] += tokens;
  }
  double peak = 0;
  for (const auto& [second, tokens] : seconds) peak = std::max(peak, tokens);
  return peak;
}

int64_t PeakConcurrent(const ServeRun& run) {
  std::vector<std::pair<int64_t, int>> changes;
  for (const ServeOutcome& outcome : run.outcomes) {
    if (outcome.sent_us == 0) continue;
    changes.emplace_back(outcome.sent_us, 1);
    changes.emplace_back(outcome.end_us, -1);
  }
  std::sort(changes.begin(), changes.end());  // of one moment, ends first
  int64_t now = 0, peak = 0;
  for (const auto& [at, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

std::vector<std::string> ErrorsOf(const ServeRun& run) {
  std::map<std::string, int64_t> kinds;
  for (const ServeOutcome& outcome : run.outcomes) {
    if (!outcome.ok()) ++kinds[outcome.error];
  }
  std::vector<std::pair<std::string, int64_t>> sorted(kinds.begin(), kinds.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> errors;
  errors.reserve(sorted.size());
  for (const auto& [error, count] : sorted) errors.push_back(absl::StrCat(count, " x ", error));
  return errors;
}

// Without a limit every request has its thread: what is late then is this program's doing.
void CheckLateness(const ServeRun& run, const ServeLoad& load, ServeSummary* summary) {
  if (load.max_concurrency > 0 || std::isinf(load.rate_per_s)) return;
  std::vector<double> late;
  for (const ServeOutcome& outcome : run.outcomes) {
    if (outcome.sent_us > 0) late.push_back(Ms(outcome.sent_us - outcome.due_us));
  }
  if (late.empty()) return;
  const double p99 = FiguresOf(std::move(late), {99}).percentiles[0];
  if (p99 <= kMostLateMs) return;
  summary->invalid.push_back(absl::StrFormat(
      "one request in a hundred left %.0f ms late or more, for this machine was too slow to send them", p99));
}

struct Line {
  const char* label;
  std::string value;
};

std::string Block(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) absl::StrAppendFormat(&text, "%-40s %-10s\n", line.label, line.value);
  return text;
}

std::string Heading(absl::string_view title, char fill) {
  const size_t all = 50, left = (all - title.size()) / 2;
  return absl::StrCat(std::string(left, fill), title, std::string(all - title.size() - left, fill), "\n");
}

std::string PercentText(double percent) { return absl::StrFormat("%g", percent); }

std::string LatencyBlock(absl::string_view title, const char* name, const LatencyFigures& figures,
                         const std::vector<double>& percentiles) {
  std::string text = Heading(title, '-');
  const auto line = [&](absl::string_view which, double value) {
    absl::StrAppendFormat(&text, "%-40s %-10.2f\n", absl::StrCat(which, " ", name, " (ms):"), value);
  };
  line("Mean", figures.mean);
  line("Median", figures.median);
  for (size_t i = 0; i < percentiles.size(); ++i) {
    line(absl::StrCat("P", PercentText(percentiles[i])), figures.percentiles[i]);
  }
  return text;
}

double PerSecond(double amount, const ServeSummary& summary) {
  return summary.duration_s > 0 ? amount / summary.duration_s : 0;
}

}  // namespace

absl::Status AddGoodput(absl::string_view text, Goodput* goodput) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  double ms = 0;
  if (parts.size() == 2 && absl::SimpleAtod(parts[1], &ms) && std::isfinite(ms) && ms > 0) {
    if (parts[0] == "ttft") return goodput->ttft_ms = ms, absl::OkStatus();
    if (parts[0] == "tpot") return goodput->tpot_ms = ms, absl::OkStatus();
    if (parts[0] == "e2el") return goodput->e2el_ms = ms, absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ttft:MS, tpot:MS or e2el:MS with milliseconds above 0, found '", text, "'"));
}

ServeSummary SummarizeServeRun(const ServeRun& run, const ServeLoad& load, const Goodput& goodput,
                               const std::vector<double>& percentiles) {
  ServeSummary summary;
  summary.duration_s = static_cast<double>(run.end_us - run.start_us) / 1e6;
  std::vector<double> ttft, tpot, itl, e2el;
  int64_t without_usage = 0, without_text = 0;
  for (const ServeOutcome& outcome : run.outcomes) {
    if (!outcome.ok()) {
      ++summary.failed;
      continue;
    }
    ++summary.successful;
    without_usage += outcome.has_usage ? 0 : 1;
    without_text += outcome.text_at_us.empty() ? 1 : 0;
    summary.input_tokens += outcome.input_tokens;
    summary.output_tokens += outcome.output_tokens;
    summary.cached_tokens += outcome.cached_tokens;
    if (goodput.any() && IsGood(outcome, goodput)) ++summary.good;
    ttft.push_back(Ms(outcome.first_us() - outcome.sent_us));
    e2el.push_back(Ms(outcome.last_us() - outcome.sent_us));
    if (const std::optional<double> gap = TpotMs(outcome)) tpot.push_back(*gap);
    for (size_t i = 1; i < outcome.text_at_us.size(); ++i) {
      itl.push_back(Ms(outcome.text_at_us[i] - outcome.text_at_us[i - 1]));
    }
  }
  summary.ttft = FiguresOf(std::move(ttft), percentiles);
  summary.tpot = FiguresOf(std::move(tpot), percentiles);
  summary.itl = FiguresOf(std::move(itl), percentiles);
  summary.e2el = FiguresOf(std::move(e2el), percentiles);
  summary.peak_output_tokens_per_s = PeakTokensPerSecond(run);
  summary.peak_concurrent = PeakConcurrent(run);
  summary.errors = ErrorsOf(run);
  if (summary.failed > 0) summary.invalid.push_back(absl::StrCat(summary.failed, " requests failed"));
  if (without_usage > 0) {
    summary.invalid.push_back(absl::StrCat(without_usage, " answers do not say how many tokens they have"));
  }
  if (without_text > 0) summary.invalid.push_back(absl::StrCat(without_text, " answers have no text"));
  if (run.fewer_clients.has_value()) {
    summary.invalid.push_back(absl::StrCat("no more than ", *run.fewer_clients,
                                           " requests could be under way at once, as each has a thread here"));
  }
  CheckLateness(run, load, &summary);
  return summary;
}

std::string ServeSummaryText(const ServeSummary& summary, const ServeLoad& load, const Goodput& goodput,
                             const std::vector<double>& percentiles) {
  const auto number = [](double value) { return absl::StrFormat("%.2f", value); };
  std::vector<Line> lines = {{"Successful requests:", absl::StrCat(summary.successful)},
                             {"Failed requests:", absl::StrCat(summary.failed)}};
  if (load.max_concurrency > 0) lines.push_back({"Maximum request concurrency:", absl::StrCat(load.max_concurrency)});
  if (!std::isinf(load.rate_per_s)) lines.push_back({"Request rate configured (RPS):", number(load.rate_per_s)});
  lines.push_back({"Benchmark duration (s):", number(summary.duration_s)});
  lines.push_back({"Total input tokens:", absl::StrCat(summary.input_tokens)});
  lines.push_back({"Total generated tokens:", absl::StrCat(summary.output_tokens)});
  lines.push_back({"Request throughput (req/s):", number(PerSecond(static_cast<double>(summary.successful), summary))});
  if (goodput.any()) {
    lines.push_back({"Request goodput (req/s):", number(PerSecond(static_cast<double>(summary.good), summary))});
  }
  lines.push_back(
      {"Output token throughput (tok/s):", number(PerSecond(static_cast<double>(summary.output_tokens), summary))});
  lines.push_back({"Peak output token throughput (tok/s):", number(summary.peak_output_tokens_per_s)});
  lines.push_back({"Peak concurrent requests:", number(static_cast<double>(summary.peak_concurrent))});
  lines.push_back({"Total token throughput (tok/s):",
                   number(PerSecond(static_cast<double>(summary.input_tokens + summary.output_tokens), summary))});
  std::string text = summary.invalid.empty() ? std::string("VALID\n")
                                             : absl::StrCat("INVALID: ", absl::StrJoin(summary.invalid, "; "), "\n");
  absl::StrAppend(&text, Heading(" Serving Benchmark Result ", '='), Block(lines),
                  LatencyBlock("Time to First Token", "TTFT", summary.ttft, percentiles),
                  LatencyBlock("Time per Output Token (excl. 1st token)", "TPOT", summary.tpot, percentiles),
                  LatencyBlock("Inter-token Latency", "ITL", summary.itl, percentiles),
                  LatencyBlock("End-to-end Latency", "E2EL", summary.e2el, percentiles), std::string(50, '='), "\n");
  return text;
}

Json ServeSummaryJson(const ServeSummary& summary, const ServeLoad& load, const std::vector<double>& percentiles) {
  const bool at_once = std::isinf(load.rate_per_s);
  Json json = {
      {"valid", summary.invalid.empty()},
      {"invalid", summary.invalid},
      {"endpoint", load.api->name},
      {"model_id", load.model},
      {"num_prompts", load.requests},
      {"request_rate", at_once ? Json("inf") : Json(load.rate_per_s)},
      {"burstiness", load.burstiness},
      {"max_concurrency", load.max_concurrency > 0 ? Json(load.max_concurrency) : Json()},
      {"seed", load.seed},
      {"duration", summary.duration_s},
      {"completed", summary.successful},
      {"failed", summary.failed},
      {"total_input_tokens", summary.input_tokens},
      {"total_output_tokens", summary.output_tokens},
      {"total_cached_tokens", summary.cached_tokens},
      {"request_throughput", PerSecond(static_cast<double>(summary.successful), summary)},
      {"request_goodput", PerSecond(static_cast<double>(summary.good), summary)},
      {"output_throughput", PerSecond(static_cast<double>(summary.output_tokens), summary)},
      {"total_token_throughput", PerSecond(static_cast<double>(summary.input_tokens + summary.output_tokens), summary)},
      {"max_output_tokens_per_s", summary.peak_output_tokens_per_s},
      {"max_concurrent_requests", summary.peak_concurrent},
      {"errors", summary.errors}};
  const auto add = [&](const std::string& name, const LatencyFigures& figures) {
    json[absl::StrCat("mean_", name, "_ms")] = figures.mean;
    json[absl::StrCat("median_", name, "_ms")] = figures.median;
    for (size_t i = 0; i < percentiles.size(); ++i) {
      json[absl::StrCat("p", PercentText(percentiles[i]), "_", name, "_ms")] = figures.percentiles[i];
    }
  };
  add("ttft", summary.ttft);
  add("tpot", summary.tpot);
  add("itl", summary.itl);
  add("e2el", summary.e2el);
  return json;
}

}  // namespace stagecoach
