// Bytes that should be a grammar's program: what decodes is followed, and its masks allow what the matcher takes.

#include "common/grammar/mask.h"
#include "common/grammar/matcher.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {

void Fuzz(FuzzInput input) {
  static const auto kVocabulary = testing::VocabularyWith({"ab", "abc", "\"a", "é", "}\n", "  "});
  std::vector<uint8_t> choices(8);
  for (uint8_t& choice : choices) choice = input.Byte();
  const absl::StatusOr<GrammarProgram> program = GrammarProgram::Decode(input.rest());
  if (!program.ok()) return;
  FuzzCheck(GrammarProgram::Decode(program->bytes()).ok(), "the bytes of a program are one");
  GrammarMasks masks(kVocabulary);
  GrammarMatcher matcher(*program, kVocabulary);
  for (const uint8_t choice : choices) {
    std::vector<uint64_t> mask;
    // Only atoms may lead on that are no tokens.
    const GrammarMasks::Found found = masks.Allowed(matcher, &mask);
    if (!found.any) {
      return FuzzCheck(found.cut_short || program->largest_atom() >= kVocabulary->size(), "a text can go on");
    }
    std::vector<TokenId> allowed;
    const bool was_end = matcher.ended();
    for (TokenId token = 0; token < kVocabulary->size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0) allowed.push_back(token);
    }
    const TokenId token = allowed[choice % allowed.size()];
    const bool taken = GrammarMatcher(matcher).Append(token);
    FuzzCheck(taken || found.cut_short, "an allowed token can be appended");
    const auto other = static_cast<TokenId>((choice * 7) % kVocabulary->size());
    const bool other_allowed = (mask[static_cast<size_t>(other) / 64] >> (other % 64) & 1) != 0;
    FuzzCheck(GrammarMatcher(matcher).Append(other) == other_allowed || found.cut_short,
              "no other token can be appended");
    FuzzCheck(!was_end || matcher.accepting(), "what has ended was complete");
    if (!taken) return;
    matcher.Append(token);
  }
}

}  // namespace stagecoach
