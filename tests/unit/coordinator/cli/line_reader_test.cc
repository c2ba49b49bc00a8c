#include "coordinator/cli/line_reader.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>

#include "common/base/check.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

// A pipe that a LineReader reads, and a way to wait for it.
class PipedReader {
 public:
  explicit PipedReader(size_t capacity = 100, size_t max_line_bytes = 1000) {
    CHECK_EQ(pipe(ends_), 0);
    reader_ = std::make_unique<LineReader>(ends_[0], capacity, max_line_bytes, [this] {
      std::lock_guard lock(mu_);
      ++wakes_;
      woken_.notify_all();
    });
  }
  ~PipedReader() {
    reader_.reset();
    close(ends_[0]);
    Close();
  }
  void Write(const std::string& text) {
    CHECK_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void Close() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  LineReader& reader() { return *reader_; }

  // The next line, or nothing at the end.
  std::optional<LineReader::Line> Next() {
    while (true) {
      int seen;
      {
        std::lock_guard lock(mu_);
        seen = wakes_;
      }
      if (std::optional<LineReader::Line> line = reader_->TryNext()) return line;
      if (reader_->finished()) return std::nullopt;
      std::unique_lock lock(mu_);
      woken_.wait(lock, [&] { return wakes_ != seen; });
    }
  }

 private:
  int ends_[2];
  std::mutex mu_;
  std::condition_variable woken_;
  int wakes_ = 0;
  std::unique_ptr<LineReader> reader_;
};

TEST(LineReader, GivesLinesAsTheyComeWhileThePipeStaysOpen) {
  PipedReader pipe;
  pipe.Write("one\ntw");
  EXPECT_EQ(pipe.Next()->text, "one");
  EXPECT_FALSE(pipe.reader().TryNext().has_value());
  pipe.Write("o\n");
  EXPECT_EQ(pipe.Next()->text, "two");
  EXPECT_FALSE(pipe.reader().finished());
  pipe.Close();
  EXPECT_FALSE(pipe.Next().has_value());
  EXPECT_TRUE(pipe.reader().finished());
}

TEST(LineReader, CountsBlankLinesButLeavesThemOut) {
  PipedReader pipe;
  pipe.Write("\n  \r\na\n\nb");
  pipe.Close();
  const std::optional<LineReader::Line> a = pipe.Next(), b = pipe.Next();
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->number, 3);
  EXPECT_EQ(b->number, 5);
  EXPECT_EQ(b->text, "b") << "the last line may lack its newline";
  EXPECT_FALSE(pipe.Next().has_value());
}

TEST(LineReader, DropsTheTextOfALineThatIsTooLongAndGoesOn) {
  PipedReader pipe(100, 10);
  pipe.Write(std::string(5000, 'x') + "\nshort\n" + std::string(11, 'y'));
  pipe.Close();
  EXPECT_TRUE(pipe.Next()->too_long);
  EXPECT_EQ(pipe.Next()->text, "short");
  EXPECT_TRUE(pipe.Next()->too_long);
  EXPECT_FALSE(pipe.Next().has_value());
}

TEST(LineReader, SaysWhereInTheInputALineEnds) {
  PipedReader pipe;
  pipe.Write("a\n\nlonger line\nlast");
  pipe.Close();
  for (const int64_t end : {2, 15, 19}) EXPECT_EQ(pipe.Next()->end, end);
}

TEST(LineReader, HoldsNoMoreBytesThanFourLongestLines) {
  PipedReader pipe(/*capacity=*/1000, /*max_line_bytes=*/100);
  for (int i = 0; i < 100; ++i) pipe.Write(std::string(99, 'x') + "\n");
  pipe.Close();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pipe.Next()->text.size(), 99u);
    EXPECT_LE(pipe.reader().held_bytes(), 400u);
  }
  EXPECT_FALSE(pipe.Next().has_value());
  EXPECT_EQ(pipe.reader().held_bytes(), 0u);
}

TEST(LineReader, HoldsABoundedNumberOfLines) {
  PipedReader pipe(2);
  pipe.Write("1\n2\n3\n4\n");
  pipe.Close();
  for (const char* expected : {"1", "2", "3", "4"}) EXPECT_EQ(pipe.Next()->text, expected);
  EXPECT_FALSE(pipe.Next().has_value());
}

TEST(LineReader, CanBeDestroyedWhileThePipePausesOrItsQueueIsFull) {
  PipedReader paused;
  PipedReader full(1);
  full.Write("1\n2\n3\n");
  EXPECT_EQ(full.Next()->text, "1");
}

}  // namespace
}  // namespace stagecoach
