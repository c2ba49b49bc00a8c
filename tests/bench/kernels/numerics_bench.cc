// What quantising a model does to its answers: for each file the perplexity of a text and, position by position against
// the file it was made from, the mean Kullback-Leibler divergence of the next token's distribution (in nats) and how
// often the most probable token is the same one. Windows and scored positions are those of the `perplexity` verb, which
// are llama.cpp's. Prints VALID or INVALID first.
//
//   numerics_bench text.txt original.gguf quantised.gguf ...

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/text/vocabulary.h"
#include "coordinator/front/model_file.h"
#include "coordinator/perplexity/perplexity.h"
#include "tests/bench/kernels/checked_kernels.h"
#include "tests/unit/stage_worker/model/pipeline_rig.h"

namespace stagecoach {
namespace {

constexpr int32_t kWindow = 512;

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

Divergence Compare(const PerplexityWindows& windows, testing::PipelineRig* original, testing::PipelineRig* other) {
  Divergence divergence;
  std::vector<double> p, q;
  for (int64_t w = 0; w < windows.count(); ++w) {
    const std::vector<TokenId> window = windows.Window(w);
    const SequenceId ours = original->Open(window), theirs = other->Open(window);
    int64_t row = 0;  // of the last step
    for (int64_t position = 1; position < kWindow; ++position, ++row) {
      if ((position - 1) % testing::PipelineRig::kMaxRows == 0) {
        const auto begin = window.begin() + position - 1;
        const std::vector<TokenId> rows(begin, std::min(begin + testing::PipelineRig::kMaxRows, window.end()));
        original->Feed(ours, rows, /*sample=*/false);
        other->Feed(theirs, rows, /*sample=*/false);
        original->Step();
        other->Step();
        row = 0;
      }
      if (position < windows.first_scored()) continue;
      const std::vector<float> logits = original->Logits(row), other_logits = other->Logits(row);
      LogSoftmax(logits, &p);
      LogSoftmax(other_logits, &q);
      for (size_t i = 0; i < p.size(); ++i) divergence.kl_sum += std::exp(p[i]) * (p[i] - q[i]);
      divergence.nll_sum -= q[static_cast<size_t>(window[static_cast<size_t>(position)])];
      divergence.same_top += Best(logits) == Best(other_logits);
      ++divergence.tokens;
    }
    original->Close(ours);
    other->Close(theirs);
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
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> model, OpenModel(files[0]));
  testing::PipelineRig original(model, {.kv_type = KvType::kF32});
  std::printf("| file | perplexity | mean KL | same top token |\n|---|---:|---:|---:|\n");
  for (const char* file : files) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const ModelDescription> opened, OpenModel(file));
    if (opened->hyper.vocab != model->hyper.vocab) {
      return absl::InvalidArgumentError(absl::StrCat("'", file, "' has ", opened->hyper.vocab, " tokens, '", files[0],
                                                     "' ", model->hyper.vocab, "; give files of one model"));
    }
    testing::PipelineRig other(opened, {.kv_type = KvType::kF32});
    const Divergence found = Compare(windows, &original, &other);
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
