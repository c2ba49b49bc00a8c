#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_INTEGER_H_

// The product of the integer types with AVX-512, as a template over the dot instruction; included by the units that
// choose one, and by nothing else. Everything is in an unnamed namespace: each unit is compiled with its own
// instruction set and must keep its own copy.
//
// A tile is P panels times C columns: it walks the blocks of 32 columns of K once and keeps P x C sums in registers.
// Codes become bytes in registers, on ports that the dot instruction leaves free, so no pass unpacks the panels first.
// Inputs are packed first, so a tile reads one stream; the next panels are prefetched meanwhile. Both matter more than
// the shape of the tile.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/avx512/avx512_codes.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

#define STAGECOACH_UNROLL _Pragma("GCC unroll 16")

namespace stagecoach {
namespace {

// 32-bit words that the inputs of one block and column take once packed (see PackInputs).
constexpr int InputWords(const IntegerLayout& layout) {
  return kGroups + (layout.bias != 0 ? HalvesOf(layout) : 0) + 1 + (layout.minima ? HalvesOf(layout) : 0);
}

// One block of 32 columns into the accumulators acc[C * P].
template <typename Dot, IntegerLayout kLayout, int P, int C>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* const* codes, const ScalesAt* scales, const int32_t* x,
                                            __m512* acc) {
  constexpr int kHalves = HalvesOf(kLayout), kHalfGroups = kGroups / kHalves;
  constexpr bool kStarts = kLayout.bias != 0;
  const int32_t* starts = x + kGroups * C;
  const int32_t* x_scales = starts + (kStarts ? kHalves * C : 0);
  const int32_t* x_sums = x_scales + C;
  if constexpr (kLayout.minima) {
    STAGECOACH_UNROLL for (int h = 0; h < kHalves; ++h) {
      STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
        const __m512 minimum = LoadMinimum<kLayout>(scales[p], h);
        STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
          const __m512 x_sum = BroadcastFloat(x_sums + h * C + c);
          __m512& sum = acc[c * P + p];
          sum = kLayout.sub_scale_bytes == 0 ? _mm512_fmadd_ps(minimum, x_sum, sum)
                                             : _mm512_fnmadd_ps(minimum, x_sum, sum);
        }
      }
    }
  }
  STAGECOACH_UNROLL for (int h = 0; h < kHalves; ++h) {
    // The second half loads its inputs itself: the registers are for the sums.
    if constexpr (kHalves == 2) asm volatile("" : : : "memory");
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
    STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
      const __m512 w_scale = LoadScale<kLayout>(scales[p], h);
      STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
        const __m512 scale = _mm512_mul_ps(w_scale, BroadcastFloat(x_scales + c));
        acc[c * P + p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c * P + p]), scale, acc[c * P + p]);
      }
    }
  }
}

// What one call multiplies: panels times tiles of C columns, in the blocks [first_block, first_block + blocks) of K.
struct IntegerRun {
  const uint8_t* panels;
  int64_t panel_bytes, panel_count;
  int64_t sub_scales, codes;  // where these sections of a panel start
  int64_t first_block, blocks;
  const int32_t* inputs;  // packed, of the first tile
  int64_t input_stride;   // from tile to tile
  int tiles;
  float* out;  // of the first panel and column; added to unless first_block is 0
  int64_t out_stride;
  // Prefetch: `prefetch_lines` lines a block, then the address moves by prefetch_step. Streams prefetch for themselves.
  const uint8_t* prefetch;
  int64_t prefetch_step;
  int prefetch_lines;
  const uint8_t* end;   // of all panels
  const uint8_t* next;  // as in PanelSpan
};
using IntegerRunFn = void (*)(const IntegerRun& run);

constexpr int64_t kPrefetchBytes = 8192;  // ahead of a single stream: measured best of 2 to 16 KiB

// Address to prefetch when the kernel is `ahead` bytes before it. Past the last panel: the panels that are read next;
// without any, a line already in cache, because a useless fetch costs as much as a useful one.
inline const uint8_t* Ahead(const uint8_t* at, const IntegerRun& run, int64_t ahead) {
  if (at < run.end) [[likely]]
    return at;
  return run.next != nullptr ? run.next + (at - run.end) : at - ahead;
}

