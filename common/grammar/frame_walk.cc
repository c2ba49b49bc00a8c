#include "common/grammar/frame_walk.h"

#include <algorithm>

namespace stagecoach {
namespace {

// Of one step. Only what calls a great many rules to no end comes here.
constexpr size_t kMaxCalls = 1024;
// Edges, or calls before, that are looked at in the time of a configuration.
constexpr size_t kEdgesOfAStep = 8;
constexpr int64_t kStepsOfABegin = 4;

}  // namespace

void FrameWalk::Begin(const GrammarProgram& program, GrammarStateId state, int room) {
  program_ = &program;
  room_ = room;
  room_needed_ = 0;
  steps_ += kStepsOfABegin;
  levels_.clear();
  configs_.clear();
  nodes_.assign(1, {.after = kNoGrammarState, .below = 0, .level = 0});
  Open();
  configs_.push_back({state, 0});
  Close();
}

absl::Span<const FrameWalk::Config> FrameWalk::Reached(size_t depth) const {
  const Level& level = levels_[depth];
  return absl::MakeConstSpan(configs_).subspan(level.begin, level.reached_end - level.begin);
}

absl::Span<const FrameWalk::Config> FrameWalk::All(size_t depth) const {
  const Level& level = levels_[depth];
  return absl::MakeConstSpan(configs_).subspan(level.begin, level.end - level.begin);
}

bool FrameWalk::Step(size_t depth, uint8_t byte) {
  const Level from = levels_[depth];
  const Config only = configs_[from.begin];
  if (from.end - from.begin == 1 && program_->Target(only.state, byte) == kNoGrammarState &&
      program_->Calls(only.state).empty()) {
    ++steps_;
    return false;  // most of a walk
  }
  levels_.resize(depth + 1);
  configs_.resize(from.end);
  nodes_.resize(from.nodes);
  called_.clear();
  Open();
  for (size_t i = from.begin; i < from.end; ++i) {
    Follow(configs_[i], byte, [](TokenId, Config) {});
  }
  Close();
  return configs_.size() > from.end;
}

void FrameWalk::ForEachAtom(absl::FunctionRef<void(TokenId token, Config config)> found) {
  called_.clear();
  const Level from = levels_[0];
  for (size_t i = from.begin; i < from.end; ++i) Follow(configs_[i], -1, found);
}

void FrameWalk::Open() { levels_.push_back({.begin = configs_.size()}); }

// Returns from every call that may end here.
void FrameWalk::Close() {
  Level& level = levels_.back();
  level.reached_end = configs_.size();
  level.exits = false;
  for (size_t i = level.begin; i < configs_.size(); ++i) {
    const Config config = configs_[i];
    if (!program_->Accepts(config.state)) continue;
    if (config.node == 0) {
      level.exits = true;
    } else {
      Add({nodes_[config.node].after, nodes_[config.node].below});
    }
  }
  level.end = configs_.size();
  level.nodes = nodes_.size();
}

void FrameWalk::Add(Config config) {
  const auto begin = configs_.begin() + static_cast<std::ptrdiff_t>(levels_.back().begin);
  if (static_cast<size_t>(configs_.end() - begin) >= kMaxConfigs) return;
  if (std::find(begin, configs_.end(), config) == configs_.end()) configs_.push_back(config);
}

bool FrameWalk::HasRoom(int room) {
  room_needed_ = std::max(room_needed_, room);
  return room <= room_;
}

void FrameWalk::Follow(Config config, int byte, absl::FunctionRef<void(TokenId token, Config config)> found) {
  ++steps_;
  const int level = nodes_[config.node].level;
  if (byte >= 0) {
    const GrammarStateId target = program_->Target(config.state, static_cast<uint8_t>(byte));
    if (target != kNoGrammarState && HasRoom(level + program_->DepthToAccept(target))) Add({target, config.node});
  } else {
    steps_ += static_cast<int64_t>(program_->Atoms(config.state).size() / kEdgesOfAStep);
    for (const GrammarProgram::Atom& atom : program_->Atoms(config.state)) {
      const GrammarStateId target = GrammarProgram::Resolve(config.state, atom.target);
      if (HasRoom(level + program_->DepthToAccept(target))) found(atom.token, {target, config.node});
    }
  }
  if (!program_->Calls(config.state).empty()) FollowCalls(config, byte, found);
}

void FrameWalk::FollowCalls(Config config, int byte, absl::FunctionRef<void(TokenId token, Config config)> found) {
  const absl::Span<const GrammarProgram::Call> calls = program_->Calls(config.state);
  const int level = nodes_[config.node].level;
  if (!exhausted()) steps_ += static_cast<int64_t>(calls.size() / kEdgesOfAStep);
  for (const GrammarProgram::Call& call : calls) {
    if (exhausted()) return;
    const GrammarProgram::First& first = program_->FirstOf(call);
    if (byte >= 0 ? !first.bytes[static_cast<size_t>(byte)] : !first.atoms) continue;
    const GrammarStateId after = GrammarProgram::Resolve(config.state, call.after);
    Config callee = {call.entry, config.node};
    const int depth = program_->DepthToAccept(call.entry);
    if (program_->IsFinal(after)) {
      if (!HasRoom(level + depth)) continue;
    } else {
      if (!HasRoom(level + std::max(program_->DepthToAccept(after), depth + 1))) continue;
      callee.node = Remember(after, config.node);
    }
    steps_ += static_cast<int64_t>(called_.size() / kEdgesOfAStep);
    if (called_.size() >= kMaxCalls || std::find(called_.begin(), called_.end(), callee) != called_.end()) continue;
    called_.push_back(callee);
    Follow(callee, byte, found);
  }
}

// The same node for the same calls, so that configurations that are alike are equal.
uint32_t FrameWalk::Remember(GrammarStateId after, uint32_t below) {
  steps_ += static_cast<int64_t>(nodes_.size() / kEdgesOfAStep);
  for (size_t i = nodes_.size(); i-- > 1;) {
    if (nodes_[i].after == after && nodes_[i].below == below) return static_cast<uint32_t>(i);
  }
  nodes_.push_back({.after = after, .below = below, .level = nodes_[below].level + 1});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

}  // namespace stagecoach
