// The bytes of a program, all numbers as varints of base 128, low groups first:
//   "SCG" and the version, a byte; the number of states; the start
//   the number of shapes; of each
//     accepting + 2 * its byte edges; of each: first - (last of the one before + 1), last - first, target
//     its calls; of each: entry, after
//     its atoms; of each: token - (token of the one before + 1), target
//   of each state its shape
// Targets and afters, of which state `id` is: 2 * zigzag(target - id), or 2 * target + 1. Encoded is the second many
// states lead to the same one, as at the end of a repetition, so that the states of its copies have one shape.

#include "common/grammar/program.h"

#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kProgramMagic = "SCG\x01";
constexpr uint64_t kMaxAtom = INT32_MAX;
constexpr size_t kRowBytes = 256 * sizeof(GrammarProgram::CodedTarget);
constexpr auto kMaxRows =
    static_cast<std::ptrdiff_t>(kMaxGrammarRowBytes / kRowBytes);  // usual programs have some dozens

template <typename... Parts>
absl::Status BadProgram(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("a grammar's program ", parts...));
}

absl::Status TooLarge(absl::string_view what, uint64_t found, uint64_t most) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the grammar's program has ", found, " ", what, ", at most ", most, " are possible"));
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 128; value >>= 7) out->push_back(static_cast<char>(value | 128));
  out->push_back(static_cast<char>(value));
}

constexpr size_t kManySources = 8;

// [states] how many other states have an edge to it.
std::vector<size_t> SourcesOfStates(const GrammarAutomaton& automaton) {
  std::vector<size_t> sources(automaton.states.size(), 0);
  std::vector<GrammarStateId> last(automaton.states.size(), kNoGrammarState);
  for (GrammarStateId id = 0; id < automaton.states.size(); ++id) {
    const auto count = [&](GrammarStateId target) {
      if (target != id && last[target] != id) ++sources[target];
      last[target] = id;
    };
    for (const auto& edge : automaton.states[id].bytes) count(edge.target);
    for (const auto& call : automaton.states[id].calls) count(call.after);
    for (const auto& atom : automaton.states[id].atoms) count(atom.target);
  }
  return sources;
}

std::string EncodedShape(const GrammarAutomaton::State& state, GrammarStateId id, const std::vector<size_t>& sources) {
  const auto append_target = [&](GrammarStateId target, std::string* out) {
    const int64_t difference = static_cast<int64_t>(target) - static_cast<int64_t>(id);
    if (difference != 0 && sources[target] > kManySources) return AppendVarint(2 * uint64_t{target} + 1, out);
    AppendVarint(2 * static_cast<uint64_t>(difference < 0 ? -2 * difference - 1 : 2 * difference), out);
  };
  std::string out;
  AppendVarint((state.accepting ? 1 : 0) + 2 * state.bytes.size(), &out);
  unsigned next = 0;
  for (const auto& edge : state.bytes) {
    AppendVarint(edge.first - next, &out);
    AppendVarint(edge.last - unsigned{edge.first}, &out);
    append_target(edge.target, &out);
    next = edge.last + 1u;
  }
  AppendVarint(state.calls.size(), &out);
  for (const auto& call : state.calls) {
    AppendVarint(call.entry, &out);
    append_target(call.after, &out);
  }
  AppendVarint(state.atoms.size(), &out);
  int64_t next_token = 0;
  for (const auto& atom : state.atoms) {
    AppendVarint(static_cast<uint64_t>(atom.token - next_token), &out);
    append_target(atom.target, &out);
    next_token = int64_t{atom.token} + 1;
  }
  return out;
}

std::string EncodedAutomaton(const GrammarAutomaton& automaton) {
  std::string shapes, states;
  const std::vector<size_t> sources = SourcesOfStates(automaton);
  absl::flat_hash_map<std::string, size_t> numbers;
  for (GrammarStateId id = 0; id < automaton.states.size(); ++id) {
    std::string shape = EncodedShape(automaton.states[id], id, sources);
    const size_t number = numbers.size();
    const auto [found, fresh] = numbers.try_emplace(std::move(shape), number);
    if (fresh) absl::StrAppend(&shapes, found->first);
    AppendVarint(found->second, &states);
  }
  std::string out(kProgramMagic);
  AppendVarint(automaton.states.size(), &out);
  AppendVarint(automaton.start, &out);
  AppendVarint(numbers.size(), &out);
  return absl::StrCat(out, shapes, states);
}

}  // namespace

