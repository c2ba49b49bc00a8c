#include "coordinator/bench/bench_work.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/json/json_value.h"
#include "common/quant/tensor_type.h"
#include "coordinator/launch/program_output.h"

namespace stagecoach {
namespace {

// Checking all kernels takes half a minute on a slow machine.
constexpr absl::Duration kLongestCheck = absl::Minutes(10);

// `share`: of the tensor, what a row goes through.
void AddMatrix(const GgufTensor& tensor, double share, std::map<std::string, double>* ops) {
  if (tensor.dims.size() < 2) return;  // vectors are not counted
  (*ops)[FindTensorType(tensor.type_id)->name] += 2 * share * static_cast<double>(tensor.elements());
}

// That a prompt's rows attend to: each to itself and to all before it, or to `window` of them (0: all).
double PromptPositions(double rows, int64_t window) {
  const double whole = window > 0 ? std::min(rows, static_cast<double>(window)) : rows;
  return whole * (whole + 1) / 2 + (rows - whole) * static_cast<double>(window);
}

// Adds `scale` * ops to the totals: operations, and the seconds that they take at their peaks.
void AddOps(const std::map<std::string, double>& ops, double scale, const KernelReport& report, const HostPeaks* peaks,
            double* total, double* seconds) {
  for (const auto& [type, count] : ops) {
    *total += scale * count;
    if (peaks == nullptr) continue;
    const auto name = report.peak_of_type.find(type);
    const auto peak = peaks->gops.find(name == report.peak_of_type.end() ? "f32" : name->second);
    if (peak != peaks->gops.end() && peak->second > 0) *seconds += scale * count / (peak->second * 1e9);
  }
}

}  // namespace

const HostPeaks* KernelReport::PeaksOf(int64_t threads) const {
  for (const HostPeaks& candidate : peaks) {
    if (candidate.threads == threads) return &candidate;
  }
  return nullptr;
}

absl::StatusOr<KernelReport> ParseKernelReport(const std::string& text) {
  KernelReport report;
  try {
    const Json json = ReadJson(text);
    report.valid = json.at("valid").get<bool>();
    report.isa = json.at("isa").get<std::string>();
    report.cpu = json.at("cpu").get<std::string>();
    report.comparisons = json.at("comparisons").get<int64_t>();
    report.differences = json.at("differences").get<std::vector<std::string>>();
    report.peak_of_type = json.at("peak_of_type").get<std::map<std::string, std::string>>();
    for (const Json& entry : json.at("peaks")) {
      HostPeaks peaks;
      peaks.threads = entry.at("threads").get<int64_t>();
      peaks.read_gbps = entry.at("read_gbps").get<double>();
      for (const char* name : {"int8", "bf16", "f32"})
        peaks.gops[name] = entry.at(absl::StrCat(name, "_gops")).get<double>();
      report.peaks.push_back(std::move(peaks));
    }
  } catch (const Json::exception& error) {
    return absl::InternalError(absl::StrCat("stage_worker's report on its kernels cannot be read: ", error.what()));
  }
  return report;
}

absl::StatusOr<KernelReport> CheckKernelsOfHost(const std::string& stage_worker, std::optional<InstructionSet> isa,
                                                const std::vector<int64_t>& threads) {
  ASSIGN_OR_RETURN(const ProgramOutput ran, RunForOutput({stage_worker, "--check-kernels", "--isa",
                                                          isa.has_value() ? InstructionSetName(*isa) : "auto",
                                                          "--threads", absl::StrJoin(threads, ",")},
                                                         kLongestCheck));
  const std::string& output = ran.text;
  const size_t begin = output.find('{');  // after warnings, if any
  if (ran.exit_code == 0 && begin != std::string::npos) return ParseKernelReport(output.substr(begin));
  const std::string text(absl::StripPrefix(absl::StripAsciiWhitespace(output), "stage_worker: "));
  return absl::FailedPreconditionError(
      absl::StrCat("the check of the kernels failed with exit code ", ran.exit_code, ": ", text));
}

ModelSummary SummarizeModel(const ModelDescription& model) {
  ModelSummary summary;
  std::map<std::string, uint64_t> elements_of_type;
  for (const GgufTensor& tensor : model.file->tensors()) {
    summary.bytes += tensor.bytes;
    summary.elements += tensor.elements();
    elements_of_type[FindTensorType(tensor.type_id)->name] += tensor.elements();
  }
  const auto most = std::max_element(elements_of_type.begin(), elements_of_type.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const double millions = static_cast<double>(summary.elements) * 1e-6;
  const std::string size =
      model.file->metadata()
          .GetString("general.size_label")
          .value_or(millions < 100 ? absl::StrFormat("%.1fM", millions) : absl::StrFormat("%.1fB", millions / 1000));
  summary.type =
      absl::StrCat(model.hyper.architecture, " ", size, " ", most == elements_of_type.end() ? "" : most->first);
  return summary;
}

absl::StatusOr<ModelWork> CountWork(const ModelDescription& model, KvType kv_type) {
  ModelWork work;
  ASSIGN_OR_RETURN(ModelParts parts, PartsOf(model, kv_type, /*bf16_dot=*/false));
  parts.head.bytes_kept = static_cast<double>(model.output->bytes);
  work.weights = parts.Bytes();
  work.window = parts.window;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const PartWork& layer = parts.layers[i];
    const std::vector<const GgufTensor*> experts = ExpertTensorsOf(model.layers[i]);
    for (const GgufTensor* tensor : model.layers[i].All()) {
      const bool of_experts = std::find(experts.begin(), experts.end(), tensor) != experts.end();
      AddMatrix(*tensor, of_experts ? layer.expert_share : 1, &work.layer_ops);
    }
    (layer.window > 0 ? work.window_kv_token_bytes : work.kv_token_bytes) += layer.kv_token_bytes;
    (layer.window > 0 ? work.window_attention_ops : work.attention_ops) += layer.attention_ops;
    work.state_bytes += layer.state_bytes;
    work.state_ops += layer.state_ops;
  }
  AddMatrix(*model.output, 1, &work.head_ops);
  return work;
}

Rates RatesOf(const ModelWork& work, const BenchTest& test, const BenchSample& sample, const KernelReport& report,
              const HostPeaks* peaks) {
  Rates rates;
  if (sample.us <= 0) return rates;
  const double seconds = static_cast<double>(sample.us) * 1e-6;
  const double rows = static_cast<double>(sample.tokens);
  // A prompt's last row alone goes through the head. Of sequences that decode the mean is taken for each.
  const double positions = test.prefill() ? PromptPositions(rows, 0) : static_cast<double>(sample.positions);
  const double within = test.prefill() ? PromptPositions(rows, work.window)
                                       : std::min(positions, rows * static_cast<double>(work.window));
  const double head_rows = test.prefill() ? 1 : rows;
  const double other_ops = positions * work.attention_ops + within * work.window_attention_ops + rows * work.state_ops;
  double ops = other_ops, ideal_s = 0;
  if (peaks != nullptr && peaks->gops.contains("f32") && peaks->gops.at("f32") > 0) {
    ideal_s = ops / (peaks->gops.at("f32") * 1e9);
  }
  AddOps(work.layer_ops, rows, report, peaks, &ops, &ideal_s);
  AddOps(work.head_ops, head_rows, report, peaks, &ops, &ideal_s);
  rates.gops = ops / seconds * 1e-9;
  rates.matrix_gops = (ops - other_ops) / seconds * 1e-9;
  rates.peak_share = ideal_s / seconds;
  if (test.prefill()) return rates;
  const auto passes = static_cast<double>(sample.passes);
  const double weight_bytes = passes > 0 ? passes * work.weights.BytesTouched(test.equal ? 1 : rows / passes) : 0;
  const double bytes =
      weight_bytes + positions * work.kv_token_bytes + within * work.window_kv_token_bytes + rows * work.state_bytes;
  rates.read_gbps = bytes / seconds * 1e-9;
  if (peaks != nullptr && peaks->read_gbps > 0) rates.read_share = rates.read_gbps / peaks->read_gbps;
  return rates;
}

}  // namespace stagecoach
