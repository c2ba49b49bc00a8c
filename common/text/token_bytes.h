#ifndef STAGECOACH_COMMON_TEXT_TOKEN_BYTES_H_
#define STAGECOACH_COMMON_TEXT_TOKEN_BYTES_H_

// What the tokens of a vocabulary stand for: text, for whoever shows it, and what a grammar has to know. Thread-safe.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "common/grammar/grammar_vocabulary.h"
#include "common/grammar/program.h"
#include "common/text/vocabulary.h"

namespace stagecoach {

// Control, unknown and unused tokens never stand for plain text, whatever their own text is.
bool IsPlainToken(const Vocabulary& vocabulary, TokenId token);

// The bytes of a plain token: possibly part of a UTF-8 sequence. A SentencePiece token keeps its leading space.
std::string PlainTokenBytes(const Vocabulary& vocabulary, TokenId token);

// How texts of vocabularies write bytes.

// Byte pairs: every byte is a printable character (33-126, 161-172 and 174-255 as themselves, the 68 others as U+0100
// and up). Appends the bytes; a character outside this alphabet: itself, and false.
bool AppendBytesSpelled(absl::string_view text, std::string* bytes);

// SentencePiece: the byte that a text of the form <0xNN> names, or -1; and what stands for a space.
int ByteNamed(absl::string_view text);
inline constexpr absl::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// What a grammar has to know of the tokens of a model's file. `tokens`: of the model, whose last ones may have no text;
// those are never allowed. The tokens that end a generation are the vocabulary's. kFailedPrecondition, kUnimplemented:
// no grammar can be followed with it, which the message says so that a request's author understands it.
absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> ReadGrammarVocabulary(const GgufMetadata& metadata,
                                                                               int64_t tokens);
// The same of one that was read.
absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> MakeGrammarVocabulary(const Vocabulary& vocabulary,
                                                                               int64_t tokens);

// OK, or kInvalidArgument: the program names a token that is not there.
absl::Status CheckGrammarTokens(const GrammarProgram& program, const GrammarVocabulary& vocabulary);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TEXT_TOKEN_BYTES_H_
