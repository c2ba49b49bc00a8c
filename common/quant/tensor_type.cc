#include "common/quant/tensor_type.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

// Block sizes as in the GGUF specification. Ids that are missing here were removed from the format (4, 5, 31 to 33, 36
// to 38) or belong to other programs. 142 and 143 are PrismML's; the last is ours.
constexpr TensorTypeInfo kTypes[] = {
    {0, "F32", 1, 4, true},          {1, "F16", 1, 2, true},
    {2, "Q4_0", 32, 18, true},       {3, "Q4_1", 32, 20, true},
    {6, "Q5_0", 32, 22, true},       {7, "Q5_1", 32, 24, true},
    {8, "Q8_0", 32, 34, true},       {9, "Q8_1", 32, 36, false},
    {10, "Q2_K", 256, 84, true},     {11, "Q3_K", 256, 110, true},
    {12, "Q4_K", 256, 144, true},    {13, "Q5_K", 256, 176, true},
    {14, "Q6_K", 256, 210, true},    {15, "Q8_K", 256, 292, false},
    {16, "IQ2_XXS", 256, 66, false}, {17, "IQ2_XS", 256, 74, false},
    {18, "IQ3_XXS", 256, 98, false}, {19, "IQ1_S", 256, 50, false},
    {20, "IQ4_NL", 32, 18, true},    {21, "IQ3_S", 256, 110, false},
    {22, "IQ2_S", 256, 82, false},   {23, "IQ4_XS", 256, 136, true},
    {24, "I8", 1, 1, false},         {25, "I16", 1, 2, false},
    {26, "I32", 1, 4, false},        {27, "I64", 1, 8, false},
    {28, "F64", 1, 8, false},        {29, "IQ1_M", 256, 56, false},
    {30, "BF16", 1, 2, true},        {34, "TQ1_0", 256, 54, true},
    {35, "TQ2_0", 256, 66, true},    {39, "MXFP4", 32, 17, true},
    {40, "NVFP4", 64, 36, false},    {41, "Q1_0", 128, 18, true},
    {42, "Q2_0", 64, 18, true},      {142, "PQ2_0", 128, 34, true},
    {143, "PTQ1_0", 128, 28, false}, {0x1002a, "Q2_0_OXI", 128, 34, true},
};

constexpr TensorType kSupportedTypes[] = {
    TensorType::kF32,   TensorType::kF16,    TensorType::kBF16,   TensorType::kQ8_0,     TensorType::kQ6_K,
    TensorType::kQ5_0,  TensorType::kQ5_1,   TensorType::kQ5_K,   TensorType::kQ4_0,     TensorType::kQ4_1,
    TensorType::kQ4_K,  TensorType::kIQ4_NL, TensorType::kIQ4_XS, TensorType::kMXFP4,    TensorType::kQ3_K,
    TensorType::kQ2_K,  TensorType::kQ2_0,   TensorType::kPQ2_0,  TensorType::kQ2_0_Oxi, TensorType::kTQ2_0,
    TensorType::kTQ1_0, TensorType::kQ1_0,
};

// A number is not finite when all bits of its exponent are set. Adding the exponent's lowest bit then carries into the
// sign. So a mask and a sum find it, and many numbers are checked before a branch.
constexpr int64_t kAtOnce = 8192;  // numbers, between two branches
constexpr uint8_t kE8M0NaN = 0xff;

template <typename Word>
struct ExponentBits {
  Word mask, lowest, carry;
  constexpr Word Sum(Word word) const { return static_cast<Word>((word & mask) + lowest); }
};
constexpr ExponentBits<uint32_t> kFloat = {0x7f800000, 0x00800000, 0x80000000};
constexpr ExponentBits<uint16_t> kHalf = {0x7c00, 0x0400, 0x8000};
constexpr ExponentBits<uint16_t> kBrain = {0x7f80, 0x0080, 0x8000};
constexpr ExponentBits<uint32_t> kTwoHalves = {0x7c007c00, 0x04000400, 0x80008000};

