#ifndef STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_INTEGER_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_INTEGER_H_

// The product of the integer types with AVX-512, as a template over the dot instruction; included by the units that
// choose one, and by nothing else. Everything is in an unnamed namespace: each unit is compiled with its own
// instruction set and must keep its own copy.
//
// A tile is one panel times up to kTileColumns columns. It walks the blocks of 32 columns of K once, decodes their
// codes to bytes in registers, on ports that the dot instruction leaves free, and keeps one sum a column. So few
// columns read a panel once from memory, and more columns decode it once for eight of them. Blocks are independent but
// for their last additions, so several are in flight, which hides the latency of the dot instruction even for one
// column. Many columns of the types that decode in no time read each input for two panels instead (InPairs).
//
// Inputs are packed first, so that a tile reads one stream of them; the bytes ahead are prefetched meanwhile.

#include "stage_worker/kernels/avx512/avx512.h"
#include "stage_worker/kernels/avx512/avx512_codes.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

#define STAGECOACH_UNROLL _Pragma("GCC unroll 16")

namespace stagecoach {
namespace {

constexpr int kTileColumns = 8;        // 8 sums and 8 dots leave half of the registers for codes and masks
constexpr int64_t kAheadBytes = 6144;  // of one tile, before the codes in use: measured best of 2 to 16 KiB

// What a tile reads of a block of one input row, in 32-bit words: 8 groups of four q; for types with a bias, where the
// integer sum (of each half) starts; the scale; for types with minima, float(sum of q) * scale (of each half), negated
// where the minimum is subtracted.
constexpr int ScaleWord(const IntegerLayout& layout) { return kGroups + (layout.bias != 0 ? HalvesOf(layout) : 0); }
constexpr int InputWords(const IntegerLayout& layout) {
  return ScaleWord(layout) + 1 + (layout.minima ? HalvesOf(layout) : 0);
}

// The codes of a block of one or two panels.
template <IntegerLayout kLayout, int P>
struct PackedPanels {
  PackedCodes<kLayout> first;

  [[gnu::always_inline]] explicit PackedPanels(const uint8_t* const* at) : first(at[0]) {}
  const PackedCodes<kLayout>& last() const { return first; }
};
template <IntegerLayout kLayout>
struct PackedPanels<kLayout, 2> {
  PackedCodes<kLayout> first, second;

  [[gnu::always_inline]] explicit PackedPanels(const uint8_t* const* at) : first(at[0]), second(at[1]) {}
  const PackedCodes<kLayout>& last() const { return second; }
};

// The groups [g, end) of a block of 32 columns of P panels, added to dots[C * P]; x: [C][InputWords]. Recursion rather
// than a loop, lest the compiler unrolls it so late that it leaves the codes in memory.
template <typename Dot, IntegerLayout kLayout, int P, int C, int g, int end>
[[gnu::always_inline]] inline void AddGroups(const PackedPanels<kLayout, P>& codes, const int32_t* x, __m512i* dots) {
  const __m512i first = codes.first.template Group<g>(), last = codes.last().template Group<g>();
  STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
    const __m512i four = _mm512_set1_epi32(x[c * InputWords(kLayout) + g]);
    dots[c * P] = Dot::template Add<MaxCode(kLayout)>(dots[c * P], first, four);
    if (P == 2) dots[c * P + 1] = Dot::template Add<MaxCode(kLayout)>(dots[c * P + 1], last, four);
  }
  if constexpr (g + 1 < end) AddGroups<Dot, kLayout, P, C, g + 1, end>(codes, x, dots);
}

// Half h of a block, or all of it, into the accumulators acc[C * P].
template <typename Dot, IntegerLayout kLayout, int P, int C, int h>
[[gnu::always_inline]] inline void AddHalf(const PackedPanels<kLayout, P>& codes, const ScalesAt* scales,
                                           const int32_t* x, __m512* acc) {
  constexpr int kHalfGroups = kGroups / HalvesOf(kLayout), kWords = InputWords(kLayout), kScale = ScaleWord(kLayout);
  __m512i dots[C * P];
  STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) {
    dots[i] = kLayout.bias != 0 ? _mm512_set1_epi32(x[i / P * kWords + kGroups + h]) : _mm512_setzero_si512();
  }
  AddGroups<Dot, kLayout, P, C, h * kHalfGroups, (h + 1) * kHalfGroups>(codes, x, dots);
  for (int p = 0; p < P; ++p) {
    const __m512 w_scale = LoadScale<kLayout>(scales[p], h);
    STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
      const __m512 scale = _mm512_mul_ps(w_scale, BroadcastFloat(x + c * kWords + kScale));
      acc[c * P + p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c * P + p]), scale, acc[c * P + p]);
    }
  }
}

