// Guessed rows in the table of sequences: what may go back where, and that blocks hold what right rows read.

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stage_worker/kv/sequence_table.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr int32_t kMostGuesses = 3;

SequenceSlice KnownRow(SequenceId sequence, int32_t start, const std::vector<BlockId>& blocks = {}) {
  SequenceSlice slice{.sequence = sequence, .start = start, .count = 1, .sample = true};
  if (!blocks.empty()) slice.new_blocks = {blocks, blocks};
  return slice;
}

SequenceSlice GuessedRow(SequenceId sequence, int32_t start, const std::vector<BlockId>& blocks = {}) {
  SequenceSlice slice = KnownRow(sequence, start, blocks);
  slice.guess = true;
  return slice;
}

SequenceSlice Unsampled(SequenceSlice slice) {
  slice.sample = false;
  return slice;
}

OpenSequence OpenedBehind(SequenceId sequence, int32_t rows, const std::vector<BlockId>& shared) {
  return {.sequence = sequence, .prompt = {1}, .shared_blocks = {shared, shared}, .shared_rows = rows};
}

// Blocks of 16 tokens, in two groups; rows see 20 positions in the second one. Sequence 1 is open: 30 rows in blocks 3
// and 5 of both.
class GuessedRowsTest : public ::testing::Test {
 protected:
  GuessedRowsTest() : table_(16, {8, 6}, 128, {0, 20}, kMostGuesses) {
    SequenceSlice prompt{.sequence = 1, .count = 30, .new_blocks = {{3, 5}, {3, 5}}, .sample = true};
    Apply({.open = {{.sequence = 1, .prompt = {1}}}, .slices = {prompt}});
  }

  void Apply(const MicroBatch& batch) {
    const absl::Status applied = table_.Apply(batch);
    ASSERT_TRUE(applied.ok()) << applied;
  }
  // Guesses from position 30 on. Block 1 is at place 2.
  void Guess(int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      Apply({.slices = {GuessedRow(1, 30 + i, 30 + i == 32 ? std::vector<BlockId>{1} : std::vector<BlockId>{})}});
    }
  }
  // Refused with this message, and sequence 1 is as before.
  void ExpectRefused(const MicroBatch& batch, const std::string& message) {
    const SequenceTable::Entry before = *table_.Find(1);
    EXPECT_THAT(table_.Apply(batch), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    ASSERT_NE(table_.Find(1), nullptr);
    EXPECT_EQ(table_.Find(1)->rows, before.rows);
    EXPECT_EQ(table_.Find(1)->guesses, before.guesses);
    EXPECT_EQ(table_.Find(1)->tables, before.tables);
  }
  void ExpectFull(int32_t rows, const std::vector<BlockId>& blocks, bool full) {
    const absl::Status opened = table_.Validate({.open = {OpenedBehind(2, rows, blocks)}});
    EXPECT_EQ(opened.ok(), full) << opened;
    if (!full) {
      EXPECT_THAT(opened.message(), HasSubstr("which is not full"));
    }
  }

  SequenceTable table_;
};

TEST_F(GuessedRowsTest, AKnownRowGoesBackOverThemAndTheTableKeepsItsBlocks) {
  Guess(3);
  EXPECT_EQ(table_.Find(1)->rows, 33);
  ExpectFull(32, {3, 5}, true);
  Apply({.slices = {KnownRow(1, 30)}});
  EXPECT_EQ(table_.Find(1)->rows, 31);
  EXPECT_THAT(table_.Find(1)->tables, Each(ElementsAre(3, 5, 1)));
  ExpectFull(16, {3}, true);
  ExpectFull(32, {3, 5}, false);
  Apply({.slices = {GuessedRow(1, 31)}});
  Apply({.slices = {KnownRow(1, 32)}});
  EXPECT_EQ(table_.Find(1)->rows, 33);
  ExpectFull(32, {3, 5}, true);
  EXPECT_EQ(table_.blocks_in_use(0), 3);
}

