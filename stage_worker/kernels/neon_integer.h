#ifndef STAGECOACH_STAGE_WORKER_KERNELS_NEON_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_NEON_INTEGER_H_

// Matrix products of the integer types with NEON's signed dot products: the body of integer_neon.cc (sdot: four lanes
// by four columns) and of integer_neoni8mm.cc (smmla: two lanes by two activation rows by eight columns), each with a
// copy of its own. A vector of 64 bytes of a panel is four quarters of four lanes.
//
// Few columns read the panel as it is packed; more of them share a decoded copy of a piece of it that stays in the
// first-level cache.

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/neon.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

constexpr int kQuarters = 4;
constexpr int kGroups = kCodeBlock / 4;
constexpr int kTileColumns = 4;
constexpr int64_t kPieceBlocks = 16;  // of a decoded piece: 8 KiB of codes

// What a tile must know of a type once its codes are signed bytes.
struct Shape {
  bool halves;  // as in IntegerLayout
  bool minima;
  int bias;  // of the bytes; a power of two, or 0
};

// Codes of 8 bits and tables become signed when they are read.
constexpr Shape ShapeOf(const IntegerLayout& layout) {
  return {layout.halves, layout.minima, layout.bias == 128 ? 0 : layout.bias};
}

template <int kLeft>
inline uint8x16_t Shift(uint8x16_t v) {
  if constexpr (kLeft > 0) return vshlq_n_u8(v, kLeft);
  if constexpr (kLeft < 0) return vshrq_n_u8(v, -kLeft);
  return v;
}

inline uint8x16_t Mask(uint8x16_t v, int bits) { return vandq_u8(v, vdupq_n_u8(static_cast<uint8_t>(bits))); }

// Reads the codes and scales of a packed panel.
template <TensorType kType>
struct PanelSource {
  static constexpr IntegerLayout kLayout = LayoutOf(kType);
  static constexpr Shape kShape = ShapeOf(kLayout);

  const uint8_t* scales;
  const uint8_t* sub_scales;
  const uint8_t* codes;
  uint8x16_t table;

  PanelSource(const uint8_t* panel, const PanelSections& sections)
      : scales(panel), sub_scales(panel + sections.sub_scales), codes(panel + sections.codes) {
    if constexpr (kLayout.tabled) table = veorq_u8(vld1q_u8(kLayout.table), vdupq_n_u8(0x80));
  }

  // The four columns of group g of a block, in the four lanes of a quarter; with the shape's bias.
  template <int g>
  int8x16_t Codes(int64_t block, int quarter) const {
    const uint8_t* at = codes + block * kLayout.vectors * kVectorBytes + 16 * quarter;
    const auto vector = [at](int v) { return vld1q_u8(at + v * kVectorBytes); };
    using F = CodeFormat;
    constexpr F kFormat = kLayout.codes;
    uint8x16_t code;
    if constexpr (kFormat == F::kU8) {
      code = veorq_u8(vector(g), vdupq_n_u8(0x80));
    } else if constexpr (kFormat == F::kBit) {
      code = Mask(Shift<1 - g>(vector(0)), 2);
    } else if constexpr (kFormat == F::k2Bits || kFormat == F::k2BitsBit) {
      code = Mask(Shift<-2 * (g % 4)>(vector(g / 4)), 3);
    } else {
      code = Mask(Shift<-(g / 4 * 4)>(vector(g % 4)), 15);
    }
    if constexpr (kFormat == F::kNibbleBit) code = vorrq_u8(code, Mask(Shift<4 - g>(vector(4)), 16));
    if constexpr (kFormat == F::k2BitsBit) code = vorrq_u8(code, Mask(Shift<2 - g>(vector(2)), 4));
    if constexpr (kFormat == F::kNibble2Bits) {
      code = vorrq_u8(code, Mask(Shift<4 - 2 * (g % 4)>(vector(4 + g / 4)), 48));
    }
    if constexpr (kLayout.tabled) code = vqtbl1q_u8(table, code);
    return vreinterpretq_s8_u8(code);
  }

  const uint8_t* ScalesOf(int64_t block) const {
    return scales + block / (kLayout.scale_columns / kCodeBlock) * kLayout.scale_bytes;
  }

