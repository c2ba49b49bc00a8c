#ifndef STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_INTEGER_H_

// Matrix products of the integer types in tiles of one panel and up to four columns, written with vector_math.h's
// vectors: kVectors of them are the 16 rows of a panel. Included by avx2_integer.h and neon_integer.h, behind the
// header of their instruction set.
//
// A few columns read the packed panel; more share a decoded copy of a piece of it. Either piece stays in the
// first-level cache for all tiles of columns.

#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

constexpr int kVectors = kPanelRows / kLanes;
constexpr int kGroups = kCodeBlock / 4;
constexpr int kTileColumns = 4;
constexpr int64_t kPieceBlocks = 16;  // of a piece that stays in the first-level cache: 8 KiB of codes once decoded

// What a tile needs to know about a type whose codes are decoded to bytes.
struct Shape {
  int steps;    // of integer_avx2.cc: products of a group that are added up in 16 bits; 0: none
  bool halves;  // as in IntegerLayout
  bool minima;
  int bias;                 // of the bytes; a power of two, or 0: codes of 8 bits are signed then
  bool magnitudes = false;  // pieces hold |code| as well
};

// The activations of a tile, from its first block on.
struct Columns {
  const int8_t* q;
  const float* scales;
  const int32_t* starts;
  const int32_t* half_starts;
  int64_t blocks;  // of a row: how far the columns lie apart

  // -128 times the sum of a group's activations.
  template <Shape kShape>
  int32_t Start(int c, int64_t block, int part) const {
    return kShape.halves ? half_starts[2 * (c * blocks + block) + part] : starts[c * blocks + block];
  }
};

// What the unit defines, beside Bytes (4 kLanes bytes) and Fetch (asks for a panel's memory ahead of its use).
constexpr Shape ShapeOf(const IntegerLayout& layout);
constexpr int PackedColumns(const IntegerLayout& layout);  // up to these the panel is read as it is packed
inline Bytes LoadBytes(const uint8_t* p);
inline void StoreBytes(uint8_t* p, Bytes x);
template <int kLeft>
inline Bytes Shift(Bytes x);  // each byte, as far as KeepBits keeps it
inline Bytes KeepBits(Bytes x, int bits);
inline Bytes BitOr(Bytes a, Bytes b);
inline Bytes Minus(Bytes x, int bias);
inline Bytes Magnitudes(Bytes x);  // of signed bytes; -128 becomes 128
inline Bytes LoadTable(const uint8_t* table);
inline Bytes LookUp(Bytes table, Bytes codes);
inline Floats LoadHalfFloats(const uint8_t* p);  // kLanes fp16
template <bool kSigned>
inline Ints LoadSmall(const uint8_t* p);  // kLanes bytes
inline Ints Nibbles(Ints bytes, bool high);
inline Floats PowersOfTwo(Ints e);  // 2^(e - 128)
inline Floats ToFloats(Ints x);
inline Floats ActivationSum(int32_t start, float scale);  // the sum, from Columns::Start, times the scale; in all lanes
// The exact products of part `part` of a block, C columns.
template <int part, class Source, int C>
inline void Products(const Source& source, const Columns& in, int64_t block, Ints (*dot)[kVectors]);
// One vector of 64 bytes of TQ1_0, whose `count` digits of base 3 go to the groups out[0], out[stride], ...
inline void DecodeTrits(const uint8_t* vector, int count, uint8_t (*out)[kVectorBytes], int stride);

// Reads the codes and scales of a packed panel.
template <TensorType kType>
struct PanelSource {
  static constexpr IntegerLayout kLayout = LayoutOf(kType);
  static constexpr Shape kShape = ShapeOf(kLayout);

  // Of a panel, each block's share of all sections.
  static constexpr int kBlockBytes = kLayout.vectors * kVectorBytes + kLayout.sub_scale_bytes +
                                     kLayout.scale_bytes * kCodeBlock / kLayout.scale_columns;

  const uint8_t* scales;
  const uint8_t* sub_scales;
  const uint8_t* codes;
  Fetch fetch;
  Bytes table;

  // Panel p of the span.
  PanelSource(const PanelSpan& span, int64_t p, const PanelSections& sections)
      : scales(span.data + p * sections.bytes),
        sub_scales(scales + sections.sub_scales),
        codes(scales + sections.codes),
        fetch(span, scales, sections) {
    if constexpr (kLayout.tabled) table = Minus(LoadTable(kLayout.table), 128 - kShape.bias);
  }

