#ifndef STAGECOACH_COORDINATOR_CLI_QUANTIZE_RUN_H_
#define STAGECOACH_COORDINATOR_CLI_QUANTIZE_RUN_H_

// Carries out a QuantizePlan: reads, encodes and writes pieces of a few MiB on many threads. Memory is bounded by the
// number of threads, whatever the size of the model.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "coordinator/cli/quantize_plan.h"

namespace stagecoach {

struct QuantizeRun {
  std::string out_path;
  TensorType file_type = TensorType::kQ8_0;  // what general.file_type says
  int64_t threads = 0;                       // 0: one a core
  bool replace = false;                      // an existing file
  bool allow_damaged = false;                // take damaged tensors as they are
  // Told after each piece how many bytes of the source's tensors are done; one call at a time. Not OK: the work ends
  // with that status. May be empty.
  std::function<absl::Status(uint64_t done_bytes)> progress;
};

// Writes the file: metadata as stored, without the keys of shards, with general.file_type and
// general.quantization_version. Returns its size. Errors: kDataLoss for a damaged tensor, kInvalidArgument for weights
// that are not finite or too large for the type, those of GgufStreamWriter and of reading. After an error there is no
// new file.
absl::StatusOr<uint64_t> Quantize(const GgufFile& file, const QuantizePlan& plan, const QuantizeRun& run);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_QUANTIZE_RUN_H_