  // The sub-scale of part 0 or 1 of a block in the lanes of a quarter.
  int32x4_t SubScale(int64_t block, int part, int quarter) const {
    const uint8_t* at = sub_scales + block * kLayout.sub_scale_bytes + part * kPanelRows + 4 * quarter;
    const uint8x8_t bytes = LoadFourBytes(at);
    constexpr bool kSigned = kLayout.scales == ScaleFormat::kSub32 || kLayout.scales == ScaleFormat::kSub16;
    if constexpr (kSigned) return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
  }

  float32x4_t Scale(int64_t block, int part, int quarter) const {
    using S = ScaleFormat;
    const uint8_t* at = ScalesOf(block);
    if constexpr (kLayout.scales == S::kE8m0) {
      const int32x4_t e = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(LoadFourBytes(at + 4 * quarter)))));
      const int32x4_t normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
      const int32x4_t subnormal = vshlq_s32(vdupq_n_s32(0x00200000), e);
      return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), subnormal, normal));
    } else {
      const float32x4_t d = LoadHalves(at + 8 * quarter);
      if constexpr (kLayout.sub_scale_bytes == 0) return d;
      int32x4_t sub = SubScale(block, kLayout.halves ? part : 0, quarter);
      if constexpr (kLayout.scales == S::kSub16Min) sub = vandq_s32(sub, vdupq_n_s32(15));
      return vmulq_f32(d, vcvtq_f32_s32(sub));
    }
  }

  float32x4_t Minimum(int64_t block, int part, int quarter) const {
    using S = ScaleFormat;
    const float32x4_t m = LoadHalves(ScalesOf(block) + 32 + 8 * quarter);
    if constexpr (kLayout.scales == S::kF16Min) return m;
    const int32x4_t both = SubScale(block, kLayout.halves ? part : 1, quarter);
    const int32x4_t sub = kLayout.scales == S::kSub16Min ? vshrq_n_s32(both, 4) : both;
    return vnegq_f32(vmulq_f32(m, vcvtq_f32_s32(sub)));
  }
};

// A decoded piece of a panel.
struct alignas(64) Piece {
  int8_t codes[kPieceBlocks][kGroups][kVectorBytes];
  float scales[kPieceBlocks][2][kPanelRows];
  float minima[kPieceBlocks][2][kPanelRows];
};

template <Shape kPieceShape>
struct PieceSource {
  static constexpr Shape kShape = kPieceShape;
  const Piece* piece;

  template <int g>
  int8x16_t Codes(int64_t block, int quarter) const {
    return vld1q_s8(piece->codes[block][g] + 16 * quarter);
  }
  float32x4_t Scale(int64_t block, int part, int quarter) const {
    return vld1q_f32(piece->scales[block][part] + 4 * quarter);
  }
  float32x4_t Minimum(int64_t block, int part, int quarter) const {
    return vld1q_f32(piece->minima[block][part] + 4 * quarter);
  }
};

// The activations of a tile, from its first block on.
struct Columns {
  const int8_t* q;
  const float* scales;
  const int32_t* starts;
  const int32_t* half_starts;
  int64_t blocks;  // of a row: how far the columns lie apart
};

// -128 times the sum of a group's activations.
template <Shape kShape>
inline int32_t Start(const Columns& in, int c, int64_t block, int part) {
  return kShape.halves ? in.half_starts[2 * (c * in.blocks + block) + part] : in.starts[c * in.blocks + block];
}

// Adds the products of the groups [g, end) of a block to dot [columns][quarters]; 16 activations are loaded at a time.
template <int g, int end, class Source, int C>
inline void AddDots(const Source& source, const int8_t* q, int64_t cols, int64_t block, int8x16_t* x,
                    int32x4_t (*dot)[kQuarters]) {
  if constexpr (g % 4 == 0) {
    for (int c = 0; c < C; ++c) x[c] = vld1q_s8(q + c * cols + 4 * g);
  }
  for (int r = 0; r < kQuarters; ++r) {
    const int8x16_t w = source.template Codes<g>(block, r);
    for (int c = 0; c < C; ++c) dot[c][r] = vdotq_laneq_s32(dot[c][r], w, x[c], g % 4);
  }
  if constexpr (g + 1 < end) AddDots<g + 1, end, Source, C>(source, q, cols, block, x, dot);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
// The same by matrices: two groups make the eight columns of two lanes, two activation rows the other factor. sums:
// [pair of columns][quarter][lanes 0 and 1, lanes 2 and 3], each {lane a x row 0, a x row 1, b x row 0, b x row 1}.
template <int g, int end, class Source, int C>
inline void AddMatrices(const Source& source, const int8_t* q, int64_t cols, int64_t block,
                        int32x4_t (*sums)[kQuarters][2]) {
  constexpr int kPairs = (C + 1) / 2;
  int8x16_t x[kPairs];
  for (int pair = 0; pair < kPairs; ++pair) {
    const int second = 2 * pair + 1 < C ? 2 * pair + 1 : 2 * pair;
    x[pair] = vcombine_s8(vld1_s8(q + 2 * pair * cols + 4 * g), vld1_s8(q + second * cols + 4 * g));
  }
  for (int r = 0; r < kQuarters; ++r) {
    const int32x4_t first = vreinterpretq_s32_s8(source.template Codes<g>(block, r));
    const int32x4_t next = vreinterpretq_s32_s8(source.template Codes<g + 1>(block, r));
    const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(first, next));
    const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(first, next));
    for (int pair = 0; pair < kPairs; ++pair) {
      sums[pair][r][0] = vmmlaq_s32(sums[pair][r][0], low, x[pair]);
      sums[pair][r][1] = vmmlaq_s32(sums[pair][r][1], high, x[pair]);
    }
  }
  if constexpr (g + 2 < end) AddMatrices<g + 2, end, Source, C>(source, q, cols, block, sums);
}
#endif

