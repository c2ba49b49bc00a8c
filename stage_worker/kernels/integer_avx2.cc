// Matrix products of the integer types with AVX2. The 8-bit product multiplies unsigned codes by signed activations and
// adds pairs into 16 bits, saturating: `steps` products of codes up to m stay exact while 2 * steps * m * 127 <= 32767,
// and only their sum is widened. Codes of 8 bits (Q8_0 and the IQ4 tables) do not even allow one: there |w| meets x
// with the sign of w, at most 2 * 128 * 127.
//
// A few columns read the panel as it is packed; more of them share a decoded copy of a piece of it. Either piece stays
// in the first-level cache while all tiles of columns pass by.

#include <climits>

#include "stage_worker/kernels/avx2.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

constexpr int kGroups = kCodeBlock / 4;
constexpr int kTileColumns = 4;
constexpr int64_t kPieceBlocks = 16;   // of a piece that stays in the first-level cache: 8 KiB of codes once decoded
constexpr int64_t kPiecePanels = 2;    // decoded together, so that activations are read once for all of them
constexpr int64_t kAheadBytes = 4096;  // how far ahead of the block in use memory is asked for

// What a tile must know of a type once its codes are bytes.
struct Shape {
  int steps;    // products of a group that are added up in 16 bits; 0: signed codes of 8 bits
  bool halves;  // as in IntegerLayout
  bool minima;
  int bias;  // of the bytes; a power of two, or 0
};

constexpr Shape ShapeOf(const IntegerLayout& layout) {
  using F = CodeFormat;
  if (layout.scales == ScaleFormat::kE8m0) return {4, false, false, 16};  // the table's values and 16: 4 to 28
  if (layout.tabled || layout.codes == F::kU8) return {0, layout.halves, layout.minima, 0};
  const int steps = layout.codes == F::kNibble2Bits ? 2 : layout.codes == F::kNibbleBit || layout.halves ? 4 : 8;
  return {steps, layout.halves, layout.minima, layout.bias};
}

template <int kLeft>
__m256i Shift(__m256i v) {  // of bytes, as far as the caller masks the result
  return kLeft >= 0 ? _mm256_slli_epi16(v, kLeft < 0 ? 0 : kLeft) : _mm256_srli_epi16(v, kLeft < 0 ? -kLeft : 0);
}

