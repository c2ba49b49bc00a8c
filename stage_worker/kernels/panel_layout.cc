// Sizes of panels, and reading their weights one lane at a time, for the scalar kernels and the embedding.

#include "stage_worker/kernels/panel_layout.h"

#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

template <TensorType kType>
constexpr IntegerLayout kLayout = LayoutOf(kType);

// Column 4g + i of a block: the byte of the format, before table and bias. `block` is at the lane's first byte.
int RawCode(CodeFormat format, const uint8_t* block, int g, int i) {
  const auto byte = [block](int vector, int at) -> int { return block[vector * kVectorBytes + at]; };
  switch (format) {
    case CodeFormat::kU8: return byte(g, i);
    case CodeFormat::kNibble: return byte(g % 4, i) >> (g / 4 * 4) & 15;
    case CodeFormat::kNibbleBit: return (byte(g % 4, i) >> (g / 4 * 4) & 15) | (byte(4, i) >> g & 1) << 4;
    case CodeFormat::kNibble2Bits:
      return (byte(g % 4, i) >> (g / 4 * 4) & 15) | (byte(4 + g / 4, i) >> (g % 4 * 2) & 3) << 4;
    case CodeFormat::k2Bits: return byte(g / 4, i) >> (g % 4 * 2) & 3;
    case CodeFormat::k2BitsBit: return (byte(g / 4, i) >> (g % 4 * 2) & 3) | (byte(2, i) >> g & 1) << 2;
    case CodeFormat::kBit: return (byte(0, i) >> g & 1) << 1;
    case CodeFormat::kTrits: break;
  }
  CHECK(false);
}

// Column k of a block of 256 of TQ1_0: five base-3 digits a byte, the first digits of all bytes first.
int Trit(const uint8_t* block, int k) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  int at, digit;
  if (k < 160) {
    at = k % 32, digit = k / 32;
  } else if (k < 240) {
    at = 32 + (k - 160) % 16, digit = (k - 160) / 16;
  } else {
    at = 48 + (k - 240) % 4, digit = (k - 240) / 4;
  }
  const int byte = block[at / 4 * kVectorBytes + at % 4];
  return (byte * kPowers[digit] & 255) * 3 >> 8;
}

}  // namespace

size_t KvTileBytes(KvType type, int64_t head_dim) {
  return static_cast<size_t>(KvBytes(type, head_dim * kTilePositions));
}

ActivationKind ActivationKindFor(const Kernels& kernels, TensorType weights) {
  return ActivationKindFor(weights, kernels.bf16_dot);
}

const IntegerLayout* FindIntegerLayout(TensorType type) {
  if (type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16) return nullptr;
  return ForIntegerType(type, []<TensorType kType>() { return &kLayout<kType>; });
}

PanelSections SectionsOf(TensorType type, int64_t cols) {
  const IntegerLayout& layout = *FindIntegerLayout(type);
  const size_t columns = static_cast<size_t>(cols);
  PanelSections sections;
  sections.sub_scales = RoundUp(columns / layout.scale_columns * layout.scale_bytes, kVectorBytes);
  sections.codes = sections.sub_scales + RoundUp(columns / kCodeBlock * layout.sub_scale_bytes, kVectorBytes);
  const size_t vectors = layout.codes == CodeFormat::kTrits ? columns / kTritsColumns * kTritsVectors
                                                            : columns / kCodeBlock * layout.vectors;
  sections.bytes = sections.codes + vectors * kVectorBytes;
  return sections;
}

size_t PanelBytes(TensorType type, int64_t cols) {
  if (FindIntegerLayout(type) == nullptr) return RoundUp(kPanelRows * RowBytes(type, cols), kVectorBytes);
  return SectionsOf(type, cols).bytes;
}

void UnpackBlock(const IntegerLayout& layout, const PanelSections& sections, const uint8_t* panel, int64_t block,
                 int lane, UnpackedBlock* out) {
  const uint8_t* codes = panel + sections.codes + lane * 4;
  const int64_t column = block * kCodeBlock;
  for (int k = 0; k < kCodeBlock; ++k) {
    int code;
    if (layout.codes == CodeFormat::kTrits) {
      code = Trit(codes + column / kTritsColumns * kTritsVectors * kVectorBytes,
                  static_cast<int>(column % kTritsColumns) + k);
    } else {
      code = RawCode(layout.codes, codes + block * layout.vectors * kVectorBytes, k / 4, k % 4);
    }
    out->codes[k] = (layout.table != nullptr ? layout.table[code] : code) - layout.bias;
  }
  const uint8_t* scale = panel + column / layout.scale_columns * layout.scale_bytes;
  const uint8_t* subs = panel + sections.sub_scales + block * layout.sub_scale_bytes;
  if (layout.scales == ScaleFormat::kE8m0) {
    out->scales[0] = out->scales[1] = HalvedE8M0(scale[lane]);
    return;
  }
  const float d = LoadHalf(scale + 2 * lane);
  const float m = layout.minima ? LoadHalf(scale + 2 * (kPanelRows + lane)) : 0.0f;
  for (int half = 0; half < 2; ++half) {
    const uint8_t sub = layout.halves ? subs[half * kPanelRows + lane] : layout.sub_scale_bytes > 0 ? subs[lane] : 0;
    switch (layout.scales) {
      case ScaleFormat::kF16:
      case ScaleFormat::kE8m0: out->scales[half] = d; break;
      case ScaleFormat::kF16Min: out->scales[half] = d, out->minima[half] = m; break;
      case ScaleFormat::kSub32Min:
        out->scales[half] = d * static_cast<float>(sub);
        out->minima[half] = -(m * static_cast<float>(subs[kPanelRows + lane]));
        break;
      case ScaleFormat::kSub32:
      case ScaleFormat::kSub16: out->scales[half] = d * static_cast<float>(static_cast<int8_t>(sub)); break;
      case ScaleFormat::kSub16Min:
        out->scales[half] = d * static_cast<float>(sub & 15);
        out->minima[half] = -(m * static_cast<float>(sub >> 4));
        break;
    }
  }
}

void UnpackPanelRow(TensorType type, const uint8_t* panel, int64_t cols, int lane, float* out) {
  const IntegerLayout* layout = FindIntegerLayout(type);
  if (layout == nullptr) {
    for (int64_t k = 0; k < cols; ++k) out[k] = PanelFloat(type, panel, k, lane);
    return;
  }
  const PanelSections sections = SectionsOf(type, cols);
  for (int64_t b = 0; b < cols / kCodeBlock; ++b) {
    UnpackedBlock block;
    UnpackBlock(*layout, sections, panel, b, lane, &block);
    for (int k = 0; k < kCodeBlock; ++k) {
      const float value = block.scales[k / 16] * static_cast<float>(block.codes[k]);
      out[b * kCodeBlock + k] = layout->minima ? value + block.minima[k / 16] : value;
    }
  }
}

}  // namespace stagecoach