// The exact products of the groups [begin, end) of a block, without the bias.
template <int begin, int end, class Source, int C>
inline void Products(const Source& source, const int8_t* q, int64_t cols, int64_t block, int32x4_t (*dot)[kQuarters]) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (C > 1) {
    int32x4_t sums[(C + 1) / 2][kQuarters][2];
    for (auto& pair : sums) {
      for (auto& quarter : pair) quarter[0] = quarter[1] = vdupq_n_s32(0);
    }
    AddMatrices<begin, end, Source, C>(source, q, cols, block, sums);
    for (int c = 0; c < C; ++c) {
      for (int r = 0; r < kQuarters; ++r) {
        const int32x4_t low = sums[c / 2][r][0], high = sums[c / 2][r][1];
        dot[c][r] = c % 2 == 0 ? vuzp1q_s32(low, high) : vuzp2q_s32(low, high);
      }
    }
    return;
  }
#endif
  int8x16_t x[C];
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < kQuarters; ++r) dot[c][r] = vdupq_n_s32(0);
  }
  AddDots<begin, end, Source, C>(source, q, cols, block, x, dot);
}

// Part `part` of a block into the accumulators.
template <int part, class Source, int C>
inline void AddPart(const Source& source, const Columns& in, int64_t block, float32x4_t (*acc)[kQuarters]) {
  constexpr Shape kShape = Source::kShape;
  constexpr int kSize = kShape.halves ? kGroups / 2 : kGroups;
  int32x4_t dot[C][kQuarters];
  Products<part * kSize, (part + 1) * kSize, Source, C>(source, in.q + block * kCodeBlock, in.blocks * kCodeBlock,
                                                        block, dot);
  for (int r = 0; r < kQuarters; ++r) {
    const float32x4_t scale = source.Scale(block, part, r);
    for (int c = 0; c < C; ++c) {
      const float32x4_t x_scale = vdupq_n_f32(in.scales[c * in.blocks + block]);
      int32x4_t sum = dot[c][r];
      if constexpr (kShape.bias != 0) {
        sum = vaddq_s32(sum, vdupq_n_s32(Start<kShape>(in, c, block, part) / (128 / kShape.bias)));
      }
      acc[c][r] = vfmaq_f32(acc[c][r], vcvtq_f32_s32(sum), vmulq_f32(scale, x_scale));
    }
  }
}

// The minima of a block into the accumulators.
template <class Source, int C>
inline void AddMinima(const Source& source, const Columns& in, int64_t block, float32x4_t (*acc)[kQuarters]) {
  constexpr Shape kShape = Source::kShape;
  for (int part = 0; part < (kShape.halves ? 2 : 1); ++part) {
    for (int r = 0; r < kQuarters; ++r) {
      const float32x4_t minimum = source.Minimum(block, part, r);
      for (int c = 0; c < C; ++c) {
        const int32_t sum = Start<kShape>(in, c, block, part) / -128;
        const float x = static_cast<float>(sum) * in.scales[c * in.blocks + block];
        acc[c][r] = vfmaq_f32(acc[c][r], minimum, vdupq_n_f32(x));
      }
    }
  }
}