inline __m256i Mask(__m256i v, int bits) { return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(bits))); }

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
  const uint8_t* ahead;  // of block 0
  const uint8_t* end;    // of the span
  int64_t beyond;        // from there to what is asked for instead
  __m256i table;

  // Panel p of the span.
  PanelSource(const PanelSpan& span, int64_t p, const PanelSections& sections)
      : scales(span.data + p * sections.bytes),
        sub_scales(scales + sections.sub_scales),
        codes(scales + sections.codes),
        ahead(scales + kAheadBytes),
        end(span.data + span.panels * sections.bytes),
        beyond(span.next == nullptr ? -kAheadBytes : span.next - end) {
    if constexpr (kLayout.tabled) {
      const __m256i biased = _mm256_broadcastsi128_si256(Load128(kLayout.table));
      table = _mm256_sub_epi8(biased, _mm256_set1_epi8(static_cast<char>(128 - kShape.bias)));
    }
  }

  // The same, `blocks` blocks further on: a multiple of those that share a scale.
  PanelSource From(int64_t blocks) const {
    PanelSource later = *this;
    later.scales = ScalesOf(blocks);
    later.sub_scales += blocks * kLayout.sub_scale_bytes;
    later.codes += blocks * kLayout.vectors * kVectorBytes;
    later.ahead += blocks * kBlockBytes;
    return later;
  }

  // The four columns of group g of a block, in 8 lanes; with the shape's bias.
  template <int g>
  __m256i Codes(int64_t block, int half) const {
    const uint8_t* at = codes + block * kLayout.vectors * kVectorBytes + 32 * half;
    const auto vector = [at](int v) { return Load256(at + v * kVectorBytes); };
    using F = CodeFormat;
    constexpr F kFormat = kLayout.codes;
    if constexpr (kFormat == F::kU8) return _mm256_xor_si256(vector(g), _mm256_set1_epi8(static_cast<char>(0x80)));
    if constexpr (kFormat == F::kBit) return Mask(Shift<1 - g>(vector(0)), 2);
    __m256i code;
    if constexpr (kFormat == F::k2Bits || kFormat == F::k2BitsBit) {
      code = Mask(Shift<-2 * (g % 4)>(vector(g / 4)), 3);
    } else {
      code = Mask(Shift<-(g / 4 * 4)>(vector(g % 4)), 15);
    }
    if constexpr (kFormat == F::kNibbleBit) code = _mm256_or_si256(code, Mask(Shift<4 - g>(vector(4)), 16));
    if constexpr (kFormat == F::k2BitsBit) code = _mm256_or_si256(code, Mask(Shift<2 - g>(vector(2)), 4));
    if constexpr (kFormat == F::kNibble2Bits) {
      code = _mm256_or_si256(code, Mask(Shift<4 - 2 * (g % 4)>(vector(4 + g / 4)), 48));
    }
    if constexpr (kLayout.tabled) code = _mm256_shuffle_epi8(table, code);
    return code;
  }

  // The machine does not look ahead by itself across the sections of a panel: twice the speed from memory. So each
  // block asks for its share of a panel's bytes, of whatever section. At the end of the span come the panels that are
  // read next, or what is in the cache: lines that nobody reads cost as much as those that are read, for runs of few
  // panels a third of all.
  void Prefetch(int64_t block) const {
    if constexpr (kLayout.codes == CodeFormat::kTrits) return;  // DecodeTrits asks for them
    const uint8_t* at = ahead + block * kBlockBytes;
    if (at >= end) [[unlikely]]
      at += beyond;
    for (int byte = 0; byte < kBlockBytes; byte += kVectorBytes) {
      _mm_prefetch(reinterpret_cast<const char*>(at + byte), _MM_HINT_T0);
    }
  }

  const uint8_t* ScalesOf(int64_t block) const {
    return scales + block / (kLayout.scale_columns / kCodeBlock) * kLayout.scale_bytes;
  }

  // The sub-scale of part 0 or 1 of a block in 8 lanes; `second` of the two where scales and minima have their own.
  __m256i SubScale(int64_t block, int part, int half) const {
    const uint8_t* at = sub_scales + block * kLayout.sub_scale_bytes + part * kPanelRows + 8 * half;
    int64_t eight;
    std::memcpy(&eight, at, sizeof(eight));
    const __m128i bytes = _mm_cvtsi64_si128(eight);
    constexpr bool kSigned = kLayout.scales == ScaleFormat::kSub32 || kLayout.scales == ScaleFormat::kSub16;
    return kSigned ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
  }

  __m256 Scale(int64_t block, int part, int half) const {
    using S = ScaleFormat;
    const uint8_t* at = ScalesOf(block);
    if constexpr (kLayout.scales == S::kE8m0) {
      int64_t eight;
      std::memcpy(&eight, at + 8 * half, sizeof(eight));
      const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(eight));
      const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
      const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
      const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
      return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
    } else {
      const __m256 d = _mm256_cvtph_ps(Load128(at + 16 * half));
      if constexpr (kLayout.sub_scale_bytes == 0) return d;
      __m256i sub = SubScale(block, kLayout.halves ? part : 0, half);
      if constexpr (kLayout.scales == S::kSub16Min) sub = _mm256_and_si256(sub, _mm256_set1_epi32(15));
      return _mm256_mul_ps(d, _mm256_cvtepi32_ps(sub));
    }
  }

  __m256 Minimum(int64_t block, int part, int half) const {
    using S = ScaleFormat;
    const __m256 m = _mm256_cvtph_ps(Load128(ScalesOf(block) + 32 + 16 * half));
    if constexpr (kLayout.scales == S::kF16Min) return m;
    const __m256i both = SubScale(block, kLayout.halves ? part : 1, half);
    const __m256i sub = kLayout.scales == S::kSub16Min ? _mm256_srli_epi32(both, 4) : both;
    return _mm256_xor_ps(_mm256_mul_ps(m, _mm256_cvtepi32_ps(sub)), _mm256_set1_ps(-0.0f));
  }
};

// A decoded piece of a panel.
struct alignas(64) Piece {
  uint8_t codes[kPieceBlocks][kGroups][kVectorBytes];
  float scales[kPieceBlocks][2][kPanelRows];
  float minima[kPieceBlocks][2][kPanelRows];
};

template <Shape kPieceShape>
struct PieceSource {
  static constexpr Shape kShape = kPieceShape;
  const Piece* piece;

