#ifndef STAGECOACH_COORDINATOR_TEXT_PAIR_JOINER_H_
#define STAGECOACH_COORDINATOR_TEXT_PAIR_JOINER_H_

// The loop that both kinds of tokenizer are made of: of all adjacent pairs of symbols, join the one with the best rank,
// the leftmost among equals, until none is left. A heap and a linked list keep it at n log n for any text.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace stagecoach {

// Reused from text to text to save allocations. Not thread-safe.
class PairJoiner {
 public:
  // What a pair can become. Of two joins the one with the lower rank is better.
  struct Join {
    uint32_t rank;
    int32_t symbol;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr Join kNoJoin = {kNoRank, -1};

  struct Link {
    uint32_t begin;  // bytes of the text
    uint32_t end;
    int32_t symbol;
  };

  // The longest text, so that positions take 32 bits. Callers cut a longer one.
  static constexpr size_t kMaxTextBytes = size_t{1} << 31;

  void Clear() { nodes_.clear(); }
  void Append(size_t begin, size_t end, int32_t symbol) {
    nodes_.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end), symbol}, kNoJoin, 0, 0});
  }

  // `find(left, right)` gives the join of two adjacent links, or kNoJoin. It must depend on their text alone.
  template <typename Find>
  void Run(Find find);

  // The links that are left, in order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    if (nodes_.empty()) return;
    for (uint32_t at = 0; at != kEnd; at = nodes_[at].next) visit(nodes_[at].link);
  }

 private:
  static constexpr uint32_t kEnd = UINT32_MAX;
  struct Node {
    Link link;
    Join join;  // with the next node; kNoJoin also for a node that was joined to the one before
    uint32_t previous;
    uint32_t next;
  };

  // Brings a node's join up to date; true, with the candidate for the heap (its rank, then its position), when there is
  // one. An older candidate of the node is recognised by its rank: the same rank means as good a join.
  template <typename Find>
  bool Update(uint32_t at, Find& find, uint64_t* candidate);
  void Unite(uint32_t at);

  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;
};

template <typename Find>
bool PairJoiner::Update(uint32_t at, Find& find, uint64_t* candidate) {
  Node& node = nodes_[at];
  node.join = node.next == kEnd ? kNoJoin : find(node.link, nodes_[node.next].link);
  *candidate = static_cast<uint64_t>(node.join.rank) << 32 | at;
  return node.join.rank != kNoRank;
}

inline void PairJoiner::Unite(uint32_t at) {
  Node& left = nodes_[at];
  Node& right = nodes_[left.next];
  left.link.end = right.link.end;
  left.link.symbol = left.join.symbol;
  left.next = right.next;
  right.join = kNoJoin;
  if (left.next != kEnd) nodes_[left.next].previous = at;
}

template <typename Find>
void PairJoiner::Run(Find find) {
  const auto count = static_cast<uint32_t>(nodes_.size());
  heap_.clear();
  uint64_t candidate;
  for (uint32_t i = 0; i < count; ++i) {
    nodes_[i].previous = i == 0 ? kEnd : i - 1;
    nodes_[i].next = i + 1 == count ? kEnd : i + 1;
    if (Update(i, find, &candidate)) heap_.push_back(candidate);
  }
  const std::greater<uint64_t> best_on_top;
  std::make_heap(heap_.begin(), heap_.end(), best_on_top);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), best_on_top);
    const auto at = static_cast<uint32_t>(heap_.back());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    if (nodes_[at].join.rank != rank) continue;
    Unite(at);
    for (const uint32_t changed : {at, nodes_[at].previous}) {
      if (changed == kEnd || !Update(changed, find, &candidate)) continue;
      heap_.push_back(candidate);
      std::push_heap(heap_.begin(), heap_.end(), best_on_top);
    }
  }
}

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_PAIR_JOINER_H_
