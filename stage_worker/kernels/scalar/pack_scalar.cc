// Packs one row at a time, field by field: the definition of a panel's bytes.

#include <cstring>

#include "common/base/check.h"
#include "common/quant/block_codes.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

constexpr int kGroups = kCodeBlock / 4;
constexpr int kLaneBytes = 4;

// 32 codes, from where the file keeps them; sub counts blocks of 32 within the block of the file. Offsets as in the
// GGUF specification.

void Nibbles(const uint8_t* q, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = q[i] & 15;
    codes[16 + i] = q[i] >> 4;
  }
}

void NibblesAndBits(const uint8_t* q, uint32_t bits, uint8_t* codes) {
  Nibbles(q, codes);
  for (int i = 0; i < 32; ++i) codes[i] |= (bits >> i & 1) << 4;
}

// Nibbles of super-blocks: 32 bytes hold the low halves of one block and the high halves of the next.
void WideNibbles(const uint8_t* q, int sub, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = q[32 * (sub / 2) + i] >> (sub % 2 * 4) & 15;
}

// Two bits of super-blocks: 32 bytes hold four blocks.
void WidePairs(const uint8_t* q, int sub, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = q[32 * (sub / 4) + i] >> (sub % 4 * 2) & 3;
}

// Two bits in the order of the columns.
void LinearPairs(const uint8_t* q, int sub, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = q[8 * sub + i / 4] >> (i % 4 * 2) & 3;
}

void Q5KCodes(const uint8_t* block, int sub, uint8_t* codes) {
  WideNibbles(block + 48, sub, codes);
  for (int i = 0; i < 32; ++i) codes[i] |= (block[16 + i] >> sub & 1) << 4;
}

void Q6KCodes(const uint8_t* block, int sub, uint8_t* codes) {
  const int half = sub / 4, part = sub % 4;
  for (int i = 0; i < 32; ++i) {
    const int low = block[64 * half + 32 * (part % 2) + i] >> (part / 2 * 4) & 15;
    const int high = block[128 + 32 * half + i] >> (2 * part) & 3;
    codes[i] = static_cast<uint8_t>(low | high << 4);
  }
}

void Q3KCodes(const uint8_t* block, int sub, uint8_t* codes) {
  WidePairs(block + 32, sub, codes);
  for (int i = 0; i < 32; ++i) codes[i] |= (block[i] >> sub & 1) << 2;
}

// For the types that are not copied.
void FileCodes(TensorType type, const uint8_t* block, int sub, uint8_t* codes) {
  switch (type) {
    case TensorType::kQ5_0: return NibblesAndBits(block + 6, LoadU32(block + 2), codes);
    case TensorType::kQ5_1: return NibblesAndBits(block + 8, LoadU32(block + 4), codes);
    case TensorType::kQ1_0:
      for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>((block[2 + 4 * sub + i / 8] >> (i % 8) & 1) << 1);
      return;
    case TensorType::kQ2_0:
    case TensorType::kPQ2_0: return LinearPairs(block + 2, sub, codes);
    case TensorType::kQ2_0_Oxi:
      LinearPairs(block, sub, codes);
      for (int i = 0; i < 32; ++i) codes[i] = codes[i] == 3 ? 1 : codes[i];  // its code 3 is zero
      return;
    case TensorType::kTQ2_0: return WidePairs(block, sub, codes);
    case TensorType::kQ2_K: return WidePairs(block + 16, sub, codes);
    case TensorType::kQ3_K: return Q3KCodes(block, sub, codes);
    case TensorType::kQ4_K: return WideNibbles(block + 16, sub, codes);
    case TensorType::kQ5_K: return Q5KCodes(block, sub, codes);
    case TensorType::kQ6_K: return Q6KCodes(block, sub, codes);
    case TensorType::kIQ4_XS: return Nibbles(block + 8 + 16 * sub, codes);
    default: CHECK(false);
  }
}

// 32 codes of one lane into the vectors of a block, `block` already at the lane's first byte.
void StoreCodes(CodeFormat format, const uint8_t* codes, uint8_t* block) {
  const auto byte = [block](int vector, int i) -> uint8_t& { return block[vector * kVectorBytes + i]; };
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < kLaneBytes; ++i) {
      const int code = codes[4 * g + i];
      switch (format) {
        case CodeFormat::kNibble:
        case CodeFormat::kNibbleBit:
        case CodeFormat::kNibble2Bits:
          byte(g % 4, i) |= static_cast<uint8_t>((code & 15) << (g / 4 * 4));
          if (format == CodeFormat::kNibbleBit) byte(4, i) |= static_cast<uint8_t>(code >> 4 << g);
          if (format == CodeFormat::kNibble2Bits) byte(4 + g / 4, i) |= static_cast<uint8_t>(code >> 4 << (g % 4 * 2));
          break;
        case CodeFormat::k2Bits:
        case CodeFormat::k2BitsBit:
          byte(g / 4, i) |= static_cast<uint8_t>((code & 3) << (g % 4 * 2));
          if (format == CodeFormat::k2BitsBit) byte(2, i) |= static_cast<uint8_t>(code >> 2 << g);
          break;
        case CodeFormat::kBit: byte(0, i) |= static_cast<uint8_t>(code >> 1 << g); break;
        case CodeFormat::kU8:  // copied
        case CodeFormat::kTrits: CHECK(false);
      }
    }
  }
}

