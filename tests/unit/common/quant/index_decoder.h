#ifndef STAGECOACH_TESTS_UNIT_QUANT_INDEX_DECODER_H_
#define STAGECOACH_TESTS_UNIT_QUANT_INDEX_DECODER_H_

#include <cstdint>
#include <vector>

#include "common/quant/tensor_type.h"

namespace stagecoach {

// The value of element j of one block, in the index form of the format's definition and in double, where every product
// is exact. Shares no code with the product.
double ElementOfBlock(TensorType type, const uint8_t* block, int j);

// The same for a row, each element rounded to float.
std::vector<float> DecodeByIndex(TensorType type, const uint8_t* row, int64_t elements);

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_QUANT_INDEX_DECODER_H_
