#ifndef STAGECOACH_COMMON_GGUF_Q2_LAYOUT_H_
#define STAGECOACH_COMMON_GGUF_Q2_LAYOUT_H_

// GGUF's type id 42 stands for three layouts, depending on the program that wrote the file, and no key says which. The
// room that a tensor has in its file tells blocks of 64 weights from blocks of 128; of the latter, keys that only
// OxiBonsai writes, or else a look at some blocks, tell where the scale is.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace stagecoach {

class GgufMetadata;
struct GgufTensor;

inline constexpr uint32_t kQ2TypeId = 42;

enum class Q2Layout {
  kAuto,     // find out
  kG64,      // llama.cpp: 64 weights in 18 bytes, scale first (TensorType::kQ2_0)
  kG128,     // PrismML's files: 128 weights in 34 bytes, scale first (kPQ2_0)
  kG128Oxi,  // OxiBonsai: 128 weights in 34 bytes, scale last (kQ2_0_Oxi)
};

// "auto" (or nothing), "g64", "g128", "g128-oxi". kInvalidArgument for another name.
absl::StatusOr<Q2Layout> ParseQ2Layout(absl::string_view name);
const char* Q2LayoutName(Q2Layout layout);  // as above

// That a tensor with this type id of a TensorType has; kAuto for every type that is none of the three.
Q2Layout Q2LayoutOf(uint32_t type_id);

// The least that a tensor of type id 42 with rows of `cols` elements may take; cols is a multiple of 64.
uint64_t SmallestQ2Bytes(int64_t cols, int64_t rows);

// A tensor that its file gives the type id 42.
struct Q2Tensor {
  GgufTensor* tensor;
  uint64_t room;       // bytes from its start to the next tensor's, or to the end of the file
  uint64_t alignment;  // of the file
};
using Q2Reader = std::function<absl::Status(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out)>;

// Gives all these tensors, which belong to one model, the type_id and the bytes of the layout that is wanted, or that
// is found. kInvalidArgument, with the tensor and what each layout would take, when the layout does not fit, when none
// or more than one does, or when tensors differ.
absl::Status SetQ2Layout(Q2Layout wanted, const GgufMetadata& metadata, absl::Span<const Q2Tensor> tensors,
                         const Q2Reader& read);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_Q2_LAYOUT_H_