  void Prefetch(int64_t) const {}
  template <int g>
  __m256i Codes(int64_t block, int half) const {
    return Load256(piece->codes[block][g] + 32 * half);
  }
  __m256 Scale(int64_t block, int part, int half) const {
    return _mm256_load_ps(piece->scales[block][part] + 8 * half);
  }
  __m256 Minimum(int64_t block, int part, int half) const {
    return _mm256_load_ps(piece->minima[block][part] + 8 * half);
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

// -128 times the sum of a group's activations, in all lanes.
template <Shape kShape>
__m256i Start(const Columns& in, int c, int64_t block, int part) {
  const int32_t* at =
      kShape.halves ? in.half_starts + 2 * (c * in.blocks + block) + part : in.starts + c * in.blocks + block;
  return _mm256_set1_epi32(*at);
}

// The exact products of the groups [g, end) of a block, C columns, added to dot.
template <int g, int end, class Source, int C>
inline void AddGroups(const Source& source, const int8_t* q, int64_t cols, int64_t block, __m256i (*sums)[2],
                      __m256i (*dot)[2]) {
  constexpr int kSteps = Source::kShape.steps;
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i w[2] = {source.template Codes<g>(block, 0), source.template Codes<g>(block, 1)};
  for (int c = 0; c < C; ++c) {
    int32_t four;
    std::memcpy(&four, q + c * cols + 4 * g, sizeof(four));
    const __m256i x = _mm256_set1_epi32(four);
    for (int half = 0; half < 2; ++half) {
      if constexpr (kSteps == 0) {
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[half]), _mm256_sign_epi8(x, w[half]));
        dot[c][half] = _mm256_add_epi32(dot[c][half], _mm256_madd_epi16(pairs, ones));
      } else {
        const __m256i pairs = _mm256_maddubs_epi16(w[half], x);
        sums[c][half] = g % kSteps == 0 ? pairs : _mm256_add_epi16(sums[c][half], pairs);
        if (g % kSteps == kSteps - 1) {
          dot[c][half] = _mm256_add_epi32(dot[c][half], _mm256_madd_epi16(sums[c][half], ones));
        }
      }
    }
  }
  if constexpr (g + 1 < end) AddGroups<g + 1, end, Source, C>(source, q, cols, block, sums, dot);
}

// Part `part` of a block into the accumulators.
template <int part, class Source, int C>
inline void AddPart(const Source& source, const Columns& in, int64_t block, __m256 (*acc)[2]) {
  constexpr Shape kShape = Source::kShape;
  constexpr int kSize = kShape.halves ? kGroups / 2 : kGroups;
  constexpr int kBiasShift = kShape.bias == 32   ? 2
                             : kShape.bias == 16 ? 3
                             : kShape.bias == 8  ? 4
                             : kShape.bias == 4  ? 5
                                                 : 7;
  static_assert(kShape.bias == 0 || kShape.bias << kBiasShift == 128);
  __m256i sums[C][2], dot[C][2];
  for (int c = 0; c < C; ++c) {
    const __m256i start =
        kShape.bias == 0 ? _mm256_setzero_si256() : _mm256_srai_epi32(Start<kShape>(in, c, block, part), kBiasShift);
    dot[c][0] = dot[c][1] = start;
  }
  const int64_t cols = in.blocks * kCodeBlock;
  AddGroups<part * kSize, (part + 1) * kSize, Source, C>(source, in.q + block * kCodeBlock, cols, block, sums, dot);
  const __m256 scale[2] = {source.Scale(block, part, 0), source.Scale(block, part, 1)};
  for (int c = 0; c < C; ++c) {
    const __m256 x_scale = _mm256_set1_ps(in.scales[c * in.blocks + block]);
    for (int half = 0; half < 2; ++half) {
      acc[c][half] =
          _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[c][half]), _mm256_mul_ps(scale[half], x_scale), acc[c][half]);
    }
  }
}

// The minima of a block into the accumulators.
template <class Source, int C>
inline void AddMinima(const Source& source, const Columns& in, int64_t block, __m256 (*acc)[2]) {
  constexpr Shape kShape = Source::kShape;
  for (int part = 0; part < (kShape.halves ? 2 : 1); ++part) {
    const __m256 minimum[2] = {source.Minimum(block, part, 0), source.Minimum(block, part, 1)};
    for (int c = 0; c < C; ++c) {
      const __m256i sum =
          _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_srai_epi32(Start<kShape>(in, c, block, part), 7));
      const __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(in.scales[c * in.blocks + block]));
      for (int half = 0; half < 2; ++half) acc[c][half] = _mm256_fmadd_ps(minimum[half], x, acc[c][half]);
    }
  }
}

// One panel times C columns, `count` blocks; continues the sums in out.
template <class Source, int C>
void Tile(const Source& source, const Columns& in, int64_t count, float* out, int64_t out_stride) {
  __m256 acc[C][2];
  for (int c = 0; c < C; ++c) {
    for (int half = 0; half < 2; ++half) acc[c][half] = _mm256_loadu_ps(out + c * out_stride + 8 * half);
  }
  for (int64_t b = 0; b < count; ++b) {
    source.Prefetch(b);
    if constexpr (Source::kShape.minima) AddMinima<Source, C>(source, in, b, acc);
    AddPart<0, Source, C>(source, in, b, acc);
    if constexpr (Source::kShape.halves) AddPart<1, Source, C>(source, in, b, acc);
  }
  for (int c = 0; c < C; ++c) {
    for (int half = 0; half < 2; ++half) _mm256_storeu_ps(out + c * out_stride + 8 * half, acc[c][half]);
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

// The codes of group g of one block, both halves.
template <int g, class Source>
inline void DecodeGroups(const Source& source, int64_t block, uint8_t (*out)[kVectorBytes]) {
  for (int half = 0; half < 2; ++half) {
    const __m256i codes = source.template Codes<g>(block, half);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out[g] + 32 * half), codes);
  }
  if constexpr (g + 1 < kGroups) DecodeGroups<g + 1>(source, block, out);
}