  // The same, `blocks` blocks further on: a multiple of those that share a scale.
  PanelSource From(int64_t blocks) const {
    PanelSource later = *this;
    later.scales = ScalesOf(blocks);
    later.sub_scales += blocks * kLayout.sub_scale_bytes;
    later.codes += blocks * kLayout.vectors * kVectorBytes;
    later.fetch.Advance(blocks * kBlockBytes);
    return later;
  }

  // DecodeTrits asks for its vectors itself.
  void Prefetch(int64_t block) const {
    if constexpr (kLayout.codes != CodeFormat::kTrits) fetch.template Block<kBlockBytes>(block);
  }

  // The four columns of group g of a block, in the lanes of vector v; with the shape's bias.
  template <int g>
  Bytes Codes(int64_t block, int v) const {
    const uint8_t* at = codes + block * kLayout.vectors * kVectorBytes + 4 * kLanes * v;
    const auto vector = [at](int i) { return LoadBytes(at + i * kVectorBytes); };
    using F = CodeFormat;
    constexpr F kFormat = kLayout.codes;
    Bytes code;
    if constexpr (kFormat == F::kU8) {
      code = Minus(vector(g), 128 - kShape.bias);
    } else if constexpr (kFormat == F::kBit) {
      code = KeepBits(Shift<1 - g>(vector(0)), 2);
    } else if constexpr (kFormat == F::k2Bits || kFormat == F::k2BitsBit) {
      code = KeepBits(Shift<-2 * (g % 4)>(vector(g / 4)), 3);
    } else {
      code = KeepBits(Shift<-(g / 4 * 4)>(vector(g % 4)), 15);
    }
    if constexpr (kFormat == F::kNibbleBit) code = BitOr(code, KeepBits(Shift<4 - g>(vector(4)), 16));
    if constexpr (kFormat == F::k2BitsBit) code = BitOr(code, KeepBits(Shift<2 - g>(vector(2)), 4));
    if constexpr (kFormat == F::kNibble2Bits) {
      code = BitOr(code, KeepBits(Shift<4 - 2 * (g % 4)>(vector(4 + g / 4)), 48));
    }
    if constexpr (kLayout.tabled) code = LookUp(table, code);
    return code;
  }

  template <int g>
  Bytes Magnitude(int64_t block, int v) const {
    return Magnitudes(Codes<g>(block, v));
  }

  const uint8_t* ScalesOf(int64_t block) const {
    return scales + block / (kLayout.scale_columns / kCodeBlock) * kLayout.scale_bytes;
  }

  // The sub-scale of part 0 or 1 of a block; the second of the two where scales and minima have their own.
  Ints SubScale(int64_t block, int part, int v) const {
    constexpr bool kSigned = kLayout.scales == ScaleFormat::kSub32 || kLayout.scales == ScaleFormat::kSub16;
    return LoadSmall<kSigned>(sub_scales + block * kLayout.sub_scale_bytes + part * kPanelRows + kLanes * v);
  }

  Floats Scale(int64_t block, int part, int v) const {
    using S = ScaleFormat;
    const uint8_t* at = ScalesOf(block);
    if constexpr (kLayout.scales == S::kE8m0) {
      return PowersOfTwo(LoadSmall<false>(at + kLanes * v));
    } else {
      const Floats d = LoadHalfFloats(at + 2 * kLanes * v);
      if constexpr (kLayout.sub_scale_bytes == 0) return d;
      const Ints sub = SubScale(block, kLayout.halves ? part : 0, v);
      return d * ToFloats(kLayout.scales == S::kSub16Min ? Nibbles(sub, /*high=*/false) : sub);
    }
  }

  Floats Minimum(int64_t block, int part, int v) const {
    using S = ScaleFormat;
    const Floats m = LoadHalfFloats(ScalesOf(block) + 2 * kPanelRows + 2 * kLanes * v);
    if constexpr (kLayout.scales == S::kF16Min) return m;
    const Ints sub = SubScale(block, kLayout.halves ? part : 1, v);
    return -(m * ToFloats(kLayout.scales == S::kSub16Min ? Nibbles(sub, /*high=*/true) : sub));
  }

  // The sum of a column's activations in part `part` of a block, times their scale.
  Floats ColumnSum(const Columns& in, int c, int64_t block, int part) const {
    return ActivationSum(in.Start<kShape>(c, block, part), in.scales[c * in.blocks + block]);
  }
};

// A decoded piece of a panel.
template <Shape kShape>
struct alignas(64) Piece {
  uint8_t codes[kPieceBlocks][kGroups][kVectorBytes];
  uint8_t magnitudes[kShape.magnitudes ? kPieceBlocks : 1][kGroups][kVectorBytes];
  float scales[kPieceBlocks][2][kPanelRows];
  float minima[kPieceBlocks][2][kPanelRows];
};