TEST_F(GuessedRowsTest, OneIsOneSampledRowBehindTheOthersOfASequenceThatHasNoOtherSlice) {
  SequenceTable without(16, std::vector<int32_t>{8, 6}, 128);
  ASSERT_TRUE(without.Apply({.open = {{.sequence = 1, .prompt = {1}}}, .slices = {KnownRow(1, 0, {0})}}).ok());
  EXPECT_THAT(without.Apply({.slices = {GuessedRow(1, 1)}}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("and the job has no guesses")));
  SequenceSlice two = GuessedRow(1, 30);
  two.count = 2;
  const std::string alone = ", expected one sampled row alone, of a sequence that was open before";
  ExpectRefused({.slices = {two}}, "a guess of sequence 1 at position 30 has 2 rows" + alone);
  ExpectRefused({.slices = {Unsampled(GuessedRow(1, 30))}}, "has 1 rows and is not sampled" + alone);
  ExpectRefused({.slices = {KnownRow(1, 30), GuessedRow(1, 31)}}, "a guess of sequence 1 at position 31 has 1 rows");
  ExpectRefused({.open = {OpenedBehind(2, 16, {3})}, .slices = {GuessedRow(2, 16, {0})}}, "a guess of sequence 2 at");
  ExpectRefused({.slices = {GuessedRow(1, 31)}}, "starts at position 31, expected 30");
  ExpectRefused({.slices = {GuessedRow(1, 29)}}, "starts at position 29, expected 30");
  ExpectRefused({.slices = {GuessedRow(9, 1)}}, "rows for sequence 9, which is not open here");
  ExpectRefused({.free = {1}, .slices = {GuessedRow(1, 30)}}, "rows for sequence 1, which is not open here");
}

TEST_F(GuessedRowsTest, OnlyOneKnownSampledRowGoesBackAndOnlyOverGuesses) {
  ExpectRefused({.slices = {KnownRow(1, 29)}}, "starts at position 29, expected 30");
  Guess(2);
  SequenceSlice two = KnownRow(1, 30);
  two.count = 2;
  ExpectRefused({.slices = {KnownRow(1, 29)}}, "starts at position 29, expected 30 to 32");
  ExpectRefused({.slices = {two}}, "starts at position 30, expected 32");
  ExpectRefused({.slices = {Unsampled(KnownRow(1, 30))}}, "starts at position 30, expected 32");
  ExpectRefused({.slices = {GuessedRow(1, 31)}}, "starts at position 31, expected 32");
  ExpectRefused({.slices = {KnownRow(1, 31), KnownRow(1, 31)}}, "starts at position 31, expected 32");
  Apply({.slices = {KnownRow(1, 31)}});
  ExpectRefused({.slices = {KnownRow(1, 31)}}, "starts at position 31, expected 32");
  Apply({.slices = {GuessedRow(1, 32, {1})}});
  Apply({.slices = {KnownRow(1, 33)}});
  ExpectRefused({.slices = {KnownRow(1, 32)}}, "starts at position 32, expected 34");
}

TEST_F(GuessedRowsTest, ARewindIsNoDeeperThanGuessesAreInFlight) {
  Guess(5);  // the first two held
  ExpectRefused({.slices = {KnownRow(1, 31)}}, "starts at position 31, expected 32 to 35");
  Apply({.slices = {KnownRow(1, 32)}});
  EXPECT_EQ(table_.Find(1)->rows, 33);
}

TEST_F(GuessedRowsTest, ARowThatGoesBackBringsNoBlockThatTheTableHas) {
  Guess(3);
  ExpectRefused({.slices = {KnownRow(1, 30, {0})}}, "31 rows in 4 blocks of 16 tokens, expected 3 blocks");
  Apply({.slices = {KnownRow(1, 32)}});
  ExpectRefused({.slices = {GuessedRow(1, 33, {0})}}, "34 rows in 4 blocks of 16 tokens, expected 3 blocks");
}

TEST_F(GuessedRowsTest, ABlockThatAnotherTableHoldsIsNotOverwritten) {
  Guess(3);
  const std::string shared = "goes back to position 31, but another sequence has its block 5 of block group 0";
  ExpectRefused({.open = {OpenedBehind(2, 32, {3, 5})}, .slices = {KnownRow(1, 31)}}, shared);
  Apply({.open = {OpenedBehind(2, 32, {3, 5})}});
  ExpectRefused({.slices = {KnownRow(1, 31)}}, shared);
  EXPECT_TRUE(table_.Validate({.slices = {KnownRow(1, 32)}}).ok()) << "behind them";
  Apply({.free = {2}, .slices = {KnownRow(1, 31)}});
}

