#ifndef STAGECOACH_COMMON_GRAMMAR_PROGRAM_H_
#define STAGECOACH_COMMON_GRAMMAR_PROGRAM_H_

// A compiled grammar: an automaton over bytes whose edges may also call other parts of it, as rules of a grammar do.
// The front compiles it (coordinator/text/grammar), the wire carries its bytes, the last stage follows it (matcher.h).
//
// The automaton
//   state   has byte edges, call edges and atom edges, and may accept. Its byte edges are deterministic.
//   call    goes on at `entry` and remembers `after`. A state that accepts may return there; returning when nothing is
//           remembered means that the text is complete.
//   atom    an edge of one token, whatever its bytes are: for markers that are control tokens.
// What every program keeps
//   P1  From each state acceptance can be reached with at most kMaxGrammarDepth remembered calls. So there are no dead
//       ends: who follows edges can always come to an end.
//   P2  No entry accepts, and at most kMaxGrammarDepth calls can follow each other without a byte or an atom between
//       them. So no call returns before it has matched something, and none recurs before that.
// A call whose `after` accepts and has no edges is never remembered: it returns where its caller would. So lists that
// are written by recursion at their end may be of any length.

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"

namespace stagecoach {

inline constexpr size_t kMaxGrammarStates = 65536;
inline constexpr size_t kMaxGrammarEdges = size_t{1} << 19;  // of all states
inline constexpr size_t kMaxGrammarBytes = 256 << 10;        // of a program as it travels
inline constexpr int kMaxGrammarDepth = 64;                  // stacked calls
// Decoded, a program takes so many times its bytes, and so many more, at most.
inline constexpr size_t kGrammarExpansion = 18;
inline constexpr size_t kMaxGrammarRowBytes = 64 << 10;

using GrammarStateId = uint32_t;
inline constexpr GrammarStateId kNoGrammarState = ~GrammarStateId{0};

// What a program is made of.
struct GrammarAutomaton {
  struct ByteEdge {
    uint8_t first, last;  // both included
    GrammarStateId target;
  };
  struct CallEdge {
    GrammarStateId entry, after;
  };
  struct AtomEdge {
    TokenId token;
    GrammarStateId target;
  };
  struct State {
    bool accepting = false;
    std::vector<ByteEdge> bytes;  // ascending and apart
    std::vector<CallEdge> calls;  // ascending by (entry, after), no two alike
    std::vector<AtomEdge> atoms;  // ascending by token, one each

    // Nothing can follow.
    bool IsFinal() const { return accepting && bytes.empty() && calls.empty() && atoms.empty(); }
  };
  std::vector<State> states;
  GrammarStateId start = 0;
};

// Of each state the fewest calls that have to be remembered on the way to acceptance; more than kMaxGrammarDepth where
// P1 does not hold. Targets are states.
std::vector<uint8_t> DepthsToAccept(const GrammarAutomaton& automaton);

// Immutable, thread-safe and cheap to copy.
class GrammarProgram {
 public:
  // Encodes the automaton, whose targets are states, and decodes that. Equal automata give equal bytes.
  static absl::StatusOr<GrammarProgram> Make(const GrammarAutomaton& automaton);

  // No bytes can crash it or make it slow. kInvalidArgument says what is wrong with them, kResourceExhausted which
  // limit they exceed.
  static absl::StatusOr<GrammarProgram> Decode(absl::string_view bytes);

  const std::string& bytes() const { return data_->bytes; }     // what Decode takes
  TokenId largest_atom() const { return data_->largest_atom; }  // kNoToken: no edge is an atom
  size_t memory_bytes() const;

  // For who follows it.

  // Where an edge leads: minus the state that it leaves, or, from kAbsolute on, itself.
  using CodedTarget = int32_t;
  struct Call {
    GrammarStateId entry;
    CodedTarget after;
    uint32_t first;  // place in Data::firsts
  };
  struct Atom {
    TokenId token;
    CodedTarget target;
  };
  struct First {  // what an entry can begin with, by itself or by calls
    std::bitset<256> bytes;
    bool atoms = false;
  };

  uint64_t serial() const { return data_->serial; }  // no other program of this process has it; copies do
  GrammarStateId start() const { return data_->start; }
  bool Accepts(GrammarStateId state) const { return ShapeOf(state).accepting; }
  // Accepts, and nothing can follow.
  bool IsFinal(GrammarStateId state) const { return ShapeOf(state).final; }
  int DepthToAccept(GrammarStateId state) const { return data_->depths[state]; }
  // kNoGrammarState: there is no such edge.
  GrammarStateId Target(GrammarStateId state, uint8_t byte) const;
  absl::Span<const Call> Calls(GrammarStateId state) const { return ShapeOf(state).calls; }
  const First& FirstOf(const Call& call) const { return data_->firsts[call.first]; }
  absl::Span<const Atom> Atoms(GrammarStateId state) const { return ShapeOf(state).atoms; }
  static GrammarStateId Resolve(GrammarStateId state, CodedTarget target) {
    return static_cast<GrammarStateId>(target) + (target < kAbsolute ? state : -GrammarStateId{kAbsolute});
  }

 private:
  friend class GrammarDecoder;
  static constexpr CodedTarget kAbsolute = 1 << 20;
  static constexpr CodedTarget kNoEdge = INT32_MAX;
  static constexpr size_t kRangesWithoutRow = 4;  // as fast to look through
  struct Range {
    uint8_t first, last;
    CodedTarget target;
  };
  // All of a state but its id. Texts of bounded length and the like repeat few shapes many times.
  struct Shape {
    bool accepting = false;
    bool final = false;
    absl::Span<const Range> ranges;
    absl::Span<const Call> calls;
    absl::Span<const Atom> atoms;
    const CodedTarget* row = nullptr;  // [256] target of each byte, or kNoEdge; absent of few ranges, or of many shapes
  };
  struct Data {
    std::string bytes;
    uint64_t serial = 0;
    GrammarStateId start = 0;
    TokenId largest_atom = kNoToken;
    std::vector<uint16_t> shape_of;  // [states]
    std::vector<uint8_t> depths;     // [states]
    std::vector<Shape> shapes;
    // What they point to.
    std::vector<Range> ranges;
    std::vector<Call> calls;
    std::vector<Atom> atoms;
    std::vector<CodedTarget> rows;
    std::vector<First> firsts;
  };
  const Shape& ShapeOf(GrammarStateId state) const { return data_->shapes[data_->shape_of[state]]; }

  std::shared_ptr<const Data> data_;
};

inline GrammarStateId GrammarProgram::Target(GrammarStateId state, uint8_t byte) const {
  const Shape& shape = ShapeOf(state);
  CodedTarget target = kNoEdge;
  if (shape.row != nullptr) {
    target = shape.row[byte];
  } else if (shape.ranges.size() <= kRangesWithoutRow) {
    for (const Range& range : shape.ranges) {
      if (byte >= range.first && byte <= range.last) target = range.target;
    }
  } else {
    const auto range = std::lower_bound(shape.ranges.begin(), shape.ranges.end(), byte,
                                        [](const Range& before, uint8_t value) { return before.last < value; });
    if (range != shape.ranges.end() && byte >= range->first) target = range->target;
  }
  return target == kNoEdge ? kNoGrammarState : Resolve(state, target);
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_PROGRAM_H_
