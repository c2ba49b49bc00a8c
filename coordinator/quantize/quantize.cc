// quantize: a model file in smaller types.

#include "coordinator/quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/gguf/gguf_writer.h"
#include "common/gguf/tensor_damage.h"
#include "common/parallel/parallel_for.h"
#include "common/quant/supported_types.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"
#include "coordinator/front/model_file.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/signals.h"

namespace stagecoach {
namespace {

constexpr char kHead[] = "output.weight";
constexpr char kEmbedding[] = "token_embd.weight";

double BitsPerWeight(TensorType type) {
  const TensorTypeInfo& info = GetTensorType(type);
  return 8.0 * info.block_bytes / info.block_elements;
}

// Of what stays as it is: small, and a little less precision decides otherwise about much (which expert, what a
// recurrent state forgets).
constexpr absl::string_view kKept[] = {"_norm.weight",      "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
                                       "ssm_conv1d.weight", "ssm_alpha.weight",    "ssm_beta.weight",
                                       "ssm_ba.weight"};

bool IsQuantized(const GgufTensor& tensor) {
  return tensor.dims.size() >= 2 && absl::EndsWith(tensor.name, ".weight") &&
         std::none_of(std::begin(kKept), std::end(kKept),
                      [&](absl::string_view ending) { return absl::EndsWith(tensor.name, ending); });
}

bool CanBeSource(uint32_t type_id) {
  return type_id == static_cast<uint32_t>(TensorType::kF32) || type_id == static_cast<uint32_t>(TensorType::kF16) ||
         type_id == static_cast<uint32_t>(TensorType::kBF16);
}

TensorType WantedType(const std::string& name, bool tied, const QuantizeTypes& types) {
  if (name == kEmbedding && types.embedding.has_value()) return *types.embedding;
  const bool head = name == kHead || (tied && name == kEmbedding);
  if (!head) return types.matrices;
  if (types.output.has_value()) return *types.output;
  const bool better = !types.pure && BitsPerWeight(types.matrices) < BitsPerWeight(TensorType::kQ6_K);
  return better ? TensorType::kQ6_K : types.matrices;
}

bool Divides(TensorType type, int64_t cols) { return cols % GetTensorType(type).block_elements == 0; }

TensorType TypeForRows(TensorType wanted, int64_t cols) {
  for (TensorType type : {wanted, TensorType::kQ8_0}) {
    if (Divides(type, cols)) return type;
  }
  return TensorType::kF16;
}

// Tensors that could not have the type they were to have, by what they got: one note for all of a kind.
class Fallbacks {
 public:
  void Add(const GgufTensor& tensor, TensorType wanted, TensorType got) {
    Kind& kind = kinds_[{tensor.cols(), wanted, got}];
    if (kind.tensors++ == 0) kind.first = tensor.name;
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    for (const auto& [key, kind] : kinds_) {
      const auto& [cols, wanted, got] = key;
      const TensorTypeInfo& type = GetTensorType(wanted);
      const std::string who = kind.tensors == 1
                                  ? absl::StrCat("tensor '", kind.first, "' has")
                                  : absl::StrCat(kind.tensors, " tensors ('", kind.first, "' is the first) have");
      notes.push_back(absl::StrCat(who, " rows of ", cols, " weights, no multiple of ", type.block_elements,
                                   ", the block of ", type.name, ": written as ", GetTensorType(got).name));
    }
    return notes;
  }

