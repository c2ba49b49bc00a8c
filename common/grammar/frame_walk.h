#ifndef STAGECOACH_COMMON_GRAMMAR_FRAME_WALK_H_
#define STAGECOACH_COMMON_GRAMMAR_FRAME_WALK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/grammar/program.h"

namespace stagecoach {

// Follows bytes from one state through a program, with the calls that are made on the way, but no further down than to
// where the walk began: what was remembered before that is another walk's. So a walk depends on little, and what it
// finds can be kept. A matcher walks along a token, a mask down the tree of all tokens: both decide by this code alone.
//
// At each depth (bytes from the start) there are configurations: a state, and what was remembered since the start.
// At most kMaxConfigs are followed, in the order in which they are found; a grammar that is so ambiguous loses the
// others, and with them texts, but never fits a text that the rules do not. The same is true of one that exhausts the
// steps allowed. For one thread; keeps its memory.
class FrameWalk {
 public:
  static constexpr size_t kMaxConfigs = 32;
  struct Config {
    GrammarStateId state;
    uint32_t node;  // of what is remembered; 0: nothing since the start
    friend bool operator==(const Config&, const Config&) = default;
  };
  struct Node {
    GrammarStateId after;
    uint32_t below;  // node
    int level;       // calls remembered since the start, this one included
  };

  // From now on it may take so many steps more, of some 10 ns each where they are hardest: looks at a configuration, or
  // at several edges. Then no step leads on.
  void Allow(int64_t steps) { last_step_ = steps_ + steps; }
  void Spend(int64_t steps) { steps_ += steps; }
  bool exhausted() const { return steps_ >= last_step_; }

  // Depth 0: at `state`, with room for so many more remembered calls, those on the way to acceptance included.
  void Begin(const GrammarProgram& program, GrammarStateId state, int room);

  // From `depth` by a byte to depth + 1; what was deeper is forgotten. False: there is nothing.
  bool Step(size_t depth, uint8_t byte);

  // The configurations that the last byte led to.
  absl::Span<const Config> Reached(size_t depth) const;
  // These, and those that returning leads to from there.
  absl::Span<const Config> All(size_t depth) const;
  // Whether what was remembered before the start may go on here.
  bool Exits(size_t depth) const { return levels_[depth].exits; }
  const Node& node(uint32_t node) const { return nodes_[node]; }

  // Where atoms lead from depth 0. Node references hold until the next Begin.
  void ForEachAtom(absl::FunctionRef<void(TokenId token, Config config)> found);

  // The room that made no difference since Begin: with as much or more the walk is the same.
  int room_needed() const { return room_needed_; }
  // Taken since this object was made.
  int64_t steps() const { return steps_; }

 private:
  struct Level {
    size_t begin, reached_end, end;  // in configs_
    size_t nodes;                    // in use
    bool exits;
  };
  void Open();
  void Close();
  void Add(Config config);
  bool HasRoom(int room);
  // Adds what a byte, or with -1 each atom, leads to.
  void Follow(Config config, int byte, absl::FunctionRef<void(TokenId token, Config config)> found);
  void FollowCalls(Config config, int byte, absl::FunctionRef<void(TokenId token, Config config)> found);
  uint32_t Remember(GrammarStateId after, uint32_t below);

  const GrammarProgram* program_ = nullptr;
  int room_ = 0;
  int room_needed_ = 0;
  int64_t steps_ = 0;
  int64_t last_step_ = 0;
  std::vector<Level> levels_;  // by depth
  std::vector<Config> configs_;
  std::vector<Node> nodes_;     // node 0 stands for the start
  std::vector<Config> called_;  // in the current step: entries, which are followed once
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GRAMMAR_FRAME_WALK_H_
