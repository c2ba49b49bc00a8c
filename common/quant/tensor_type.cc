#include "common/quant/tensor_type.h"

#include "common/base/check.h"

namespace stagecoach {
namespace {

// Block sizes as in the GGUF specification. Ids that are missing here were removed from the format (4, 5, 31 to 33, 36
// to 38) or belong to other programs. 142 and 143 are PrismML's; the last is ours.
constexpr TensorTypeInfo kTypes[] = {
    {0, "F32", 1, 4, true},          {1, "F16", 1, 2, true},
    {2, "Q4_0", 32, 18, true},       {3, "Q4_1", 32, 20, true},
    {6, "Q5_0", 32, 22, true},       {7, "Q5_1", 32, 24, true},
    {8, "Q8_0", 32, 34, true},       {9, "Q8_1", 32, 36, false},
    {10, "Q2_K", 256, 84, true},     {11, "Q3_K", 256, 110, true},
    {12, "Q4_K", 256, 144, true},    {13, "Q5_K", 256, 176, true},
    {14, "Q6_K", 256, 210, true},    {15, "Q8_K", 256, 292, false},
    {16, "IQ2_XXS", 256, 66, false}, {17, "IQ2_XS", 256, 74, false},
    {18, "IQ3_XXS", 256, 98, false}, {19, "IQ1_S", 256, 50, false},
    {20, "IQ4_NL", 32, 18, true},    {21, "IQ3_S", 256, 110, false},
    {22, "IQ2_S", 256, 82, false},   {23, "IQ4_XS", 256, 136, true},
    {24, "I8", 1, 1, false},         {25, "I16", 1, 2, false},
    {26, "I32", 1, 4, false},        {27, "I64", 1, 8, false},
    {28, "F64", 1, 8, false},        {29, "IQ1_M", 256, 56, false},
    {30, "BF16", 1, 2, true},        {34, "TQ1_0", 256, 54, true},
    {35, "TQ2_0", 256, 66, true},    {39, "MXFP4", 32, 17, true},
    {40, "NVFP4", 64, 36, false},    {41, "Q1_0", 128, 18, true},
    {42, "Q2_0", 64, 18, true},      {142, "PQ2_0", 128, 34, true},
    {143, "PTQ1_0", 128, 28, false}, {0x1002a, "Q2_0_OXI", 128, 34, true},
};

}  // namespace

const TensorTypeInfo* FindTensorType(uint32_t id) {
  for (const TensorTypeInfo& info : kTypes) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

const TensorTypeInfo& GetTensorType(TensorType type) {
  const TensorTypeInfo* info = FindTensorType(static_cast<uint32_t>(type));
  CHECK(info != nullptr && info->supported);
  return *info;
}

size_t RowBytes(TensorType type, int64_t elements) {
  const TensorTypeInfo& info = GetTensorType(type);
  CHECK_GE(elements, 0);
  CHECK_EQ(elements % info.block_elements, 0);
  return static_cast<size_t>(elements) / info.block_elements * info.block_bytes;
}

}  // namespace stagecoach