template <Shape kPieceShape>
struct PieceSource {
  static constexpr Shape kShape = kPieceShape;
  static constexpr bool kSums = kShape.minima && !kShape.halves;
  const Piece<kShape>* piece;
  float sums[kTileColumns][kSums ? kPieceBlocks : 1];  // what ColumnSum gives

  // Sums are made for all blocks at once: block by block they were a tenth of a tile's instructions.
  PieceSource(const Piece<kShape>* decoded, const Columns& in, int columns, int64_t count) : piece(decoded) {
    for (int c = 0; kSums && c < columns; ++c) {
      const int64_t row = c * in.blocks;
      for (int64_t b = 0; b < count; ++b) {
        sums[c][b] = static_cast<float>(-(in.starts[row + b] >> 7)) * in.scales[row + b];
      }
    }
  }

  void Prefetch(int64_t) const {}
  template <int g>
  Bytes Codes(int64_t block, int v) const {
    return LoadBytes(piece->codes[block][g] + 4 * kLanes * v);
  }
  template <int g>
  Bytes Magnitude(int64_t block, int v) const {
    return LoadBytes(piece->magnitudes[block][g] + 4 * kLanes * v);
  }
  Floats Scale(int64_t block, int part, int v) const { return Load(piece->scales[block][part] + kLanes * v); }
  Floats Minimum(int64_t block, int part, int v) const { return Load(piece->minima[block][part] + kLanes * v); }
  Floats ColumnSum(const Columns& in, int c, int64_t block, int part) const {
    if constexpr (kSums) return Set(sums[c][block]);
    return ActivationSum(in.Start<kShape>(c, block, part), in.scales[c * in.blocks + block]);
  }
};

// Part `part` of a block into the accumulators.
template <int part, class Source, int C>
inline void AddPart(const Source& source, const Columns& in, int64_t block, Floats (*acc)[kVectors]) {
  Ints dot[C][kVectors];
  Products<part, Source, C>(source, in, block, dot);
  Floats scale[kVectors];
  for (int v = 0; v < kVectors; ++v) scale[v] = source.Scale(block, part, v);
  for (int c = 0; c < C; ++c) {
    const Floats x_scale = Set(in.scales[c * in.blocks + block]);
    for (int v = 0; v < kVectors; ++v) acc[c][v] = Fma(ToFloats(dot[c][v]), scale[v] * x_scale, acc[c][v]);
  }
}

// The minima of a block into the accumulators.
template <class Source, int C>
inline void AddMinima(const Source& source, const Columns& in, int64_t block, Floats (*acc)[kVectors]) {
  constexpr Shape kShape = Source::kShape;
  for (int part = 0; part < (kShape.halves ? 2 : 1); ++part) {
    Floats minimum[kVectors];
    for (int v = 0; v < kVectors; ++v) minimum[v] = source.Minimum(block, part, v);
    for (int c = 0; c < C; ++c) {
      const Floats x = source.ColumnSum(in, c, block, part);
      for (int v = 0; v < kVectors; ++v) acc[c][v] = Fma(minimum[v], x, acc[c][v]);
    }
  }
}