template <typename Word>
Word LoadWord(const uint8_t* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

template <typename Word>
bool AnyNonFinite(const ExponentBits<Word>& bits, const uint8_t* at, size_t stride, int64_t count) {
  Word seen[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, at += 4 * stride) {
    for (size_t k = 0; k < 4; ++k) seen[k] |= bits.Sum(LoadWord<Word>(at + k * stride));
  }
  for (; i < count; ++i, at += stride) seen[0] |= bits.Sum(LoadWord<Word>(at));
  return ((seen[0] | seen[1] | seen[2] | seen[3]) & bits.carry) != 0;
}

// Side by side, so that the compiler makes vectors of them.
template <typename Word>
bool AnyNonFinite(const ExponentBits<Word>& bits, const uint8_t* at, int64_t count) {
  constexpr int64_t kLanes = 64 / sizeof(Word);
  Word seen[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes, at += 64) {
    for (int64_t k = 0; k < kLanes; ++k) {
      seen[k] = static_cast<Word>(seen[k] | bits.Sum(LoadWord<Word>(at + k * sizeof(Word))));
    }
  }
  for (; i < count; ++i, at += sizeof(Word)) seen[0] = static_cast<Word>(seen[0] | bits.Sum(LoadWord<Word>(at)));
  Word any = 0;
  for (const Word word : seen) any = static_cast<Word>(any | word);
  return (any & bits.carry) != 0;
}

// `any(first, count)`: whether there is one among these.
template <typename Any>
std::optional<int64_t> FindFirst(int64_t count, const Any& any) {
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t here = std::min(kAtOnce, count - first);
    if (!any(first, here)) continue;
    while (!any(first, 1)) ++first;
    return first;
  }
  return std::nullopt;
}

template <typename Word>
std::optional<int64_t> FindFloat(const ExponentBits<Word>& bits, const uint8_t* at, int64_t count) {
  return FindFirst(count, [&](int64_t first, int64_t here) {
    return AnyNonFinite(bits, at + first * static_cast<int64_t>(sizeof(Word)), here);
  });
}

template <typename Word>
std::optional<int64_t> FindScale(const ExponentBits<Word>& bits, const uint8_t* at, size_t stride, int64_t count) {
  return FindFirst(count, [&](int64_t first, int64_t here) {
    return AnyNonFinite(bits, at + static_cast<size_t>(first) * stride, stride, here);
  });
}

}  // namespace

const TensorTypeInfo* FindTensorType(uint32_t id) {
  for (const TensorTypeInfo& info : kTypes) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

const TensorTypeInfo& GetTensorType(TensorType type) {
  const TensorTypeInfo* info = FindTensorType(static_cast<uint32_t>(type));
  CHECK(info != nullptr && info->supported);
  return *info;
}

size_t RowBytes(TensorType type, int64_t elements) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK_GE(elements, 0);
  CHECK_EQ(elements % info.block_elements, 0);
  return static_cast<size_t>(elements) / info.block_elements * info.block_bytes;
}

absl::Span<const TensorType> SupportedTypes() { return kSupportedTypes; }

std::string SupportedTensorTypes() {
  std::string names;
  for (TensorType type : SupportedTypes()) absl::StrAppend(&names, names.empty() ? "" : ", ", GetTensorType(type).name);
  return names;
}

absl::StatusOr<TensorType> ParseTensorType(absl::string_view name) {
  for (TensorType type : SupportedTypes()) {
    if (absl::EqualsIgnoreCase(name, GetTensorType(type).name)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown tensor type '", name, "', expected one of ", SupportedTensorTypes()));
}

std::optional<int64_t> FindNonFinite(TensorType type, const uint8_t* blocks, int64_t count) {
  switch (type) {
    case TensorType::kF32: return FindFloat(kFloat, blocks, count);
    case TensorType::kF16: return FindFloat(kHalf, blocks, count);
    case TensorType::kBF16: return FindFloat(kBrain, blocks, count);
    default: break;
  }
  const size_t stride = GetTensorType(type).block_bytes;
  if (type == TensorType::kMXFP4) {
    return FindFirst(count, [&](int64_t first, int64_t here) {
      bool any = false;
      for (int64_t i = first; i < first + here; ++i) any |= blocks[static_cast<size_t>(i) * stride] == kE8M0NaN;
      return any;
    });
  }
  const BlockScales* scales = FindBlockScales(type);
  CHECK(scales != nullptr);
  const uint8_t* at = blocks + scales->scale_at;
  return scales->has_min ? FindScale(kTwoHalves, at, stride, count) : FindScale(kHalf, at, stride, count);
}

}  // namespace stagecoach
