// Guesses change no answer: identical tokens and log-probabilities, bit for bit, whoever guesses what. The suite runs
// so many points of the product of the dimensions that any values of three of them meet (a covering array); the
// campaign every_cut runs the whole product. A draft has one layer less than the model. Whoever stops a request at a
// text cancels it, as is done here; e2e/speculation_test.cc has a stop string that ends inside a guess. Stages that are
// killed in mid-guess are in supervision_test.cc, and all of them in the campaign guesses_and_kills.

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/counter_rng.h"
#include "coordinator/guess/guesser.h"
#include "tests/testing/grammar/toy_grammars.h"
#include "tests/testing/models/tiny_architectures.h"
#include "tests/testing/sanitizers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/equality/equality_support.h"

namespace stagecoach {
namespace {

using testing::ClusterAnswer;
using testing::ClusterRequest;

// Of how many dimensions all combinations of values meet. Those of three take 5 s.
constexpr int kStrengthOfGuesses = testing::kSlow ? 1 : 3;
constexpr int kGuessVocab = 320, kGuessEnd = 319, kGuessBlock = 16;
constexpr int kMostAtOnce = 8, kNewTokens = 24;
constexpr int kStopAt = 9, kPreemptAt = 3;  // output tokens

enum Who { kNobody, kSuffixes, kDraft, kAlwaysWrong, kRightAtRandom, kOutsideOfTheVocabulary };
enum Stop { kNoStop, kStopToken, kCancel };
constexpr std::array<const char*, 4> kModels = {"qwen3", "gemma3", "deepseek2", "qwen35moe"};  // dense, windows,
                                                                                               // latent, recurrent
constexpr std::array<int, 3> kBatches = {1, 3, kMostAtOnce};

// A value of each dimension.
enum Dimension { kWho, kModel, kStages, kSampled, kBatch, kPreempted, kCached, kGrammar, kStop, kRows, kDimensions };
constexpr std::array<int, kDimensions> kValues = {6, kModels.size(), 4, 2, kBatches.size(), 2, 2, 2, 3, 3};
using GuessPoint = std::array<int, kDimensions>;

std::string NameOfPoint(const GuessPoint& p) {
  constexpr std::array<const char*, 6> who = {"nobody",       "suffixes",        "draft",
                                              "always wrong", "right at random", "outside"};
  constexpr std::array<const char*, 3> stops = {"", ", stop token", ", cancelled"};
  return absl::StrCat(who[static_cast<size_t>(p[kWho])], ", ", kModels[static_cast<size_t>(p[kModel])], ", ",
                      1 + p[kStages], " stages, ", kBatches[static_cast<size_t>(p[kBatch])], " at once, ", 2 + p[kRows],
                      " rows", p[kSampled] != 0 ? ", sampled" : "", p[kPreempted] != 0 ? ", preempted" : "",
                      p[kCached] != 0 ? ", prefix cache" : "", p[kGrammar] != 0 ? ", grammar" : "",
                      stops[static_cast<size_t>(p[kStop])]);
}

// The next one of all; false behind the last.
bool NextPoint(GuessPoint& point) {
  for (int d = 0; d < kDimensions; ++d) {
    if (++point[d] < kValues[d]) return true;
    point[d] = 0;
  }
  return false;
}

// Points in which any `strength` values of as many dimensions meet. Each begins with the first of those that have not
// met yet; each other dimension then takes the value with which most of them meet.
class CoveringPoints {
 public:
  explicit CoveringPoints(int strength) {
    for (unsigned chosen = 0; chosen < 1u << kDimensions; ++chosen) {
      if (std::popcount(chosen) != strength) continue;
      size_t values = 1;
      for (int d = 0; d < kDimensions; ++d) values *= (chosen >> d & 1) != 0 ? static_cast<size_t>(kValues[d]) : 1;
      subsets_.push_back({chosen, std::vector<bool>(values)});
    }
  }