TEST_F(GuessedRowsTest, ARowThatSeesAReleasedPlaceIsNotGoneBackTo) {
  Guess(5);
  SequenceSlice releases = GuessedRow(1, 35);
  releases.released_blocks = {0, 1};  // which position 35 is the first not to see
  Apply({.slices = {releases}});
  ExpectRefused({.slices = {KnownRow(1, 34)}},
                "goes back to position 34, which sees place 0 of block group 1, but 1 places were released");
  Apply({.slices = {KnownRow(1, 35)}});
  EXPECT_THAT(table_.Find(1)->tables[1], ElementsAre(kNoBlock, 5, 1));
}

// --- random streams --------------------------------------------------------------------------------------------------

// A coordinator, and memory that holds for every row of a block what was stored there last. Rows that are known must
// find all that they see.
class GuessedStream {
 public:
  explicit GuessedStream(uint64_t seed)
      : random_(seed), table_(kTokensOfABlock, kBlocks, kContext, kWindows, kMostGuesses) {
    for (size_t group = 0; group < kBlocks.size(); ++group) {
      for (BlockId block = 0; block < kBlocks[group]; ++block) free_[group].push_back(block);
      memory_[group].resize(static_cast<size_t>(kBlocks[group] * kTokensOfABlock));
      holders_[group].resize(static_cast<size_t>(kBlocks[group]));
    }
  }

  void Run(int batches) {
    for (int i = 0; i < batches && !::testing::Test::HasFailure(); ++i) {
      for (auto& [id, sequence] : sequences_) {
        while (Chance(2)) Learn(&sequence);
      }
      Step();
    }
  }
  int rewinds() const { return rewinds_; }
  int shares() const { return shares_; }

 private:
  static constexpr int32_t kTokensOfABlock = 4, kContext = 40;
  const std::vector<int32_t> kBlocks = {30, 18};
  const std::vector<int64_t> kWindows = {0, 6};

  using Row = std::pair<int32_t, TokenId>;  // position and token
  struct Sequence {
    std::vector<TokenId> known;  // tokens
    int32_t rows = 0;            // sent, those that proved wrong taken back
    std::vector<TokenId> guesses;
    BlockLists tables = BlockLists(2);
    std::vector<int32_t> released = {0, 0};
    bool decoding() const { return rows + 1 >= static_cast<int32_t>(known.size()); }
    bool ready() const { return rows + 1 == static_cast<int32_t>(known.size()); }
    TokenId TokenOf(int32_t row) const {
      const auto at = static_cast<size_t>(row);
      return at < known.size() ? known[at] : guesses[at - known.size()];
    }
  };

  int32_t Below(int32_t n) { return std::uniform_int_distribution<int32_t>(0, n - 1)(random_); }
  bool Chance(int32_t one_of) { return Below(one_of) == 0; }

  // The result of the newest row that is known comes back.
  void Learn(Sequence* sequence) {
    if (!sequence->decoding() || sequence->ready()) return;
    std::vector<TokenId>& guesses = sequence->guesses;
    const bool held = !guesses.empty() && !Chance(3);
    sequence->known.push_back(held ? guesses.front() : 1000 + Below(1000));
    if (held) {
      guesses.erase(guesses.begin());
      return;
    }
    rewinds_ += guesses.empty() ? 0 : 1;
    guesses.clear();
    sequence->rows = static_cast<int32_t>(sequence->known.size()) - 1;
  }

  void Step() {
    batch_ = {.number = batch_.number + 1};
    if (!sequences_.empty() && Chance(8)) Free(std::next(sequences_.begin(), Below(size()))->first);
    if (size() < 3 && Chance(2)) Open();
    for (auto& [id, sequence] : sequences_) {
      if (Chance(4)) continue;
      if (!sequence.decoding()) {
        const int32_t left = static_cast<int32_t>(sequence.known.size()) - sequence.rows;
        const int32_t count = Chance(2) ? left : 1 + Below(left);
        AddSlice(id, &sequence, {.count = count, .sample = count == left});
      } else if (sequence.ready()) {
        AddSlice(id, &sequence, {.count = 1, .sample = true});
      } else if (sequence.guesses.size() < kMostGuesses) {
        sequence.guesses.push_back(2000 + Below(1000));
        if (!AddSlice(id, &sequence, {.count = 1, .sample = true, .guess = true})) sequence.guesses.pop_back();
      }
    }
    const absl::Status applied = table_.Apply(batch_);
    ASSERT_TRUE(applied.ok()) << applied;
    for (const SequenceSlice& slice : batch_.slices) Store(slice);
    for (const auto& [id, sequence] : sequences_) Check(id, sequence);
  }