 private:
  struct Kind {
    int tensors = 0;
    std::string first;
  };
  std::map<std::tuple<int64_t, TensorType, TensorType>, Kind> kinds_;
};

constexpr int64_t kPieceElements = int64_t{1} << 20;
constexpr uint32_t kQuantizationVersion = 2;  // of the block formats, as llama.cpp counts them
constexpr float kLargestHalf = 65504;

// Some rows of a tensor, or all of a copied one's bytes within a range.
struct Piece {
  size_t step = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

struct Scratch {
  std::vector<uint8_t> source;
  std::vector<float> floats;
  std::vector<uint8_t> encoded;
};

std::vector<Piece> CutIntoPieces(const QuantizePlan& plan) {
  std::vector<Piece> pieces;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const GgufTensor& tensor = *plan.steps[s].tensor;
    const int64_t rows_a_piece = std::max<int64_t>(1, kPieceElements / tensor.cols());
    for (int64_t row = 0; row < tensor.rows(); row += rows_a_piece) {
      pieces.push_back({s, row, std::min(rows_a_piece, tensor.rows() - row)});
    }
  }
  return pieces;
}

// Whether every value can be encoded: types with fp16 values or scales hold what a half holds.
absl::Status CheckValues(const GgufTensor& tensor, const Piece& piece, TensorType type,
                         const std::vector<float>& values) {
  const bool wide = type == TensorType::kF32 || type == TensorType::kBF16;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && (wide || std::fabs(values[i]) <= kLargestHalf)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "' has the weight ", values[i], " in row ",
                     piece.first_row + static_cast<int64_t>(i) / tensor.cols(), ", expected ",
                     wide ? "finite numbers" : "numbers of at most 65504 in magnitude", " for type ",
                     GetTensorType(type).name, "; the file is damaged, or no good model"));
  }
  return absl::OkStatus();
}

uint64_t SourceRowBytes(const GgufTensor& tensor) { return tensor.bytes / static_cast<uint64_t>(tensor.rows()); }

absl::Status WritePiece(const GgufFile& file, const QuantizeStep& step, const Piece& piece, DamageScan* damage_scan,
                        Scratch* scratch, GgufStreamWriter* writer) {
  const GgufTensor& tensor = *step.tensor;
  const uint64_t source_row_bytes = SourceRowBytes(tensor);
  const uint64_t source_at = static_cast<uint64_t>(piece.first_row) * source_row_bytes;
  scratch->source.resize(static_cast<uint64_t>(piece.rows) * source_row_bytes);
  RETURN_IF_ERROR(file.Read(tensor, source_at, absl::MakeSpan(scratch->source)));
  if (damage_scan != nullptr) {
    const std::optional<TensorDamage> damage = damage_scan->Examine(tensor, source_at, scratch->source);
    if (damage.has_value()) return DamagedError(file, tensor, *damage);
  }
  if (step.copied()) return writer->Write(piece.step, source_at, scratch->source);

  const auto type = static_cast<TensorType>(step.type_id);
  const int64_t elements = piece.rows * tensor.cols();
  scratch->floats.resize(static_cast<size_t>(elements));
  DequantizeRow(static_cast<TensorType>(tensor.type_id), scratch->source.data(), elements, scratch->floats.data());
  RETURN_IF_ERROR(CheckValues(tensor, piece, type, scratch->floats));
  scratch->encoded.resize(RowBytes(type, elements));
  QuantizeRow(type, scratch->floats.data(), elements, scratch->encoded.data());
  return writer->Write(piece.step, static_cast<uint64_t>(piece.first_row) * RowBytes(type, tensor.cols()),
                       scratch->encoded);
}

// The value of general.file_type: llama.cpp's number for a file that is mostly of this type.
uint32_t GgufFileType(TensorType type) {
  switch (type) {
    case TensorType::kF32: return 0;
    case TensorType::kF16: return 1;
    case TensorType::kQ4_0: return 2;
    case TensorType::kQ8_0: return 7;
    case TensorType::kQ4_K: return 14;  // Q4_K_S: the same type for every matrix
    case TensorType::kQ6_K: return 18;
    case TensorType::kBF16: return 32;
    case TensorType::kQ1_0: return 40;
    default: CHECK(false);
  }
}

