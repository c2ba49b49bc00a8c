#include "common/gguf/tensor_damage.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

// Zeros that end inside a row: fewer may be weights. Half of the weights of sparse models are zero, so 16 floats must
// be; 16 bytes of a block's codes are never all zero by chance.
constexpr size_t kSureFloatBytes = 64, kSureBlockBytes = 16;
// Between two looks: every run of kShortestHole zeros has one of them whole.
constexpr size_t kLookStep = DamageScan::kShortestHole / 2;

using ByteSpan = absl::Span<const uint8_t>;

bool WordIsZero(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word == 0;
}

// The first byte from `at` on that is not zero, or the end.
size_t EndOfZeros(ByteSpan bytes, size_t at) {
  while (at + sizeof(uint64_t) <= bytes.size() && WordIsZero(&bytes[at])) at += sizeof(uint64_t);
  while (at < bytes.size() && bytes[at] == 0) ++at;
  return at;
}

bool AllZeros(ByteSpan bytes) { return EndOfZeros(bytes, 0) == bytes.size(); }

struct ZeroRun {
  size_t begin = 0, end = 0;
};

// Rows of one tensor, and what zeros in them mean.
class ZeroFinder {
 public:
  ZeroFinder(ByteSpan rows, size_t row_bytes, size_t sure_bytes, bool whole_tensor)
      : rows_(rows), row_bytes_(row_bytes), sure_bytes_(sure_bytes), whole_tensor_(whole_tensor) {}

  // The first hole.
  std::optional<ZeroRun> FindHole() const {
    size_t behind = 0;  // the last run
    for (size_t at = 0; at + sizeof(uint64_t) <= rows_.size(); at += kLookStep) {
      if (at < behind || !WordIsZero(&rows_[at])) continue;
      const ZeroRun run = RunAround(at, behind);
      if (run.end - run.begin >= DamageScan::kShortestHole && IsHole(run)) return run;
      behind = run.end;
    }
    return std::nullopt;
  }

 private:
  ZeroRun RunAround(size_t at, size_t from) const {
    ZeroRun run = {at, EndOfZeros(rows_, at)};
    while (run.begin > from && rows_[run.begin - 1] == 0) --run.begin;
    return run;
  }

  bool IsHole(const ZeroRun& run) const {
    const size_t first_whole = (run.begin + row_bytes_ - 1) / row_bytes_, last_whole = run.end / row_bytes_;
    if (first_whole > last_whole) return StandsAlone(run, run);
    return StandsAlone({run.begin, first_whole * row_bytes_}, run) ||
           StandsAlone({last_whole * row_bytes_, run.end}, run);
  }

  // Whether only this row is zero in `part`, which is at either end of the run: a row beside the run has data in these
  // columns. The zeros of a tensor of one row are a hole. Nothing is known of neighbours in another piece.
  bool StandsAlone(const ZeroRun& part, const ZeroRun& run) const {
    if (part.end - part.begin < sure_bytes_) return false;
    const size_t rows = rows_.size() / row_bytes_;
    const size_t above = run.begin / row_bytes_, below = (run.end + row_bytes_ - 1) / row_bytes_;  // and from there on
    const bool looks_up = above > 0 && (part.begin == run.begin || below == rows);
    if (!looks_up && below == rows) return whole_tensor_;
    const size_t beside = looks_up ? above - 1 : below;
    return !AllZeros(rows_.subspan(beside * row_bytes_ + part.begin % row_bytes_, part.end - part.begin));
  }

  const ByteSpan rows_;
  const size_t row_bytes_;
  const size_t sure_bytes_;
  const bool whole_tensor_;
};

std::optional<TensorDamage> FindNotFinite(const GgufTensor& tensor, uint64_t offset, ByteSpan rows) {
  const TensorTypeInfo* const type = FindTensorType(tensor.type_id);
  if (type == nullptr || !type->supported) return std::nullopt;
  const std::optional<int64_t> found = FindNonFinite(static_cast<TensorType>(tensor.type_id), rows.data(),
                                                     static_cast<int64_t>(rows.size() / type->block_bytes));
  if (!found.has_value()) return std::nullopt;
  return TensorDamage{TensorDamage::Kind::kNotFinite, offset + static_cast<uint64_t>(*found) * type->block_bytes,
                      type->block_bytes};
}

}  // namespace

std::string DescribeDamage(const GgufFile& file, const GgufTensor& tensor, const TensorDamage& damage) {
  const TensorTypeInfo& type = *FindTensorType(tensor.type_id);
  std::string found;
  switch (damage.kind) {
    case TensorDamage::Kind::kAllZeros: found = absl::StrCat("is all zeros, ", damage.bytes, " bytes"); break;
    case TensorDamage::Kind::kHole: found = absl::StrCat("has a hole, ", damage.bytes, " zero bytes"); break;
    case TensorDamage::Kind::kNotFinite:
      found = absl::StrCat(type.block_elements == 1 ? "has an element that" : "has a block whose scale",
                           " is not finite, number ", damage.offset / type.block_bytes);
      break;
  }
  const int64_t layer = LayerOfTensor(tensor.name);
  return absl::StrCat("tensor '", tensor.name, "'", layer < 0 ? "" : absl::StrCat(" of layer ", layer), " ", found,
                      " at offset ", tensor.file_offset + damage.offset, " of '",
                      file.shard_paths()[static_cast<size_t>(tensor.shard)], "'");
}

absl::Status DamagedError(const GgufFile& file, const GgufTensor& tensor, const TensorDamage& damage) {
  return absl::DataLossError(
      absl::StrCat(DescribeDamage(file, tensor, damage),
                   "; the file is damaged: copy or download it again, or give `allow_damaged` to take it as it is"));
}

std::optional<TensorDamage> DamageScan::Examine(const GgufTensor& tensor, uint64_t offset,
                                                absl::Span<const uint8_t> rows) {
  const uint64_t row_bytes = tensor.bytes / static_cast<uint64_t>(tensor.rows());
  CHECK(row_bytes > 0 && offset % row_bytes == 0 && rows.size() % row_bytes == 0);
  if (rows.empty()) return std::nullopt;
  // Biases may be all zeros, and so may the sinks, which are called weights.
  if (absl::EndsWith(tensor.name, ".weight") && !absl::EndsWith(tensor.name, "attn_sinks.weight")) {
    if (AllZeros(rows)) {  // ends at the first byte of nearly all
      const std::lock_guard<std::mutex> lock(mu_);
      uint64_t& zeros = zero_bytes_[&tensor];
      zeros += rows.size();
      if (zeros < tensor.bytes) return std::nullopt;
      return TensorDamage{TensorDamage::Kind::kAllZeros, 0, tensor.bytes};
    }
    const bool plain = FindTensorType(tensor.type_id)->block_elements == 1;
    const ZeroFinder finder(rows, row_bytes, plain ? kSureFloatBytes : kSureBlockBytes, rows.size() == tensor.bytes);
    if (const std::optional<ZeroRun> hole = finder.FindHole(); hole.has_value()) {
      return TensorDamage{TensorDamage::Kind::kHole, offset + hole->begin, hole->end - hole->begin};
    }
  }
  return FindNotFinite(tensor, offset, rows);
}

}  // namespace stagecoach