// Reads a program front to back; after the first error every read gives 0.
class GrammarDecoder {
 public:
  explicit GrammarDecoder(absl::string_view bytes) : rest_(bytes) {}

  absl::StatusOr<GrammarProgram> Decode() {
    if (rest_.size() > kMaxGrammarBytes) return TooLarge("bytes", rest_.size(), kMaxGrammarBytes);
    auto data = std::make_shared<Data>();
    data->bytes = std::string(rest_);
    if (!absl::StartsWith(rest_, kProgramMagic)) {
      return BadProgram("begins otherwise than this version's: was it made by another version?");
    }
    rest_.remove_prefix(kProgramMagic.size());
    RETURN_IF_ERROR(ReadShapes(data.get()));
    RETURN_IF_ERROR(ReadStates(data.get()));
    RETURN_IF_ERROR(CheckEdges(*data));
    RETURN_IF_ERROR(FindFirsts(data.get()));
    RETURN_IF_ERROR(FindDepths(data.get()));
    MakeRows(data.get());
    static std::atomic<uint64_t> serial{0};
    data->serial = ++serial;
    GrammarProgram program;
    program.data_ = std::move(data);
    return program;
  }

 private:
  using Range = GrammarProgram::Range;
  using Call = GrammarProgram::Call;
  using Atom = GrammarProgram::Atom;
  using Shape = GrammarProgram::Shape;
  using Data = GrammarProgram::Data;
  struct Counts {
    size_t ranges, calls, atoms;
  };

