#include "common/grammar/program.h"

#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/matchers.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/text/grammar/random_rules.h"

namespace stagecoach {
namespace {

using Code = absl::StatusCode;
using State = GrammarAutomaton::State;

// a, then a list of itself in brackets, or b.
GrammarAutomaton Nested() {
  GrammarAutomaton nested;
  nested.states.resize(5);
  nested.states[0].bytes = {{'a', 'a', 1}, {'b', 'b', 4}};
  nested.states[1].bytes = {{'[', '[', 2}};
  nested.states[2].calls = {{0, 3}};
  nested.states[3].bytes = {{']', ']', 4}};
  nested.states[4].accepting = true;
  return nested;
}

absl::Status StatusOf(const GrammarAutomaton& automaton) { return GrammarProgram::Make(automaton).status(); }
absl::Status StatusOf(const std::string& bytes) { return GrammarProgram::Decode(bytes).status(); }

TEST(GrammarProgram, KeepsItsEdges) {
  GrammarAutomaton automaton = Nested();
  automaton.states[1].atoms = {{7, 4}, {300, 1}};
  const GrammarProgram program = GrammarProgram::Decode(GrammarProgram::Make(automaton)->bytes()).value();
  EXPECT_EQ(program.start(), 0u);
  EXPECT_EQ(program.Target(0, 'a'), 1u);
  EXPECT_EQ(program.Target(0, 'c'), kNoGrammarState);
  EXPECT_EQ(program.Target(3, ']'), 4u);
  ASSERT_THAT(program.Calls(2), SizeIs(1));
  const GrammarProgram::Call call = program.Calls(2)[0];
  EXPECT_EQ(call.entry, 0u);
  EXPECT_EQ(GrammarProgram::Resolve(2, call.after), 3u);
  EXPECT_TRUE(program.FirstOf(call).bytes['b']);
  EXPECT_EQ(program.FirstOf(call).bytes.count(), 2u);
  ASSERT_THAT(program.Atoms(1), SizeIs(2));
  EXPECT_EQ(program.Atoms(1)[1].token, 300);
  EXPECT_EQ(GrammarProgram::Resolve(1, program.Atoms(1)[1].target), 1u);
  EXPECT_EQ(program.largest_atom(), 300);
  EXPECT_TRUE(program.Accepts(4) && program.IsFinal(4) && !program.Accepts(3));
  EXPECT_EQ(program.DepthToAccept(0), 0);
  EXPECT_EQ(program.DepthToAccept(2), 1);
  EXPECT_NE(GrammarProgram::Decode(program.bytes())->serial(), program.serial());
}

TEST(GrammarProgram, FindsEachByteOfManyAndOfFewEdges) {
  GrammarAutomaton automaton;
  automaton.states.resize(130);
  for (State& state : automaton.states) state.accepting = true;
  for (unsigned byte = 0; byte < 256; byte += 2) {
    const auto first = static_cast<uint8_t>(byte);
    automaton.states[0].bytes.push_back({first, first, byte / 2 + 1});
  }
  automaton.states[129].bytes = {{0, 3, 0}, {5, 5, 129}, {200, 255, 128}};
  const GrammarProgram program = GrammarProgram::Make(automaton).value();
  for (const GrammarStateId state : {0u, 1u, 129u}) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      GrammarStateId expected = kNoGrammarState;
      for (const auto& edge : automaton.states[state].bytes) {
        if (byte >= edge.first && byte <= edge.last) expected = edge.target;
      }
      ASSERT_EQ(program.Target(state, static_cast<uint8_t>(byte)), expected) << state << " " << byte;
    }
  }
}

TEST(GrammarProgram, FindsEachByteOfManyStatesThatDiffer) {
  constexpr GrammarStateId kStates = 3000;
  GrammarAutomaton automaton;
  automaton.states.resize(kStates);
  for (GrammarStateId id = 0; id < kStates; ++id) {
    State& state = automaton.states[id];
    state.accepting = true;
    for (unsigned i = 0; i < 6; ++i) {
      const unsigned first = 40 * i + id % 31, width = id / 31 % 8;  // no two alike
      state.bytes.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(first + width), (id + i) % kStates});
    }
    state.bytes.push_back({250, static_cast<uint8_t>(250 + id / 248 % 6), id / 1488});
  }
  const GrammarProgram program = GrammarProgram::Make(automaton).value();
  for (GrammarStateId state = 0; state < kStates; state += 7) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      GrammarStateId expected = kNoGrammarState;
      for (const auto& edge : automaton.states[state].bytes) {
        if (byte >= edge.first && byte <= edge.last) expected = edge.target;
      }
      ASSERT_EQ(program.Target(state, static_cast<uint8_t>(byte)), expected) << state << " " << byte;
    }
  }
}

