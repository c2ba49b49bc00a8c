#ifndef STAGECOACH_STAGE_WORKER_WEIGHTS_MATRIX_LOADER_H_
#define STAGECOACH_STAGE_WORKER_WEIGHTS_MATRIX_LOADER_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/tensor_damage.h"
#include "stage_worker/exec/page_memory.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/weights/stage_weights.h"

namespace stagecoach {

// Refuses damaged weights (common/gguf/tensor_damage.h) during loading. Thread-safe.
class DamageCheck {
 public:
  static constexpr size_t kMostLines = 8;

  // With `allow`, damage is only logged, once a tensor and in at most kMostLines lines. The file outlives the check.
  DamageCheck(const GgufFile& file, bool allow) : file_(file), allow_(allow) {}

  // Whole rows read from `offset` bytes into the tensor, every row once. kDataLoss: tensor, layer, file, offset and
  // what to do. Accepts everything of a model without files.
  absl::Status Examine(const GgufTensor& tensor, uint64_t offset, absl::Span<const uint8_t> rows);

  // After a failure, without active readers: discards cached copies of damaged tensors.
  void DiscardCopies() const;

 private:
  const GgufFile& file_;
  const bool allow_;
  DamageScan scan_;
  mutable std::mutex mu_;
  std::vector<const GgufTensor*> damaged_;  // each once; guarded by mu_
};

// Which rows of a tensor become a matrix: of each `stride` rows, `rows` from `first` on, `runs` times.
struct RowRuns {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t stride = 0;
  int64_t runs = 1;

  int64_t all() const { return rows * runs; }
};

// Collects the matrices of a stage, then reads and packs them all in parallel. Used by one thread.
class MatrixLoader {
 public:
  // Bytes of a read, about (at least a panel): enough for a disk, and two of them fit a second-level cache.
  static constexpr size_t kPieceBytes = size_t{1} << 19;
  static constexpr int kWorkersAThread = 2;

  // `damage` sees every row before it is packed. All outlive the loader.
  MatrixLoader(const GgufFile& file, const Kernels& kernels, DamageCheck* damage)
      : file_(file), kernels_(kernels), damage_(damage) {}

  // These rows of a tensor, one run behind the other, as a matrix of their own; `out` is complete after Load.
  absl::Status Add(const GgufTensor& tensor, std::vector<RowRuns> rows, PackedMatrix* out);

  // Memory for everything added, which the matrices then point into.
  absl::StatusOr<PageMemory> Allocate();

  // Reads and packs everything added into that memory, in file order, on the cores of `threads` threads, each with one
  // piece being read and one being packed. Adds the bytes read to `bytes_loaded`.
  absl::Status Load(int threads, std::atomic<uint64_t>* bytes_loaded, PageMemory* memory);

 private:
  struct Matrix {
    const GgufTensor* tensor;
    std::vector<RowRuns> rows;
    size_t offset;  // in the memory
    PackedMatrix* out;
  };
  // A run of panels that is read at once.
  struct Piece {
    size_t matrix;
    int64_t first_panel;
    int64_t panels;
  };
  std::vector<Piece> CutIntoPieces() const;
  std::pair<int, uint64_t> PlaceOf(const Piece& piece) const;  // shard, and offset in its file
  absl::Status ReadRows(const Matrix& matrix, int64_t first_row, absl::Span<uint8_t> raw) const;
  absl::Status LoadPiece(const Piece& piece, std::vector<uint8_t>* raw, uint8_t* memory,
                         std::atomic<uint64_t>* bytes_loaded) const;

  const GgufFile& file_;
  const Kernels& kernels_;
  DamageCheck* const damage_;
  std::vector<Matrix> matrices_;
  size_t bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_WEIGHTS_MATRIX_LOADER_H_