  // `most`: otherwise the program is bad.
  uint64_t Number(uint64_t most) {
    uint64_t value = 0;
    for (int shift = 0; ok_; shift += 7) {
      ok_ = !rest_.empty() && shift < 63;
      if (!ok_) break;
      const uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) break;
    }
    ok_ = ok_ && value <= most;
    return ok_ ? value : 0;
  }
  GrammarProgram::CodedTarget Target() {
    const auto value = static_cast<int32_t>(Number(4 * kMaxGrammarStates));
    if ((value & 1) != 0) return GrammarProgram::kAbsolute + value / 2;
    return (value & 2) != 0 ? -(value + 2) / 4 : value / 4;
  }
  // How many of what takes at least `bytes` each.
  size_t Count(size_t bytes) { return Number(rest_.size() / bytes); }
  absl::Status CheckRead() const {
    if (ok_) return absl::OkStatus();
    return BadProgram("ends too early or has a number that is too large, ", rest_.size(), " bytes before its end");
  }

  absl::Status ReadShapes(Data* data) {
    const uint64_t states = Number(UINT32_MAX);
    data->start = static_cast<GrammarStateId>(Number(UINT32_MAX));
    const size_t shapes = Count(3);
    RETURN_IF_ERROR(CheckRead());
    if (states > kMaxGrammarStates) return TooLarge("states", states, kMaxGrammarStates);
    if (data->start >= states) return BadProgram("starts at state ", data->start, " of ", states);
    if (shapes > states) return BadProgram("has ", shapes, " shapes of ", states, " states");
    data->shape_of.resize(states);
    data->shapes.reserve(shapes);
    for (size_t i = 0; i < shapes; ++i) {
      RETURN_IF_ERROR(ReadShape(data));
    }
    data->ranges.shrink_to_fit();
    data->calls.shrink_to_fit();
    data->atoms.shrink_to_fit();
    // Now that the vectors do not move any more.
    size_t range = 0, call = 0, atom = 0;
    for (size_t i = 0; i < shapes; ++i) {
      Shape& shape = data->shapes[i];
      shape.ranges = absl::MakeConstSpan(data->ranges).subspan(range, counts_[i].ranges);
      shape.calls = absl::MakeConstSpan(data->calls).subspan(call, counts_[i].calls);
      shape.atoms = absl::MakeConstSpan(data->atoms).subspan(atom, counts_[i].atoms);
      shape.final = shape.accepting && EdgesOf(shape) == 0;
      range += counts_[i].ranges, call += counts_[i].calls, atom += counts_[i].atoms;
    }
    return absl::OkStatus();
  }

  absl::Status ReadShape(Data* data) {
    Shape& shape = data->shapes.emplace_back();
    const uint64_t head = Number(1 + 2 * 256);
    shape.accepting = (head & 1) != 0;
    Counts counts = {.ranges = head / 2};
    uint64_t next = 0;
    for (size_t i = 0; i < counts.ranges; ++i) {
      const uint64_t first = next + Number(255);
      const uint64_t last = first + Number(255);
      if (last > 255) return BadProgram("has an edge of byte ", last);
      data->ranges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), Target()});
      next = last + 1;
    }
    counts.calls = Count(2);
    for (size_t i = 0; i < counts.calls; ++i) {
      const auto entry = static_cast<GrammarStateId>(Number(data->shape_of.size() - 1));
      data->calls.push_back({.entry = entry, .after = Target()});
    }
    counts.atoms = Count(2);
    uint64_t next_token = 0;
    for (size_t i = 0; i < counts.atoms; ++i) {
      const uint64_t token = next_token + Number(kMaxAtom);
      if (token > kMaxAtom) return BadProgram("has an edge of token ", token);
      data->atoms.push_back({static_cast<TokenId>(token), Target()});
      data->largest_atom = std::max(data->largest_atom, static_cast<TokenId>(token));
      next_token = token + 1;
    }
    counts_.push_back(counts);
    return CheckRead();
  }

  absl::Status ReadStates(Data* data) {
    if (data->shapes.empty()) return BadProgram("has no shape");
    for (uint16_t& shape : data->shape_of) shape = static_cast<uint16_t>(Number(data->shapes.size() - 1));
    RETURN_IF_ERROR(CheckRead());
    if (!rest_.empty()) return BadProgram("goes on for ", rest_.size(), " bytes behind its end");
    return absl::OkStatus();
  }

  static size_t EdgesOf(const Shape& shape) { return shape.ranges.size() + shape.calls.size() + shape.atoms.size(); }

  static absl::Status CheckEdges(const Data& data) {
    const size_t states = data.shape_of.size();
    size_t edges = 0;
    for (GrammarStateId state = 0; state < states; ++state) {
      const Shape& shape = data.shapes[data.shape_of[state]];
      edges += EdgesOf(shape);
      if (edges > kMaxGrammarEdges) return TooLarge("edges and more", edges, kMaxGrammarEdges);
      // Ids below 0 become large.
      const auto is_state = [&](int32_t target) { return GrammarProgram::Resolve(state, target) < states; };
      bool ok = true;
      for (const Range& range : shape.ranges) ok = ok && is_state(range.target);
      for (const Call& call : shape.calls) ok = ok && is_state(call.after);
      for (const Atom& atom : shape.atoms) ok = ok && is_state(atom.target);
      if (!ok) return BadProgram("has an edge from state ", state, " to none of its ", states, " states");
    }
    return absl::OkStatus();
  }

  // Each entry's, callees before callers.
  absl::Status FindFirsts(Data* data) {
    first_of_.resize(data->shape_of.size(), kNotFound);
    heights_.resize(data->shape_of.size(), 0);
    for (Call& call : data->calls) {
      RETURN_IF_ERROR(FindFirst(call.entry, 1, data));
      call.first = first_of_[call.entry];
    }
    data->firsts.shrink_to_fit();
    return absl::OkStatus();
  }

  // `height`: of calls above it, itself included.
  absl::Status FindFirst(GrammarStateId entry, int height, Data* data) {
    if (first_of_[entry] != kNotFound) return absl::OkStatus();
    const Shape& shape = data->shapes[data->shape_of[entry]];
    if (shape.accepting) return BadProgram("calls state ", entry, ", which accepts");
    const auto too_high = [&] {
      return BadProgram("calls state ", entry, ", from which more than ", kMaxGrammarDepth,
                        " calls can follow each other with nothing between them");
    };
    if (height > kMaxGrammarDepth) return too_high();
    GrammarProgram::First first;
    first.atoms = !shape.atoms.empty();
    for (const Range& range : shape.ranges) {
      for (unsigned byte = range.first; byte <= range.last; ++byte) first.bytes.set(byte);
    }
    uint8_t above = 0;
    for (const Call& call : shape.calls) {
      RETURN_IF_ERROR(FindFirst(call.entry, height + 1, data));
      const GrammarProgram::First& callee = data->firsts[first_of_[call.entry]];
      first.bytes |= callee.bytes;
      first.atoms = first.atoms || callee.atoms;
      above = std::max(above, heights_[call.entry]);
    }
    if (above >= kMaxGrammarDepth) return too_high();
    heights_[entry] = static_cast<uint8_t>(above + 1);
    first_of_[entry] = static_cast<uint32_t>(data->firsts.size());
    data->firsts.push_back(first);
    return absl::OkStatus();
  }

  static absl::Status FindDepths(Data* data) {
    GrammarAutomaton automaton;
    automaton.states.resize(data->shape_of.size());
    for (GrammarStateId id = 0; id < automaton.states.size(); ++id) {
      const Shape& shape = data->shapes[data->shape_of[id]];
      GrammarAutomaton::State& state = automaton.states[id];
      state.accepting = shape.accepting;
      const auto at = [id](int32_t target) { return GrammarProgram::Resolve(id, target); };
      for (const Range& range : shape.ranges) state.bytes.push_back({range.first, range.last, at(range.target)});
      for (const Call& call : shape.calls) state.calls.push_back({call.entry, at(call.after)});
      for (const Atom& atom : shape.atoms) state.atoms.push_back({atom.token, at(atom.target)});
    }
    data->depths = DepthsToAccept(automaton);
    for (size_t state = 0; state < data->depths.size(); ++state) {
      if (data->depths[state] > kMaxGrammarDepth) {
        return BadProgram("has no way from state ", state, " to acceptance with at most ", kMaxGrammarDepth,
                          " stacked calls");
      }
    }
    return absl::OkStatus();
  }

  static void MakeRows(Data* data) {
    const auto wants_row = [](const Shape& shape) { return shape.ranges.size() > GrammarProgram::kRangesWithoutRow; };
    const auto rows = std::min(std::count_if(data->shapes.begin(), data->shapes.end(), wants_row), kMaxRows);
    data->rows.resize(static_cast<size_t>(rows) * 256, GrammarProgram::kNoEdge);
    GrammarProgram::CodedTarget* row = data->rows.data();
    for (Shape& shape : data->shapes) {
      if (!wants_row(shape)) continue;
      if (row == data->rows.data() + data->rows.size()) break;
      for (const Range& range : shape.ranges) std::fill(row + range.first, row + range.last + 1, range.target);
      shape.row = row;
      row += 256;
    }
  }

  static constexpr uint32_t kNotFound = UINT32_MAX;
  absl::string_view rest_;
  bool ok_ = true;
  std::vector<Counts> counts_;      // of each shape
  std::vector<uint32_t> first_of_;  // of each state that is an entry: its place in Data::firsts
  std::vector<uint8_t> heights_;    // of each such state: most calls in a row, its own included
};

absl::StatusOr<GrammarProgram> GrammarProgram::Make(const GrammarAutomaton& automaton) {
  const size_t states = automaton.states.size();
  if (states > kMaxGrammarStates) return TooLarge("states", states, kMaxGrammarStates);
  return Decode(EncodedAutomaton(automaton));
}

size_t GrammarProgram::memory_bytes() const {
  const auto of = [](const auto& items) { return items.capacity() * sizeof(items[0]); };
  const Data& data = *data_;
  return sizeof(Data) + of(data.bytes) + of(data.shape_of) + of(data.depths) + of(data.shapes) + of(data.ranges) +
         of(data.calls) + of(data.atoms) + of(data.rows) + of(data.firsts);
}

absl::StatusOr<GrammarProgram> GrammarProgram::Decode(absl::string_view bytes) {
  return GrammarDecoder(bytes).Decode();
}

}  // namespace stagecoach