// kStream: one tile of few columns, bound by memory.
template <typename Dot, IntegerLayout kLayout, int P, int C, bool kStream>
void MultiplyRun(const IntegerRun& run) {
  constexpr bool kTrits = kLayout.codes == CodeFormat::kTrits;
  constexpr int kStep = kTrits ? kTritsColumns / kCodeBlock : 1;  // blocks
  constexpr int kStepCodes = (kTrits ? kTritsVectors : kLayout.vectors) * kVectorBytes;
  constexpr int kStepBytes =
      kStepCodes + kStep * (kLayout.sub_scale_bytes + kLayout.scale_bytes * kCodeBlock / kLayout.scale_columns);
  alignas(64) uint8_t unpacked[kTrits ? P : 1][kTrits ? kTritsColumns * kPanelRows : 1];
  const int64_t last_block = run.first_block + run.blocks, sub_scales = run.sub_scales;
  const int64_t ahead = P == 1 ? kPrefetchBytes : 2 * P * run.panel_bytes;
  const uint8_t* prefetch = run.prefetch;
  for (int64_t first = 0; first < run.panel_count; first += P) {
    const uint8_t* panels[P];
    __mmask16 present[P];
    STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
      // Past the end: the last panel again, unused.
      const bool inside = first + p < run.panel_count;
      panels[p] = run.panels + (inside ? first + p : run.panel_count - 1) * run.panel_bytes;
      present[p] = inside ? 0xffff : 0;
    }
    for (int t = 0; t < run.tiles; ++t) {
      const int32_t* x = run.inputs + t * run.input_stride;
      float* out = run.out + t * C * run.out_stride + first * kPanelRows;
      __m512 acc[C * P];
      STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) acc[i] = _mm512_setzero_ps();
      if (run.first_block != 0) {  // not by the mask: a masked load waits for memory that it does not use
        STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) {
          acc[i] = _mm512_maskz_loadu_ps(present[i % P], out + i / P * run.out_stride + i % P * kPanelRows);
        }
      }
      const uint8_t* streamed = panels[0] + ahead;
      int64_t codes_at = run.codes + run.first_block / kStep * kStepCodes;
      for (int64_t block = run.first_block; block < last_block; block += kStep, codes_at += kStepCodes) {
        const uint8_t* codes[P];
        ScalesAt scales[P];
        STAGECOACH_UNROLL for (int p = 0; p < P; ++p) {
          codes[p] = panels[p] + codes_at;
          scales[p] = FindScales<kLayout>(panels[p], sub_scales, block);
        }
        if constexpr (kStream) {
          // Evenly over the bytes of the panels, scales and codes alike.
          const uint8_t* const fetched = Ahead(streamed, run, ahead);
          STAGECOACH_UNROLL for (int i = 0; i < P * kStepBytes; i += kVectorBytes) {
            _mm_prefetch(fetched + i, _MM_HINT_T0);
          }
          streamed += P * kStepBytes;
        } else {
          const uint8_t* const fetched = Ahead(prefetch, run, P * run.panel_bytes);
          for (int i = 0; i < run.prefetch_lines * kStep; ++i) _mm_prefetch(fetched + i * kVectorBytes, _MM_HINT_T0);
          prefetch += run.prefetch_step * kStep;
        }
        if constexpr (kTrits) {
          for (int p = 0; p < P; ++p) {
            UnpackTrits(codes[p], unpacked[p]);
            codes[p] = unpacked[p];
          }
          for (int sub = 0; sub < kStep; ++sub, x += InputWords(kLayout) * C) {
            AddBlock<Dot, kLayout, P, C>(codes, scales, x, acc);
            STAGECOACH_UNROLL for (int p = 0; p < P; ++p) codes[p] += kGroups * kVectorBytes;
          }
        } else {
          AddBlock<Dot, kLayout, P, C>(codes, scales, x, acc);
          x += InputWords(kLayout) * C;
        }
      }
      STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) {
        _mm512_mask_storeu_ps(out + i / P * run.out_stride + i % P * kPanelRows, present[i % P], acc[i]);
      }
    }
  }
}

// Packs the groups of four columns: the bytes of each block in the order [group][column][4].
inline void PackFourColumns(const int8_t* q, int64_t q_stride, int64_t blocks, int64_t block_words, int32_t* out) {
  for (int64_t b = 0; b < blocks; ++b, q += kCodeBlock, out += block_words) {
    const __m256i c0 = Load256(q), c1 = Load256(q + q_stride);
    const __m256i c2 = Load256(q + 2 * q_stride), c3 = Load256(q + 3 * q_stride);
    const __m256i low01 = _mm256_unpacklo_epi32(c0, c1), low23 = _mm256_unpacklo_epi32(c2, c3);
    const __m256i high01 = _mm256_unpackhi_epi32(c0, c1), high23 = _mm256_unpackhi_epi32(c2, c3);
    const __m256i groups[4] = {_mm256_unpacklo_epi64(low01, low23), _mm256_unpackhi_epi64(low01, low23),
                               _mm256_unpacklo_epi64(high01, high23), _mm256_unpackhi_epi64(high01, high23)};
    for (int g = 0; g < 4; ++g) {  // and group g + 4 in the other half
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * g), _mm256_castsi256_si128(groups[g]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 + 4 * g), _mm256_extracti128_si256(groups[g], 1));
    }
  }
}