  // False: no room.
  bool AddSlice(SequenceId id, Sequence* sequence, SequenceSlice slice) {
    slice.sequence = id;
    slice.start = sequence->rows;
    const int32_t end = slice.start + slice.count;
    if (end > kContext) return false;
    const int32_t first = sequence->decoding() ? static_cast<int32_t>(sequence->known.size()) - 1 : slice.start;
    const int64_t unseen = FirstPlaceSeen(first, kWindows[1], kTokensOfABlock);
    const auto there = static_cast<int32_t>(sequence->tables[0].size());
    const int32_t blocks = std::max((end + kTokensOfABlock - 1) / kTokensOfABlock - there, 0);
    for (const std::vector<BlockId>& free : free_) {
      if (static_cast<int32_t>(free.size()) < blocks) return false;
    }
    if (unseen > sequence->released[1] && Chance(2)) {
      for (int32_t& place = sequence->released[1]; place < unseen; ++place) {
        Drop(1, std::exchange(sequence->tables[1][static_cast<size_t>(place)], kNoBlock));
      }
      slice.released_blocks = sequence->released;
    }
    for (size_t group = 0; blocks > 0 && group < 2; ++group) {
      std::vector<BlockId>& given = slice.new_blocks.emplace_back();
      for (int32_t i = 0; i < blocks; ++i) given.push_back(Take(group));
      sequence->tables[group].insert(sequence->tables[group].end(), given.begin(), given.end());
    }
    for (int32_t row = slice.start; row < end; ++row) slice.tokens.push_back(sequence->TokenOf(row));
    sequence->rows = end;
    batch_.slices.push_back(std::move(slice));
    return true;
  }

  // Behind whole blocks of known rows of another one, or at the beginning.
  void Open() {
    OpenSequence open{.sequence = next_id_++, .prompt = {1}};
    Sequence opened;
    if (!sequences_.empty() && Chance(2)) {
      const Sequence& other = std::next(sequences_.begin(), Below(size()))->second;
      const int32_t rows = std::min(other.rows, static_cast<int32_t>(other.known.size()));
      const int32_t blocks = rows / kTokensOfABlock;
      const int64_t seen = FirstPlaceSeen(blocks * kTokensOfABlock, kWindows[1], kTokensOfABlock);
      if (blocks > 0 && blocks * kTokensOfABlock < kContext && other.released[1] <= seen)
        Share(other, blocks, &open, &opened);
    }
    for (int32_t i = 1 + Below(8); i > 0; --i) opened.known.push_back(Below(1000));
    open.prompt = opened.known;
    batch_.open.push_back(open);
    sequences_[open.sequence] = std::move(opened);
  }

  void Share(const Sequence& other, int32_t blocks, OpenSequence* open, Sequence* opened) {
    ++shares_;
    opened->rows = open->shared_rows = blocks * kTokensOfABlock;
    opened->known.assign(other.known.begin(), other.known.begin() + opened->rows);
    opened->released = other.released;
    for (size_t group = 0; group < 2; ++group) {
      const auto begin = other.tables[group].begin();
      opened->tables[group].assign(begin, begin + blocks);
      open->shared_blocks.emplace_back(begin + other.released[group], begin + blocks);
      for (const BlockId block : open->shared_blocks.back()) ++holders_[group][static_cast<size_t>(block)];
    }
  }

  void Free(SequenceId id) {
    batch_.free.push_back(id);
    for (size_t group = 0; group < 2; ++group) {
      for (const BlockId block : sequences_.at(id).tables[group]) {
        if (block != kNoBlock) Drop(group, block);
      }
    }
    sequences_.erase(id);
  }

  BlockId Take(size_t group) {
    std::swap(free_[group].back(), free_[group][static_cast<size_t>(Below(static_cast<int32_t>(free_[group].size())))]);
    const BlockId block = free_[group].back();
    free_[group].pop_back();
    ++holders_[group][static_cast<size_t>(block)];
    return block;
  }
  void Drop(size_t group, BlockId block) {
    if (--holders_[group][static_cast<size_t>(block)] == 0) free_[group].push_back(block);
  }