// One panel times C columns, `count` blocks; continues the sums in out.
template <class Source, int C>
void Tile(const Source& source, const Columns& in, int64_t count, float* out, int64_t out_stride) {
  float32x4_t acc[C][kQuarters];
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < kQuarters; ++r) acc[c][r] = vld1q_f32(out + c * out_stride + 4 * r);
  }
  for (int64_t b = 0; b < count; ++b) {
    if constexpr (Source::kShape.minima) AddMinima<Source, C>(source, in, b, acc);
    AddPart<0, Source, C>(source, in, b, acc);
    if constexpr (Source::kShape.halves) AddPart<1, Source, C>(source, in, b, acc);
  }
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < kQuarters; ++r) vst1q_f32(out + c * out_stride + 4 * r, acc[c][r]);
  }
}

template <class Source>
void RunTile(int columns, const Source& source, const Columns& in, int64_t count, float* out, int64_t out_stride) {
  switch (columns) {
    case 1: return Tile<Source, 1>(source, in, count, out, out_stride);
    case 2: return Tile<Source, 2>(source, in, count, out, out_stride);
    case 3: return Tile<Source, 3>(source, in, count, out, out_stride);
    case 4: return Tile<Source, 4>(source, in, count, out, out_stride);
    default: __builtin_unreachable();
  }
}

// The codes of the groups from g on of one block.
template <int g, class Source>
inline void DecodeGroups(const Source& source, int64_t block, int8_t (*out)[kVectorBytes]) {
  for (int r = 0; r < kQuarters; ++r) vst1q_s8(out[g] + 16 * r, source.template Codes<g>(block, r));
  if constexpr (g + 1 < kGroups) DecodeGroups<g + 1>(source, block, out);
}

// One vector of TQ1_0, whose `count` digits of base 3 go to the groups out[0], out[stride], ...
inline void DecodeTrits(const uint8_t* vector, int count, int8_t (*out)[kVectorBytes], int stride) {
  for (int r = 0; r < kQuarters; ++r) {
    uint8x16_t v = vld1q_u8(vector + 16 * r);
    for (int digit = 0; digit < count; ++digit) {
      // 3 v / 256 is 0 below 86, 1 below 171, else 2; the next digit is in 3 v mod 256.
      const uint8x16_t minus = vaddq_u8(vcgeq_u8(v, vdupq_n_u8(86)), vcgeq_u8(v, vdupq_n_u8(171)));
      vst1q_s8(out[digit * stride] + 16 * r, vnegq_s8(vreinterpretq_s8_u8(minus)));
      v = vaddq_u8(v, vaddq_u8(v, v));
    }
  }
}

// 256 columns of TQ1_0: five blocks of one digit each, then the digits of 16 columns and of four.
inline void DecodeTritBlocks(const uint8_t* vectors, int8_t (*out)[kVectorBytes]) {
  for (int v = 0; v < 8; ++v) DecodeTrits(vectors + v * kVectorBytes, 5, out + v, 8);
  for (int v = 8; v < 12; ++v) DecodeTrits(vectors + v * kVectorBytes, 5, out + 5 * 8 + (v - 8), 4);
  DecodeTrits(vectors + 12 * kVectorBytes, 4, out + 7 * 8 + 4, 1);
}

template <TensorType kType>
void Decode(const PanelSource<kType>& source, int64_t first, int64_t count, Piece* piece) {
  constexpr IntegerLayout kLayout = LayoutOf(kType);
  for (int64_t b = 0; b < count; ++b) {
    const int64_t block = first + b;
    if constexpr (kLayout.codes != CodeFormat::kTrits) DecodeGroups<0>(source, block, piece->codes[b]);
    for (int part = 0; part < (kLayout.halves ? 2 : 1); ++part) {
      for (int r = 0; r < kQuarters; ++r) {
        vst1q_f32(piece->scales[b][part] + 4 * r, source.Scale(block, part, r));
        if constexpr (kLayout.minima) vst1q_f32(piece->minima[b][part] + 4 * r, source.Minimum(block, part, r));
      }
    }
  }
  if constexpr (kLayout.codes == CodeFormat::kTrits) {
    constexpr int64_t kBlocks = kTritsColumns / kCodeBlock;
    static_assert(kPieceBlocks % kBlocks == 0);
    for (int64_t b = 0; b < count; b += kBlocks) {
      DecodeTritBlocks(source.codes + (first + b) / kBlocks * kTritsVectors * kVectorBytes, piece->codes[b]);
    }
  }
}

