#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX512_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX512_INTEGER_H_

// The product of the integer types with AVX-512, as a template over the dot instruction; included by the units that
// choose one, and by nothing else. Everything is in an unnamed namespace: each unit is compiled with its own
// instruction set and must keep its own copy.
//
// A tile is P panels times C columns. It walks the blocks of 32 columns once; codes become bytes in registers, on ports
// that the dot instruction leaves free, so that a tile of many columns needs no pass that unpacks the panel first.

#include "stage_worker/kernels/avx512.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

#define STAGECOACH_UNROLL _Pragma("GCC unroll 16")

namespace stagecoach {
namespace {

constexpr int kGroups = kCodeBlock / 4;  // dot instructions a block
constexpr int kMaxPanels = 4;

constexpr int HalvesOf(const IntegerLayout& layout) { return layout.halves ? 2 : 1; }

// 32-bit words that the inputs of one block and column take once packed (see PackInputs).
constexpr int InputWords(const IntegerLayout& layout) {
  return kGroups + (layout.bias != 0 ? HalvesOf(layout) : 0) + 1 + (layout.minima ? HalvesOf(layout) : 0);
}

constexpr int MaxCode(const IntegerLayout& layout) {
  if (layout.tabled) {
    int largest = 0;
    for (int i = 0; i < 16; ++i) largest = layout.table[i] > largest ? layout.table[i] : largest;
    return largest;
  }
  constexpr int kLargest[] = {255, 15, 31, 63, 3, 7, 2, 2};  // by CodeFormat
  return kLargest[static_cast<int>(layout.codes)];
}

struct IntegerTile {
  const uint8_t* panels[kMaxPanels];
  size_t sub_scales, codes;  // where these sections start
  int64_t first_block, blocks;
  const int32_t* inputs;     // packed
  __m512* acc;               // [C][P], read and written
};
using IntegerTileFn = void (*)(const IntegerTile& tile);

inline __m512i ShiftLeft16(__m512i v, int by) {
  return by == 0 ? v : by > 0 ? _mm512_slli_epi16(v, by) : _mm512_srli_epi16(v, -by);
}

inline __m512i Masked(__m512i v, int mask) { return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask))); }

// (bits & mask) | low
inline __m512i WithBits(__m512i bits, int mask, __m512i low) {
  return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi8(static_cast<char>(mask)), low, 0xea);
}

// Group g of a block as bytes, before the bias.
template <IntegerLayout kLayout>
inline __m512i Codes(const uint8_t* block, int g) {
  const auto vector = [block](int v) { return _mm512_loadu_si512(block + v * kVectorBytes); };
  if constexpr (kLayout.codes == CodeFormat::kU8 || kLayout.codes == CodeFormat::kTrits) {
    return vector(g);  // trits are unpacked before
  } else if constexpr (kLayout.codes == CodeFormat::kBit) {
    return Masked(ShiftLeft16(vector(0), 1 - g), 2);
  } else if constexpr (kLayout.codes == CodeFormat::k2Bits) {
    return Masked(ShiftLeft16(vector(g / 4), -2 * (g % 4)), 3);
  } else if constexpr (kLayout.codes == CodeFormat::k2BitsBit) {
    return WithBits(ShiftLeft16(vector(2), 2 - g), 4, Masked(ShiftLeft16(vector(g / 4), -2 * (g % 4)), 3));
  } else {
    const __m512i nibbles = Masked(ShiftLeft16(vector(g % 4), g < 4 ? 0 : -4), 15);
    if constexpr (kLayout.codes == CodeFormat::kNibbleBit) return WithBits(ShiftLeft16(vector(4), 4 - g), 16, nibbles);
    if constexpr (kLayout.codes == CodeFormat::kNibble2Bits) {
      return WithBits(ShiftLeft16(vector(4 + g / 4), 4 - 2 * (g % 4)), 48, nibbles);
    }
    if constexpr (kLayout.tabled) {
      const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kLayout.table));
      return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);
    }
    return nibbles;
  }
}