TEST(GrammarProgram, RefusesWhatWouldBeADeadEnd) {
  GrammarAutomaton automaton = Nested();
  automaton.states.emplace_back();
  EXPECT_THAT(StatusOf(automaton), StatusIs(Code::kInvalidArgument, HasSubstr("no way from state 5 to acceptance")));
  // Itself in itself, without an end.
  automaton = Nested();
  automaton.states[0].bytes.pop_back();
  EXPECT_THAT(StatusOf(automaton), StatusIs(Code::kInvalidArgument, HasSubstr("no way from state 0")));
}

// So many calls one within the other, on the only way from the start to the end; with a byte before each, or without.
GrammarAutomaton Chain(GrammarStateId depth, bool with_bytes) {
  constexpr GrammarStateId kEnd = 0;
  GrammarAutomaton chain;
  chain.states.resize(3 * depth + 2);
  chain.states[kEnd].accepting = true;
  chain.start = 1;
  for (GrammarStateId i = 0; i < depth; ++i) {
    const GrammarStateId entry = 3 * i + 1, call = with_bytes ? entry + 1 : entry, after = entry + 2;
    chain.states[entry + 1].bytes = {{'y', 'y', kEnd}};  // in vain without bytes
    if (with_bytes) chain.states[entry].bytes = {{'a', 'a', call}};
    if (with_bytes) chain.states[call].bytes.clear();
    chain.states[call].calls = {{entry + 3, after}};
    chain.states[after].bytes = {{'b', 'b', kEnd}};
  }
  chain.states[3 * depth + 1].bytes = {{'x', 'x', kEnd}};
  return chain;
}

TEST(GrammarProgram, RefusesMoreStackedCallsThanAMatcherKeeps) {
  EXPECT_EQ(StatusOf(Chain(64, /*with_bytes=*/true)).ToString(), "OK");
  EXPECT_THAT(StatusOf(Chain(65, true)), StatusIs(Code::kInvalidArgument, HasSubstr("no way from state 1")));
  EXPECT_EQ(StatusOf(Chain(64, /*with_bytes=*/false)).ToString(), "OK");
  EXPECT_THAT(StatusOf(Chain(65, false)), StatusIs(Code::kInvalidArgument, HasSubstr("more than 64 calls can follow")));
}

TEST(GrammarProgram, RefusesCallsThatEatNothing) {
  GrammarAutomaton automaton = Nested();
  automaton.states[0].accepting = true;
  EXPECT_THAT(StatusOf(automaton), StatusIs(Code::kInvalidArgument, HasSubstr("calls state 0, which accepts")));
  automaton = Nested();
  automaton.states[0].calls = {{2, 4}};
  EXPECT_THAT(StatusOf(automaton), StatusIs(Code::kInvalidArgument, HasSubstr("can follow each other with nothing")));
}

TEST(GrammarProgram, RefusesMoreThanItsLimits) {
  GrammarAutomaton automaton;
  automaton.states.resize(kMaxGrammarStates + 1);
  EXPECT_THAT(StatusOf(automaton), StatusIs(Code::kResourceExhausted, HasSubstr("65537 states, at most 65536")));
  automaton.states.pop_back();
  for (State& state : automaton.states) state.accepting = true;
  EXPECT_EQ(StatusOf(automaton).ToString(), "OK");
  // Equal states cost a byte each, but their edges are many.
  State all;
  all.accepting = true;
  for (int byte = 0; byte < 256; byte += 16) {
    all.bytes.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), 0});
  }
  automaton.states.assign(kMaxGrammarStates, all);
  EXPECT_THAT(StatusOf(automaton), StatusIs(Code::kResourceExhausted, HasSubstr("edges and more, at most 524288")));
  EXPECT_THAT(StatusOf(std::string(kMaxGrammarBytes + 1, 'x')),
              StatusIs(Code::kResourceExhausted, HasSubstr("262145 bytes, at most 262144")));
}