template <IntegerLayout kLayout, int P, int C, int h>
[[gnu::always_inline]] inline void AddMinimum(const ScalesAt* scales, const int32_t* x, __m512* acc) {
  for (int p = 0; p < P; ++p) {
    const __m512 minimum = LoadMinimum<kLayout>(scales[p], h);
    STAGECOACH_UNROLL for (int c = 0; c < C; ++c) {
      const __m512 x_sum = BroadcastFloat(x + c * InputWords(kLayout) + ScaleWord(kLayout) + 1 + h);
      acc[c * P + p] = _mm512_fmadd_ps(minimum, x_sum, acc[c * P + p]);
    }
  }
}

// The block at codes_at[P].
template <typename Dot, IntegerLayout kLayout, int P, int C>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* const* codes_at, const ScalesAt* scales, const int32_t* x,
                                            __m512* acc) {
  const PackedPanels<kLayout, P> codes(codes_at);
  if constexpr (kLayout.minima) {
    AddMinimum<kLayout, P, C, 0>(scales, x, acc);
    if constexpr (kLayout.halves) AddMinimum<kLayout, P, C, 1>(scales, x, acc);
  }
  AddHalf<Dot, kLayout, P, C, 0>(codes, scales, x, acc);
  if constexpr (kLayout.halves) AddHalf<Dot, kLayout, P, C, 1>(codes, scales, x, acc);
}

// What one call multiplies: panels, in the blocks [first_block, first_block + blocks) of K, by one tile's columns.
struct IntegerRun {
  const uint8_t* panels;
  int64_t panel_bytes, panel_count;
  int64_t block_bytes;        // of one panel, about
  int64_t sub_scales, codes;  // where these sections of a panel start
  int64_t first_block, blocks;
  const int32_t* inputs;  // packed, of these blocks: [blocks][columns][InputWords]
  float* out;             // of the first panel and column; added to unless first_block is 0
  int64_t out_stride;
  int64_t ahead;  // how many bytes before its use memory is asked for
  // Tiles of the same panels share that: each advances by its share of a block, from block `prefetch_from` on.
  int64_t prefetch_tiles, prefetch_from;
  const uint8_t* end;   // of all panels
  const uint8_t* next;  // as in PanelSpan
};
using IntegerRunFn = void (*)(const IntegerRun& run);

// Address to prefetch run.ahead bytes before its use. Past the last panel: the panels that are read next; without any,
// a line already in cache, because a useless fetch costs as much as a useful one.
inline const uint8_t* Ahead(const uint8_t* at, const IntegerRun& run) {
  if (at < run.end) [[likely]]
    return at;
  return run.next != nullptr ? run.next + (at - run.end) : at - run.ahead;
}

// panel_count is a multiple of P.
template <typename Dot, IntegerLayout kLayout, int P, int C>
void MultiplyRun(const IntegerRun& run) {
  constexpr bool kTrits = kLayout.codes == CodeFormat::kTrits;
  constexpr int kStep = kTrits ? kTritsColumns / kCodeBlock : 1;  // blocks
  constexpr int kStepCodes = (kTrits ? kTritsVectors : kLayout.vectors) * kVectorBytes;
  constexpr int kStepBytes =
      P * (kStepCodes + kStep * (kLayout.sub_scale_bytes + kLayout.scale_bytes * kCodeBlock / kLayout.scale_columns));
  alignas(64) uint8_t unpacked[kTrits ? kStep : 1][kTrits ? kGroups * kVectorBytes : 1];
  const int64_t first_step = run.first_block / kStep, last_block = run.first_block + run.blocks;
  const int64_t sub_scales = run.sub_scales, panel_bytes = run.panel_bytes;
  const int64_t prefetch_step = run.prefetch_tiles == 1 ? kStepBytes : kStepBytes / run.prefetch_tiles;
  const uint8_t* panel = run.panels;
  float* out = run.out;
  for (int64_t first = 0; first < run.panel_count; first += P, panel += P * panel_bytes, out += P * kPanelRows) {
    __m512 acc[C * P];
    STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) acc[i] = _mm512_setzero_ps();
    if (run.first_block != 0) {
      STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) {
        acc[i] = _mm512_loadu_ps(out + i / P * run.out_stride + i % P * kPanelRows);
      }
    }
    const int32_t* x = run.inputs;
    const uint8_t* codes[2] = {panel + run.codes + first_step * kStepCodes, nullptr};
    codes[P - 1] = codes[0] + (P - 1) * panel_bytes;
    // Evenly over the bytes of the panels, scales and codes alike.
    const uint8_t* streamed = panel + (run.first_block + run.prefetch_from) / kStep * kStepBytes + run.ahead;
    for (int64_t block = run.first_block; block < last_block; block += kStep) {
      ScalesAt scales[2];
      scales[0] = FindScales<kLayout>(panel, sub_scales, block);
      scales[P - 1] = FindScales<kLayout>(panel + (P - 1) * panel_bytes, sub_scales, block);
      const uint8_t* const fetched = Ahead(streamed, run);
      STAGECOACH_UNROLL for (int i = 0; i < kStepBytes; i += kVectorBytes) _mm_prefetch(fetched + i, _MM_HINT_T0);
      streamed += prefetch_step;
      if constexpr (kTrits) {
        static_assert(P == 1);
        UnpackTrits(codes[0], unpacked[0]);
        for (int b = 0; b < kStep; ++b, x += InputWords(kLayout) * C) {
          const uint8_t* const part = unpacked[b];
          AddBlock<Dot, kLayout, 1, C>(&part, scales, x, acc);
        }
      } else {
        AddBlock<Dot, kLayout, P, C>(codes, scales, x, acc);
        x += InputWords(kLayout) * C;
      }
      codes[0] += kStepCodes;
      if (P == 2) codes[1] += kStepCodes;
    }
    STAGECOACH_UNROLL for (int i = 0; i < C * P; ++i) {
      _mm512_storeu_ps(out + i / P * run.out_stride + i % P * kPanelRows, acc[i]);
    }
  }
}

