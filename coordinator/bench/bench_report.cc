#include "coordinator/bench/bench_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

double MeanRate(const BenchRecord& record, double Rates::*rate) {
  std::vector<double> values;
  for (const Rates& rates : record.rates) values.push_back(rates.*rate);
  return Summarize(values).mean;
}

double Rounded(double value, double per_unit) { return std::round(value * per_unit) / per_unit; }

std::string Bytes(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib >= 1024 ? absl::StrFormat("%.2f GiB", mib / 1024) : absl::StrFormat("%.2f MiB", mib);
}

std::string Count(uint64_t count) {
  const double value = static_cast<double>(count);
  return value >= 1e9 ? absl::StrFormat("%.2f B", value * 1e-9) : absl::StrFormat("%.2f M", value * 1e-6);
}

std::string Cell(double value) { return value > 0 ? absl::StrFormat("%.1f", value) : "-"; }
std::string Percent(double share) { return share > 0 ? absl::StrFormat("%.0f", 100 * share) : "-"; }

// The columns of the table: heading, width, and whether it is a number.
struct Column {
  const char* name;
  int width;
  bool number;
};
constexpr Column kColumns[] = {{"model", 24, false}, {"size", 10, true},   {"params", 10, true}, {"backend", 12, false},
                               {"stages", 6, true},  {"threads", 7, true}, {"test", 18, true},   {"t/s", 18, true},
                               {"GB/s", 6, true},    {"%bw", 4, true},     {"GOP/s", 7, true},   {"%peak", 5, true}};

// Characters, not bytes: the cells hold no others than ASCII and a plus-minus sign.
int Width(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string TableLine(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(static_cast<size_t>(std::max(0, kColumns[i].width - Width(cells[i]))), ' ');
    absl::StrAppend(&line, " ", kColumns[i].number ? padding : "", cells[i], kColumns[i].number ? "" : padding, " |");
  }
  return line + "\n";
}

std::string TableHead() {
  std::vector<std::string> names, rules;
  for (const Column& column : kColumns) {
    names.push_back(column.name);
    rules.push_back(std::string(static_cast<size_t>(column.width - (column.number ? 1 : 0)), '-') +
                    (column.number ? ":" : ""));
  }
  return TableLine(names) + TableLine(rules);
}

std::string TableRow(const BenchRecord& record) {
  const MeanAndDeviation speed = Summarize(record.TokensPerSecond());
  const double shares = record.checked ? 1 : 0;
  return TableLine({record.model.type, Bytes(record.model.bytes), Count(record.model.elements), record.isa,
                    absl::StrCat(record.n_stages), absl::StrCat(record.n_threads), record.test.Name(),
                    absl::StrFormat("%.2f ± %.2f", speed.mean, speed.deviation),
                    Cell(MeanRate(record, &Rates::read_gbps)), Percent(shares * MeanRate(record, &Rates::read_share)),
                    Cell(MeanRate(record, &Rates::gops)), Percent(shares * MeanRate(record, &Rates::peak_share))});
}

std::string CsvValue(const Json& value) {
  if (value.is_null()) return "\"\"";
  const std::string text = value.is_string() ? value.get<std::string>() : CompactJson(value);
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvLine(const std::vector<std::string>& values) { return absl::StrJoin(values, ",") + "\n"; }

std::string Indented(const Json& json) {
  std::string text = PrettyJson(json);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return "  " + absl::StrReplaceAll(text, {{"\n", "\n  "}});
}

}  // namespace

MeanAndDeviation Summarize(const std::vector<double>& samples) {
  MeanAndDeviation result;
  if (samples.empty()) return result;
  const double n = static_cast<double>(samples.size());
  result.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  if (samples.size() < 2) return result;
  double squares = 0;
  for (double sample : samples) squares += (sample - result.mean) * (sample - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  return result;
}

std::string SamplingText(const SamplingParams& sampling) {
  const SamplingParams none;
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, auto value, auto unset) {
    if (value != unset) parts.push_back(absl::StrCat(name, " ", value));
  };
  VisitSampling(
      [&](const SamplingSetting& setting, auto member, auto) { add(setting.flag, sampling.*member, none.*member); });
  add("seed", sampling.seed, none.seed);
  return parts.empty() ? "greedy" : absl::StrJoin(parts, ", ");
}

