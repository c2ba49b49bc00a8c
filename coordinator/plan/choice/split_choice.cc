#include "coordinator/plan/choice/split_choice.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "common/base/last_that_fits.h"

namespace stagecoach {
namespace {

constexpr double kSameSeconds = 1e-12;
constexpr int kFewStages = 4;
constexpr double kForever = std::numeric_limits<double>::infinity();

// How good a split is: the time first.
struct Worth {
  double seconds = kForever;
  double unevenness = kForever;

  bool IsBetterThan(const Worth& other) const {
    if (seconds < other.seconds * (1 - kSameSeconds)) return true;
    return seconds <= other.seconds * (1 + kSameSeconds) && unevenness < other.unevenness * (1 - kSameSeconds);
  }
};

// Of some stages: the longest, and all together.
struct StageTimes {
  double most = 0, sum = 0;

  StageTimes With(const StageTimes& other) const { return {std::max(most, other.most), sum + other.sum}; }
};

double TermSeconds(const SplitTerm& term, const StageTimes& all) {
  return term.times * std::max({term.floor, term.slowest * all.most, term.around * (term.fixed + all.sum)});
}

class SplitSearch {
 public:
  SplitSearch(const SplitLoad& load, const std::vector<HostMemory>& hosts, const HostFits& fits,
              std::vector<LayerRange> split)
      : load_(load),
        fits_(fits),
        stages_(static_cast<int>(split.size())),
        layers_(split.back().end),
        best_split_(std::move(split)) {
    for (size_t host = 0; host < hosts.size(); ++host) {
      for (int s = hosts[host].first_stage; s < hosts[host].last_stage; ++s) {
        places_.push_back({host, s == hosts[host].first_stage, s + 1 == hosts[host].last_stage});
      }
    }
    CHECK_EQ(places_.size(), static_cast<size_t>(stages_));
    FindLatestEnds();
    FindRests();
  }

  std::vector<LayerRange> Best() {
    struct Pair {
      const SplitTerm *decode, *prompts;
      double least_s;
    };
    std::vector<Pair> pairs;
    for (const SplitTerm& decode : load_.decode) {
      for (const SplitTerm& prompts : load_.prompts) {
        if (decode.in_flight > prompts.in_flight) continue;
        MeasureKnown(decode, prompts);
        pairs.push_back({&decode, &prompts,
                         TermSeconds(decode, RestOf(decode, 0, 0)) + TermSeconds(prompts, RestOf(prompts, 0, 0))});
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.least_s < b.least_s; });
    for (const Pair& pair : pairs) Search(*pair.decode, *pair.prompts);
    return best_split_;
  }

 private:
  struct Place {
    size_t host = 0;
    bool first = true, last = true;  // of the host's stages
  };
  // The first stages with their layers.
  struct Prefix {
    StageTimes decode, prompts;
    double unevenness = 0;
    Worth bound;                        // no split that begins so is better
    int64_t begin = 0, host_begin = 0;  // of its last stage and of that stage's host
    size_t before = 0;                  // without that stage: where among those of the stage before
  };
  template <typename T>
  using ByStage = std::vector<std::vector<T>>;  // [stages][layers + 1], by where the stage begins

  double Cost(const SplitSums& sums, int s, int64_t begin, int64_t end) const {
    const std::vector<double>& before = sums.before[static_cast<size_t>(s)];
    return before[end] - before[begin] + (s + 1 == stages_ ? sums.head : 0);
  }

  double Unevenness(int s, int64_t begin, int64_t end) const {
    const SplitTerm &prompts = load_.prompts.back(), &decode = load_.decode.back();
    const double cost = prompts.times * prompts.slowest * Cost(*prompts.sums, s, begin, end) +
                        decode.times * decode.slowest * Cost(*decode.sums, s, begin, end);
    return cost * cost;
  }

  void FindLatestEnds() {
    latest_.assign(stages_, std::vector<int64_t>(layers_ + 1, -1));
    for (int s = 0; s < stages_; ++s) {
      const Place& at = places_[s];
      for (int64_t begin = s; begin <= layers_ - (stages_ - s); ++begin) {
        const int64_t most = layers_ - (stages_ - s - 1);
        latest_[s][begin] = !at.first || !at.last
                                ? most
                                : LastThatFits(begin, most, [&](int64_t end) { return fits_(at.host, begin, end); });
      }
    }
  }

  // What the stages from each on take at least when that one begins at each layer.
  void FindRests() {
    for (const auto* terms : {&load_.decode, &load_.prompts}) {
      for (const SplitTerm& term : *terms) {
        const SplitSums& sums = *term.sums;
        auto [known, is_new] = rests_.try_emplace(&sums);
        if (!is_new) continue;
        known->second = Rests<StageTimes>({kForever, kForever},
                                          [&](int s, int64_t begin, int64_t end, StageTimes rest, StageTimes* least) {
                                            const double cost = Cost(sums, s, begin, end);
                                            least->most = std::min(least->most, std::max(cost, rest.most));
                                            least->sum = std::min(least->sum, cost + rest.sum);
                                          });
      }
    }
    rest_unevenness_ = Rests<double>(kForever, [&](int s, int64_t begin, int64_t end, double rest, double* least) {
      *least = std::min(*least, Unevenness(s, begin, end) + rest);
    });
  }

