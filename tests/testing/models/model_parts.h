#ifndef STAGECOACH_TESTS_TESTING_MODELS_MODEL_PARTS_H_
#define STAGECOACH_TESTS_TESTING_MODELS_MODEL_PARTS_H_

// What the writers of models for tests share. The weights are random: what a tensor holds depends on the seed and its
// name only, so that leaving one out or adding another changes no third one.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/gguf/gguf_writer.h"
#include "common/quant/tensor_type.h"

namespace stagecoach::testing {

// Nearly normally distributed, within 3.5 deviations of the mean.
std::vector<float> NormalValues(uint64_t seed, absl::string_view name, int64_t count, double mean, double deviation);

// [rows][cols] of a type that nothing here can encode: random valid blocks whose values have about this root mean
// square.
std::string RandomBlocks(uint64_t seed, absl::string_view name, TensorType type, int64_t rows, int64_t cols,
                         double magnitude);

// The character that byte-level BPE writes for a byte: itself where it prints, else one from U+0100 on.
std::string ByteCharacter(int byte);

// Sets the keys of a tokenizer of `size` tokens, 260 to 18000: 256 bytes, pairs and triples of letters with their
// merges, and one end-of-text token, the last.
void SetTinyVocabulary(int64_t size, GgufWriter* writer);

// Writes the model and returns the path to open: `path` itself, which ends in ".gguf", or with several shards the first
// one's, <path without .gguf>-00001-of-0000N.gguf.
std::string WriteModel(const std::string& path, const GgufWriter& model, int shards = 1);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_MODEL_PARTS_H_