  std::vector<GuessPoint> Take() {
    std::vector<GuessPoint> taken;
    for (const Subset& subset : subsets_) {
      for (size_t place = 0; place < subset.met.size(); ++place) {
        if (!subset.met[place]) taken.push_back(PointWith(subset, place, static_cast<int>(taken.size())));
      }
    }
    return taken;
  }

 private:
  struct Subset {
    unsigned dimensions;    // a bit each
    std::vector<bool> met;  // by the values of these, the last dimension's the fastest
  };
  static size_t PlaceIn(const Subset& subset, const GuessPoint& point) {
    size_t place = 0;
    for (int d = 0; d < kDimensions; ++d) {
      if ((subset.dimensions >> d & 1) == 0) continue;
      place = place * static_cast<size_t>(kValues[d]) + static_cast<size_t>(point[d]);
    }
    return place;
  }
  // Combinations of the `known` dimensions of a point, `latest` among them, that have not met.
  int64_t Fresh(const GuessPoint& point, unsigned known, int latest) const {
    return std::count_if(subsets_.begin(), subsets_.end(), [&](const Subset& subset) {
      return (subset.dimensions & ~known) == 0 && (subset.dimensions >> latest & 1) != 0 &&
             !subset.met[PlaceIn(subset, point)];
    });
  }
  GuessPoint PointWith(const Subset& first, size_t place, int turn) {
    GuessPoint point = {};
    unsigned known = first.dimensions;
    for (int d = kDimensions - 1; d >= 0; --d) {
      if ((known >> d & 1) == 0) continue;
      point[d] = static_cast<int>(place % static_cast<size_t>(kValues[d]));
      place /= static_cast<size_t>(kValues[d]);
    }
    for (int d = 0; d < kDimensions; ++d) {
      if ((known >> d & 1) != 0) continue;
      known |= 1u << d;
      GuessPoint best = point;
      int64_t most = -1;
      for (int v = 0; v < kValues[d]; ++v) {
        point[d] = (turn + v) % kValues[d];  // equals take turns
        const int64_t fresh = Fresh(point, known, d);
        if (fresh > most) best = point, most = fresh;
      }
      point = best;
    }
    for (Subset& subset : subsets_) subset.met[PlaceIn(subset, point)] = true;
    return point;
  }

  std::vector<Subset> subsets_;
};

// Those that run at once: the fifth begins as the first does, and so on.
std::vector<ClusterRequest> GuessedRequests(bool sampled, bool grammar) {
  std::vector<ClusterRequest> requests;
  for (int i = 0; i < kMostAtOnce; ++i) {
    ClusterRequest& request = requests.emplace_back(testing::RequestOf(20 + 9 * i, i % 4, kNewTokens, kGuessVocab));
    request.stop_tokens = {kGuessEnd};
    if (grammar) request.grammar = i % 2 == 0 ? testing::RunOfBytes('a', 'm', 64) : testing::Lists(4);
    if (!sampled) continue;
    request.sampling.set_temperature(0.9f);
    request.sampling.set_top_k(40);
    request.sampling.set_top_p(0.95f);
    request.sampling.set_repeat_penalty(1.1f);
    request.sampling.set_presence_penalty(0.2f);
    request.sampling.set_frequency_penalty(0.1f);
    request.sampling.set_seed(static_cast<uint64_t>(77 + i));
    pb::LogitBias* bias = request.sampling.add_logit_bias();
    bias->set_token('c' - 33);
    bias->set_bias(1.5f);
  }
  return requests;
}

// All that a point runs: so many at once; then the first one again, whose answer suffixes know; then the next turn of
// its conversation, whose prompt has what guesses computed.
struct GuessedWork {
  std::vector<ClusterRequest> requests;  // [kMostAtOnce + 2]
  std::vector<ClusterAnswer> answers;    // without guesses, by one stage
};

std::vector<TokenId> AnswerOf(const ClusterAnswer& answer) {
  std::vector<TokenId> tokens;
  for (const pb::SampledToken& token : answer.tokens) tokens.push_back(token.token());
  return tokens;
}

pb::ConfigureJob PlainJob(const std::string& path) {
  pb::ConfigureJob job = testing::DefaultJob(path);
  job.set_block_tokens(kGuessBlock);
  job.set_prefill_chunk(40);
  job.set_context(160);
  return job;
}

GuessedWork MakeWork(const std::string& path, bool sampled, bool grammar) {
  GuessedWork work = {GuessedRequests(sampled, grammar), {}};
  work.answers = testing::RunCluster(1, PlainJob(path), work.requests).value().answers;
  work.requests.push_back(work.requests[0]);
  work.answers.push_back(work.answers[0]);
  ClusterRequest turn = work.requests[0];
  for (const TokenId token : AnswerOf(work.answers[0])) turn.prompt.push_back(token);
  turn.prompt.insert(turn.prompt.end(), {7, 8, 9});
  work.answers.push_back(testing::RunCluster(1, PlainJob(path), {turn}).value().answers[0]);
  work.requests.push_back(std::move(turn));
  return work;
}

// Knows the answer. Its guess for a place is always the same.
class FakeGuesser : public Guesser {
 public:
  FakeGuesser(int who, size_t prompt, std::vector<TokenId> answer)
      : who_(who), prompt_(prompt), answer_(std::move(answer)) {}