  template <typename T, typename Add>
  ByStage<T> Rests(T none, const Add& add) const {
    ByStage<T> rests(stages_ + 1, std::vector<T>(layers_ + 1, none));
    rests[stages_][layers_] = T{};
    for (int s = stages_ - 1; s >= 0; --s) {
      for (int64_t begin = s; begin <= layers_ - (stages_ - s); ++begin) {
        for (int64_t end = begin + 1; end <= latest_[s][begin]; ++end) {
          add(s, begin, end, rests[s + 1][end], &rests[s][begin]);
        }
      }
    }
    return rests;
  }

  const StageTimes& RestOf(const SplitTerm& term, int s, int64_t begin) const {
    return rests_.at(term.sums.get())[s][begin];
  }

  // With stage `s` up to `end`.
  Prefix Longer(const SplitTerm& decode, const SplitTerm& prompts, const Prefix& before, int s, int64_t begin,
                int64_t end) const {
    const auto with = [&](const SplitTerm& term, const StageTimes& times) {
      const double cost = Cost(*term.sums, s, begin, end);
      return times.With({cost, cost});
    };
    Prefix prefix{.decode = with(decode, before.decode),
                  .prompts = with(prompts, before.prompts),
                  .unevenness = before.unevenness + Unevenness(s, begin, end),
                  .begin = begin,
                  .host_begin = places_[s].first ? begin : before.host_begin};
    prefix.bound = {TermSeconds(decode, prefix.decode.With(RestOf(decode, s + 1, end))) +
                        TermSeconds(prompts, prefix.prompts.With(RestOf(prompts, s + 1, end))),
                    prefix.unevenness + rest_unevenness_[s + 1][end]};
    return prefix;
  }

  // Of the split that is known from the beginning.
  void MeasureKnown(const SplitTerm& decode, const SplitTerm& prompts) {
    Prefix prefix;
    for (int s = 0; s < stages_; ++s) {
      prefix = Longer(decode, prompts, prefix, s, best_split_[s].begin, best_split_[s].end);
    }
    if (prefix.bound.IsBetterThan(best_)) best_ = prefix.bound;
  }

  void Search(const SplitTerm& decode, const SplitTerm& prompts) {
    std::vector<ByStage<Prefix>> levels;  // [stages so far][layers + 1]: those that end there
    ByStage<Prefix> level(layers_ + 1);
    level[0].emplace_back();
    for (int s = 0; s < stages_; ++s) {
      levels.push_back(std::exchange(level, ByStage<Prefix>(layers_ + 1)));
      for (int64_t begin = s; begin <= layers_ - (stages_ - s); ++begin) {
        const std::vector<Prefix>& of_begin = levels.back()[begin];
        for (size_t i = 0; i < of_begin.size(); ++i) {
          for (int64_t end = begin + 1; end <= latest_[s][begin]; ++end) {
            Prefix prefix = Longer(decode, prompts, of_begin[i], s, begin, end);
            if (!prefix.bound.IsBetterThan(best_)) continue;
            const Place& at = places_[s];
            if (at.last && !at.first && !fits_(at.host, prefix.host_begin, end)) break;
            prefix.before = i;
            level[end].push_back(prefix);
          }
        }
      }
      for (std::vector<Prefix>& of_end : level) KeepBest(&of_end);
    }
    if (level[layers_].empty()) return;
    const Prefix* prefix = &level[layers_].front();
    best_ = prefix->bound;
    int64_t end = layers_;
    for (int s = stages_ - 1; s >= 0; --s) {
      best_split_[s] = {prefix->begin, end};
      end = prefix->begin;
      prefix = &levels[s][end][prefix->before];
    }
  }

  void KeepBest(std::vector<Prefix>* prefixes) const {
    const auto before = [](const Prefix& a, const Prefix& b) {
      if (a.bound.seconds != b.bound.seconds) return a.bound.seconds < b.bound.seconds;
      return a.bound.unevenness < b.bound.unevenness;
    };
    std::stable_sort(prefixes->begin(), prefixes->end(), before);
    const size_t kept = stages_ <= kFewStages ? 64 : 8;
    if (prefixes->size() > kept) prefixes->resize(kept);
  }

  const SplitLoad& load_;
  const HostFits& fits_;
  const int stages_;
  const int64_t layers_;
  std::vector<Place> places_;  // [stages]
  ByStage<int64_t> latest_;    // that a stage may end at; of hosts with one stage with regard to memory
  std::map<const SplitSums*, ByStage<StageTimes>> rests_;
  ByStage<double> rest_unevenness_;
  std::vector<LayerRange> best_split_;
  Worth best_;
};

}  // namespace

std::vector<LayerRange> BestSplit(const SplitLoad& load, const std::vector<HostMemory>& hosts, const HostFits& fits,
                                  std::vector<LayerRange> split) {
  CHECK(!load.prompts.empty() && !load.decode.empty());
  return SplitSearch(load, hosts, fits, std::move(split)).Best();
}

}  // namespace stagecoach
