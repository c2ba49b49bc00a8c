#ifndef STAGECOACH_STAGE_WORKER_KERNELS_PANEL_LAYOUT_H_
#define STAGECOACH_STAGE_WORKER_KERNELS_PANEL_LAYOUT_H_

// How a panel of 16 rows lies in memory; one layout for all instruction sets.
//
// Floats
//   F32          K x 16 float                   [k][lane]
//   F16, BF16    K/2 x 16 x 2 uint16            [k/2][lane][k%2]
//
// Integer types have up to three sections, each starting at a multiple of 64 bytes: scales, sub-scales, codes. Codes
// come in blocks of 32 columns; a block is one or more vectors of 64 bytes, 4 bytes a lane. Eight groups of four
// columns make a block: group g holds columns 4g .. 4g+3, column 4g+i in byte i of a lane's four.
//   format        vectors  group g of a block, as a byte a column
//   kU8              8     vector g
//   kNibble          4     g < 4: vector g & 15, else vector (g - 4) >> 4; so vector j holds columns 4j+i and 16+4j+i
//   kNibbleBit       5     as kNibble, plus 16 where bit g of vector 4's byte is set
//   kNibble2Bits     6     as kNibble, plus 16 * ((vector 4 + g / 4) >> 2 (g % 4) & 3)
//   k2Bits           2     (vector g / 4) >> 2 (g % 4) & 3
//   k2BitsBit        3     as k2Bits, plus 4 where bit g of vector 2's byte is set
//   kBit             1     2 where bit g of the vector's byte is set, else 0
//   kTrits          13 for 256 columns: the file's 52 bytes of TQ1_0, four to a vector (bytes 4v .. 4v+3 of a row)
// The integer weight is that byte (through a table of 16 where the type has one) minus the type's bias.
//
// Scales: fp16 d [K / scale_columns][16 lanes]; with minima [K / scale_columns]{16 d, 16 m}; MXFP4: uint8 e [K /
// 32][16]. Sub-scales, per block of 32 columns:
//   kF16            none; scale = d
//   kF16Min         none; scale = d, min = m
//   kE8m0           none; scale = 2^(e - 128)
//   kSub32Min       16 uint8 S, 16 uint8 M; scale = d * S, min = -(m * M)
//   kSub32          16 int8 S; scale = d * S
//   kSub16          two halves of 16 int8 S; scale = d * S for each half
//   kSub16Min       two halves of 16 uint8: S in the low, M in the high nibble; scale = d * S, min = -(m * M)
// Each product is rounded to float.

#include <cstddef>
#include <cstdint>

#include "common/quant/tensor_type.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

enum class CodeFormat { kU8, kNibble, kNibbleBit, kNibble2Bits, k2Bits, k2BitsBit, kBit, kTrits };
enum class ScaleFormat { kF16, kF16Min, kE8m0, kSub32Min, kSub32, kSub16, kSub16Min };

inline constexpr int kCodeBlock = 32;    // columns of a block of codes
inline constexpr int kVectorBytes = 64;  // 16 lanes of 4 bytes
inline constexpr int kTritsColumns = 256;
inline constexpr int kTritsVectors = 13;

// Tables of 16 codes, with the bias of 128 added.
inline constexpr uint8_t kIq4Codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kMxfp4Codes[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                            128, 127, 126, 125, 124, 122, 120, 116};

struct IntegerLayout {
  CodeFormat codes = CodeFormat::kU8;
  ScaleFormat scales = ScaleFormat::kF16;
  int scale_columns = 32;          // columns that share a d
  int bias = 0;                    // a power of two, or 0
  const uint8_t* table = nullptr;  // [16], or none

  // What follows from them.
  bool tabled = false;  // whether there is a table: with the sanitizers, no constant expression may compare its address
  bool minima = false;  // whether groups have minima
  bool halves = false;  // whether groups have 16 columns, not 32
  int vectors = 0;      // of a block of codes; 0 for kTrits
  int scale_bytes = 0;  // of 16 lanes, for scale_columns columns
  int sub_scale_bytes = 0;  // of 16 lanes, for a block of 32 columns
};

constexpr IntegerLayout MakeLayout(CodeFormat codes, ScaleFormat scales, int scale_columns, int bias) {
  using S = ScaleFormat;
  constexpr int kVectors[] = {8, 4, 5, 6, 2, 3, 1, 0};  // by CodeFormat
  const bool minima = scales == S::kF16Min || scales == S::kSub32Min || scales == S::kSub16Min;
  const bool halves = scales == S::kSub16 || scales == S::kSub16Min;
  const bool sub_scales = scales == S::kSub32 || scales == S::kSub32Min || halves;
  return {codes,
          scales,
          scale_columns,
          bias,
          nullptr,
          false,
          minima,
          halves,
          kVectors[static_cast<int>(codes)],
          scales == S::kE8m0 ? 16
          : minima           ? 64
                             : 32,
          sub_scales ? (scales == S::kSub32 ? 16 : 32) : 0};
}