  void Append(TokenId) override { ++known_; }
  std::optional<Guess> Next(absl::Span<const TokenId> run) const override {
    if (known_ < prompt_) return std::nullopt;
    const size_t place = known_ - prompt_ + run.size();
    const TokenId right = place < answer_.size() ? answer_[place] : 5, wrong = (right + 1) % kGuessVocab;
    switch (who_) {
      case kAlwaysWrong: return Guess{wrong, 0.5};
      case kRightAtRandom: return Guess{UniformAt(prompt_, place) < 0.7 ? right : wrong, 0.5};
      default: return Guess{run.empty() ? right : place % 2 == 0 ? kGuessVocab : -7, 0.5};
    }
  }

 private:
  const int who_;
  const size_t prompt_;
  const std::vector<TokenId> answer_;
  size_t known_ = 0;
};

class GuessedAnswers : public ::testing::Test {
 protected:
  GuessedAnswers() {
    for (const char* name : kModels) {
      testing::TinyArchitectureOptions options = testing::TinyArchitecture(name);
      options.layers = std::max<int64_t>(options.layers, 4);
      options.vocab = kGuessVocab;
      paths_.push_back(testing::WriteTinyArchitecture(directory_.File(absl::StrCat(name, ".gguf")), options));
      --options.layers;
      drafts_.push_back(testing::WriteTinyArchitecture(directory_.File(absl::StrCat(name, "-draft.gguf")), options));
    }
  }

  const GuessedWork& WorkOf(const GuessPoint& p) {
    std::optional<GuessedWork>& work = works_[{p[kModel], p[kSampled], p[kGrammar]}];
    if (!work.has_value()) {
      work = MakeWork(paths_[static_cast<size_t>(p[kModel])], p[kSampled] != 0, p[kGrammar] != 0);
    }
    return *work;
  }

  // Every sequence has the point's rows in flight as often as anything is guessed, whatever that costs. Beside the
  // groups one sequence has places for all of them.
  pb::ConfigureJob JobOf(const GuessPoint& p) const {
    pb::ConfigureJob job = PlainJob(paths_[static_cast<size_t>(p[kModel])]);
    job.set_prefix_caching(p[kCached] != 0);
    job.set_speculate(p[kWho] == kNobody ? "off" : p[kWho] == kDraft ? "draft" : "suffix");
    if (p[kWho] == kDraft) job.set_draft_model_path(drafts_[static_cast<size_t>(p[kModel])]);
    job.set_guess_rows(2 + p[kRows]);
    job.set_decode_groups(std::min(2, kBatches[static_cast<size_t>(p[kBatch])]));
    job.set_micro_batches(std::max(1 + p[kStages], job.decode_groups() + 1 + p[kRows]));
    return job;
  }

