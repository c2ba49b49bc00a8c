#ifndef STAGECOACH_COMMON_QUANT_TENSOR_TYPE_H_
#define STAGECOACH_COMMON_QUANT_TENSOR_TYPE_H_

// The table of GGUF tensor types: ids, names, block sizes; and the reference dequantisation of the supported ones.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagecoach {

// GGUF's own ids.
enum class TensorType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };

struct TensorTypeInfo {
  uint32_t id;
  const char* name;        // "Q8_0"
  uint32_t block_elements; // elements a block
  uint32_t block_bytes;    // bytes a block
  bool supported;          // whether kernels for it exist
};

// The entry of a GGUF type id: known types have one even when no kernel computes with them yet, so that a file can be
// described and its sizes checked. nullptr for an unknown or removed id.
const TensorTypeInfo* FindTensorType(uint32_t id);
const TensorTypeInfo& GetTensorType(TensorType type);  // of a supported type

// "F32, F16, BF16, Q8_0": for messages.
std::string SupportedTensorTypes();

// Bytes of `elements` elements of a row; elements must be a multiple of the block size (checked by the reader).
size_t RowBytes(TensorType type, int64_t elements);

// Decodes `elements` elements of one row to float: the definition of the type's values (GGUF specification).
void DequantizeRow(TensorType type, const uint8_t* row, int64_t elements, float* out);

// Encodes a row; for tests and tools. Q8_0: scale max|x| / 127 as fp16, values rounded half away from zero.
void QuantizeRow(TensorType type, const float* in, int64_t elements, uint8_t* row);

// IEEE half and bfloat16, rounded to nearest even; all values including infinities and NaN.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
float Bf16ToFloat(uint16_t bits);
uint16_t FloatToBf16(float value);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_TENSOR_TYPE_H_
