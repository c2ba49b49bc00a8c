#ifndef STAGECOACH_COMMON_QUANT_QUANTIZE_K_H_
#define STAGECOACH_COMMON_QUANT_QUANTIZE_K_H_

// Encoders of one block of 256 finite floats of magnitudes that an fp16 scale can hold. Both look for the codes and
// scales of the smallest squared error: sub-blocks are fitted on their own, then the shared scale is fixed and every
// sub-block picks the best whole scale (and minimum) near its own fit. Not the bytes of any other program.

#include <cstdint>

namespace stagecoach {

void EncodeQ4_K(const float* in, uint8_t* block);  // 144 bytes
void EncodeQ6_K(const float* in, uint8_t* block);  // 210 bytes

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_QUANT_QUANTIZE_K_H_