// One vector of TQ1_0, which has `count` digits of base 3 that go to the groups out[0], out[stride], ...
inline void DecodeTrits(const uint8_t* vector, int count, uint8_t (*out)[kVectorBytes], int stride) {
  _mm_prefetch(reinterpret_cast<const char*>(vector + kPrefetchBytes), _MM_HINT_T0);
  for (int half = 0; half < 2; ++half) {
    __m256i v = Load256(vector + 32 * half);
    for (int digit = 0; digit < count; ++digit) {
      // 3 v / 256 is 0 below 86, 1 below 171, else 2; the next digit is in 3 v mod 256.
      const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(86)), v);
      const __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(static_cast<char>(171))), v);
      const __m256i code = _mm256_sub_epi8(_mm256_setzero_si256(), _mm256_add_epi8(one, two));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out[digit * stride] + 32 * half), code);
      v = _mm256_add_epi8(v, _mm256_add_epi8(v, v));
    }
  }
}

// 256 columns of TQ1_0: five blocks of one digit each, then the digits of 16 columns and of four.
inline void DecodeTritBlocks(const uint8_t* vectors, uint8_t (*out)[kVectorBytes]) {
  for (int v = 0; v < 8; ++v) DecodeTrits(vectors + v * kVectorBytes, 5, out + v, 8);
  for (int v = 8; v < 12; ++v) DecodeTrits(vectors + v * kVectorBytes, 5, out + 5 * 8 + (v - 8), 4);
  DecodeTrits(vectors + 12 * kVectorBytes, 4, out + 7 * 8 + 4, 1);
}

template <TensorType kType>
void Decode(const PanelSource<kType>& source, int64_t first, int64_t count, Piece* piece) {
  constexpr IntegerLayout kLayout = LayoutOf(kType);
  for (int64_t b = 0; b < count; ++b) {
    const int64_t block = first + b;
    source.Prefetch(block);
    if constexpr (kLayout.codes != CodeFormat::kTrits) DecodeGroups<0>(source, block, piece->codes[b]);
    for (int part = 0; part < (kLayout.halves ? 2 : 1); ++part) {
      for (int half = 0; half < 2; ++half) {
        _mm256_store_ps(piece->scales[b][part] + 8 * half, source.Scale(block, part, half));
        if constexpr (kLayout.minima) {
          _mm256_store_ps(piece->minima[b][part] + 8 * half, source.Minimum(block, part, half));
        }
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

// The same columns, `blocks` further on.
Columns From(const Activations& in, int64_t column, int64_t block, int64_t blocks) {
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
  Piece pieces[kPiecePanels];
  for (int64_t first = 0; first < weights.panels; first += kPiecePanels) {
    const int64_t panels = weights.panels - first < kPiecePanels ? weights.panels - first : kPiecePanels;
    for (int64_t b = 0; b < blocks; b += kPieceBlocks) {
      const int64_t count = blocks - b < kPieceBlocks ? blocks - b : kPieceBlocks;
      for (int64_t p = 0; p < panels; ++p) {
        const PanelSource<kType> source(weights, first + p, sections);
        Decode<kType>(source, b, count, &pieces[p]);
      }
      ForEachTile(columns, [&](int column, int width) {
        for (int64_t p = 0; p < panels; ++p) {
          const PieceSource<PanelSource<kType>::kShape> source{&pieces[p]};
          float* tile = out + column * out_stride + (first + p) * kPanelRows;
          RunTile(width, source, From(in, column, b, blocks), count, tile, out_stride);
        }
      });
    }
  }
}

// Up to this number of columns the panel is read as it is packed, by each tile anew. Bytes need no decoding; codes of
// few bits need the most.
constexpr int PackedColumns(const IntegerLayout& layout) {
  return layout.codes == CodeFormat::kU8 ? INT_MAX : layout.vectors >= 4 ? 2 * kTileColumns : kTileColumns;
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

}  // namespace

void IntegerMatmulAvx2(const PanelSpan& weights, const Activations& in, int columns, float* out, int64_t out_stride) {
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

}  // namespace stagecoach