std::vector<double> BenchRecord::TokensPerSecond() const {
  std::vector<double> rates;
  for (const BenchSample& sample : samples) {
    rates.push_back(sample.us > 0 ? static_cast<double>(sample.tokens) * 1e6 / static_cast<double>(sample.us) : 0);
  }
  return rates;
}

Json BenchRecordJson(const BenchRecord& record, bool with_samples) {
  // Of decode, the time is that of as many tokens as were asked for: a result may bring a few more.
  std::vector<double> ns;
  for (double rate : record.TokensPerSecond()) {
    ns.push_back(rate > 0 ? std::round(static_cast<double>(record.test.tokens()) * 1e9 / rate) : 0);
  }
  const MeanAndDeviation time = Summarize(ns), speed = Summarize(record.TokensPerSecond());
  const auto share = [&](double Rates::*rate) {
    return record.checked ? Json(Rounded(MeanRate(record, rate), 1e4)) : Json(nullptr);
  };
  const bool decode = !record.test.prefill();
  Json json = {{"build", record.build},
               {"cpu_info", record.cpu_info},
               {"isa", record.isa},
               {"valid", record.checked ? Json(true) : Json(nullptr)},
               {"model_filename", record.model_filename},
               {"model_type", record.model.type},
               {"model_size", record.model.bytes},
               {"model_n_params", record.model.elements},
               {"n_batch", record.n_batch},
               {"n_ubatch", record.n_ubatch},
               {"n_threads", record.n_threads},
               {"n_stages", record.n_stages},
               {"type_k", record.type_kv},
               {"type_v", record.type_kv},
               {"emulated_link", record.emulated_link},
               {"speculate", record.speculate},
               {"sampling", SamplingText(record.sampling)},
               {"n_prompt", record.test.prompt},
               {"n_gen", record.test.generated},
               {"n_depth", record.test.depth},
               {"n_parallel", record.test.sequences},
               {"equal_sequences", record.test.equal},
               {"test_time", record.test_time},
               {"avg_ns", static_cast<int64_t>(time.mean)},
               {"stddev_ns", static_cast<int64_t>(time.deviation)},
               {"avg_ts", Rounded(speed.mean, 1e6)},
               {"stddev_ts", Rounded(speed.deviation, 1e6)},
               {"read_gbps", decode ? Json(Rounded(MeanRate(record, &Rates::read_gbps), 1e3)) : Json(nullptr)},
               {"read_share", decode ? share(&Rates::read_share) : Json(nullptr)},
               {"gops", Rounded(MeanRate(record, &Rates::gops), 1e3)},
               {"matrix_gops", Rounded(MeanRate(record, &Rates::matrix_gops), 1e3)},
               {"peak_share", share(&Rates::peak_share)}};
  if (!with_samples) return json;
  if (record.account != nullptr) json["account"] = *record.account;
  json["samples_ns"] = Json::array();
  for (double sample : ns) json["samples_ns"].push_back(static_cast<int64_t>(sample));
  json["samples_ts"] = Json::array();
  for (double sample : record.TokensPerSecond()) json["samples_ts"].push_back(Rounded(sample, 1e6));
  return json;
}

std::string BenchWriter::Row(const BenchRecord& record) {
  const bool first = !any_;
  any_ = true;
  switch (format_) {
    case BenchFormat::kMarkdown: return (first ? TableHead() : "") + TableRow(record);
    case BenchFormat::kJsonLines: return CompactJson(BenchRecordJson(record, true)) + "\n";
    case BenchFormat::kJson: return (first ? "[\n" : ",\n") + Indented(BenchRecordJson(record, true));
    case BenchFormat::kCsv: break;
  }
  std::vector<std::string> names, values;
  const Json json = BenchRecordJson(record, false);
  for (const auto& [name, value] : json.items()) {
    names.push_back(name);
    values.push_back(CsvValue(value));
  }
  return (first ? CsvLine(names) : "") + CsvLine(values);
}

std::string BenchWriter::End() const {
  if (format_ != BenchFormat::kJson) return "";
  return any_ ? "\n]\n" : "[]\n";
}

}  // namespace stagecoach