// 256 columns of TQ1_0 as 64 groups of bytes 0 .. 2.
inline void UnpackTrits(const uint8_t* in, uint8_t* out) {
  for (int v = 0; v < kTritsVectors; ++v) {
    __m512i digits = _mm512_loadu_si512(in + v * kVectorBytes);
    const int first = v < 8 ? v : v < 12 ? 32 + v : 60, step = v < 8 ? 8 : v < 12 ? 4 : 1;  // in groups
    const int count = v < 12 ? 5 : 4;
    for (int d = 0; d < count; ++d) {
      // digits * 3 >> 8: the average of x and x / 2, rounded down each time, is 3 x / 4.
      const __m512i less = _mm512_subs_epu8(digits, _mm512_set1_epi8(1));
      const __m512i scaled = _mm512_avg_epu8(less, _mm512_avg_epu8(less, _mm512_setzero_si512()));
      _mm512_store_si512(out + (first + d * step) * kVectorBytes, Masked(_mm512_srli_epi16(scaled, 6), 3));
      digits = _mm512_add_epi8(digits, _mm512_add_epi8(digits, digits));
    }
  }
}

inline __m512 HalvesToFloats(const uint8_t* p) { return _mm512_cvtph_ps(Load256(p)); }

inline __m128i Load128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

inline __m512 BytesToFloats(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }

struct BlockScales {
  __m512 scale[2];
  __m512 minus_min[2];  // minus the minimum of the definition, for the types with sub-scales; else the minimum
};

// The scales of one block of 32 columns; only what the layout has is written.
template <IntegerLayout kLayout>
inline BlockScales LoadScales(const uint8_t* scales, const uint8_t* sub_scales, int64_t block) {
  using S = ScaleFormat;
  const uint8_t* d_at = scales + block * kCodeBlock / kLayout.scale_columns * kLayout.scale_bytes;
  const uint8_t* sub = sub_scales + block * kLayout.sub_scale_bytes;
  BlockScales out;
  if constexpr (kLayout.scales == S::kE8m0) {
    // 2^(e - 128): the exponent field e - 1, or a subnormal.
    const __m512i e = _mm512_cvtepu8_epi32(Load128(d_at));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    const __m512i bits = _mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e);
    out.scale[0] = _mm512_castsi512_ps(bits);
    return out;
  }
  const __m512 d = HalvesToFloats(d_at);
  if constexpr (kLayout.scales == S::kF16 || kLayout.scales == S::kF16Min) {
    out.scale[0] = d;
    if constexpr (kLayout.minima) out.minus_min[0] = HalvesToFloats(d_at + 32);
  } else if constexpr (kLayout.scales == S::kSub32Min) {
    out.scale[0] = _mm512_mul_ps(d, BytesToFloats(Load128(sub)));
    out.minus_min[0] = _mm512_mul_ps(HalvesToFloats(d_at + 32), BytesToFloats(Load128(sub + 16)));
  } else if constexpr (kLayout.scales == S::kSub16Min) {
    const __m512 m = HalvesToFloats(d_at + 32);
    for (int h = 0; h < 2; ++h) {
      const __m512i both = _mm512_cvtepu8_epi32(Load128(sub + 16 * h));
      const __m512i low = _mm512_and_si512(both, _mm512_set1_epi32(15));
      out.scale[h] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(low));
      out.minus_min[h] = _mm512_mul_ps(m, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
    }
  } else {
    for (int h = 0; h < HalvesOf(kLayout); ++h) {
      out.scale[h] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load128(sub + 16 * h))));
    }
  }
  return out;
}

inline __m512 BroadcastFloat(const int32_t* p) { return _mm512_castsi512_ps(_mm512_set1_epi32(*p)); }

