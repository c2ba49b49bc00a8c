#ifndef STAGECOACH_TESTS_TESTING_MODELS_TINY_MODEL_H_
#define STAGECOACH_TESTS_TESTING_MODELS_TINY_MODEL_H_

// Plain dense models: Qwen 3 with norms of q and k, Qwen 2 with biases of q, k and v, Llama. Every tensor's values
// depend on its name, its shape and the seed only, so that a fused qkv matrix holds the same rows as the separate ones,
// and shards the same values as one file.

#include <string>

#include "common/gguf/gguf_writer.h"
#include "common/quant/tensor_type.h"
#include "tests/testing/models/tiny_architectures.h"

namespace stagecoach::testing {

// Row lengths must be multiples of the type's block.
using TinyModelOptions = TinyArchitectureOptions;

// The smallest shape whose every row length is a multiple of 256, the largest block of any type.
TinyModelOptions WideTinyModel(TensorType type);

// The model as a writer, for tests that change something before they write it.
GgufWriter TinyModel(TinyModelOptions options);

// Writes the model and returns the path to open (WriteModel in model_parts.h).
std::string WriteTinyModel(const std::string& path, const TinyModelOptions& options = {});

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_TINY_MODEL_H_
