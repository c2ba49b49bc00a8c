#ifndef STAGECOACH_TESTS_TESTING_TINY_VOCABULARY_H_
#define STAGECOACH_TESTS_TESTING_TINY_VOCABULARY_H_

// The tokenizer of the models that tests write: 256 bytes, pairs and triples of letters with their merges, and one
// end-of-text token, the last.

#include <cstdint>

#include "common/gguf/gguf_writer.h"

namespace stagecoach::testing {

// Sets the keys of a vocabulary of `size` tokens, 260 to 18000.
void SetTinyVocabulary(int64_t size, GgufWriter* writer);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_TINY_VOCABULARY_H_