TEST(GrammarProgram, RefusesOtherBytes) {
  const std::string bytes = GrammarProgram::Make(Nested())->bytes();
  EXPECT_THAT(StatusOf(""), StatusIs(Code::kInvalidArgument, HasSubstr("another version")));
  EXPECT_THAT(StatusOf("SCG\x02" + bytes.substr(4)), StatusIs(Code::kInvalidArgument, HasSubstr("another version")));
  EXPECT_THAT(StatusOf(bytes + "x"), StatusIs(Code::kInvalidArgument, HasSubstr("1 bytes behind its end")));
  for (size_t size = 4; size < bytes.size(); ++size) {
    EXPECT_THAT(StatusOf(bytes.substr(0, size)), StatusIs(Code::kInvalidArgument, HasSubstr("a grammar's program")))
        << size;
  }
  // States, start, shapes, and one shape: accepts and has no edges.
  EXPECT_EQ(StatusOf(std::string("SCG\x01\x01\x00\x01\x01\x00\x00\x00", 11)).ToString(), "OK");
  EXPECT_THAT(StatusOf(std::string("SCG\x01\x01\x01\x01\x01\x00\x00\x00", 11)),
              StatusIs(Code::kInvalidArgument, HasSubstr("starts at state 1 of 1")));
  EXPECT_THAT(StatusOf(std::string("SCG\x01\x00\x00\x00", 7)), StatusIs(Code::kInvalidArgument, HasSubstr("0 of 0")));
  EXPECT_THAT(StatusOf(std::string("SCG\x01\x01\x00\x00\x00", 8)),
              StatusIs(Code::kInvalidArgument, HasSubstr("no shape")));
  // An edge to the state before the first one.
  EXPECT_THAT(StatusOf(std::string("SCG\x01\x01\x00\x01\x03\x00\x00\x02\x00\x00\x00", 14)),
              StatusIs(Code::kInvalidArgument, HasSubstr("from state 0 to none of its 1 states")));
  EXPECT_THAT(StatusOf("SCG\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
              StatusIs(Code::kInvalidArgument, HasSubstr("a number that is too large")));
}

// What takes much memory for its bytes: shapes that are nearly empty, entries, and rows of shapes that differ.
TEST(GrammarProgram, TakesNoMoreMemoryThanItsBytesMayTake) {
  GrammarAutomaton wide;
  wide.states.resize(300);
  for (GrammarStateId id = 0; id < 300; ++id) {
    wide.states[id].accepting = true;
    for (uint8_t i = 0; i < 5; ++i) {
      const auto first = static_cast<uint8_t>(40 * i + id % 30);
      wide.states[id].bytes.push_back({first, static_cast<uint8_t>(first + id / 30), 0});
    }
  }
  // States, start, shapes; of each shape that it accepts and has no edges; of each state that it has the first shape.
  const std::string count = "\x80\x80\x03";  // 49,152
  std::string shapes = "SCG\x01" + count + std::string(1, '\0') + count;
  for (int i = 0; i < 49'152; ++i) shapes += std::string("\x01\0\0", 3);
  shapes.append(49'152, '\0');
  const struct {
    const char* name;
    GrammarProgram program;
    double least;  // times its bytes
  } cases[] = {{"shapes", GrammarProgram::Decode(shapes).value(), 16},
               {"entries", GrammarProgram::Make(testing::ManyCalls(20'000)).value(), 5},
               {"calls", GrammarProgram::Make(testing::CallsInVain()).value(), 5},
               {"rows", GrammarProgram::Make(wide).value(), 10}};
  for (const auto& one : cases) {
    const auto bytes = static_cast<double>(one.program.bytes().size());
    const auto memory = static_cast<double>(one.program.memory_bytes());
    EXPECT_LE(memory, kGrammarExpansion * bytes + kMaxGrammarRowBytes) << one.name << " " << bytes;
    EXPECT_GE(memory, one.least * bytes) << one.name << " " << bytes;
  }
}

// What decodes after a change of its bytes can be followed, and nothing that can be allowed is a dead end.
TEST(GrammarProgram, CannotBeHarmedByMutatedBytes) {
  std::mt19937 random(1);
  const auto vocabulary = testing::VocabularyWith({"ab", "abc"});
  int decoded = 0;
  for (int i = 0; i < (testing::kSanitized ? 300 : 3000); ++i) {
    std::string bytes = testing::RandomGrammar(testing::ControlOf(*vocabulary), &random).second.bytes();
    for (int change = static_cast<int>(random() % 4); change >= 0; --change) {
      if (bytes.size() < 6) break;
      const size_t at = 4 + random() % (bytes.size() - 4);
      if (random() % 4 == 0) {
        bytes.erase(at, 1);
      } else {
        bytes[at] = static_cast<char>(random() % 3 == 0 ? random() : static_cast<unsigned>(bytes[at]) + random() % 3);
      }
    }
    const absl::StatusOr<GrammarProgram> program = GrammarProgram::Decode(bytes);
    if (!program.ok()) continue;
    ++decoded;
    GrammarMatcher matcher(*program, vocabulary);
    for (int step = 0; step < 20; ++step) {
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary->size(); ++token) {
        if (GrammarMatcher(matcher).Append(token)) allowed.push_back(token);
      }
      // An atom may have become one that is no token.
      if (allowed.empty() && program->largest_atom() >= 0) break;
      ASSERT_THAT(allowed, Not(IsEmpty()));
      ASSERT_TRUE(matcher.Append(allowed[random() % allowed.size()]));
    }
  }
  EXPECT_GT(decoded, 30);
}

}  // namespace
}  // namespace stagecoach
