// Packs four rows at a time, for every instruction set: the scalar packer's bytes in a tenth of its time.
//
// A word is four bytes of a row as they lie in the file. The same word of four rows is one vector of 16 bytes, and a
// vector of a panel holds one word of each of its 16 rows. So packing is a transposition of words, and then every
// format is made of them with the same operations in all lanes: codes of n bits that the file interleaves otherwise
// than the panel are exchanged between words (or within one) by shifts and masks. Compiled for the baseline, with the
// compiler's own vectors.

#include <cstring>

#include "common/quant/block_codes.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/panel_layout.h"

namespace stagecoach {
namespace {

constexpr int kLanes = 4;  // rows that are packed at once
constexpr int kQuarters = kPanelRows / kLanes;

using Words = uint32_t __attribute__((vector_size(4 * kLanes)));

// The same place of all rows of a panel.
struct PanelRowsAt {
  const uint8_t* first;
  size_t stride;

  const uint8_t* row(int i) const { return first + static_cast<size_t>(i) * stride; }
  PanelRowsAt operator+(int64_t bytes) const { return {first + bytes, stride}; }
  PanelRowsAt Quarter(int quarter) const { return {row(quarter * kLanes), stride}; }
};

Words LoadWords(const uint8_t* p) {
  Words value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

void Store(const Words& words, uint8_t* out) { std::memcpy(out, &words, sizeof(words)); }

// Words [0, kCount) from `rows` on, of four rows.
template <int kCount>
void Load(const PanelRowsAt& rows, Words* words) {
  for (int w = 0; w + 4 <= kCount; w += 4) {
    const Words a = LoadWords(rows.row(0) + 4 * w), b = LoadWords(rows.row(1) + 4 * w);
    const Words c = LoadWords(rows.row(2) + 4 * w), d = LoadWords(rows.row(3) + 4 * w);
    const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    words[w] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    words[w + 1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    words[w + 2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    words[w + 3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  }
  for (int w = kCount / 4 * 4; w < kCount; ++w) {
    words[w] = Words{LoadU32(rows.row(0) + 4 * w), LoadU32(rows.row(1) + 4 * w), LoadU32(rows.row(2) + 4 * w),
                     LoadU32(rows.row(3) + 4 * w)};
  }
}

// The lanes of four rows in a block of codes.
struct BlockOut {
  uint8_t* first;

  uint8_t* vector(int v) const { return first + v * kVectorBytes; }
};

// Exchanges the bits `mask << shift` of a with the bits `mask` of b.
void Exchange(int shift, uint32_t mask, Words* a, Words* b) {
  const Words difference = ((*a >> shift) ^ *b) & mask;
  *b ^= difference;
  *a ^= difference << shift;
}

// Exchanges the bits `mask << shift` of a with its bits `mask`.
void ExchangeWithin(int shift, uint32_t mask, Words* a) {
  const Words difference = ((*a >> shift) ^ *a) & mask;
  *a ^= difference ^ (difference << shift);
}

// Codes that super-blocks interleave: field f of a byte of word w becomes field w of the byte of word f.

// Two words, fields of four bits.
void TransposeNibbles(Words* a, Words* b) { Exchange(4, 0x0f0f0f0f, a, b); }

// Four words, fields of two bits.
void TransposePairs(Words* words) {
  for (int w : {0, 1}) Exchange(4, 0x0f0f0f0f, &words[w], &words[w + 2]);
  for (int w : {0, 2}) Exchange(2, 0x33333333, &words[w], &words[w + 1]);
}

// Eight words, fields of one bit.
void TransposeBits(Words* words) {
  for (int w : {0, 1, 2, 3}) Exchange(4, 0x0f0f0f0f, &words[w], &words[w + 4]);
  for (int w : {0, 1, 4, 5}) Exchange(2, 0x33333333, &words[w], &words[w + 2]);
  for (int w : {0, 2, 4, 6}) Exchange(1, 0x55555555, &words[w], &words[w + 1]);
}

// Codes in the order of the columns, within one word: column 4 g + i goes from field 4 g + i to field g of byte i.

// 16 codes of two bits: a transposition of the 4 x 4 fields.
void SpreadPairs(Words* word) {
  ExchangeWithin(12, 0x0000f0f0, word);
  ExchangeWithin(6, 0x00cc00cc, word);
}

// 32 codes of one bit: a number of 5 bits (g, i) becomes (i, g), by exchanges of two of its bits.
void SpreadBits(Words* word) {
  ExchangeWithin(14, 0x0000cccc, word);
  ExchangeWithin(7, 0x00aa00aa, word);
  ExchangeWithin(2, 0x0c0c0c0c, word);
  ExchangeWithin(1, 0x22222222, word);
}

template <int kCount>
void Copy(const PanelRowsAt& rows, uint32_t flip, const BlockOut& out) {
  Words words[kCount];
  Load<kCount>(rows, words);
  for (int w = 0; w < kCount; ++w) Store(words[w] ^ flip, out.vector(w));
}

void CopySpreadBits(const PanelRowsAt& rows, const BlockOut& out, int v) {
  Words word;
  Load<1>(rows, &word);
  SpreadBits(&word);
  Store(word, out.vector(v));
}

// `kVectors`: of a block of 32 columns in the panel.

// 64 columns of nibbles.
template <int kVectors>
void CopyNibbles(const PanelRowsAt& rows, const BlockOut& out) {
  Words words[8];
  Load<8>(rows, words);
  for (int w = 0; w < 4; ++w) {
    TransposeNibbles(&words[w], &words[4 + w]);
    Store(words[w], out.vector(w));
    Store(words[4 + w], out.vector(kVectors + w));
  }
}

// 128 columns of two bits, to vectors v and v + 1 of four blocks.
template <int kVectors>
void CopyPairs(const PanelRowsAt& rows, const BlockOut& out, int v) {
  Words words[8];
  Load<8>(rows, words);
  for (int half = 0; half < 2; ++half) {
    TransposePairs(words + 4 * half);
    for (int sub = 0; sub < 4; ++sub) Store(words[4 * half + sub], out.vector(sub * kVectors + v + half));
  }
}

// 256 columns of a bit, to vector v of eight blocks.
template <int kVectors>
void CopyBits(const PanelRowsAt& rows, const BlockOut& out, int v) {
  Words words[8];
  Load<8>(rows, words);
  TransposeBits(words);
  for (int sub = 0; sub < 8; ++sub) Store(words[sub], out.vector(sub * kVectors + v));
}

// The codes of a block of the file.
template <TensorType kType>
void PackCodes(const PanelRowsAt& rows, const BlockOut& out) {
  constexpr int kVectors = LayoutOf(kType).vectors;
  if constexpr (kType == TensorType::kQ8_0) {
    Copy<8>(rows + 2, 0x80808080, out);
  } else if constexpr (kType == TensorType::kQ4_0 || kType == TensorType::kIQ4_NL) {
    Copy<4>(rows + 2, 0, out);
  } else if constexpr (kType == TensorType::kMXFP4) {
    Copy<4>(rows + 1, 0, out);
  } else if constexpr (kType == TensorType::kQ4_1) {
    Copy<4>(rows + 4, 0, out);
  } else if constexpr (kType == TensorType::kQ5_0) {
    Copy<4>(rows + 6, 0, out);
    CopySpreadBits(rows + 2, out, 4);
  } else if constexpr (kType == TensorType::kQ5_1) {
    Copy<4>(rows + 8, 0, out);
    CopySpreadBits(rows + 4, out, 4);
  } else if constexpr (kType == TensorType::kIQ4_XS) {
    Copy<32>(rows + 8, 0, out);
  } else if constexpr (kType == TensorType::kTQ1_0) {
    Copy<kTritsVectors>(rows, 0, out);
  } else if constexpr (kType == TensorType::kQ1_0) {
    Words words[4];
    Load<4>(rows + 2, words);
    for (int w = 0; w < 4; ++w) {
      SpreadBits(&words[w]);
      Store(words[w], out.vector(w));
    }
  } else if constexpr (kType == TensorType::kQ2_0 || kType == TensorType::kPQ2_0 || kType == TensorType::kQ2_0_Oxi) {
    constexpr bool kOxi = kType == TensorType::kQ2_0_Oxi;
    constexpr int kCount = kType == TensorType::kQ2_0 ? 4 : 8;
    Words words[kCount];
    Load<kCount>(rows + (kOxi ? 0 : 2), words);
    for (int w = 0; w < kCount; ++w) {
      if constexpr (kOxi) words[w] ^= (words[w] << 1) & words[w] & 0xaaaaaaaa;  // its code 3 is zero, as its code 1
      SpreadPairs(&words[w]);
      Store(words[w], out.vector(w));
    }
  } else if constexpr (kType == TensorType::kTQ2_0 || kType == TensorType::kQ2_K) {
    for (int half = 0; half < 2; ++half) {
      const int64_t at = (kType == TensorType::kQ2_K ? 16 : 0) + 32 * half;
      CopyPairs<kVectors>(rows + at, {out.vector(half * 4 * kVectors)}, 0);
    }
  } else if constexpr (kType == TensorType::kQ3_K) {
    for (int half = 0; half < 2; ++half) {
      CopyPairs<kVectors>(rows + 32 + 32 * half, {out.vector(half * 4 * kVectors)}, 0);
    }
    CopyBits<kVectors>(rows, out, 2);
  } else if constexpr (kType == TensorType::kQ4_K || kType == TensorType::kQ5_K) {
    const int64_t at = kType == TensorType::kQ4_K ? 16 : 48;
    for (int pair = 0; pair < 4; ++pair) {
      CopyNibbles<kVectors>(rows + at + 32 * pair, {out.vector(pair * 2 * kVectors)});
    }
    if constexpr (kType == TensorType::kQ5_K) CopyBits<kVectors>(rows + 16, out, 4);
  } else if constexpr (kType == TensorType::kQ6_K) {
    for (int half = 0; half < 2; ++half) {
      const BlockOut half_out = {out.vector(half * 4 * kVectors)};
      // The low nibbles of 64 bytes are two blocks, the high ones the two after these.
      for (int part = 0; part < 2; ++part) {
        Words words[8];
        Load<8>(rows + 64 * half + 32 * part, words);
        for (int w = 0; w < 4; ++w) {
          TransposeNibbles(&words[w], &words[4 + w]);
          Store(words[w], half_out.vector(part * kVectors + w));
          Store(words[4 + w], half_out.vector((part + 2) * kVectors + w));
        }
      }
      CopyPairs<kVectors>(rows + 128 + 32 * half, half_out, 4);
    }
  } else {
    static_assert(kType != kType, "a type without codes");
  }
}

// A word of all 16 rows.
struct PanelWords {
  uint32_t lanes[kPanelRows];
};

template <int kCount>
void LoadPanel(const PanelRowsAt& rows, PanelWords* words) {
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    Words loaded[kCount];
    Load<kCount>(rows.Quarter(quarter), loaded);
    for (int w = 0; w < kCount; ++w) std::memcpy(words[w].lanes + quarter * kLanes, &loaded[w], sizeof(Words));
  }
}

// out[lane] = the low bits of f(lane)
template <typename T, typename F>
void Narrow(F f, uint8_t* out) {
  T narrow[kPanelRows];
  for (int lane = 0; lane < kPanelRows; ++lane) narrow[lane] = static_cast<T>(f(lane));
  std::memcpy(out, narrow, sizeof(narrow));
}

// The d of a block of the file and the m of types with minima, as fp16; one byte for MXFP4.
template <TensorType kType>
void PackScales(const PanelRowsAt& scales, uint8_t* out) {
  constexpr IntegerLayout kLayout = LayoutOf(kType);
  for (int lane = 0; lane < kPanelRows; ++lane) {
    const uint8_t* scale = scales.row(lane);
    if constexpr (kLayout.scales == ScaleFormat::kE8m0) {
      out[lane] = *scale;
    } else {
      std::memcpy(out + 2 * lane, scale, 2);
      if constexpr (kLayout.minima) std::memcpy(out + 2 * (kPanelRows + lane), scale + 2, 2);
    }
  }
}

// The sub-scales of a block of the file: bytes of 16 lanes.
template <TensorType kType>
void PackSubScales(const PanelRowsAt& rows, uint8_t* out) {
  constexpr uint32_t kLow4 = 0x0f0f0f0f, kLow2 = 0x03030303;
  PanelWords bytes[4];  // byte k % 4 of word k / 4 is the one for out + 16 k
  if constexpr (kType == TensorType::kQ6_K || kType == TensorType::kQ2_K) {
    LoadPanel<4>(rows + (kType == TensorType::kQ6_K ? 192 : 0), bytes);
  } else if constexpr (kType == TensorType::kQ3_K) {
    PanelWords file[3];
    LoadPanel<3>(rows + 96, file);
    for (int w = 0; w < 4; ++w) {
      for (int lane = 0; lane < kPanelRows; ++lane) {
        const uint32_t low = file[w % 2].lanes[lane] >> (w / 2 * 4) & kLow4;
        const uint32_t high = file[2].lanes[lane] >> (2 * w) & kLow2;
        // Less 32 in each byte, without a borrow from the next.
        bytes[w].lanes[lane] = ((low | high << 4 | 0x80808080) - 0x20202020) ^ 0x80808080;
      }
    }
  } else if constexpr (kType == TensorType::kQ4_K || kType == TensorType::kQ5_K) {
    // 6 bits each of 8 scales and 8 minima in 12 bytes; out: the scale and the minimum of each block.
    PanelWords file[3];
    LoadPanel<3>(rows + 4, file);
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const uint32_t s = file[0].lanes[lane], m = file[1].lanes[lane], last = file[2].lanes[lane];
      const uint32_t scales[2] = {s & 0x3f3f3f3f, (last & kLow4) | (s >> 6 & kLow2) << 4};
      const uint32_t minima[2] = {m & 0x3f3f3f3f, (last >> 4 & kLow4) | (m >> 6 & kLow2) << 4};
      for (int half = 0; half < 2; ++half) {
        const uint32_t s4 = scales[half], m4 = minima[half];
        bytes[2 * half].lanes[lane] = (s4 & 0xff) | (m4 & 0xff) << 8 | (s4 & 0xff00) << 8 | (m4 & 0xff00) << 16;
        bytes[2 * half + 1].lanes[lane] =
            (s4 >> 16 & 0xff) | (m4 >> 8 & 0xff00) | (s4 >> 8 & 0xff0000) | (m4 & 0xff000000);
      }
    }
  } else if constexpr (kType == TensorType::kIQ4_XS) {
    PanelWords file[2];
    LoadPanel<2>(rows, file);
    for (int sub = 0; sub < 8; ++sub) {
      Narrow<uint8_t>(
          [&](int lane) {
            const uint32_t low = file[1].lanes[lane] >> (4 * sub) & 15,
                           high = file[0].lanes[lane] >> (16 + 2 * sub) & 3;
            return (low | high << 4) - 32;
          },
          out + sub * kPanelRows);
    }
    return;
  }
  for (int k = 0; k < 16; ++k) {
    Narrow<uint8_t>([&](int lane) { return bytes[k / 4].lanes[lane] >> (k % 4 * 8); }, out + k * kPanelRows);
  }
}

template <TensorType kType>
void PackIntegers(const PanelRowsAt& rows, int64_t cols, uint8_t* panel) {
  constexpr IntegerLayout kLayout = LayoutOf(kType);
  const TensorTypeInfo& info = GetTensorType(kType);
  const PanelSections sections = SectionsOf(kType, cols);
  const int64_t blocks = cols / info.block_elements, subs = cols / kCodeBlock;
  const int vectors = kLayout.codes == CodeFormat::kTrits
                          ? kTritsVectors
                          : static_cast<int>(info.block_elements) / kCodeBlock * kLayout.vectors;
  const int scale_at = kType == TensorType::kMXFP4 ? 0 : FindBlockScales(kType)->scale_at;
  for (int64_t b = 0; b < blocks; ++b) {
    const PanelRowsAt block = rows + b * info.block_bytes;
    PackScales<kType>(block + scale_at, panel + b * kLayout.scale_bytes);
    if constexpr (kLayout.sub_scale_bytes > 0) {
      PackSubScales<kType>(block,
                           panel + sections.sub_scales + b * (kTritsColumns / kCodeBlock) * kLayout.sub_scale_bytes);
    }
    uint8_t* const codes = panel + sections.codes + b * vectors * kVectorBytes;
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      PackCodes<kType>(block.Quarter(quarter), {codes + quarter * sizeof(Words)});
    }
  }
  // The padding of the sections.
  const size_t scales = static_cast<size_t>(blocks * kLayout.scale_bytes);
  const size_t sub_scales = static_cast<size_t>(subs * kLayout.sub_scale_bytes);
  std::memset(panel + scales, 0, sections.sub_scales - scales);
  std::memset(panel + sections.sub_scales + sub_scales, 0, sections.codes - sections.sub_scales - sub_scales);
}

// Words of the file in their order: F32, and pairs of F16 and BF16. Whole cache lines of a row at a time: rows of some
// lengths fall on the same few places of the first-level cache.
void PackFloats(const PanelRowsAt& rows, int64_t words, uint8_t* panel) {
  constexpr int kLineWords = 16;
  int64_t w = 0;
  for (; w + kLineWords <= words; w += kLineWords) {
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      Copy<kLineWords>((rows + 4 * w).Quarter(quarter), 0, {panel + w * kVectorBytes + quarter * sizeof(Words)});
    }
  }
  for (; w < words; ++w) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      std::memcpy(panel + w * kVectorBytes + 4 * lane, rows.row(lane) + 4 * w, 4);
    }
  }
}

}  // namespace

void PackPanel(TensorType type, const uint8_t* rows, size_t row_stride, int row_count, int64_t cols, uint8_t* panel) {
  // At most the last panel of a matrix.
  if (row_count < kPanelRows) return PackPanelScalar(type, rows, row_stride, row_count, cols, panel);
  const PanelRowsAt all = {rows, row_stride};
  switch (type) {
    case TensorType::kF32: return PackFloats(all, cols, panel);
    case TensorType::kF16:
    case TensorType::kBF16: return PackFloats(all, cols / 2, panel);
    default: ForIntegerType(type, [&]<TensorType kType>() { PackIntegers<kType>(all, cols, panel); });
  }
}

}  // namespace stagecoach
