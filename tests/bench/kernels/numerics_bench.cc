// What quantising a model does to its answers: for each file the perplexity of a text and, position by position against
// the file it was made from, the mean Kullback-Leibler divergence of the next token's distribution (in nats) and how
// often the most probable token is the same one. Windows and scored positions are those of the `perplexity` verb, which
// are llama.cpp's. Prints VALID or INVALID first.
//
//   numerics_bench text.txt original.gguf quantised.gguf ...

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "coordinator/front/model_file.h"
#include "coordinator/perplexity/perplexity.h"
#include "coordinator/text/vocabulary.h"
#include "stage_worker/check/kernel_check.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/model/stage_model.h"
#include "tests/bench/kernels/checked_kernels.h"

namespace stagecoach {
namespace {

constexpr int32_t kWindow = 512;
constexpr int32_t kBlockTokens = 32;

// A whole model in one stage, run window by window.
class WindowModel {
 public:
  static absl::StatusOr<std::unique_ptr<WindowModel>> Open(const std::string& path) {
    ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> description, OpenModel(path));
    StageConfig config;
    config.last_layer = description->hyper.layer_count();
    config.owns_embedding = true;
    config.owns_head = true;
    config.block_tokens = kBlockTokens;
    config.group_blocks = {kWindow / kBlockTokens};
    config.kv_type = KvType::kF32;
    config.context = kWindow;
    config.max_rows = kWindow;
    config.max_slices = 1;
    auto model = std::make_unique<WindowModel>();
    ASSIGN_OR_RETURN(model->stage_, StageModel::Load(description, config, &model->counters_));
    model->width_ = description->hyper.hidden;
    model->vocab_ = description->hyper.vocab;
    model->hidden_.resize(static_cast<size_t>(kWindow * model->width_));
    return model;
  }

  int64_t vocab() const { return vocab_; }

  // Takes in the window's tokens; then Logits may be asked of its rows.
  absl::Status Run(const std::vector<TokenId>& window) {
    MicroBatch batch;
    batch.number = next_number_++;
    if (batch.number > 0) batch.free.push_back(batch.number - 1);
    batch.open.push_back({.sequence = batch.number, .prompt = window});
    SequenceSlice& slice = batch.slices.emplace_back();
    slice.sequence = batch.number;
    slice.count = static_cast<int32_t>(window.size());
    slice.tokens = window;
    slice.new_blocks.resize(1);
    for (BlockId block = 0; block < kWindow / kBlockTokens; ++block) slice.new_blocks[0].push_back(block);
    RETURN_IF_ERROR(stage_->Begin(batch));
    stage_->Forward(batch, hidden_.data());
    return absl::OkStatus();
  }

  // [vocab], of the token after this row.
  void Logits(int64_t row, std::vector<float>* logits) {
    logits->resize(static_cast<size_t>(vocab_));
    stage_->ComputeLogits(hidden_.data() + row * width_, logits->data());
  }

 private:
  StageCounters counters_;
  std::unique_ptr<StageModel> stage_;
  std::vector<float> hidden_;
  int64_t width_ = 0;
  int64_t vocab_ = 0;
  uint64_t next_number_ = 0;
};

// Raw logits to log-probabilities, in double.
void LogSoftmax(const std::vector<float>& logits, std::vector<double>* out) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  const double log_sum = std::log(sum) + most;
  out->resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) (*out)[i] = logits[i] - log_sum;
}

struct Divergence {
  int64_t tokens = 0;
  int64_t same_top = 0;
  double kl_sum = 0;
  double nll_sum = 0;

  double kl() const { return kl_sum / static_cast<double>(tokens); }
  double agreement() const { return 100.0 * static_cast<double>(same_top) / static_cast<double>(tokens); }
  double perplexity() const { return std::exp(nll_sum / static_cast<double>(tokens)); }
};

// The first of the largest.
int64_t Best(const std::vector<float>& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

absl::StatusOr<Divergence> Compare(const PerplexityWindows& windows, WindowModel* original, WindowModel* other) {
  Divergence divergence;
  std::vector<float> logits, other_logits;
  std::vector<double> p, q;
  for (int64_t w = 0; w < windows.count(); ++w) {
    const std::vector<TokenId> window = windows.Window(w);
    RETURN_IF_ERROR(original->Run(window));
    if (other != original) RETURN_IF_ERROR(other->Run(window));
    for (int64_t position = windows.first_scored(); position < kWindow; ++position) {
      original->Logits(position - 1, &logits);
      other->Logits(position - 1, &other_logits);
      LogSoftmax(logits, &p);
      LogSoftmax(other_logits, &q);
      for (size_t i = 0; i < p.size(); ++i) divergence.kl_sum += std::exp(p[i]) * (p[i] - q[i]);
      divergence.nll_sum -= q[static_cast<size_t>(window[static_cast<size_t>(position)])];
      divergence.same_top += Best(logits) == Best(other_logits);
      ++divergence.tokens;
    }
  }
  return divergence;
}

absl::StatusOr<PerplexityWindows> CutText(const std::string& text_path, const std::string& model_path) {
  ASSIGN_OR_RETURN(const FrontModel front, OpenFrontModel(model_path));
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(text_path));
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(front.metadata()));
  PerplexityWindows windows(front.tokenizer->Encode(text, /*add_special=*/true, /*parse_special=*/false), kWindow,
                            vocabulary.add_bos ? vocabulary.bos : kNoToken);
  if (windows.count() > 0) return windows;
  return absl::InvalidArgumentError(absl::StrCat("'", text_path, "' is shorter than a window of ", kWindow, " tokens"));
}

absl::Status Measure(const std::string& text_path, absl::Span<char* const> files) {
  ASSIGN_OR_RETURN(const PerplexityWindows windows, CutText(text_path, files[0]));
  ASSIGN_OR_RETURN(const std::unique_ptr<WindowModel> original, WindowModel::Open(files[0]));
  std::printf("| file | perplexity | mean KL | same top token |\n|---|---:|---:|---:|\n");
  for (const char* file : files) {
    std::unique_ptr<WindowModel> opened;
    if (file != files[0]) {
      ASSIGN_OR_RETURN(opened, WindowModel::Open(file));
      if (opened->vocab() != original->vocab()) {
        return absl::InvalidArgumentError(absl::StrCat("'", file, "' has ", opened->vocab(), " tokens, '", files[0],
                                                       "' ", original->vocab(), "; give files of one model"));
      }
    }
    ASSIGN_OR_RETURN(const Divergence found, Compare(windows, original.get(), opened ? opened.get() : original.get()));
    std::printf("| %s | %.4f | %.6f | %.2f %% |\n", file, found.perplexity(), found.kl(), found.agreement());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: numerics_bench text.txt original.gguf quantised.gguf ...\n"), 2;
  CheckedKernelsOf("auto");
  std::printf("\n");
  const absl::Status status = Measure(argv[1], absl::MakeConstSpan(argv + 2, static_cast<size_t>(argc - 2)));
  if (status.ok()) return 0;
  std::fprintf(stderr, "numerics_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
