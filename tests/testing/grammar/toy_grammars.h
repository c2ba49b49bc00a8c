#ifndef STAGECOACH_TESTS_TESTING_GRAMMAR_TOY_GRAMMARS_H_
#define STAGECOACH_TESTS_TESTING_GRAMMAR_TOY_GRAMMARS_H_

// Small grammars, as the bytes that a request brings.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/base/ids.h"
#include "common/gguf/gguf_file.h"
#include "common/grammar/matcher.h"
#include "common/grammar/program.h"
#include "common/text/token_bytes.h"

namespace stagecoach::testing {

inline std::string ProgramBytes(const GrammarAutomaton& automaton) {
  const absl::StatusOr<GrammarProgram> program = GrammarProgram::Make(automaton);
  CHECK(program.ok());
  return program->bytes();
}

// Bytes from `first` to `last`: at least `least` of them, and at most `most`; -1: any number.
inline std::string RunOfBytes(char first, char last, int least, int most = -1) {
  GrammarAutomaton automaton;
  const int states = most < 0 ? least : most;
  for (int i = 0; i <= states; ++i) {
    GrammarAutomaton::State& state = automaton.states.emplace_back();
    state.accepting = i >= least;
    const bool ends = i == states && most >= 0;
    const auto next = static_cast<GrammarStateId>(i < states ? i + 1 : i);
    if (!ends) state.bytes.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), next});
  }
  return ProgramBytes(automaton);
}

// `count` lists, each with a semicolon behind it: "[", items with commas between them, "]"; an item is a digit or a
// list. Lists nest by calls.
inline std::string Lists(int count) {
  GrammarAutomaton automaton;
  automaton.states.resize(4);
  automaton.states[0].bytes = {{'[', '[', 1}};
  automaton.states[1].bytes = {{'0', '9', 2}};
  automaton.states[1].calls = {{0, 2}};
  automaton.states[2].bytes = {{',', ',', 1}, {']', ']', 3}};
  automaton.states[3].accepting = true;
  // The top: calls list i, then takes its semicolon.
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<GrammarStateId>(automaton.states.size());
    automaton.states.emplace_back().calls = {{0, at + 1}};
    automaton.states.emplace_back().bytes = {{';', ';', at + 2}};
  }
  automaton.states.emplace_back().accepting = true;
  automaton.start = 4;
  return ProgramBytes(automaton);
}

// Pairs of bytes, the first of which is a call of any of `count` rules: as hard to follow as a grammar can be.
inline GrammarAutomaton ManyCalls(size_t count) {
  const auto calls = static_cast<GrammarStateId>(count);
  GrammarAutomaton automaton;
  automaton.states.resize(2 + 2 * count);
  automaton.states[0].accepting = automaton.states[1].accepting = true;
  for (GrammarStateId call = 0; call < calls; ++call) {
    const GrammarStateId entry = 2 + call, after = 2 + calls + call;
    automaton.states[0].calls.push_back({entry, after});
    automaton.states[entry].bytes = {{0, 255, 1}};
    automaton.states[after].bytes = {{0, 255, 0}};
  }
  return automaton;
}

// The byte 255 alone, found after so many calls in vain that a mask ends before it comes to it.
inline GrammarAutomaton CallsInVain() {
  GrammarAutomaton automaton;
  automaton.states.resize(3);
  automaton.states[0].calls.assign(120'000, {1, 2});
  automaton.states[1].bytes = {{255, 255, 2}};
  automaton.states[2].accepting = true;
  return automaton;
}

// Of a model's file, for all of its tokens.
inline std::shared_ptr<const GrammarVocabulary> VocabularyOf(const std::string& path, int64_t tokens) {
  const auto file = GgufFile::Open(path);
  CHECK(file.ok());
  const auto vocabulary = ReadGrammarVocabulary((*file)->metadata(), tokens);
  CHECK(vocabulary.ok());
  return *vocabulary;
}

// What became of a text: tokens that the grammar does not allow, tokens that leave it open, or a complete one.
enum class TextEnd { kForbidden, kOpen, kComplete };
inline TextEnd HowItEnds(const std::string& program, const std::shared_ptr<const GrammarVocabulary>& vocabulary,
                         absl::Span<const TokenId> tokens) {
  GrammarMatcher matcher(GrammarProgram::Decode(program).value(), vocabulary);
  for (const TokenId token : tokens) {
    if (!matcher.Append(token)) return TextEnd::kForbidden;
  }
  return matcher.ended() ? TextEnd::kComplete : TextEnd::kOpen;
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_GRAMMAR_TOY_GRAMMARS_H_
