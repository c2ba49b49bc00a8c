#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_parser.h"
#include "common/quant/tensor_type.h"

namespace stagecoach {
namespace {

constexpr char kOverride[] = "; if you know the layout, name it with `q2_layout` g64, g128 or g128-oxi";

constexpr struct {
  const char* name;
  TensorType type;
} kLayouts[] = {{"auto", {}},  // by Q2Layout
                {"g64", TensorType::kQ2_0},
                {"g128", TensorType::kPQ2_0},
                {"g128-oxi", TensorType::kQ2_0_Oxi}};

TensorType TypeOf(Q2Layout layout) {
  CHECK(layout != Q2Layout::kAuto);
  return kLayouts[static_cast<size_t>(layout)].type;
}

const TensorTypeInfo& InfoOf(Q2Layout layout) { return GetTensorType(TypeOf(layout)); }

template <typename... Parts>
absl::Status Invalid(const GgufMetadata& metadata, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("'", metadata.path(), "': ", parts...));
}

uint64_t Blocks(const GgufTensor& tensor, Q2Layout layout) {
  return static_cast<uint64_t>(tensor.cols()) / InfoOf(layout).block_elements * static_cast<uint64_t>(tensor.rows());
}

// 0 when the rows do not fill blocks.
uint64_t Bytes(const GgufTensor& tensor, Q2Layout layout) {
  if (tensor.cols() % InfoOf(layout).block_elements != 0) return 0;
  return Blocks(tensor, layout) * InfoOf(layout).block_bytes;
}

std::string BytesText(const GgufTensor& tensor, Q2Layout layout) {
  const uint64_t bytes = Bytes(tensor, layout);
  if (bytes == 0) return "it cannot have blocks of 128 weights";
  return absl::StrCat("in blocks of ", InfoOf(layout).block_elements, " weights it would take ", bytes);
}

std::string RoomText(const Q2Tensor& q2) {
  return absl::StrCat("tensor '", q2.tensor->name, "' of type id ", kQ2TypeId, " has room for ", q2.room,
                      " bytes: ", BytesText(*q2.tensor, Q2Layout::kG64), ", ", BytesText(*q2.tensor, Q2Layout::kG128));
}

// Whether the tensor, padded or not, fills its room.
bool Fills(const Q2Tensor& q2, Q2Layout layout) {
  const uint64_t bytes = Bytes(*q2.tensor, layout);
  return bytes > 0 && bytes <= q2.room && q2.room - bytes < q2.alignment;
}

// The layouts that the sizes allow.
absl::StatusOr<std::vector<Q2Layout>> LayoutsBySize(const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors) {
  const Q2Tensor* only64 = nullptr;
  const Q2Tensor* only128 = nullptr;
  for (const Q2Tensor& q2 : tensors) {
    const bool g64 = Fills(q2, Q2Layout::kG64), g128 = Fills(q2, Q2Layout::kG128);
    if (!g64 && !g128) {
      return Invalid(metadata, RoomText(q2), "; the file is damaged, or of a kind unknown here", kOverride);
    }
    if (g64 && !g128 && only64 == nullptr) only64 = &q2;
    if (g128 && !g64 && only128 == nullptr) only128 = &q2;
  }
  if (only64 != nullptr && only128 != nullptr) {
    return Invalid(metadata, "the layouts of type id ", kQ2TypeId, " are mixed: ", RoomText(*only64), "; ",
                   RoomText(*only128), kOverride);
  }
  if (only64 != nullptr) return std::vector<Q2Layout>{Q2Layout::kG64};
  if (only128 != nullptr) return std::vector<Q2Layout>{Q2Layout::kG128, Q2Layout::kG128Oxi};
  return std::vector<Q2Layout>{Q2Layout::kG64, Q2Layout::kG128, Q2Layout::kG128Oxi};
}

// Others write a number as the quantisation version, and hyper-parameters below the architecture's name.
bool WrittenByOxiBonsai(const GgufMetadata& metadata) {
  const GgufValue* version = metadata.Find("general.quantization_version");
  if (version != nullptr && std::holds_alternative<std::string>(*version)) return true;
  return std::any_of(metadata.entries().begin(), metadata.entries().end(),
                     [](const auto& entry) { return absl::StartsWith(entry.first, "llm."); });
}

// How well sampled blocks go with a layout.
struct Evidence {
  int64_t blocks = 0;
  int64_t scales = 0;   // with a scale that is finite and not negative
  int64_t ternary = 0;  // of these, with no code 3

