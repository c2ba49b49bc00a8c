#ifndef STAGECOACH_COMMON_QUANT_TENSOR_TYPE_H_
#define STAGECOACH_COMMON_QUANT_TENSOR_TYPE_H_

// The table of GGUF tensor types (ids, names, block sizes) and the reference dequantisation of the supported ones.
// Every kernel unit reads it, so it includes little.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace stagecoach {

// GGUF's own ids; 142 is PrismML's. Ids above 0xffff are ours: layouts that other programs write under one of GGUF's
// ids, told apart when a file is opened.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kQ1_0 = 41,
  kQ2_0 = 42,           // 64 weights: scale, then codes
  kPQ2_0 = 142,         // 128 weights: scale, then codes; also PrismML's older files with id 42
  kQ2_0_Oxi = 0x1002a,  // 128 weights: codes, then scale, code 3 is 0: OxiBonsai's files with id 42
};

struct TensorTypeInfo {
  uint32_t id;
  const char* name;         // "Q8_0"
  uint32_t block_elements;  // elements a block
  uint32_t block_bytes;     // bytes a block
  bool supported;           // whether kernels for it exist
};

// The entry of a type id, also of a type without kernels, whose files can be described; nullptr for an unknown or
// removed id.
const TensorTypeInfo* FindTensorType(uint32_t id);
const TensorTypeInfo& GetTensorType(TensorType type);  // of a supported type

// Bytes of `elements` elements of a row; elements must be a multiple of the block size (checked by the reader).
size_t RowBytes(TensorType type, int64_t elements);

// Decodes one row to float: the definition of the type's values (GGUF specification). Scales of several parts are
// multiplied first (d * sub-scale, dmin * sub-minimum, each rounded to float), then scale * code, then the minimum is
// added or subtracted: no fused operations.
void DequantizeRow(TensorType type, const uint8_t* row, int64_t elements, float* out);

// Whether QuantizeRow can encode the type: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K, Q1_0.
bool CanQuantize(TensorType type);

// Encodes a row of finite floats; the bytes of Q8_0 and Q4_0 are those of llama.cpp. Not for a type that !CanQuantize.
void QuantizeRow(TensorType type, const float* in, int64_t elements, uint8_t* row);

// Fills a row with random valid blocks: any code, values with a root mean square of about `magnitude`, none above about
// 16 times that. Same arguments, same bytes on every machine. Any supported type.
void FillRandomRow(TensorType type, int64_t elements, uint64_t seed, float magnitude, uint8_t* row);

// The first of `count` blocks whose scale or minimum is an infinity or NaN; of a plain float type the first such
// element. Any supported type. Reads only the scales of blocks.
std::optional<int64_t> FindNonFinite(TensorType type, const uint8_t* blocks, int64_t count);

// IEEE half and bfloat16, rounded to nearest even; all values including infinities and NaN.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float Bf16ToFloat(uint16_t bits);
uint16_t FloatToBf16(float value);

// How the kernels lay out weights and activations, for the planner, which counts their memory, and the stages.
inline constexpr int kPanelRows = 16;          // output rows of a panel of weights = lanes
inline constexpr int kActivationGroup = 32;    // activations that share one scale
inline constexpr int kAttentionGranule = 256;  // absolute positions whose softmax partials are merged in order

// What the kernels' layout takes for `file_bytes` of a matrix, but for the padding of its last panel: as much as the
// file, except where scales of six bits or less become bytes.
constexpr uint64_t PackedBytes(TensorType type, uint64_t file_bytes) {
  switch (type) {  // of 256 weights
    case TensorType::kQ3_K: return file_bytes / 110 * 114;
    case TensorType::kQ4_K: return file_bytes / 144 * 148;
    case TensorType::kQ5_K: return file_bytes / 176 * 180;
    case TensorType::kIQ4_XS: return file_bytes / 136 * 138;
    default: return file_bytes;
  }
}

// How a matrix wants its input: float rows, rows quantised to int8, or rows rounded to bfloat16.
enum class ActivationKind { kFloat, kInt8, kBf16 };

// `bf16_dot`: whether the instruction set multiplies BF16 by BF16.
constexpr ActivationKind ActivationKindFor(TensorType weights, bool bf16_dot) {
  switch (weights) {
    case TensorType::kF32:
    case TensorType::kF16: return ActivationKind::kFloat;
    case TensorType::kBF16: return bf16_dot ? ActivationKind::kBf16 : ActivationKind::kFloat;
    default: return ActivationKind::kInt8;
  }
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_TENSOR_TYPE_H_