  static testing::GuesserHook HookOf(const GuessPoint& p, const GuessedWork& work) {
    if (p[kWho] <= kDraft) return nullptr;
    std::map<std::vector<TokenId>, std::vector<TokenId>> answers;
    for (size_t i = 0; i < work.requests.size(); ++i) {
      answers[{work.requests[i].prompt.begin(), work.requests[i].prompt.end()}] = AnswerOf(work.answers[i]);
    }
    return [who = p[kWho], answers](const Sequence& sequence) {
      const std::vector<TokenId>& prompt = sequence.spec().prompt;
      return std::make_unique<FakeGuesser>(who, prompt.size(), answers.at(prompt));
    };
  }

  void Check(const GuessPoint& p) {
    SCOPED_TRACE(NameOfPoint(p));
    const GuessedWork& work = WorkOf(p);
    const auto batch = static_cast<size_t>(kBatches[static_cast<size_t>(p[kBatch])]);
    std::vector<ClusterRequest> requests(work.requests.begin(), work.requests.begin() + static_cast<int64_t>(batch));
    std::vector<ClusterAnswer> expected(work.answers.begin(), work.answers.begin() + static_cast<int64_t>(batch));
    for (size_t i = 0; p[kStop] != kNoStop && i < batch; ++i) {
      if (p[kStop] == kCancel) requests[i].cancel_after = kStopAt;
      if (p[kStop] != kStopToken || expected[i].tokens.size() < kStopAt) continue;
      const TokenId stop = expected[i].tokens[kStopAt - 1].token();
      requests[i].stop_tokens.push_back(stop);
      const auto ends = std::find_if(expected[i].tokens.begin(), expected[i].tokens.end(),
                                     [stop](const pb::SampledToken& token) { return token.token() == stop; });
      expected[i].tokens.erase(ends + 1, expected[i].tokens.end());
    }
    for (const size_t later : {kMostAtOnce, kMostAtOnce + 1}) {
      requests.push_back(work.requests[later]);
      requests.back().after_others = true;
      expected.push_back(work.answers[later]);
    }
    const auto run = testing::RunCluster(1 + p[kStages] + (p[kWho] == kDraft ? 1 : 0), JobOf(p), requests, nullptr,
                                         p[kPreempted] != 0 ? kPreemptAt : 0, HookOf(p, work));
    ASSERT_TRUE(run.ok()) << run.status();
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::string bits = run->answers[i].Bits();
      if (requests[i].cancel_after < 0) {
        ASSERT_EQ(bits, expected[i].Bits()) << "request " << i;
      } else {
        ASSERT_TRUE(absl::StartsWith(expected[i].Bits(), bits)) << "request " << i << "\n" << bits;
        ASSERT_GE(run->answers[i].tokens.size(), std::min<size_t>(kStopAt, expected[i].tokens.size()));
      }
    }
    ASSERT_EQ(run->statistics.preemptions() > 0, p[kPreempted] != 0);
    Count(p, *run);
  }

  void Count(const GuessPoint& p, const testing::ClusterRun& run) {
    const pb::JobStatistics& job = run.statistics;
    Counts& counts = counts_[p[kWho]];
    counts.guesses += job.guesses();
    counts.right += job.guesses_right();
    counts.voids += job.guesses_void();
    EXPECT_LE(job.guesses_right() + job.guesses_void(), job.guesses());
    EXPECT_TRUE(job.guesses() > 0 || p[kWho] < kAlwaysWrong);
    EXPECT_TRUE(job.guesses_void() > 0 || job.void_s() == 0) << job.void_s();
  }

  void CheckAll(const std::vector<GuessPoint>& points) {
    for (const GuessPoint& point : points) {
      Check(point);
      if (HasFatalFailure()) return;
    }
  }

