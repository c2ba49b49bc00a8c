// Thousands of random histories of the scheduler against simulated stages.

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/step/step.h"
#include "coordinator/schedule/scheduler.h"
#include "gmock/gmock.h"
#include "tests/testing/sanitizers.h"
#include "tests/unit/coordinator/schedule/model_guesses.h"
#include "tests/unit/coordinator/schedule/simulated_stages.h"

namespace stagecoach {
namespace {

// Of the groups whose blocks a sequence keeps.
int32_t FewestBlocks(const SchedulerOptions& options) {
  int32_t fewest = std::numeric_limits<int32_t>::max();
  for (size_t group = 0; group < options.group_blocks.size(); ++group) {
    const bool windowed = !options.group_windows.empty() && options.group_windows[group] > 0;
    if (!windowed) fewest = std::min(fewest, options.group_blocks[group]);
  }
  return fewest;
}

class History {
 public:
  // pair_us: what a step takes for a pair of a row and one before it, beside what each row takes. tenants: more than
  // one have weights and classes of their own. grammars: so many different ones are followed. guesses: how often they
  // are right; negative: there are none.
  History(uint32_t seed, const SchedulerOptions& options, int64_t pair_us = 0, int tenants = 1, int grammars = 0,
          double guesses = -1)
      : random_(seed),
        options_(options),
        pair_us_(pair_us),
        tenants_(tenants),
        most_grammars_(grammars),
        guesses_(seed, guesses),
        scheduler_(options),
        stages_(options) {
    if (guesses < 0) return;
    scheduler_.SetGuessFeed(&guesses_);
    ChangePlaces();
  }

  // Nothing more happens once a test failed.
  void Run(int arrivals, bool with_cancels, int preemptions) {
    while (arrivals > 0 || scheduler_.HasUnfinished()) {
      if (arrivals > 0 && Chance(4)) {
        Arrive();
        --arrivals;
      }
      if (with_cancels && Chance(40)) Disturb(/*cancel=*/true);
      if (preemptions > 0 && Chance(10)) {
        Disturb(/*cancel=*/false);
        --preemptions;
      }
      if (guesses_.right() >= 0 && Chance(20)) ChangePlaces();
      if (Chance(2)) {
        Submit();
      } else {
        Confirm();
      }
      if (::testing::Test::HasFailure()) return;
      ASSERT_LT(++steps_, 60000) << "no end in sight";
    }
    while (!results_.empty()) Confirm();
    Finish();
  }

  const SchedulerCounters& counters() const { return scheduler_.counters(); }
  int shrunk_chunks() const { return shrunk_chunks_; }  // to the least that equal time allows
  const SimulatedStages& stages() const { return stages_; }
  double right_guesses() const { return guesses_.right(); }  // as a share
  int64_t definitions() const { return definitions_; }
  int64_t drops() const { return drops_; }

 private:
  struct Client {
    SequenceSpec spec;
    ExpectedAnswer expected;
    int64_t next_score = 0;
    bool opened = false, done = false;
  };

  int64_t TimeUs(const MicroBatch& batch) const {
    int64_t us = batch.rows() * 1000;
    for (const SequenceSlice& s : batch.slices) us += pair_us_ * s.count * (s.count + 2 * int64_t{s.start});
    return us;
  }

  bool Chance(int one_in) { return random_() % one_in == 0; }
  int64_t Draw(int64_t least, int64_t most) { return least + static_cast<int64_t>(random_() % (most - least + 1)); }

  void CheckIntegrity() {
    const absl::Status status = scheduler_.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status;
  }