// One block of 32 columns into the accumulators acc[C * P]. `codes` is where each panel's block lies.
template <typename Dot, IntegerLayout kLayout, int P, int C>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* const* codes, const BlockScales* scales, const int32_t* x,
                                            __m512* acc) {
  constexpr int kHalves = HalvesOf(kLayout), kHalfGroups = kGroups / kHalves;
  constexpr bool kStarts = kLayout.bias != 0;
  const int32_t* starts = x + kGroups * C;
  const int32_t* x_scales = starts + (kStarts ? kHalves * C : 0);
  const int32_t* x_sums = x_scales + C;
  if constexpr (kLayout.minima) {
    STAGECOACH_UNROLL for (int h = 0; h < kHalves; ++h) {
      STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
        const __m512 x_sum = BroadcastFloat(x_sums + h * C + c);
        STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
          __m512& sum = acc[c * P + p];
          sum = kLayout.sub_scale_bytes == 0 ? _mm512_fmadd_ps(scales[p].minus_min[h], x_sum, sum)
                                             : _mm512_fnmadd_ps(scales[p].minus_min[h], x_sum, sum);
        }
      }
    }
  }
  STAGECOACH_UNROLL for (int h = 0; h < kHalves; ++h) {
    __m512i dots[C * P];
    STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) {
      dots[i] = kStarts ? _mm512_set1_epi32(starts[h * C + i / P]) : _mm512_setzero_si512();
    }
    STAGECOACH_UNROLL for (int g = h * kHalfGroups; g < (h + 1) * kHalfGroups; ++g) {
      __m512i w[P];
      STAGECOACH_UNROLL for (int p = 0; p < P; ++p) w[p] = Codes<kLayout>(codes[p], g);
      STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
        const __m512i four = _mm512_set1_epi32(x[g * C + c]);
        STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
          dots[c * P + p] = Dot::template Add<MaxCode(kLayout)>(dots[c * P + p], w[p], four);
        }
      }
    }
    STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
      const __m512 x_scale = BroadcastFloat(x_scales + c);
      STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 scale = _mm512_mul_ps(scales[p].scale[h], x_scale);
        acc[c * P + p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c * P + p]), scale, acc[c * P + p]);
      }
    }
  }
}

// Accumulators beyond this number stay in memory: the registers are for the dot products.
constexpr int kRegisterAccumulators = 12;

template <typename Dot, IntegerLayout kLayout, int P, int C>
void MultiplyTile(const IntegerTile& tile) {
  constexpr bool kTrits = kLayout.codes == CodeFormat::kTrits;
  constexpr bool kRegisters = P * C <= kRegisterAccumulators;
  constexpr int kStep = kTrits ? kTritsColumns / kCodeBlock : 1;
  constexpr int kStepBytes = (kTrits ? kTritsVectors : kLayout.vectors) * kVectorBytes;
  const int32_t* x = tile.inputs;
  alignas(64) uint8_t unpacked[kTrits ? P : 1][kTrits ? kTritsColumns * kPanelRows : 1];
  __m512 registers[kRegisters ? C * P : 1];
  if constexpr (kRegisters) {
    STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) registers[i] = tile.acc[i];
  }
  __m512* const acc = kRegisters ? registers : tile.acc;
  const uint8_t* panels[P];
  STAGECOACH_UNROLL for (int p = 0; p < P; ++p) panels[p] = tile.panels[p];
  const int64_t sub_scales = tile.sub_scales, last_block = tile.first_block + tile.blocks;
  int64_t codes_at = tile.codes + tile.first_block / kStep * kStepBytes;
  for (int64_t block = tile.first_block; block < last_block; block += kStep, codes_at += kStepBytes) {
    const uint8_t* codes[P];
    BlockScales scales[P];
    STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
      codes[p] = panels[p] + codes_at;
      scales[p] = LoadScales<kLayout>(panels[p], panels[p] + sub_scales, block);
    }
    if constexpr (kTrits) {
      for (int p = 0; p < P; ++p) {
        UnpackTrits(codes[p], unpacked[p]);
        codes[p] = unpacked[p];
      }
      for (int sub = 0; sub < kStep; ++sub) {
        AddBlock<Dot, kLayout, P, C>(codes, scales, x, acc);
        x += InputWords(kLayout) * C;
        STAGECOACH_UNROLL for (int p = 0; p < P; ++p) codes[p] += kGroups * kVectorBytes;
      }
    } else {
      AddBlock<Dot, kLayout, P, C>(codes, scales, x, acc);
      x += InputWords(kLayout) * C;
    }
  }
  if constexpr (kRegisters) {
    STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) tile.acc[i] = registers[i];
  }
}

