#include "coordinator/cli/tensor_check.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/parallel/parallel_for.h"

namespace stagecoach {
namespace {

constexpr uint64_t kCheckedBytes = uint64_t{1} << 20;  // at once, about: whole rows

absl::Status CheckTensor(const GgufFile& file, const GgufTensor& tensor, std::vector<uint8_t>* rows, DamageScan* scan,
                         CheckedTensor* checked) {
  const uint64_t row_bytes = tensor.bytes / static_cast<uint64_t>(tensor.rows());
  const uint64_t step = std::max<uint64_t>(1, kCheckedBytes / row_bytes) * row_bytes;
  for (uint64_t offset = 0; offset < tensor.bytes; offset += step) {
    rows->resize(std::min(step, tensor.bytes - offset));
    RETURN_IF_ERROR(file.Read(tensor, offset, absl::MakeSpan(*rows)));
    checked->crc32c = ExtendCrc32c(checked->crc32c, *rows);
    const std::optional<TensorDamage> damage = scan->Examine(tensor, offset, *rows);
    if (!checked->damage.has_value()) checked->damage = damage;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CheckedTensor>> CheckTensors(const GgufFile& file) {
  std::vector<CheckedTensor> checked(file.tensors().size());
  std::vector<std::vector<uint8_t>> rows(static_cast<size_t>(ParallelWorkers(0)));
  DamageScan scan;
  RETURN_IF_ERROR(ParallelFor(0, static_cast<int64_t>(checked.size()), [&](int worker, int64_t i) {
    const auto at = static_cast<size_t>(i);
    return CheckTensor(file, file.tensors()[at], &rows[static_cast<size_t>(worker)], &scan, &checked[at]);
  }));
  return checked;
}

int64_t CountDamaged(const std::vector<CheckedTensor>& checked) {
  return std::count_if(checked.begin(), checked.end(), [](const CheckedTensor& t) { return t.damage.has_value(); });
}

}  // namespace stagecoach