  struct Counts {
    uint64_t guesses = 0, right = 0, voids = 0;
  };
  const testing::TempDir directory_;
  std::vector<std::string> paths_, drafts_;                         // [kModels]
  std::map<std::array<int, 3>, std::optional<GuessedWork>> works_;  // by model, sampled and grammar
  std::map<int, Counts> counts_;                                    // by who guesses
};

TEST_F(GuessedAnswers, AreTheSameBitsWhateverIsGuessed) {
  CheckAll(CoveringPoints(kStrengthOfGuesses).Take());
  EXPECT_EQ(counts_[kNobody].guesses, 0u);
  for (const Who who : {kSuffixes, kDraft, kRightAtRandom, kOutsideOfTheVocabulary})
    EXPECT_GT(counts_[who].right, 0u) << who;
  for (const Who who : {kSuffixes, kDraft, kRightAtRandom, kAlwaysWrong}) EXPECT_GT(counts_[who].voids, 0u) << who;
  EXPECT_EQ(counts_[kAlwaysWrong].right, 0u);
}

// Also where as many groups as there are stages go round: each has a place for guesses besides.
TEST_F(GuessedAnswers, OfManyAtOnceAreSentBesideGroupsThatAreGiven) {
  for (int stages = 0; stages < kValues[kStages]; ++stages) {
    for (int rows = 0; rows < kValues[kRows]; ++rows) {
      GuessPoint p = {kRightAtRandom, 0, stages, 0, static_cast<int>(kBatches.size()) - 1};
      p[kRows] = rows;
      const GuessedWork& work = WorkOf(p);
      const std::vector<ClusterRequest> at_once(work.requests.begin(), work.requests.begin() + kMostAtOnce);
      const auto run = testing::RunCluster(1 + stages, JobOf(p), at_once, nullptr, 0, HookOf(p, work));
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_GT(run->statistics.guesses_right(), uint64_t{kMostAtOnce} * kNewTokens / 4) << NameOfPoint(p);
    }
  }
}

// The row that fills a block is a guess: what it computed is known to the cache once the guess has held, and only then.
TEST_F(GuessedAnswers, OfGuessedRowsTheCacheHasWhatHeld) {
  for (const Who who : {kRightAtRandom, kAlwaysWrong}) {
    const GuessPoint p = {who, 0, 2, 0, 0, 0, 1, 0, kNoStop, 2};
    const GuessedWork& work = WorkOf(p);
    const std::vector<ClusterRequest> requests = {work.requests.front(), work.requests.back()};
    std::vector<ClusterRequest> turns = requests;
    turns[1].after_others = true;
    const auto run = testing::RunCluster(3, JobOf(p), turns, nullptr, 0, HookOf(p, work));
    testing::ExpectSameBits(run, std::vector<ClusterAnswer>{work.answers.front(), work.answers.back()});
    if (HasFatalFailure()) return;
    const auto rows = static_cast<int64_t>(requests[0].prompt.size() + work.answers[0].tokens.size()) - 1;
    EXPECT_EQ(run->answers[1].finished.cost().cached_tokens(), rows / kGuessBlock * kGuessBlock) << who;
  }
}

// Of one model and one who guesses, everything else.
class EveryGuess : public GuessedAnswers, public ::testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(EveryGuess, DISABLED_OfTheFullProductGivesTheSameBits) {
  std::vector<GuessPoint> points;
  GuessPoint point = {};
  do {
    if (std::tuple(point[kModel], point[kWho]) == GetParam()) points.push_back(point);
  } while (NextPoint(point));
  CheckAll(points);
}

INSTANTIATE_TEST_SUITE_P(Guesses, EveryGuess,
                         ::testing::Combine(::testing::Range(0, kValues[kModel]), ::testing::Range(0, kValues[kWho])));

}  // namespace
}  // namespace stagecoach