// Packs what a tile reads of C = `columns` input rows from `column` on, for the blocks [first_block, first_block +
// blocks). Per block, 32-bit words of C columns each: 8 groups of four q; for types with a bias the starts of the
// integer sums (of each half); x scales; for types with minima float(sum of q) * x_scale (of each half).
inline void PackInputs(const IntegerLayout& layout, const Activations& in, int64_t cols, int64_t column, int columns,
                       int64_t first_block, int64_t blocks, int32_t* out) {
  const int halves = HalvesOf(layout);
  const int64_t all_blocks = cols / kCodeBlock, block_words = static_cast<int64_t>(InputWords(layout)) * columns;
  const int8_t* q = in.q + column * cols + first_block * kCodeBlock;
  if (columns == 4) {
    PackFourColumns(q, cols, blocks, block_words, out);
  } else {
    for (int64_t b = 0; b < blocks; ++b) {
      int32_t* to = out + b * block_words;
      for (int g = 0; g < kGroups; ++g) {
        for (int c = 0; c < columns; ++c, ++to) std::memcpy(to, q + c * cols + b * kCodeBlock + 4 * g, 4);
      }
    }
  }
  int shift = 7;  // starts are for a bias of 2^7
  for (int bias = layout.bias; bias > 1; bias /= 2) --shift;
  for (int c = 0; c < columns; ++c) {
    const int64_t at = (column + c) * all_blocks + first_block;
    const float* scales = in.scales + at;
    const int32_t* starts = layout.halves ? in.half_starts + at * 2 : in.starts + at;
    int32_t* words = out + kGroups * columns + c;
    for (int64_t b = 0; b < blocks; ++b, words += block_words, starts += halves) {
      int32_t* to = words;
      for (int h = 0; layout.bias != 0 && h < halves; ++h, to += columns) *to = starts[h] >> shift;
      std::memcpy(to, scales + b, 4);
      for (int h = 0; layout.minima && h < halves; ++h) {
        const float sum = static_cast<float>(-starts[h] >> 7) * scales[b];
        std::memcpy(to += columns, &sum, 4);
      }
    }
  }
}

constexpr int kWideColumns = 4;  // of a tile
constexpr int kWidePanels = 3;   // of a tile: 12 sums hide the latency of the dot instruction
constexpr int kMostStreamColumns = 8;

// Up to this number of columns are bound by memory, which one panel after the other reads fastest; more are bound by
// arithmetic.
constexpr int StreamColumns(const IntegerLayout& layout) {
  return layout.codes == CodeFormat::kU8 ? kMostStreamColumns : layout.vectors > 2 ? 2 : 1;
}

// Single bits are bound by arithmetic from the first column on.
constexpr int StreamPanels(const IntegerLayout& layout) { return layout.codes == CodeFormat::kBit ? 4 : 1; }

struct IntegerTiles {
  IntegerLayout layout;
  IntegerRunFn wide[kWideColumns + 1];  // by columns of a tile
  IntegerRunFn stream[kMostStreamColumns + 1];
};

template <typename Dot, IntegerLayout kLayout, int C>
constexpr IntegerRunFn kWide = MultiplyRun<Dot, kLayout, kWidePanels, C, false>;

template <typename Dot, IntegerLayout kLayout, int C>
constexpr IntegerRunFn StreamOf() {
  if constexpr (C > StreamColumns(kLayout))
    return nullptr;
  else
    return MultiplyRun<Dot, kLayout, StreamPanels(kLayout), C, true>;
}

template <typename Dot, TensorType kType, IntegerLayout kLayout = LayoutOf(kType)>
constexpr IntegerTiles kTiles = {
    kLayout,
    {nullptr, nullptr, kWide<Dot, kLayout, 2>, kWide<Dot, kLayout, 3>, kWide<Dot, kLayout, 4>},
    {nullptr, StreamOf<Dot, kLayout, 1>(), StreamOf<Dot, kLayout, 2>(), StreamOf<Dot, kLayout, 3>(),
     StreamOf<Dot, kLayout, 4>(), StreamOf<Dot, kLayout, 5>(), StreamOf<Dot, kLayout, 6>(), StreamOf<Dot, kLayout, 7>(),
     StreamOf<Dot, kLayout, 8>()}};

// Inputs packed at a time, in words: half of the smallest second-level cache in use.
constexpr int64_t kInputWords = 128 << 10;
alignas(64) thread_local int32_t packed_inputs[kInputWords];

constexpr int64_t kStepBlocks = kTritsColumns / kCodeBlock;  // parts of K are whole numbers of the longest blocks
constexpr int64_t kPassColumns = 16;                         // at least, where K has to be cut for the inputs to fit
constexpr int64_t kChunkBlocks = 128;  // of K, whose panels stay in the second-level cache while columns pass by