// The activation rows from `column` on, from a block on.
inline Columns From(const Activations& in, int64_t column, int64_t block, int64_t blocks) {
  const int64_t at = column * blocks + block;
  return {in.q + at * kCodeBlock, in.scales + at, in.starts + at, in.half_starts + 2 * at, blocks};
}

template <TensorType kType>
void MultiplyPacked(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const PanelSections sections = SectionsOf(kType, weights.cols);
  const int64_t blocks = weights.cols / kCodeBlock;
  for (int64_t p = 0; p < weights.panels; ++p) {
    const PanelSource<kType> source(weights.data + p * sections.bytes, sections);
    RunTile(columns, source, From(in, 0, 0, blocks), blocks, out + p * kPanelRows, out_stride);
  }
}

template <TensorType kType>
void MultiplyDecoded(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const PanelSections sections = SectionsOf(kType, weights.cols);
  const int64_t blocks = weights.cols / kCodeBlock;
  const int tiles = (columns + kTileColumns - 1) / kTileColumns;
  Piece piece;
  for (int64_t p = 0; p < weights.panels; ++p) {
    const PanelSource<kType> packed(weights.data + p * sections.bytes, sections);
    for (int64_t b = 0; b < blocks; b += kPieceBlocks) {
      const int64_t count = blocks - b < kPieceBlocks ? blocks - b : kPieceBlocks;
      Decode<kType>(packed, b, count, &piece);
      const PieceSource<PanelSource<kType>::kShape> source{&piece};
      for (int t = 0; t < tiles; ++t) {  // even ones: five columns are three and two
        const int column = static_cast<int>(static_cast<int64_t>(columns) * t / tiles);
        const int width = static_cast<int>(static_cast<int64_t>(columns) * (t + 1) / tiles) - column;
        float* tile = out + column * out_stride + p * kPanelRows;
        RunTile(width, source, From(in, column, b, blocks), count, tile, out_stride);
      }
    }
  }
}

template <TensorType kType>
void Multiply(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  for (int c = 0; c < columns; ++c) std::memset(out + c * out_stride, 0, weights.panels * kPanelRows * sizeof(float));
  if constexpr (LayoutOf(kType).codes == CodeFormat::kTrits) {
    return MultiplyDecoded<kType>(weights, in, columns, out, out_stride);
  } else {
    const auto body = columns <= kTileColumns ? MultiplyPacked<kType> : MultiplyDecoded<kType>;
    body(weights, in, columns, out, out_stride);
  }
}

inline void IntegerMatmul(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  const auto run = [&](auto body) { body(weights, in, columns, out, out_stride); };
  switch (weights.type) {
    case TensorType::kQ4_0: return run(Multiply<TensorType::kQ4_0>);
    case TensorType::kQ4_1: return run(Multiply<TensorType::kQ4_1>);
    case TensorType::kQ5_0: return run(Multiply<TensorType::kQ5_0>);
    case TensorType::kQ5_1: return run(Multiply<TensorType::kQ5_1>);
    case TensorType::kQ8_0: return run(Multiply<TensorType::kQ8_0>);
    case TensorType::kQ2_K: return run(Multiply<TensorType::kQ2_K>);
    case TensorType::kQ3_K: return run(Multiply<TensorType::kQ3_K>);
    case TensorType::kQ4_K: return run(Multiply<TensorType::kQ4_K>);
    case TensorType::kQ5_K: return run(Multiply<TensorType::kQ5_K>);
    case TensorType::kQ6_K: return run(Multiply<TensorType::kQ6_K>);
    case TensorType::kIQ4_NL: return run(Multiply<TensorType::kIQ4_NL>);
    case TensorType::kIQ4_XS: return run(Multiply<TensorType::kIQ4_XS>);
    case TensorType::kTQ1_0: return run(Multiply<TensorType::kTQ1_0>);
    case TensorType::kTQ2_0: return run(Multiply<TensorType::kTQ2_0>);
    case TensorType::kMXFP4: return run(Multiply<TensorType::kMXFP4>);
    case TensorType::kQ1_0: return run(Multiply<TensorType::kQ1_0>);
    case TensorType::kQ2_0: return run(Multiply<TensorType::kQ2_0>);
    case TensorType::kPQ2_0:
    case TensorType::kQ2_0_Oxi: return run(Multiply<TensorType::kPQ2_0>);  // packed alike
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: break;
  }
  __builtin_unreachable();  // the float types have a unit of their own
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_NEON_INTEGER_H_
