#include "common/grammar/matcher.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/string_view.h"

namespace stagecoach {
namespace {

using MatcherStack = GrammarMatcher::Stack;

// The first ones in order, each once.
void KeepMostStacks(std::vector<MatcherStack>* stacks) {
  const auto before = [](const MatcherStack& a, const MatcherStack& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  std::sort(stacks->begin(), stacks->end(), before);
  stacks->erase(std::unique(stacks->begin(), stacks->end()), stacks->end());
  if (stacks->size() > kMaxGrammarStacks) stacks->resize(kMaxGrammarStacks);
}

// Where a token leads to, from one stack after the other.
class TokenWalk {
 public:
  TokenWalk(const GrammarProgram& program, TokenId token, absl::string_view bytes)
      : program_(program), token_(token), bytes_(bytes) {
    walk_.Allow(kMaxGrammarTokenSteps);
  }

  void From(const MatcherStack& stack) {
    // Places in the token at which a frame, a stack's place, is come to; those at its end lead nowhere.
    std::bitset<kMaxGrammarTokenBytes> entered;
    entered.set(0);
    for (size_t frame = stack.size(); frame-- > 0 && entered.any();) {
      std::bitset<kMaxGrammarTokenBytes> exits;
      for (size_t start = 0; start <= bytes_.size() && start < entered.size(); ++start) {
        if (entered[start] && !walk_.exhausted()) Walk(stack, frame, start, &exits);
      }
      entered = exits;
    }
  }

  int64_t steps() const { return walk_.steps(); }
  std::vector<MatcherStack> Take() {
    KeepMostStacks(&reached_);
    return std::move(reached_);
  }

 private:
  void Walk(const MatcherStack& stack, size_t frame, size_t start, std::bitset<kMaxGrammarTokenBytes>* exits) {
    walk_.Begin(program_, stack[frame], kMaxGrammarDepth - static_cast<int>(frame));
    if (start == 0) {
      walk_.ForEachAtom([&](TokenId token, FrameWalk::Config config) {
        if (token == token_) Reach(stack, frame, config);
      });
    }
    size_t depth = 0;
    for (;; ++depth) {
      const size_t place = start + depth;
      if (walk_.Exits(depth) && (place < bytes_.size() || place == 0)) exits->set(place);
      if (place >= bytes_.size()) break;
      if (!walk_.Step(depth, static_cast<uint8_t>(bytes_[place]))) return;
    }
    if (depth == 0) return;
    for (const FrameWalk::Config config : walk_.Reached(depth)) Reach(stack, frame, config);
  }

  void Reach(const MatcherStack& stack, size_t frame, FrameWalk::Config config) {
    MatcherStack& reached = reached_.emplace_back(stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(frame));
    for (uint32_t node = config.node; node != 0; node = walk_.node(node).below) {
      reached.push_back(walk_.node(node).after);
    }
    std::reverse(reached.begin() + static_cast<std::ptrdiff_t>(frame), reached.end());
    // Where nothing but a return can follow, it has returned: there is one stack for each reading.
    if (reached.empty() || !program_.IsFinal(config.state)) reached.push_back(config.state);
    if (reached_.size() >= 8 * kMaxGrammarStacks) KeepMostStacks(&reached_);
  }

  const GrammarProgram& program_;
  const TokenId token_;
  const absl::string_view bytes_;
  FrameWalk walk_;
  std::vector<MatcherStack> reached_;
};

}  // namespace

GrammarMatcher::GrammarMatcher(GrammarProgram program, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : program_(std::move(program)), vocabulary_(std::move(vocabulary)), stacks_(1, Stack(1, program_.start())) {}

bool GrammarMatcher::Append(TokenId token) {
  if (token < 0 || token >= vocabulary_->size()) return false;
  const bool is_end = vocabulary_->KindOf(token) == GrammarVocabulary::Kind::kEnd;
  if (ended_) return is_end;
  if (steps_ > kMaxGrammarTextSteps) return false;
  TokenWalk walk(program_, token, vocabulary_->BytesOf(token));
  for (const Stack& stack : stacks_) walk.From(stack);
  steps_ += std::max<int64_t>(walk.steps() - kFreeGrammarSteps, 0);
  std::vector<Stack> reached = walk.Take();
  if (reached.empty()) {
    if (is_end && accepting()) ended_ = true;
    return ended_;
  }
  stacks_ = std::move(reached);
  return true;
}

bool GrammarMatcher::accepting() const {
  return std::any_of(stacks_.begin(), stacks_.end(), [this](const Stack& stack) {
    return std::all_of(stack.begin(), stack.end(), [this](GrammarStateId state) { return program_.Accepts(state); });
  });
}

}  // namespace stagecoach