// Whether more columns than one tile has go through tiles of two panels and kPairColumns columns: with codes that take
// few instructions to decode, loads of inputs are what bounds a tile of one panel.
constexpr bool InPairs(const IntegerLayout& layout) {
  return layout.codes == CodeFormat::kU8 || (layout.codes == CodeFormat::kNibble && !layout.tabled);
}
constexpr int kPairColumns = 4;

struct IntegerTiles {
  IntegerLayout layout;
  IntegerRunFn of_columns[kTileColumns + 1];
  IntegerRunFn pairs[kPairColumns + 1];  // or nullptr
};

template <typename Dot, IntegerLayout kLayout, int C>
constexpr IntegerRunFn PairOf() {
  if constexpr (InPairs(kLayout)) {
    return MultiplyRun<Dot, kLayout, 2, C>;
  } else {
    return nullptr;
  }
}

template <typename Dot, TensorType kType, IntegerLayout kLayout = LayoutOf(kType)>
constexpr IntegerTiles kTiles = {
    kLayout,
    {nullptr, MultiplyRun<Dot, kLayout, 1, 1>, MultiplyRun<Dot, kLayout, 1, 2>, MultiplyRun<Dot, kLayout, 1, 3>,
     MultiplyRun<Dot, kLayout, 1, 4>, MultiplyRun<Dot, kLayout, 1, 5>, MultiplyRun<Dot, kLayout, 1, 6>,
     MultiplyRun<Dot, kLayout, 1, 7>, MultiplyRun<Dot, kLayout, 1, 8>},
    {nullptr, nullptr, nullptr, PairOf<Dot, kLayout, 3>(), PairOf<Dot, kLayout, 4>()}};

// Packs `columns` input rows from `column` on, for the blocks [first_block, first_block + blocks):
// [block][column][InputWords].
inline void PackInputs(const IntegerLayout& layout, const Activations& in, int64_t cols, int64_t column, int columns,
                       int64_t first_block, int64_t blocks, int32_t* out) {
  const int halves = HalvesOf(layout), words = InputWords(layout);
  int shift = 7;  // starts are for a bias of 2^7
  for (int bias = layout.bias; bias > 1; bias /= 2) --shift;
  for (int c = 0; c < columns; ++c) {
    const int64_t at = (column + c) * (cols / kCodeBlock) + first_block;
    const int8_t* q = in.q + at * kCodeBlock;
    const float* scales = in.scales + at;
    const int32_t* starts = layout.halves ? in.half_starts + at * 2 : in.starts + at;
    int32_t* to = out + c * words;
    for (int64_t b = 0; b < blocks; ++b, q += kCodeBlock, starts += halves, to += columns * words) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Load256(q));
      int32_t* word = to + kGroups;
      for (int h = 0; layout.bias != 0 && h < halves; ++h) *word++ = starts[h] >> shift;
      std::memcpy(word++, scales + b, 4);
      for (int h = 0; layout.minima && h < halves; ++h) {
        const float sum = static_cast<float>(-starts[h] >> 7) * scales[b];
        const float signed_sum = layout.sub_scale_bytes == 0 ? sum : -sum;
        std::memcpy(word++, &signed_sum, 4);
      }
    }
  }
}

// Inputs packed at a time, in words: half of the smallest second-level cache in use.
constexpr int64_t kInputWords = 128 << 10;
alignas(64) thread_local int32_t packed_inputs[kInputWords];

constexpr int64_t kStepBlocks = kTritsColumns / kCodeBlock;  // parts of K are whole numbers of the longest blocks
constexpr int64_t kPassColumns = 16;                         // at least, where K has to be cut for the inputs to fit
constexpr int64_t kChunkBlocks = 64;  // of K: what several tiles read of a panel stays in the first-level cache