// The formats that keep the file's bytes move four at a time. Returns whether this type is one.
bool CopyCodes(TensorType type, const uint8_t* block, uint8_t* out) {
  int offset, vectors;
  uint32_t flip = 0;
  switch (type) {
    case TensorType::kQ8_0: offset = 2, vectors = 8, flip = 0x80808080u; break;
    case TensorType::kQ4_0:
    case TensorType::kIQ4_NL: offset = 2, vectors = 4; break;
    case TensorType::kMXFP4: offset = 1, vectors = 4; break;
    case TensorType::kQ4_1: offset = 4, vectors = 4; break;
    case TensorType::kTQ1_0: offset = 0, vectors = kTritsVectors; break;
    default: return false;
  }
  for (int v = 0; v < vectors; ++v) {
    const uint32_t four = LoadU32(block + offset + 4 * v) ^ flip;
    std::memcpy(out + v * kVectorBytes, &four, 4);
  }
  return true;
}

// The two fp16 of a lane: d, and the minimum's m behind it where the type has one; one byte for MXFP4.
void StoreScales(TensorType type, const uint8_t* block, int lane, uint8_t* out) {
  if (type == TensorType::kMXFP4) {
    out[lane] = block[0];
    return;
  }
  const uint8_t* d = block + FindBlockScales(type)->scale_at;
  std::memcpy(out + 2 * lane, d, 2);
  if (FindIntegerLayout(type)->minima) std::memcpy(out + 2 * (kPanelRows + lane), d + 2, 2);
}

// The sub-scales of one block of 32; out: 16 lanes, then 16 more where there are two.
void StoreSubScales(TensorType type, const uint8_t* block, int sub, int lane, uint8_t* out) {
  switch (type) {
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: {
      const ScaleAndMin both = UnpackScaleAndMin(block + 4, sub);
      out[lane] = static_cast<uint8_t>(both.scale);
      out[kPanelRows + lane] = static_cast<uint8_t>(both.min);
      return;
    }
    case TensorType::kIQ4_XS: {
      const int low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
      const int high = (block[2] | block[3] << 8) >> (2 * sub) & 3;
      out[lane] = static_cast<uint8_t>((low | high << 4) - 32);
      return;
    }
    default: break;
  }
  for (int half = 0; half < 2; ++half) {
    const int k = 2 * sub + half;
    uint8_t* to = out + half * kPanelRows + lane;
    if (type == TensorType::kQ6_K) *to = block[192 + k];
    if (type == TensorType::kQ2_K) *to = block[k];
    if (type == TensorType::kQ3_K) *to = static_cast<uint8_t>(UnpackQ3KScale(block + 96, k));
  }
}

// F32: [k][lane]
void PackF32(const uint8_t* row, int lane, int64_t cols, uint8_t* panel) {
  for (int64_t k = 0; k < cols; ++k) std::memcpy(panel + (k * kPanelRows + lane) * 4, row + k * 4, 4);
}

// F16, BF16: [k / 2][lane][k % 2]
void PackPairs(const uint8_t* row, int lane, int64_t cols, uint8_t* panel) {
  for (int64_t pair = 0; pair < cols / 2; ++pair)
    std::memcpy(panel + (pair * kPanelRows + lane) * 4, row + pair * 4, 4);
}

// Into its lane of a zeroed panel.
void PackIntegerRow(TensorType type, const uint8_t* row, int lane, int64_t cols, uint8_t* panel) {
  const IntegerLayout& layout = *FindIntegerLayout(type);
  const PanelSections sections = SectionsOf(type, cols);
  const TensorTypeInfo& info = GetTensorType(type);
  const int subs = static_cast<int>(info.block_elements) / kCodeBlock;
  const int vectors = layout.codes == CodeFormat::kTrits ? kTritsVectors : layout.vectors;
  for (int64_t b = 0; b < cols / info.block_elements; ++b) {
    const uint8_t* block = row + b * info.block_bytes;
    StoreScales(type, block, lane, panel + b * layout.scale_bytes);
    uint8_t* codes = panel + sections.codes + lane * kLaneBytes;
    if (layout.codes == CodeFormat::kTrits) {
      CopyCodes(type, block, codes + b * vectors * kVectorBytes);
      continue;
    }
    for (int sub = 0; sub < subs; ++sub) {
      const int64_t at = b * subs + sub;
      uint8_t* out = codes + at * vectors * kVectorBytes;
      if (layout.sub_scale_bytes > 0) {
        StoreSubScales(type, block, sub, lane, panel + sections.sub_scales + at * layout.sub_scale_bytes);
      }
      if (CopyCodes(type, block, out)) continue;
      uint8_t file_codes[kCodeBlock];
      FileCodes(type, block, sub, file_codes);
      StoreCodes(layout.codes, file_codes, out);
    }
  }
}

}  // namespace

void PackPanelScalar(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols,
                     uint8_t* panel) {
  // Rows beyond the matrix have zero scales.
  std::memset(panel, 0, PanelBytes(type, cols));
  for (int lane = 0; lane < row_count; ++lane) {
    const uint8_t* row = rows + lane * row_stride;
    switch (type) {
      case TensorType::kF32: PackF32(row, lane, cols, panel); break;
      case TensorType::kF16:
      case TensorType::kBF16: PackPairs(row, lane, cols, panel); break;
      default: PackIntegerRow(type, row, lane, cols, panel);
    }
  }
}

}  // namespace stagecoach