// One panel times C columns, `count` blocks; continues the sums in out.
template <class Source, int C>
void Tile(const Source& source, const Columns& in, int64_t count, float* out, int64_t out_stride) {
  Floats acc[C][kVectors];
  for (int c = 0; c < C; ++c) {
    for (int v = 0; v < kVectors; ++v) acc[c][v] = Load(out + c * out_stride + kLanes * v);
  }
  for (int64_t b = 0; b < count; ++b) {
    source.Prefetch(b);
    if constexpr (Source::kShape.minima) AddMinima<Source, C>(source, in, b, acc);
    AddPart<0, Source, C>(source, in, b, acc);
    if constexpr (Source::kShape.halves) AddPart<1, Source, C>(source, in, b, acc);
  }
  for (int c = 0; c < C; ++c) {
    for (int v = 0; v < kVectors; ++v) Store(out + c * out_stride + kLanes * v, acc[c][v]);
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

// The codes of the groups from g on of one block, to block b of a piece.
template <int g, class Source>
inline void DecodeGroups(const Source& source, int64_t block, int64_t b, Piece<Source::kShape>* piece) {
  for (int v = 0; v < kVectors; ++v) {
    const Bytes codes = source.template Codes<g>(block, v);
    StoreBytes(piece->codes[b][g] + 4 * kLanes * v, codes);
    if constexpr (Source::kShape.magnitudes) {
      StoreBytes(piece->magnitudes[b][g] + 4 * kLanes * v, Magnitudes(codes));
    }
  }
  if constexpr (g + 1 < kGroups) DecodeGroups<g + 1>(source, block, b, piece);
}

// 256 columns of TQ1_0: five blocks of one digit each, then the digits of 16 columns and of four.
inline void DecodeTritBlocks(const uint8_t* vectors, uint8_t (*out)[kVectorBytes]) {
  for (int v = 0; v < 8; ++v) DecodeTrits(vectors + v * kVectorBytes, 5, out + v, 8);
  for (int v = 8; v < 12; ++v) DecodeTrits(vectors + v * kVectorBytes, 5, out + 5 * 8 + (v - 8), 4);
  DecodeTrits(vectors + 12 * kVectorBytes, 4, out + 7 * 8 + 4, 1);
}

template <TensorType kType>
void Decode(const PanelSource<kType>& source, int64_t first, int64_t count, Piece<PanelSource<kType>::kShape>* piece) {
  constexpr IntegerLayout kLayout = LayoutOf(kType);
  for (int64_t b = 0; b < count; ++b) {
    const int64_t block = first + b;
    source.Prefetch(block);
    if constexpr (kLayout.codes != CodeFormat::kTrits) DecodeGroups<0>(source, block, b, piece);
    for (int part = 0; part < (kLayout.halves ? 2 : 1); ++part) {
      for (int v = 0; v < kVectors; ++v) {
        Store(piece->scales[b][part] + kLanes * v, source.Scale(block, part, v));
        if constexpr (kLayout.minima) Store(piece->minima[b][part] + kLanes * v, source.Minimum(block, part, v));
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

// Calls body(first column, number of columns) for even tiles: five columns are three and two.
template <typename Body>
void ForEachTile(int columns, const Body& body) {
  const int tiles = (columns + kTileColumns - 1) / kTileColumns;
  for (int t = 0; t < tiles; ++t) {
    const int column = static_cast<int>(static_cast<int64_t>(columns) * t / tiles);
    body(column, static_cast<int>(static_cast<int64_t>(columns) * (t + 1) / tiles) - column);
  }
}

template <TensorType kType>
void MultiplyPacked(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const PanelSections sections = SectionsOf(kType, weights.cols);
  const int64_t blocks = weights.cols / kCodeBlock;
  const int64_t piece = columns <= kTileColumns ? blocks : kPieceBlocks;
  for (int64_t p = 0; p < weights.panels; ++p) {
    const PanelSource<kType> panel(weights, p, sections);
    for (int64_t b = 0; b < blocks; b += piece) {
      const PanelSource<kType> source = panel.From(b);
      const int64_t count = blocks - b < piece ? blocks - b : piece;
      ForEachTile(columns, [&](int column, int width) {
        float* tile = out + column * out_stride + p * kPanelRows;
        RunTile(width, source, From(in, column, b, blocks), count, tile, out_stride);
      });
    }
  }
}

template <TensorType kType>
void MultiplyDecoded(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  const PanelSections sections = SectionsOf(kType, weights.cols);
  const int64_t blocks = weights.cols / kCodeBlock;
  constexpr Shape kShape = PanelSource<kType>::kShape;
  Piece<kShape> piece;
  for (int64_t p = 0; p < weights.panels; ++p) {
    const PanelSource<kType> panel(weights, p, sections);
    for (int64_t b = 0; b < blocks; b += kPieceBlocks) {
      const int64_t count = blocks - b < kPieceBlocks ? blocks - b : kPieceBlocks;
      Decode<kType>(panel, b, count, &piece);
      ForEachTile(columns, [&](int column, int width) {
        const Columns x = From(in, column, b, blocks);
        const PieceSource<kShape> source(&piece, x, width, count);
        RunTile(width, source, x, count, out + column * out_stride + p * kPanelRows, out_stride);
      });
    }
  }
}

template <TensorType kType>
void Multiply(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
  for (int c = 0; c < columns; ++c) std::memset(out + c * out_stride, 0, weights.panels * kPanelRows * sizeof(float));
  if constexpr (LayoutOf(kType).codes == CodeFormat::kTrits) {
    return MultiplyDecoded<kType>(weights, in, columns, out, out_stride);
  } else {
    const auto body = columns <= PackedColumns(LayoutOf(kType)) ? MultiplyPacked<kType> : MultiplyDecoded<kType>;
    body(weights, in, columns, out, out_stride);
  }
}

inline void IntegerMatmul(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  ForIntegerType(weights.type, [&]<TensorType kType>() {
    constexpr TensorType kPacked = kType == TensorType::kQ2_0_Oxi ? TensorType::kPQ2_0 : kType;  // packed alike
    Multiply<kPacked>(weights, in, columns, out, out_stride);
  });
}

}  // namespace
}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_VECTOR_INTEGER_H_