  void Arrive() {
    SequenceSpec spec{.id = next_id_++};
    const int64_t longest =
        std::min<int64_t>(options_.context, int64_t{FewestBlocks(options_)} * options_.block_tokens);
    const int64_t prompt = Draw(1, Chance(2) ? longest : std::max<int64_t>(longest / 4, 1));
    if (options_.prefix_caching) BeginLikeAnother(prompt, &spec);
    while (static_cast<int64_t>(spec.prompt.size()) < prompt) {
      spec.prompt.push_back(static_cast<TokenId>(random_() % kSimulatedVocabulary));
    }
    spec.max_new_tokens = Draw(1, longest);
    if (Chance(2)) spec.stop_tokens = {static_cast<TokenId>(random_() % kSimulatedVocabulary)};
    if (Chance(3)) spec.score_from = Draw(0, prompt);
    if (options_.state_slots > 0 && Chance(2)) spec.conversation_tokens = Draw(0, prompt);
    if (spec.score_from >= 0 && Chance(2)) spec.max_new_tokens = 0;
    if (tenants_ > 1) {
      spec.tenant = absl::StrCat("tenant ", random_() % static_cast<uint32_t>(tenants_));
      spec.weight = static_cast<double>(Draw(1, 8)) / 4;
      spec.priority_class = static_cast<PriorityClass>(random_() % kPriorityClassCount);
    }
    if (most_grammars_ > 0 && Chance(2)) {
      const int64_t grammar = Draw(1, most_grammars_);
      // Some so large that two or three of them are as much as a micro-batch defines.
      spec.grammar.assign(static_cast<size_t>(grammar % 4 == 0 ? grammar * 25'000 : grammar),
                          static_cast<char>(grammar));
    }
    ExpectedAnswer expected = ComputeAlone(spec, options_.context);
    if (Chance(4) && expected.output.size() > 1) {  // as after a restart
      spec.output.assign(expected.output.begin(), expected.output.begin() + Draw(1, expected.output.size() - 1));
    }
    const absl::Status status = scheduler_.Add(spec);
    CheckIntegrity();
    const int64_t most = std::min(spec.max_new_tokens, options_.context - prompt);
    const int64_t rows = prompt + std::max<int64_t>(most - 1, 0);
    const bool fits = (spec.max_new_tokens == 0 || most > 0) &&
                      (rows + options_.block_tokens - 1) / options_.block_tokens <= FewestBlocks(options_);
    ASSERT_EQ(status.code(), fits ? absl::StatusCode::kOk : absl::StatusCode::kOutOfRange) << status;
    if (!fits) return;
    const int64_t first_score = std::max<int64_t>(spec.score_from - 1, 0);
    outputs_[spec.id] = spec.output;
    clients_[spec.id] = {.spec = std::move(spec), .expected = std::move(expected), .next_score = first_score};
  }

  // Like the prompt and the output of an earlier one, mostly.
  void BeginLikeAnother(int64_t prompt, SequenceSpec* spec) {
    if (Chance(4)) spec->salt = "another tenant";
    if (clients_.empty() || Chance(3)) return;
    const auto other = std::next(clients_.begin(), Draw(0, clients_.size() - 1));
    spec->prompt = other->second.spec.prompt;
    spec->prompt.insert(spec->prompt.end(), outputs_[other->first].begin(), outputs_[other->first].end());
    const auto all = static_cast<int64_t>(spec->prompt.size());
    spec->prompt.resize(std::min(prompt, Chance(2) ? all : Draw(0, all)));
  }

  // As a planner would, and worse.
  void ChangePlaces() {
    scheduler_.SetGuessPlaces(static_cast<int32_t>(Chance(4) ? 0 : Draw(1, scheduler_.most_groups())));
    scheduler_.SetDecodeGroups(static_cast<int32_t>(Draw(1, scheduler_.most_groups())));
  }

  void Disturb(bool cancel) {
    std::vector<SequenceId> alive;
    for (const auto& [id, client] : clients_) {
      if (!client.done) alive.push_back(id);
    }
    if (alive.empty()) return;
    const SequenceId id = alive[random_() % alive.size()];
    if (cancel) {
      ASSERT_TRUE(scheduler_.Cancel(id).ok());
      EXPECT_EQ(scheduler_.Find(id), nullptr);
      clients_[id].done = true;
    } else {
      const SequenceState state = scheduler_.Find(id)->state();
      const bool running = state == SequenceState::kPrefilling || state == SequenceState::kDecoding;
      const absl::StatusCode expected = running ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition;
      ASSERT_EQ(scheduler_.Preempt(id).code(), expected);
    }
    CheckIntegrity();
  }

  void Submit() {
    const std::optional<MicroBatch> batch = scheduler_.Next();
    CheckIntegrity();
    if (!batch) {
      ASSERT_TRUE(!results_.empty() || !scheduler_.HasUnfinished())
          << "work to do, nothing in flight, nothing handed out";
      return;
    }
    ASSERT_LT(results_.size(), static_cast<size_t>(scheduler_.most_groups()));
    for (const SequenceSlice& slice : batch->slices) shrunk_chunks_ += slice.count == kEqualTimeLeastRows ? 1 : 0;
    for (const OpenSequence& open : batch->open) {
      Client& client = clients_.at(open.sequence);
      EXPECT_EQ(open.prompt, client.spec.prompt);
      EXPECT_EQ(open.output, outputs_[open.sequence]);
      const bool may_be_passed = options_.prefix_caching || tenants_ > 1 || !client.spec.grammar.empty();
      if (std::exchange(client.opened, true) || may_be_passed) continue;
      // Those that began in a job before go first.
      SequenceId& newest = client.spec.output.empty() ? newest_opened_ : newest_resumed_;
      EXPECT_GT(open.sequence, std::exchange(newest, open.sequence)) << "not first come, first served";
    }
    results_.push_back(stages_.Run(*batch).value());
    for (const OpenSequence& open : batch->open) {
      EXPECT_EQ(stages_.GrammarOf(open.sequence), clients_.at(open.sequence).spec.grammar);
    }
    definitions_ += static_cast<int64_t>(batch->define_grammars.size());
    drops_ += static_cast<int64_t>(batch->drop_grammars.size());
    batches_.push_back(*batch);
  }

  void Confirm() {
    if (results_.empty()) return;
    const auto events = scheduler_.Confirm(results_.front());
    results_.pop_front();
    ASSERT_TRUE(events.ok()) << events.status();
    // Times that have nothing to do with the work: they steer, and must not matter.
    scheduler_.ObserveStepTime(batches_.front(),
                               Draw(0, 3) == 0 && pair_us_ == 0 ? Draw(0, 1000000000) : TimeUs(batches_.front()));
    batches_.pop_front();
    CheckIntegrity();
    for (const SequenceEvent& event : *events) Take(event);
  }

  void Take(const SequenceEvent& event) {
    Client& client = clients_.at(event.sequence);
    std::vector<TokenId>& output = outputs_[event.sequence];
    ASSERT_FALSE(client.done) << "an event of an ended sequence";
    for (const SampledToken& token : event.tokens) {
      EXPECT_EQ(token.position, static_cast<int64_t>(client.spec.prompt.size() + output.size()));
      output.push_back(token.token);
    }
    for (const TargetLogprobs& scores : event.scores) {
      ASSERT_EQ(scores.start, client.next_score) << "a score is missing or came twice";
      for (const float logprob : scores.logprobs) {
        ASSERT_TRUE(client.expected.scores.contains(client.next_score));
        EXPECT_EQ(logprob, client.expected.scores[client.next_score++]);
      }
    }
    if (!event.finished) return;
    client.done = true;
    EXPECT_EQ(*event.finished, client.expected.reason);
    EXPECT_EQ(output, client.expected.output);
    if (!options_.prefix_caching) {
      EXPECT_EQ(event.cached_tokens, 0);
    }
    if (!client.expected.scores.empty()) {
      EXPECT_EQ(client.next_score, static_cast<int64_t>(client.spec.prompt.size()) - 1);
    }
    EXPECT_EQ(scheduler_.Find(event.sequence), nullptr);
  }

  // Everything was given back; the stages learn so with the next micro-batch.
  void Finish() {
    for (const auto& [id, client] : clients_) EXPECT_TRUE(client.done) << "sequence " << id;
    for (size_t group = 0; group < options_.group_blocks.size(); ++group) {
      EXPECT_EQ(scheduler_.blocks().used(group), 0);
    }
    EXPECT_EQ(scheduler_.blocks().slots().used(), 0);
    if (!options_.prefix_caching) {
      EXPECT_EQ(scheduler_.blocks().slots().free(), options_.state_slots);
    }
    EXPECT_FALSE(scheduler_.Next().has_value()) << "a micro-batch for the sake of frees";
    ASSERT_TRUE(scheduler_.Add({.id = next_id_, .prompt = {1}, .max_new_tokens = 0, .score_from = 0}).ok());
    ASSERT_TRUE(stages_.Run(scheduler_.Next().value()).ok());
    EXPECT_EQ(stages_.open_sequences(), 1u);
  }

  std::mt19937 random_;
  const SchedulerOptions options_;
  const int64_t pair_us_;
  const int tenants_;
  const int most_grammars_;
  RandomGuesses guesses_;
  Scheduler scheduler_;
  SimulatedStages stages_;
  std::deque<StepResult> results_;
  std::deque<MicroBatch> batches_;
  std::map<SequenceId, Client> clients_;
  std::map<SequenceId, std::vector<TokenId>> outputs_;
  SequenceId next_id_ = 1, newest_opened_ = 0, newest_resumed_ = 0;
  int steps_ = 0, shrunk_chunks_ = 0;
  int64_t definitions_ = 0, drops_ = 0;
};

SchedulerOptions RandomOptions(std::mt19937& random) {
  const auto draw = [&random](int least, int most) { return least + static_cast<int>(random() % (most - least + 1)); };
  SchedulerOptions options;
  options.max_num_seqs = draw(1, 6);
  options.max_num_batched_tokens = draw(1, 24);
  options.prefill_chunk = draw(1, 16);
  options.policy = kPolicies[random() % std::size(kPolicies)].value;
  options.chunking = kChunkings[random() % std::size(kChunkings)].value;
  if (draw(0, 1) == 1) options.slo_itl_s = draw(1, 100000) / 1e6;
  options.block_tokens = draw(1, 5);
  options.prefix_caching = false;
  options.context = draw(2, 40);
  const int whole_context = static_cast<int>(options.context - 1) / options.block_tokens + 1;
  for (int groups = draw(1, 3); groups > 0; --groups) {
    options.group_blocks.push_back(draw(std::max(1, whole_context - 1), 2 * whole_context));
  }
  options.micro_batches = draw(1, 5);
  options.max_open_tokens = options.context + draw(0, 40);
  return options;
}

std::string Describe(const SchedulerOptions& o) {
  return absl::StrCat(PolicyName(o.policy), ", ", NameOf(kChunkings, o.chunking), ", gap ", o.slo_itl_s, ", seqs ",
                      o.max_num_seqs, ", budget ", o.max_num_batched_tokens, ", chunk ", o.prefill_chunk, ", block ",
                      o.block_tokens, ", blocks ", absl::StrJoin(o.group_blocks, " "), ", windows ",
                      absl::StrJoin(o.group_windows, " "), ", slots ", o.state_slots, " of ", o.state_blocks,
                      " blocks, context ", o.context, ", micro-batches ", o.micro_batches, " or ", o.most_groups,
                      ", open ", o.max_open_tokens, ", guesses ", o.most_guesses,
                      o.prefix_caching ? ", prefix cache" : "");
}

struct Histories {
  uint32_t count = 0;
  int arrivals = 10, preemptions = 20;
  int64_t pair_us = 0;
  bool tenants = false;
  int grammars = 0;
  std::vector<double> guesses = {-1};  // in turn
  std::function<void(std::mt19937&, uint32_t seed, SchedulerOptions*)> change;
  std::function<void(const History&, const SchedulerOptions&)> look;
};
struct Totals {
  uint64_t preemptions = 0;  // for want of blocks
  int64_t caching = 0, hits = 0, stateless = 0, released = 0;
  int64_t copied_states = 0, shared_states = 0;
  int shrunk_chunks = 0;
};

// With and without the prefix cache, cancels and preemptions.
Totals RunHistories(const Histories& of) {
  Totals totals;
  for (uint32_t seed = 0; seed < of.count && !::testing::Test::HasFailure(); ++seed) {
    std::mt19937 random(seed);
    SchedulerOptions options = RandomOptions(random);
    options.prefix_caching = seed / 6 % 2 == 1;
    if (of.change) of.change(random, seed, &options);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", Describe(options)));
    History history(seed, options, of.pair_us, of.tenants ? 2 + static_cast<int>(seed % 4) : 1, of.grammars,
                    of.guesses[seed % of.guesses.size()]);
    history.Run(of.arrivals, /*with_cancels=*/seed % 2 == 1, seed % 3 == 1 ? of.preemptions : 0);
    if (of.look) of.look(history, options);
    if (seed % 3 != 1) totals.preemptions += history.counters().preemptions;
    totals.caching += options.prefix_caching ? 1 : 0;
    totals.hits += history.counters().prefix_hits;
    totals.stateless += history.counters().prefix_stateless;
    totals.released += history.stages().released();
    totals.copied_states += history.stages().copied_states();
    totals.shared_states += history.stages().shared_states();
    totals.shrunk_chunks += history.shrunk_chunks();
  }
  return totals;
}

// Groups with windows beside one without, in any order; pools from what one row needs to what all sequences could use.
void AddWindows(std::mt19937& random, SchedulerOptions* options, int64_t least_context = 2) {
  options->context = least_context + static_cast<int64_t>(random() % 60);
  options->max_open_tokens = 2 * options->context;
  const auto whole_context = static_cast<uint32_t>((options->context - 1) / options->block_tokens + 1);
  const auto full_blocks = static_cast<int32_t>(whole_context + random() % whole_context);
  options->group_blocks = {full_blocks};
  options->group_windows = {0};
  for (uint32_t windowed = 1 + random() % 2; windowed > 0; --windowed) {
    const auto window = 1 + static_cast<int64_t>(random() % 12);
    const auto least = std::min<int64_t>(full_blocks, MostBlocksSeen(1, window, options->block_tokens));
    const auto at = static_cast<int64_t>(random() % (options->group_blocks.size() + 1));
    options->group_blocks.insert(options->group_blocks.begin() + at,
                                 static_cast<int32_t>(least + static_cast<int64_t>(random() % 12)));
    options->group_windows.insert(options->group_windows.begin() + at, window);
  }
}

// Slots from as many as sequences at once to some more, states of one to a few blocks.
void AddStates(std::mt19937& random, SchedulerOptions* options) {
  options->state_slots = static_cast<int32_t>(options->max_num_seqs + random() % 8);
  options->state_blocks = static_cast<int32_t>(1 + random() % 6);
}

TEST(SchedulerHistories, EveryRandomHistoryEndsAndGivesEverySequenceTheAnswerItHasAlone) {
  const Totals totals = RunHistories({.count = 1500});
  EXPECT_GT(totals.hits, 20 * totals.caching) << "rows of 10 sequences that were not computed twice";
  EXPECT_GT(totals.preemptions, 1500u / 3) << "the pools were too large to prove anything";
}

TEST(SchedulerHistories, WithGrammarsTheLastStageHasEachThatASequenceFollowsAndFewOthers) {
  int64_t definitions = 0, drops = 0;
  const Totals totals = RunHistories(
      {.count = 30, .arrivals = 80, .grammars = 40, .look = [&](const History& history, const SchedulerOptions&) {
         definitions += history.definitions();
         drops += history.drops();
       }});
  EXPECT_GT(totals.preemptions, 30u) << "the pools were too large to prove anything";
  EXPECT_GT(definitions, 30 * 16);
  EXPECT_LT(definitions, 30 * 40) << "equal ones are defined again and again";
  EXPECT_GT(drops, 30);
}

TEST(SchedulerHistories, WithTenantsAndClassesEverySequenceHasTheAnswerItHasAlone) {
  const Totals totals = RunHistories({.count = 750, .arrivals = 16, .tenants = true});
  EXPECT_GT(totals.preemptions, 750u / 3) << "the pools were too large to prove anything";
}

TEST(SchedulerHistories, WithWindowsEverySequenceHasTheAnswerItHasAlone) {
  const auto with_windows = [](std::mt19937& random, uint32_t, SchedulerOptions* options) {
    AddWindows(random, options);
  };
  const auto look = [](const History& history, const SchedulerOptions& options) {
    for (size_t group = 0; group < options.group_blocks.size(); ++group) {
      const int64_t window = options.group_windows[group];
      if (window == 0) continue;
      const int64_t chunk = std::min(options.prefill_chunk, options.max_num_batched_tokens);
      EXPECT_LE(history.stages().most_blocks(group), MostBlocksSeen(chunk, window, options.block_tokens));
    }
  };
  const Totals totals = RunHistories({.count = 500, .change = with_windows, .look = look});
  EXPECT_GT(totals.preemptions, 500u / 4) << "the pools were too large to prove anything";
  EXPECT_GT(totals.hits, 10 * 500 / 2) << "rows of 10 sequences that were not computed twice";
  EXPECT_GT(totals.released, 10 * 500) << "of 10 sequences";
}

// Every third history has windows, too. 10,000 sequences in all.
TEST(SchedulerHistories, WithStatesEverySequenceHasTheAnswerItHasAlone) {
  const auto with_states = [](std::mt19937& random, uint32_t seed, SchedulerOptions* options) {
    AddStates(random, options);
    options->prefix_caching = seed % 4 > 0;
    if (seed % 3 > 0) return;
    options->group_windows.assign(options->group_blocks.size(), 0);
    const int64_t window = 1 + static_cast<int64_t>(random() % 12);
    options->group_windows.push_back(window);
    options->group_blocks.push_back(
        static_cast<int32_t>(MostBlocksSeen(1, window, options->block_tokens) + static_cast<int64_t>(random() % 12)));
  };
  const Totals totals = RunHistories({.count = testing::kSlow ? 50 : 500, .arrivals = 20, .change = with_states});
  EXPECT_GT(totals.preemptions, testing::kSlow ? 10 : 100) << "the pools were too large to prove anything";
  EXPECT_GT(totals.hits, 5 * totals.caching) << "rows of 20 sequences that were not computed twice";
  EXPECT_GT(totals.stateless, 5 * totals.caching) << "rows whose K and V were there in vain";
  EXPECT_GT(totals.copied_states, 5 * totals.caching) << "slices behind a snapshot";
  EXPECT_GT(2 * totals.shared_states, totals.caching) << "slices behind another sequence's";
}

// From never to always right; a fourth of the histories each with windows, with states, with both and with neither.
TEST(SchedulerHistories, WithGuessesEverySequenceHasTheAnswerItHasAlone) {
  const auto with_guesses = [](std::mt19937& random, uint32_t seed, SchedulerOptions* options) {
    AddWindows(random, options, /*least_context=*/40);
    const auto full = std::find(options->group_windows.begin(), options->group_windows.end(), 0);
    if (seed / 4 % 2 == 1) {  // without them after all
      options->group_blocks = {options->group_blocks[static_cast<size_t>(full - options->group_windows.begin())]};
      options->group_windows.clear();
    }
    if (seed / 8 % 2 == 1) AddStates(random, options);
    options->prefix_caching = seed / 16 % 2 == 1;
    options->micro_batches = 1 + static_cast<int32_t>(random() % 5);
    options->most_groups = options->micro_batches + 1 + static_cast<int32_t>(random() % 3);
    options->most_guesses = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(options->most_groups - 1));
    // Half of the histories have blocks that nobody was promised.
    const int32_t times = random() % 2 == 0 ? 1 : 4;
    for (int32_t& blocks : options->group_blocks) blocks *= times;
  };
  uint64_t guesses = 0, right = 0, voids = 0;
  int64_t held = 0, rewinds = 0;
  const auto look = [&](const History& history, const SchedulerOptions&) {
    const SchedulerCounters& counters = history.counters();
    EXPECT_EQ(static_cast<int64_t>(counters.guesses), history.stages().guesses());
    EXPECT_EQ(static_cast<int64_t>(counters.guesses - counters.guesses_void), history.stages().held());
    if (history.right_guesses() == 1) {
      EXPECT_EQ(counters.guesses_void, 0u);
      EXPECT_EQ(history.stages().rewinds(), 0);
    }
    if (history.right_guesses() == 0) {
      EXPECT_EQ(history.stages().held(), 0);
    }
    guesses += counters.guesses, right += counters.guesses_right, voids += counters.guesses_void;
    held += history.stages().held(), rewinds += history.stages().rewinds();
  };
  constexpr uint32_t kHistories = testing::kSlow ? 48 : 480;
  const Totals totals =
      RunHistories({.count = kHistories, .guesses = {0, 0.5, 0.9, 1}, .change = with_guesses, .look = look});
  EXPECT_GT(totals.preemptions, kHistories / 8) << "the pools were too large to prove anything";
  EXPECT_GT(totals.hits, 2 * kHistories) << "rows of 10 sequences that were not computed twice";
  EXPECT_GT(held, 8 * kHistories);
  EXPECT_GT(rewinds, 5 * kHistories);
  EXPECT_GT(voids, 5 * kHistories);
  EXPECT_LE(right, guesses);
}

// Prompts so long, and attention so dear, that chunks shrink; micro-batches of any size beside them.
TEST(SchedulerHistories, WithChunksThatShrinkEverySequenceHasTheAnswerItHasAlone) {
  const auto with_long_prompts = [](std::mt19937& random, uint32_t seed, SchedulerOptions* options) {
    options->chunking = Chunking::kEqualTime;
    options->max_num_batched_tokens = 40 + static_cast<int32_t>(random() % 200);
    options->prefill_chunk = 70 + static_cast<int32_t>(random() % 200);
    options->block_tokens = 16;
    options->context = 500 + static_cast<int64_t>(random() % 500);
    const auto whole_context = static_cast<int32_t>((options->context - 1) / options->block_tokens + 1);
    for (int32_t& blocks : options->group_blocks) {
      blocks = whole_context + static_cast<int32_t>(random() % whole_context);
    }
    options->max_open_tokens = 2 * options->context;
    options->prefix_caching = seed % 4 >= 2;
  };
  const Totals totals =
      RunHistories({.count = 24, .arrivals = 6, .preemptions = 5, .pair_us = 100, .change = with_long_prompts});
  EXPECT_GT(totals.shrunk_chunks, 24) << "no chunks shrank, so nothing was proven";
}

}  // namespace
}  // namespace stagecoach
