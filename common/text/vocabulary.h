#ifndef STAGECOACH_COMMON_TEXT_VOCABULARY_H_
#define STAGECOACH_COMMON_TEXT_VOCABULARY_H_

// What a GGUF file says about its tokens, checked: the tokenizer.ggml.* keys.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "common/text/pretokenizer_names.h"

namespace stagecoach {

enum class TokenType : uint8_t {  // the values of tokenizer.ggml.token_type
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Of a model that was trained to write what stands between two texts: its prompt is prefix, the text before, suffix,
// the text behind, middle.
struct FillMarkers {
  TokenId prefix = kNoToken;
  TokenId suffix = kNoToken;
  TokenId middle = kNoToken;
  std::vector<TokenId> ends;  // of such an answer, beside end_of_generation: padding, and what begins another file
};

struct Vocabulary {
  enum class Model { kBytePair, kSentencePiece };

  Model model = Model::kBytePair;
  PreTokenizer pre_tokenizer = PreTokenizer::kQwen2;  // byte pairs only
  bool takes_whole_pieces = false;  // byte pairs only: a piece that is a token is never made of others
  std::vector<std::string> texts;   // of each token, as stored
  std::vector<TokenType> types;     // as many as texts
  std::vector<float> scores;        // SentencePiece only: as many as texts, finite
  std::vector<std::string> merges;  // byte pairs only: "left right", best first

  // kNoToken where there is none; otherwise below texts.size().
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId unknown = kNoToken;
  TokenId pad = kNoToken;  // also where the file names no token of the vocabulary
  bool add_bos = false;    // only with a bos
  bool add_eos = false;    // only with an eos
  bool add_space_prefix = false;

  // Special tokens that take the white space after them with them, ascending: Phi-3's.
  std::vector<TokenId> swallow_space;

  // The tokens that end a generation, ascending: eos, eot, eom, and every token with a text known for that purpose,
  // such as <|im_end|>, unless plain text can become that token (user-defined ones, SentencePiece's normal ones). By
  // their vocabulary: gpt-oss ends with <|return|> and <|call|>, never with <|end|>, which ends one of several messages
  // of an answer; GLM ends where it would let others speak, with <|user|> and <|observation|>.
  std::vector<TokenId> end_of_generation;

  // Where the file names all three by id, or has tokens with texts known for that purpose. None is user-defined.
  std::optional<FillMarkers> fill;
};

// kUnimplemented, with the supported ones, for a model or pre-tokenizer that we do not have; kNotFound or
// kInvalidArgument, naming the file and the key, for what is missing or malformed.
absl::StatusOr<Vocabulary> ReadVocabulary(const GgufMetadata& metadata);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_TEXT_VOCABULARY_H_