// How columns are cut into tiles, even ones: nine columns are five and four, not eight and one.
struct TileCut {
  bool pairs;
  int tiles, columns, wide;  // `wide` tiles of `columns`, the others of one less

  TileCut(const IntegerLayout& layout, int all) : pairs(all > kTileColumns && InPairs(layout)) {
    const int most = pairs ? kPairColumns : kTileColumns;
    tiles = (all + most - 1) / most;
    columns = (all + tiles - 1) / tiles;
    wide = tiles - (columns * tiles - all);
  }
  int Of(int tile) const { return tile < wide ? columns : columns - 1; }
};

// The panels of `all` by all tiles, in its blocks. all.inputs: of the first tile; all.out: of its first column.
inline void MultiplyByTiles(const IntegerTiles& tiles, const IntegerRun& all, const TileCut& cut) {
  const int words = InputWords(tiles.layout);
  const int64_t chunk = cut.tiles == 1 ? all.blocks : kChunkBlocks;
  int64_t group = cut.tiles == 1 ? all.panel_count : 1;
  for (int64_t panel = 0; panel < all.panel_count; panel += group) {
    if (cut.pairs) group = all.panel_count - panel >= 2 ? 2 : 1;
    for (int64_t block = 0; block < all.blocks; block += chunk) {
      IntegerRun run = all;
      run.panels += panel * all.panel_bytes;
      run.panel_count = group;
      run.first_block += block;
      run.blocks = all.blocks - block < chunk ? all.blocks - block : chunk;
      // Several tiles take long for what they read, and fetch what follows all of it.
      run.ahead = all.codes + (cut.tiles == 1 ? kAheadBytes : group * run.blocks * all.block_bytes);
      run.out += panel * kPanelRows;
      run.prefetch_tiles = cut.tiles;
      const int32_t* inputs = all.inputs;
      for (int t = 0; t < cut.tiles; ++t) {
        const int columns = cut.Of(t);
        run.inputs = inputs + block * columns * words;
        run.prefetch_from = t * run.blocks / cut.tiles;
        (group == 2 && cut.pairs ? tiles.pairs : tiles.of_columns)[columns](run);
        run.out += columns * all.out_stride;
        inputs += all.blocks * columns * words;
      }
    }
  }
}

inline void MultiplyColumns(const IntegerTiles& tiles, const PanelSpan& weights, const Activations& in, int columns,
                            float* out, int64_t out_stride) {
  const PanelSections sections = SectionsOf(weights.type, weights.cols);
  const int64_t blocks = weights.cols / kCodeBlock, words = InputWords(tiles.layout);
  IntegerRun run;
  run.panels = weights.data;
  run.panel_bytes = static_cast<int64_t>(sections.bytes);
  run.panel_count = weights.panels;
  run.block_bytes = run.panel_bytes / blocks;
  run.sub_scales = static_cast<int64_t>(sections.sub_scales);
  run.codes = static_cast<int64_t>(sections.codes);
  run.inputs = packed_inputs;
  run.out_stride = out_stride;
  run.end = weights.data + weights.panels * run.panel_bytes;
  run.next = weights.next;
  const int64_t least = columns < kPassColumns ? columns : kPassColumns;
  const int64_t fit = kInputWords / (words * least * kStepBlocks) * kStepBlocks;
  const int64_t part_blocks = blocks < fit ? blocks : fit;
  const int64_t fit_columns = kInputWords / (words * part_blocks);
  const int pass = fit_columns < columns ? static_cast<int>(fit_columns / kTileColumns) * kTileColumns : columns;
  for (int first = 0; first < columns; first += pass) {
    const TileCut cut(tiles.layout, columns - first < pass ? columns - first : pass);
    run.out = out + first * out_stride;
    for (run.first_block = 0; run.first_block < blocks; run.first_block += part_blocks) {
      run.blocks = blocks - run.first_block < part_blocks ? blocks - run.first_block : part_blocks;
      for (int t = 0, c = 0; t < cut.tiles; c += cut.Of(t++)) {
        PackInputs(tiles.layout, in, weights.cols, first + c, cut.Of(t), run.first_block, run.blocks,
                   packed_inputs + c * run.blocks * words);
      }
      MultiplyByTiles(tiles, run, cut);
    }
  }
}

template <typename Dot>
inline void IntegerMatmul(const PanelSpan& weights, const Activations& in, int columns, float* out,
                          int64_t out_stride) {
  ForIntegerType(weights.type, [&]<TensorType kType>() {
    MultiplyColumns(kTiles<Dot, kType>, weights, in, columns, out, out_stride);
  });
}

}  // namespace
}  // namespace stagecoach

#undef STAGECOACH_UNROLL

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_AVX512_AVX512_INTEGER_H_