constexpr IntegerLayout MakeLayout(CodeFormat codes, ScaleFormat scales, int scale_columns, int bias,
                                   const uint8_t (&table)[16]) {
  IntegerLayout layout = MakeLayout(codes, scales, scale_columns, bias);
  layout.table = table;
  layout.tabled = true;
  return layout;
}

// Evaluated by the compiler only, so that no unit of an instruction set leaves a copy of it to the linker.
constexpr IntegerLayout LayoutOf(TensorType type) {
  using C = CodeFormat;
  using S = ScaleFormat;
  switch (type) {
    case TensorType::kQ8_0: return MakeLayout(C::kU8, S::kF16, 32, 128);
    case TensorType::kQ4_0: return MakeLayout(C::kNibble, S::kF16, 32, 8);
    case TensorType::kQ4_1: return MakeLayout(C::kNibble, S::kF16Min, 32, 0);
    case TensorType::kQ5_0: return MakeLayout(C::kNibbleBit, S::kF16, 32, 16);
    case TensorType::kQ5_1: return MakeLayout(C::kNibbleBit, S::kF16Min, 32, 0);
    case TensorType::kIQ4_NL: return MakeLayout(C::kNibble, S::kF16, 32, 128, kIq4Codes);
    case TensorType::kMXFP4: return MakeLayout(C::kNibble, S::kE8m0, 32, 128, kMxfp4Codes);
    case TensorType::kQ1_0: return MakeLayout(C::kBit, S::kF16, 128, 1);
    case TensorType::kQ2_0: return MakeLayout(C::k2Bits, S::kF16, 64, 1);
    case TensorType::kPQ2_0: return MakeLayout(C::k2Bits, S::kF16, 128, 1);
    case TensorType::kQ2_0_Oxi: return MakeLayout(C::k2Bits, S::kF16, 128, 1);
    case TensorType::kTQ1_0: return MakeLayout(C::kTrits, S::kF16, 256, 1);
    case TensorType::kTQ2_0: return MakeLayout(C::k2Bits, S::kF16, 256, 1);
    case TensorType::kQ2_K: return MakeLayout(C::k2Bits, S::kSub16Min, 256, 0);
    case TensorType::kQ3_K: return MakeLayout(C::k2BitsBit, S::kSub16, 256, 4);
    case TensorType::kQ4_K: return MakeLayout(C::kNibble, S::kSub32Min, 256, 0);
    case TensorType::kQ5_K: return MakeLayout(C::kNibbleBit, S::kSub32Min, 256, 0);
    case TensorType::kQ6_K: return MakeLayout(C::kNibble2Bits, S::kSub16, 256, 32);
    case TensorType::kIQ4_XS: return MakeLayout(C::kNibble, S::kSub32, 256, 128, kIq4Codes);
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: break;
  }
  return {};
}

// use.operator()<kType>() for an integer type.
template <typename Use>
static inline auto ForIntegerType(TensorType type, const Use& use) {
  using T = TensorType;
  switch (type) {
    case T::kQ4_0: return use.template operator()<T::kQ4_0>();
    case T::kQ4_1: return use.template operator()<T::kQ4_1>();
    case T::kQ5_0: return use.template operator()<T::kQ5_0>();
    case T::kQ5_1: return use.template operator()<T::kQ5_1>();
    case T::kQ8_0: return use.template operator()<T::kQ8_0>();
    case T::kQ2_K: return use.template operator()<T::kQ2_K>();
    case T::kQ3_K: return use.template operator()<T::kQ3_K>();
    case T::kQ4_K: return use.template operator()<T::kQ4_K>();
    case T::kQ5_K: return use.template operator()<T::kQ5_K>();
    case T::kQ6_K: return use.template operator()<T::kQ6_K>();
    case T::kIQ4_NL: return use.template operator()<T::kIQ4_NL>();
    case T::kIQ4_XS: return use.template operator()<T::kIQ4_XS>();
    case T::kTQ1_0: return use.template operator()<T::kTQ1_0>();
    case T::kTQ2_0: return use.template operator()<T::kTQ2_0>();
    case T::kMXFP4: return use.template operator()<T::kMXFP4>();
    case T::kQ1_0: return use.template operator()<T::kQ1_0>();
    case T::kQ2_0: return use.template operator()<T::kQ2_0>();
    case T::kPQ2_0: return use.template operator()<T::kPQ2_0>();
    case T::kQ2_0_Oxi: return use.template operator()<T::kQ2_0_Oxi>();
    case T::kF32:
    case T::kF16:
    case T::kBF16: break;
  }
  __builtin_trap();  // no other type has panels
}

// The same at run time, defined once; nullptr for the float types.
const IntegerLayout* FindIntegerLayout(TensorType type);

// Where the sections of a panel start, and where it ends.
struct PanelSections {
  size_t sub_scales;  // scales start at 0
  size_t codes;
  size_t bytes;
};
PanelSections SectionsOf(TensorType type, int64_t cols);  // of an integer type

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_KERNELS_PANEL_LAYOUT_H_
