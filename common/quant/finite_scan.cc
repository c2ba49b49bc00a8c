#include "common/quant/finite_scan.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/quant/block_scales.h"

// A number is not finite when all bits of its exponent are set: adding the exponent's lowest bit to them then carries
// into the place of the sign. So one mask and one sum a number find it, and many are looked at before the first branch.

namespace stagecoach {
namespace {

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