absl::StatusOr<std::unique_ptr<GgufStreamWriter>> CreateFile(const GgufFile& file, const QuantizePlan& plan,
                                                             const QuantizeRun& run) {
  ASSIGN_OR_RETURN(std::vector<GgufRawEntry> metadata, file.ReadRawMetadata());
  std::erase_if(metadata, [](const GgufRawEntry& entry) { return absl::StartsWith(entry.key, "split."); });
  SetGgufRawU32("general.quantization_version", kQuantizationVersion, &metadata);
  SetGgufRawU32("general.file_type", GgufFileType(run.file_type), &metadata);
  std::vector<GgufStreamTensor> tensors;
  for (const QuantizeStep& step : plan.steps) tensors.push_back({step.tensor->name, step.tensor->dims, step.type_id});
  return GgufStreamWriter::Create(run.out_path, metadata, tensors);
}

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
    const uint64_t weights = step.tensor->elements();
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
  QuantizeVerb()
      : Verb("quantize", "write a model file in a smaller type",
             "coordinator quantize model-f16.gguf model-q4_k.gguf --type q4_k") {}

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
    AddVerbosityOptions(app, &verbosity_);
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
    uint64_t tensor_bytes = 0;
    for (const GgufTensor& tensor : file.tensors()) tensor_bytes += tensor.bytes;
    const uint64_t source_bytes = TotalBytes(file.fingerprints());
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

absl::StatusOr<QuantizePlan> PlanQuantize(const GgufFile& file, const QuantizeTypes& types) {
  const bool tied = file.FindTensor(kHead) == nullptr;
  QuantizePlan plan;
  Fallbacks fallbacks;
  for (const GgufTensor& tensor : file.tensors()) {
    QuantizeStep step{&tensor, tensor.type_id};
    if (IsQuantized(tensor)) {
      const TensorType wanted = WantedType(tensor.name, tied, types);
      const TensorType type = TypeForRows(wanted, tensor.cols());
      if (type != wanted) fallbacks.Add(tensor, wanted, type);
      step.type_id = static_cast<uint32_t>(type);
    }
    const TensorTypeInfo* source = FindTensorType(tensor.type_id);
    if ((!step.copied() && !CanBeSource(tensor.type_id)) || tensor.type_id > 0xffff) {
      return absl::UnimplementedError(
          absl::StrCat("'", file.path(), "': tensor '", tensor.name, "' has type ", source->name,
                       ", expected F32, F16, BF16 or ", FindTensorType(step.type_id)->name,
                       ": quantising what is quantised already would lose twice; start from the original file"));
    }
    plan.steps.push_back(step);
  }
  plan.notes = fallbacks.Notes();
  return plan;
}

absl::StatusOr<uint64_t> Quantize(const GgufFile& file, const QuantizePlan& plan, const QuantizeRun& run) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufStreamWriter> writer, CreateFile(file, plan, run));
  const std::vector<Piece> pieces = CutIntoPieces(plan);
  std::vector<Scratch> scratch(static_cast<size_t>(ParallelWorkers(run.threads)));
  DamageScan damage_scan;
  std::mutex mu;
  uint64_t done_bytes = 0;  // guarded by mu
  RETURN_IF_ERROR(ParallelFor(run.threads, static_cast<int64_t>(pieces.size()), [&](int worker, int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const QuantizeStep& step = plan.steps[piece.step];
    RETURN_IF_ERROR(WritePiece(file, step, piece, run.allow_damaged ? nullptr : &damage_scan,
                               &scratch[static_cast<size_t>(worker)], writer.get()));
    const std::lock_guard<std::mutex> lock(mu);
    done_bytes += static_cast<uint64_t>(piece.rows) * SourceRowBytes(*step.tensor);
    return run.progress ? run.progress(done_bytes) : absl::OkStatus();
  }));
  RETURN_IF_ERROR(writer->Finish(run.replace));
  return writer->file_bytes();
}

std::unique_ptr<Verb> MakeQuantizeVerb() { return std::make_unique<QuantizeVerb>(); }

}  // namespace stagecoach