// One part of K, whose inputs are packed: `wide` tiles of `tile` columns, then `narrow` tiles of one less.
struct PackedPart {
  bool stream;
  int64_t first_block, blocks;
  int tile, wide, narrow;
};

inline void MultiplyPart(const IntegerTiles& tiles, const PanelSpan& weights, const PackedPart& part, float* out,
                         int64_t out_stride) {
  const PanelSections sections = SectionsOf(weights.type, weights.cols);
  const int words = InputWords(tiles.layout), tile_count = part.wide + part.narrow;
  IntegerRun run;
  run.panel_bytes = static_cast<int64_t>(sections.bytes);
  run.sub_scales = static_cast<int64_t>(sections.sub_scales);
  run.codes = static_cast<int64_t>(sections.codes);
  run.out_stride = out_stride;
  run.end = weights.data + weights.panels * run.panel_bytes;
  run.next = weights.next;
  // All tiles of columns share the fetching of the next panels.
  const int64_t group_bytes = kWidePanels * run.panel_bytes;
  const bool whole = part.blocks * kCodeBlock == weights.cols;
  run.prefetch_step = group_bytes / (part.blocks * tile_count) + 1;
  run.prefetch_lines = whole ? static_cast<int>((run.prefetch_step + kVectorBytes - 1) / kVectorBytes) : 0;
  const int64_t group = tile_count == 1 ? weights.panels : kWidePanels;
  const int64_t chunk = tile_count == 1 ? part.blocks : kChunkBlocks;
  for (int64_t panel = 0; panel < weights.panels; panel += group) {
    run.panels = weights.data + panel * run.panel_bytes;
    run.panel_count = weights.panels - panel < group ? weights.panels - panel : group;
    run.prefetch = run.panels + group_bytes;
    for (int64_t block = 0; block < part.blocks; block += chunk) {
      run.first_block = part.first_block + block;
      run.blocks = part.blocks - block < chunk ? part.blocks - block : chunk;
      int column = 0;
      for (int narrower = 0; narrower < 2; ++narrower) {
        const int tile = part.tile - narrower;
        run.tiles = narrower ? part.narrow : part.wide;
        if (run.tiles == 0) continue;
        run.inputs = packed_inputs + (column * part.blocks + block * tile) * words;
        run.input_stride = tile * part.blocks * words;
        run.out = out + column * out_stride + panel * kPanelRows;
        (part.stream ? tiles.stream : tiles.wide)[tile](run);
        run.prefetch += run.prefetch_step * run.blocks * run.tiles;
        column += tile * run.tiles;
      }
    }
  }
}

inline void MultiplyByTiles(const IntegerTiles& tiles, const PanelSpan& weights, const Activations& in, int columns,
                            float* out, int64_t out_stride) {
  const int64_t blocks = weights.cols / kCodeBlock, words = InputWords(tiles.layout);
  const int64_t least = columns < kPassColumns ? columns : kPassColumns;
  const int64_t fit = kInputWords / (words * least * kStepBlocks) * kStepBlocks;
  const int64_t part_blocks = blocks < fit ? blocks : fit;
  const int64_t fit_columns = kInputWords / (words * part_blocks);
  const int pass = fit_columns < columns ? static_cast<int>(fit_columns / kWideColumns) * kWideColumns : columns;
  for (int first = 0; first < columns; first += pass) {
    const int count = columns - first < pass ? columns - first : pass;
    // Even tiles: nine columns are three, three and three, not four, four and one.
    PackedPart part;
    part.stream = count <= StreamColumns(tiles.layout);
    const int tile_count = part.stream ? 1 : (count + kWideColumns - 1) / kWideColumns;
    part.tile = (count + tile_count - 1) / tile_count;
    part.narrow = part.tile * tile_count - count;
    part.wide = tile_count - part.narrow;
    for (part.first_block = 0; part.first_block < blocks; part.first_block += part_blocks) {
      part.blocks = blocks - part.first_block < part_blocks ? blocks - part.first_block : part_blocks;
      for (int t = 0, c = 0; t < tile_count; ++t) {
        const int tile = t < part.wide ? part.tile : part.tile - 1;
        PackInputs(tiles.layout, in, weights.cols, first + c, tile, part.first_block, part.blocks,
                   packed_inputs + c * part.blocks * words);
        c += tile;
      }
      MultiplyPart(tiles, weights, part, out + first * out_stride, out_stride);
    }
  }
}

template <typename Dot>
inline void IntegerMatmul(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  ForIntegerType(weights.type, [&]<TensorType kType>() {
    MultiplyByTiles(kTiles<Dot, kType>, weights, in, columns, out, out_stride);
  });
}

}  // namespace
}  // namespace stagecoach

#undef STAGECOACH_UNROLL

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_INTEGER_H_