// Packs what the tiles read of `columns` input rows from `column` on, for the blocks [first_block, first_block +
// blocks), so that a tile reads one stream. Per block, 32-bit words of C = columns each: 8 groups of four q; for types
// with a bias the starts of the integer sums (of each half); x scales; for types with minima float(sum of q) * x_scale
// (of each half).
inline void PackInputs(const IntegerLayout& layout, const Activations& in, int64_t cols, int64_t column, int columns,
                       int64_t first_block, int64_t blocks, int32_t* out) {
  const int halves = HalvesOf(layout);
  const int64_t all_blocks = cols / kCodeBlock, block_words = static_cast<int64_t>(InputWords(layout)) * columns;
  int shift = 7;  // starts are for a bias of 2^7
  for (int bias = layout.bias; bias > 1; bias /= 2) --shift;
  for (int c = 0; c < columns; ++c) {
    const int8_t* q = in.q + (column + c) * cols + first_block * kCodeBlock;
    const float* scales = in.scales + (column + c) * all_blocks + first_block;
    const int32_t* sums = (layout.halves ? in.half_starts : in.starts) + ((column + c) * all_blocks + first_block) * halves;
    int32_t* words = out + c;
    for (int64_t b = 0; b < blocks; ++b, words += block_words) {
      int32_t* to = words;
      for (int g = 0; g < kGroups; ++g, to += columns) std::memcpy(to, q + b * kCodeBlock + 4 * g, 4);
      if (layout.bias != 0) {
        for (int h = 0; h < halves; ++h, to += columns) *to = sums[b * halves + h] >> shift;
      }
      std::memcpy(to, scales + b, 4);
      if (!layout.minima) continue;
      for (int h = 0; h < halves; ++h) {
        const float sum = static_cast<float>(-sums[b * halves + h] >> 7) * scales[b];
        std::memcpy(to += columns, &sum, 4);
      }
    }
  }
}

constexpr int kMaxColumns = 8;

// Panels of a tile by its columns.
constexpr int PanelsFor(int columns) { return columns == 1 ? 4 : 2; }

struct IntegerTiles {
  IntegerLayout layout;
  IntegerTileFn tile[kMaxColumns + 1];
};

template <typename Dot, IntegerLayout kLayout>
constexpr IntegerTiles TilesOf() {
  return {kLayout,
          {nullptr, MultiplyTile<Dot, kLayout, PanelsFor(1), 1>, MultiplyTile<Dot, kLayout, PanelsFor(2), 2>,
           MultiplyTile<Dot, kLayout, PanelsFor(3), 3>, MultiplyTile<Dot, kLayout, PanelsFor(4), 4>,
           MultiplyTile<Dot, kLayout, PanelsFor(5), 5>, MultiplyTile<Dot, kLayout, PanelsFor(6), 6>,
           MultiplyTile<Dot, kLayout, PanelsFor(7), 7>, MultiplyTile<Dot, kLayout, PanelsFor(8), 8>}};
}

template <typename Dot, TensorType kType>
constexpr IntegerTiles kTiles = TilesOf<Dot, LayoutOf(kType)>();

// Input columns packed at a time: half of the smallest second-level cache in use.
constexpr int64_t kInputWords = 64 << 10;
alignas(64) thread_local int32_t packed_inputs[kInputWords];

// Columns of K that a tile takes at once, where there are several tiles of columns: its panels stay in the first-level
// cache meanwhile.
constexpr int64_t kChunkBlocks = 16;

// Splits `columns` evenly: nine are five and four, not eight and one.
struct ColumnTiles {
  int columns, tiles;
  int First(int tile) const { return static_cast<int>(static_cast<int64_t>(columns) * tile / tiles); }
  int Count(int tile) const { return First(tile + 1) - First(tile); }
};

// One pass of a chunk of K over all panels and the packed columns.
inline void MultiplyChunk(const IntegerTiles& tiles, const PanelSpan& weights, const PanelSections& sections,
                          int64_t first_block, int64_t blocks, const ColumnTiles& split, float* out,
                          int64_t out_stride) {
  const int words = InputWords(tiles.layout);
  const int wide = PanelsFor(split.Count(split.tiles - 1));
  for (int64_t panel = 0; panel < weights.panels; panel += wide) {
    for (int t = 0; t < split.tiles; ++t) {
      const int count = split.Count(t);
      __m512 acc[kMaxColumns * kMaxPanels];
      IntegerTile tile;
      tile.sub_scales = sections.sub_scales;
      tile.codes = sections.codes;
      tile.first_block = first_block;
      tile.blocks = blocks;
      tile.inputs = packed_inputs + split.First(t) * words * blocks;
      tile.acc = acc;
      for (int p = 0; p < wide; ++p) {
        // Beyond the end the last panel again, for nothing.
        const int64_t at = panel + p < weights.panels ? panel + p : weights.panels - 1;
        tile.panels[p] = weights.data + at * sections.bytes;
      }
      const int present = weights.panels - panel < wide ? static_cast<int>(weights.panels - panel) : wide;
      for (int c = 0; c < count; ++c) {
        const float* from = out + (split.First(t) + c) * out_stride + panel * kPanelRows;
        for (int p = 0; p < wide; ++p) {
          acc[c * wide + p] = first_block > 0 && p < present ? _mm512_loadu_ps(from + p * kPanelRows) : _mm512_setzero_ps();
        }
      }
      tiles.tile[count](tile);
      for (int c = 0; c < count; ++c) {
        float* to = out + (split.First(t) + c) * out_stride + panel * kPanelRows;
        for (int p = 0; p < present; ++p) _mm512_storeu_ps(to + p * kPanelRows, acc[c * wide + p]);
      }
    }
  }
}