  // What the right reading does for all blocks, but for the odd damaged one.
  bool IsTernary() const { return ternary * 100 >= blocks * 99; }
  bool HasScales() const { return scales * 100 >= blocks * 99; }
};

void Examine(const uint8_t* block, Q2Layout layout, Evidence* evidence) {
  const size_t code_bytes = InfoOf(layout).block_bytes - 2;
  const bool scale_first = layout != Q2Layout::kG128Oxi;
  uint16_t scale;
  std::memcpy(&scale, block + (scale_first ? 0 : code_bytes), sizeof(scale));
  ++evidence->blocks;
  if ((scale & 0x8000) != 0 || (scale & 0x7c00) == 0x7c00) return;
  ++evidence->scales;
  const uint8_t* codes = block + (scale_first ? 2 : 0);
  const bool has_three =
      std::any_of(codes, codes + code_bytes, [](uint8_t byte) { return (byte & (byte >> 1) & 0x55) != 0; });
  if (!has_three) ++evidence->ternary;
}

// Reads about a thousand blocks at places that are spread over all tensors.
absl::StatusOr<Evidence> Sample(absl::Span<const Q2Tensor> tensors, Q2Layout layout, const Q2Reader& read) {
  constexpr uint64_t kPlaces = 32, kBlocksAPlace = 32;
  const uint64_t block_bytes = InfoOf(layout).block_bytes;
  uint64_t total = 0;
  for (const Q2Tensor& q2 : tensors) total += Blocks(*q2.tensor, layout);
  const uint64_t step = std::max<uint64_t>(1, total / kPlaces);
  Evidence evidence;
  std::vector<uint8_t> bytes;
  uint64_t next = 0, before = 0;  // the next place, and the blocks of the tensors before this one
  for (const Q2Tensor& q2 : tensors) {
    const uint64_t blocks = Blocks(*q2.tensor, layout);
    for (; next < before + blocks; next += step) {
      const uint64_t first = next - before;
      const uint64_t count = std::min({kBlocksAPlace, step, blocks - first});
      bytes.resize(count * block_bytes);
      RETURN_IF_ERROR(read(*q2.tensor, first * block_bytes, absl::MakeSpan(bytes)));
      for (uint64_t i = 0; i < count; ++i) Examine(bytes.data() + i * block_bytes, layout, &evidence);
    }
    before += blocks;
  }
  return evidence;
}

// The one layout that the blocks' content goes with. Files that use code 3 on purpose are told by their scales alone.
absl::StatusOr<Q2Layout> LayoutByContent(const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors,
                                         const std::vector<Q2Layout>& layouts, const Q2Reader& read) {
  std::vector<Q2Layout> ternary, scaled;
  std::string counts;
  for (Q2Layout layout : layouts) {
    ASSIGN_OR_RETURN(const Evidence evidence, Sample(tensors, layout, read));
    if (evidence.IsTernary()) ternary.push_back(layout);
    if (evidence.HasScales()) scaled.push_back(layout);
    absl::StrAppend(&counts, counts.empty() ? "" : ", ", "as ", InfoOf(layout).name, " ", evidence.scales, " of ",
                    evidence.blocks, " blocks have a possible scale, ", evidence.ternary, " of them ternary codes");
  }
  const std::vector<Q2Layout>& found = ternary.empty() ? scaled : ternary;
  if (found.size() == 1) return found[0];
  return Invalid(metadata, "cannot tell the layout of tensor '", tensors[0].tensor->name, "' and others of type id ",
                 kQ2TypeId, ": ", counts, kOverride);
}

absl::StatusOr<Q2Layout> FindLayout(const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors,
                                    const Q2Reader& read) {
  ASSIGN_OR_RETURN(const std::vector<Q2Layout> layouts, LayoutsBySize(metadata, tensors));
  if (layouts.size() == 1) return layouts[0];
  if (WrittenByOxiBonsai(metadata)) return Q2Layout::kG128Oxi;
  return LayoutByContent(metadata, tensors, layouts, read);
}

}  // namespace

absl::StatusOr<Q2Layout> ParseQ2Layout(absl::string_view name) {
  for (size_t i = 0; i < std::size(kLayouts); ++i) {
    if (name.empty() || name == kLayouts[i].name) return static_cast<Q2Layout>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no layout of type id ", kQ2TypeId, ", expected auto, g64, g128 or g128-oxi"));
}

const char* Q2LayoutName(Q2Layout layout) { return kLayouts[static_cast<size_t>(layout)].name; }

Q2Layout Q2LayoutOf(uint32_t type_id) {
  for (const Q2Layout layout : {Q2Layout::kG64, Q2Layout::kG128, Q2Layout::kG128Oxi}) {
    if (type_id == static_cast<uint32_t>(TypeOf(layout))) return layout;
  }
  return Q2Layout::kAuto;
}

uint64_t SmallestQ2Bytes(int64_t cols, int64_t rows) {
  const Q2Layout layout = cols % InfoOf(Q2Layout::kG128).block_elements == 0 ? Q2Layout::kG128 : Q2Layout::kG64;
  return RowBytes(TypeOf(layout), cols) * static_cast<uint64_t>(rows);
}

absl::Status SetQ2Layout(Q2Layout wanted, const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors,
                         const Q2Reader& read) {
  if (tensors.empty()) return absl::OkStatus();
  Q2Layout layout = wanted;
  if (layout == Q2Layout::kAuto) {
    ASSIGN_OR_RETURN(layout, FindLayout(metadata, tensors, read));
  }
  for (const Q2Tensor& q2 : tensors) {
    const uint64_t bytes = Bytes(*q2.tensor, layout);
    if (bytes == 0 || bytes > q2.room) {
      return Invalid(metadata, "the layout ", InfoOf(layout).name, " does not fit: ", RoomText(q2),
                     "; leave `q2_layout` out to have the layout found");
    }
    q2.tensor->type_id = static_cast<uint32_t>(TypeOf(layout));
    q2.tensor->bytes = bytes;
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
