#ifndef STAGECOACH_COORDINATOR_BENCH_BENCH_WORK_H_
#define STAGECOACH_COORDINATOR_BENCH_BENCH_WORK_H_

// The roofline: the work of a test, counted from the model's shapes, and the share of the host's ceilings that its
// speed reaches.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_choices.h"
#include "common/model/footprint.h"
#include "common/model/model_description.h"
#include "coordinator/bench/bench_measure.h"
#include "coordinator/bench/bench_plan.h"

namespace stagecoach {

// The peaks of one host with this number of threads, in 10^9 bytes and operations a second; a multiply-add counts as
// two.
struct HostPeaks {
  int64_t threads = 0;
  double read_gbps = 0;
  std::map<std::string, double> gops;  // by "int8", "bf16", "f32"
};

// The result of `stage_worker --check-kernels` on this host.
struct KernelReport {
  bool valid = false;
  std::string isa;
  std::string cpu;
  int64_t comparisons = 0;
  std::vector<std::string> differences;
  std::map<std::string, std::string> peak_of_type;  // "Q8_0" -> "int8"
  std::vector<HostPeaks> peaks;                     // by ascending threads

  // nullptr: not measured with this number of threads.
  const HostPeaks* PeaksOf(int64_t threads) const;
};
absl::StatusOr<KernelReport> ParseKernelReport(const std::string& json);

// Runs the stage program's check on this host, which takes a second or two. kFailedPrecondition when it cannot run or
// this host lacks the instruction set.
absl::StatusOr<KernelReport> CheckKernelsOfHost(const std::string& stage_worker, std::optional<InstructionSet> isa,
                                                const std::vector<int64_t>& threads);

// What a model is called in a table.
struct ModelSummary {
  std::string type;       // architecture, size and the type of most of its weights: "qwen3 0.6B Q8_0"
  uint64_t bytes = 0;     // of all tensors
  uint64_t elements = 0;  // of all tensors
};
ModelSummary SummarizeModel(const ModelDescription& model);

// Work of one model.
struct ModelWork {
  PartWork weights;                         // of all layers and the head; what a step reads: BytesTouched
  double kv_token_bytes = 0;                // of one token, all layers that see everything
  std::map<std::string, double> layer_ops;  // of one row through all layers' matrices, by the matrix's type; of the
                                            // experts those that are chosen for it
  std::map<std::string, double> head_ops;   // of one row through the head
  double attention_ops = 0;                 // of one row and one position it attends to, these layers
  // Likewise, of the layers that see `window` positions only.
  int64_t window = 0;
  double window_kv_token_bytes = 0, window_attention_ops = 0;
  double state_bytes = 0, state_ops = 0;  // of a sequence's recurrent states, and of one row and these, all layers
};
absl::StatusOr<ModelWork> CountWork(const ModelDescription& model, KvType kv_type);

// Rates of one repetition, and their shares of the ceilings; a share is 0 when there are no peaks to compare with.
struct Rates {
  double read_gbps = 0;  // decode: weights once a pass, of experts those that its rows are expected to choose (equal
                         // sequences: those of one row), the K
                         // and V that were attended to, and recurrent states (writing them is not counted). Prefill: 0
  double read_share = 0;
  double gops = 0;  // matrices, attention and recurrent states
  // The minimum time of the multiply-adds over the time taken: matrices at the peak of their type, the rest at that of
  // f32.
  double peak_share = 0;
  double matrix_gops = 0;  // of gops, the matrices'
};
Rates RatesOf(const ModelWork& work, const BenchTest& test, const BenchSample& sample, const KernelReport& report,
              const HostPeaks* peaks);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_BENCH_BENCH_WORK_H_