inline void MultiplyByTiles(const IntegerTiles& tiles, const PanelSpan& weights, const Activations& in, int columns,
                            float* out, int64_t out_stride) {
  constexpr int64_t kStepBlocks = kTritsColumns / kCodeBlock;  // chunks are whole numbers of the longest blocks
  const PanelSections sections = SectionsOf(weights.type, weights.cols);
  const int64_t blocks = weights.cols / kCodeBlock;
  const int64_t words = InputWords(tiles.layout);
  const int64_t fit = kInputWords / (words * kStepBlocks) * kStepBlocks;  // blocks of one column
  const bool one_tile = columns <= kMaxColumns;
  const int64_t chunk = one_tile ? fit / columns / kStepBlocks * kStepBlocks : kChunkBlocks;
  const int pass_columns = one_tile ? columns : static_cast<int>(fit / chunk / kMaxColumns) * kMaxColumns;
  for (int first = 0; first < columns; first += pass_columns) {
    const int count = columns - first < pass_columns ? columns - first : pass_columns;
    const ColumnTiles split = {count, (count + kMaxColumns - 1) / kMaxColumns};
    for (int64_t block = 0; block < blocks; block += chunk) {
      const int64_t present = blocks - block < chunk ? blocks - block : chunk;
      for (int t = 0; t < split.tiles; ++t) {
        PackInputs(tiles.layout, in, weights.cols, first + split.First(t), split.Count(t), block, present,
                   packed_inputs + split.First(t) * words * present);
      }
      MultiplyChunk(tiles, weights, sections, block, present, split, out + first * out_stride, out_stride);
    }
  }
}

template <typename Dot>
inline void IntegerMatmul(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  const auto run = [&](const IntegerTiles& tiles) { MultiplyByTiles(tiles, weights, in, columns, out, out_stride); };
  using T = TensorType;
  switch (weights.type) {
    case T::kQ8_0: return run(kTiles<Dot, T::kQ8_0>);
    case T::kQ4_0: return run(kTiles<Dot, T::kQ4_0>);
    case T::kQ4_1: return run(kTiles<Dot, T::kQ4_1>);
    case T::kQ5_0: return run(kTiles<Dot, T::kQ5_0>);
    case T::kQ5_1: return run(kTiles<Dot, T::kQ5_1>);
    case T::kIQ4_NL: return run(kTiles<Dot, T::kIQ4_NL>);
    case T::kMXFP4: return run(kTiles<Dot, T::kMXFP4>);
    case T::kQ1_0: return run(kTiles<Dot, T::kQ1_0>);
    case T::kQ2_0: return run(kTiles<Dot, T::kQ2_0>);
    case T::kPQ2_0: return run(kTiles<Dot, T::kPQ2_0>);
    case T::kQ2_0_Oxi: return run(kTiles<Dot, T::kQ2_0_Oxi>);
    case T::kTQ1_0: return run(kTiles<Dot, T::kTQ1_0>);
    case T::kTQ2_0: return run(kTiles<Dot, T::kTQ2_0>);
    case T::kQ2_K: return run(kTiles<Dot, T::kQ2_K>);
    case T::kQ3_K: return run(kTiles<Dot, T::kQ3_K>);
    case T::kQ4_K: return run(kTiles<Dot, T::kQ4_K>);
    case T::kQ5_K: return run(kTiles<Dot, T::kQ5_K>);
    case T::kQ6_K: return run(kTiles<Dot, T::kQ6_K>);
    case T::kIQ4_XS: return run(kTiles<Dot, T::kIQ4_XS>);
    case T::kF32:
    case T::kF16:
    case T::kBF16: break;
  }
  __builtin_unreachable();  // float types have a unit of their own
}

}  // namespace
}  // namespace stagecoach

#undef STAGECOACH_UNROLL

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX512_INTEGER_H_
