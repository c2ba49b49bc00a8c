// quantize: a model file in smaller types.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/json/json.h"
#include "common/quant/supported_types.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/cli/quantize_plan.h"
#include "coordinator/cli/quantize_run.h"
#include "coordinator/cli/standard_output.h"
#include "coordinator/cli/verb.h"
#include "coordinator/cli/verbosity.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/signals.h"

namespace stagecoach {
namespace {

std::string TargetTypes() {
  std::string names;
  for (TensorType type : SupportedTypes()) {
    if (!CanQuantize(type)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", absl::AsciiStrToLower(GetTensorType(type).name));
  }
  return names;
}

absl::StatusOr<TensorType> ParseTargetType(const char* option, const std::string& name) {
  const absl::StatusOr<TensorType> type = ParseTensorType(name);
  if (type.ok() && CanQuantize(*type)) return *type;
  return UsageError(absl::StrCat(option, ": '", CutText(name), "' is not one of ", TargetTypes()));
}

absl::Status ParseOptionalType(const char* option, const std::string& name, std::optional<TensorType>* out) {
  if (name.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(*out, ParseTargetType(option, name));
  return absl::OkStatus();
}

// Refuses an output that would destroy something.
absl::Status CheckOutput(const GgufFile& file, const std::string& out, bool force) {
  std::error_code error;
  if (std::filesystem::path(out).filename().empty()) {
    return UsageError(absl::StrCat("OUT: '", out, "' names no file; give the name of the new file"));
  }
  for (const std::string& shard : file.shard_paths()) {
    if (std::filesystem::equivalent(shard, out, error)) {
      return UsageError(absl::StrCat("'", out, "' is the input itself; give the new file another name"));
    }
  }
  if (std::filesystem::is_directory(out, error)) {
    return UsageError(absl::StrCat("'", out, "' is a directory; give the name of the new file"));
  }
  if (!force && std::filesystem::exists(std::filesystem::symlink_status(out, error))) {
    return InputFileError(absl::StrCat("'", out, "' exists already; --force replaces it"));
  }
  return absl::OkStatus();
}

struct TypeTotal {
  int64_t tensors = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;
};

std::string SizeLine(absl::string_view label, const TypeTotal& total) {
  const double bits =
      total.weights == 0 ? 0 : 8.0 * static_cast<double>(total.bytes) / static_cast<double>(total.weights);
  return absl::StrFormat("%-8s %6d tensors %15d weights %15d bytes  %6.3f bits per weight\n", label, total.tensors,
                         total.weights, total.bytes, bits);
}

std::string Summary(const QuantizePlan& plan, uint64_t source_bytes, uint64_t file_bytes, double seconds) {
  std::map<uint32_t, TypeTotal> totals;
  TypeTotal all;
  for (const QuantizeStep& step : plan.steps) {
    const uint64_t weights = static_cast<uint64_t>(step.tensor->rows() * step.tensor->cols());
    const TensorTypeInfo& type = *FindTensorType(step.type_id);
    const uint64_t bytes = weights / type.block_elements * type.block_bytes;
    for (TypeTotal* total : {&totals[step.type_id], &all}) {
      ++total->tensors;
      total->weights += weights;
      total->bytes += bytes;
    }
  }
  std::string text;
  for (const auto& [id, total] : totals) text += SizeLine(FindTensorType(id)->name, total);
  text += SizeLine("all", all);
  absl::StrAppendFormat(&text, "%d -> %d bytes of file (%.1f%%) in %.1f s\n", source_bytes, file_bytes,
                        100.0 * static_cast<double>(file_bytes) / static_cast<double>(source_bytes), seconds);
  return text;
}

class QuantizeVerb : public Verb {
 public:
  const char* name() const override { return "quantize"; }
  const char* summary() const override { return "write a model file in a smaller type"; }
  const char* example() const override { return "coordinator quantize model-f16.gguf model-q4_k.gguf --type q4_k"; }

  void AddOptions(CLI::App* app) override {
    AddRequiredText(app, "IN", &in_, "FILE", "the model, of type F32, F16 or BF16 (any shard of a split one)");
    AddRequiredText(app, "OUT", &out_, "FILE", "the file to write: one, also from shards");
    AddRequiredText(app, "--type", &type_, "TYPE", absl::StrCat("of the matrices: ", TargetTypes()));
    AddText(app, "--output-tensor-type", &output_type_, "TYPE",
            "of the output head, or the embedding that serves as one; without it at least q6_k");
    AddText(app, "--token-embedding-type", &embedding_type_, "TYPE", "of the token embedding");
    AddFlag(app, "--pure", &pure_, "the head in the type of the matrices, too");
    AddInteger(app, "-t,--threads", &threads_, {1, 4096}, "threads that encode", "one a core");
    AddFlag(app, "--force", &force_, "replace OUT when it exists");
    AddFlag(app, "--allow-damaged", &allow_damaged_, "also where a tensor of IN is all zeros or has a hole of zeros");
    AddVerbosityOptions(app, &verbosity_, /*with_progress=*/true);
  }

  absl::Status Run(const RunContext&) override {
    verbosity_.Apply();
    QuantizeTypes types;
    types.pure = pure_;
    ASSIGN_OR_RETURN(types.matrices, ParseTargetType("--type", type_));
    RETURN_IF_ERROR(ParseOptionalType("--output-tensor-type", output_type_, &types.output));
    RETURN_IF_ERROR(ParseOptionalType("--token-embedding-type", embedding_type_, &types.embedding));
    if (IsDummyModelPath(in_)) return UsageError(absl::StrCat("'", in_, "' has no weights; give a model file"));
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenGguf(in_));
    RETURN_IF_ERROR(CheckOutput(*file, out_, force_));
    ASSIGN_OR_RETURN(const QuantizePlan plan, PlanQuantize(*file, types));
    for (const std::string& note : plan.notes) LogInfo(note);
    return WithExitCode(Write(*file, plan, types.matrices), ExitCode::kInputFile);
  }

 private:
  absl::Status Write(const GgufFile& file, const QuantizePlan& plan, TensorType file_type) {
    SignalWatch& signals = SignalWatch::Get();
    signals.EndAtSecondStop();
    uint64_t tensor_bytes = 0, source_bytes = 0;
    for (const GgufTensor& tensor : file.tensors()) tensor_bytes += tensor.bytes;
    for (const FileFingerprint& fingerprint : file.fingerprints()) source_bytes += fingerprint.size_bytes;
    ProgressLine line(verbosity_.ShowProgress());
    QuantizeRun run{out_, file_type, threads_, force_, allow_damaged_, {}};
    run.progress = [&](uint64_t done) -> absl::Status {
      if (signals.stops() > 0) {
        return WithExitCode(absl::CancelledError(absl::StrCat("interrupted; '", out_, "' was not written")),
                            ExitCode::kInterrupted);
      }
      line.Draw(ProgressText("quantising", static_cast<double>(done) / static_cast<double>(tensor_bytes),
                             absl::StrFormat("%.1f / %.1f MiB", static_cast<double>(done) / (1 << 20),
                                             static_cast<double>(tensor_bytes) / (1 << 20))));
      return absl::OkStatus();
    };
    const int64_t start_us = MonotonicUs();
    const absl::StatusOr<uint64_t> file_bytes = Quantize(file, plan, run);
    line.Clear();
    if (!file_bytes.ok()) return file_bytes.status();
    if (verbosity_.quiet) return absl::OkStatus();
    return WriteStdout(Summary(plan, source_bytes, *file_bytes, static_cast<double>(MonotonicUs() - start_us) * 1e-6));
  }

  std::string in_, out_, type_, output_type_, embedding_type_;
  bool pure_ = false;
  bool force_ = false;
  bool allow_damaged_ = false;
  int64_t threads_ = 0;
  Verbosity verbosity_;
};

}  // namespace

std::unique_ptr<Verb> MakeQuantizeVerb() { return std::make_unique<QuantizeVerb>(); }

}  // namespace stagecoach