  Row& At(size_t group, const Sequence& sequence, int32_t position) {
    const BlockId block = sequence.tables[group][static_cast<size_t>(position / kTokensOfABlock)];
    return memory_[group][static_cast<size_t>(block * kTokensOfABlock + position % kTokensOfABlock)];
  }
  void Store(const SequenceSlice& slice) {
    for (int32_t i = 0; i < slice.count; ++i) {
      const Row row = {slice.start + i, slice.tokens[static_cast<size_t>(i)]};
      for (size_t group = 0; group < 2; ++group) At(group, sequences_.at(slice.sequence), row.first) = row;
    }
  }

  // What the next known row sees of those before it is there; a block that is no longer filled is not full.
  void Check(SequenceId id, const Sequence& sequence) {
    const SequenceTable::Entry& entry = *table_.Find(id);
    EXPECT_EQ(entry.tables, sequence.tables);
    EXPECT_EQ(entry.released, sequence.released);
    const auto known = std::min(sequence.rows, static_cast<int32_t>(sequence.known.size()));
    for (size_t group = 0; group < 2; ++group) {
      const int64_t first = kWindows[group] == 0 ? 0 : std::max<int64_t>(known - kWindows[group] + 1, 0);
      ASSERT_LE(sequence.released[group] * kTokensOfABlock, first);
      for (auto position = static_cast<int32_t>(first); position < known; ++position) {
        ASSERT_EQ(At(group, sequence, position), Row(position, sequence.known[static_cast<size_t>(position)]));
      }
    }
    const int32_t partial = sequence.rows / kTokensOfABlock;
    if (entry.rows != sequence.rows || partial >= static_cast<int32_t>(entry.tables[0].size())) return;
    if ((partial + 1) * kTokensOfABlock >= kContext) return;
    const std::vector<BlockId> blocks(entry.tables[0].begin(), entry.tables[0].begin() + partial + 1);
    const OpenSequence behind = {.sequence = next_id_,
                                 .prompt = {1},
                                 .shared_blocks = {blocks, entry.tables[1]},
                                 .shared_rows = (partial + 1) * kTokensOfABlock};
    EXPECT_THAT(table_.Validate({.open = {behind}}).message(), HasSubstr("which is not full"));
  }

  int32_t size() const { return static_cast<int32_t>(sequences_.size()); }

  std::mt19937_64 random_;
  SequenceTable table_;
  MicroBatch batch_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_id_ = 1;
  std::vector<BlockId> free_[2];
  std::vector<int32_t> holders_[2];
  std::vector<Row> memory_[2];
  int rewinds_ = 0, shares_ = 0;
};

TEST(GuessedStreams, KnownRowsFindWhatTheySeeHoweverManyGuessesWereWrong) {
  int rewinds = 0, shares = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    GuessedStream stream(seed);
    stream.Run(40);
    if (HasFailure()) return;
    rewinds += stream.rewinds();
    shares += stream.shares();
  }
  EXPECT_GT(rewinds, 10'000);
  EXPECT_GT(shares, 1'000);
}

TEST(DraftTable, RowsThatAreSampledOneByOneCountAsGuessesAndTheRowThatGoesBackDoesNot) {
  SequenceTable table(16, {8}, 128, {}, kMostGuesses, /*cuts_history=*/true);
  const auto row = [&](int32_t start) {
    SequenceSlice slice{.sequence = 1, .start = start, .count = 1, .sample = true};
    return table.Apply({.slices = {slice}});
  };
  SequenceSlice prompt{.sequence = 1, .count = 3, .new_blocks = {{2}}, .sample = true};
  ASSERT_TRUE(table.Apply({.open = {{.sequence = 1, .prompt = {1}}}, .slices = {prompt}}).ok());
  EXPECT_THAT(row(2), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 3")));
  for (int32_t start = 3; start < 8; ++start) ASSERT_TRUE(row(start).ok());
  EXPECT_THAT(row(4), testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 5 to 8")));
  ASSERT_TRUE(row(5).ok());
  EXPECT_EQ(table.Find(1)->rows, 6);
  EXPECT_EQ(table.Find(1)->guesses, 0) << "its token is the true one";
  EXPECT_FALSE(row(5).ok());
  ASSERT_TRUE(row(6).ok());
  EXPECT_TRUE(row(6).ok());
}

}  // namespace
}  // namespace stagecoach
