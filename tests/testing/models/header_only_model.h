#ifndef STAGECOACH_TESTS_TESTING_MODELS_HEADER_ONLY_MODEL_H_
#define STAGECOACH_TESTS_TESTING_MODELS_HEADER_ONLY_MODEL_H_

// Files of well-known models that hold a header and no weights: as long as the real ones, but all of that is a hole. So
// whatever reads headers can be tried with the largest models, on any disk.
//
// Their keys and tensors are those of common/gguf/model_shapes.h, stored as other programs store them; what was not
// confirmed there is in ModelShape::unverified. The vocabulary is as large as the real one and has its pre-tokenizer's
// name and the special tokens that matter; but the other tokens are single bytes and unused ones.

#include <string>

#include "common/gguf/model_shapes.h"

namespace stagecoach::testing {

// The type that people have of the model: MXFP4 of gpt-oss, Q4_K_M of the others.
std::string UsualTypeOf(const ModelShape& shape);

// Writes it to `path`, and checks on the way what can go wrong.
void WriteHeaderOnlyModel(const std::string& path, const ModelShape& shape, const std::string& type);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_HEADER_ONLY_MODEL_H_
