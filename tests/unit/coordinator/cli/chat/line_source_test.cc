#include "coordinator/cli/chat/line_source.h"

#include <unistd.h>

#include <thread>
#include <vector>

#include "coordinator/cli/chat/chat_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<Awaited> Ready(int) { return Awaited::kReadable; }

// All lines of a pipe that is given `text`.
std::vector<std::string> LinesOf(const std::string& text) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::thread writer([&text, out = ends[1]] {
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(out, text.data() + done, text.size() - done);
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
    close(out);
  });
  PipedLines lines(ends[0]);
  std::vector<std::string> all;
  while (true) {
    const absl::StatusOr<LineRead> read = lines.Read("", Ready);
    EXPECT_TRUE(read.ok());
    if (read->kind != LineRead::Kind::kLine) break;
    all.push_back(read->text);
  }
  writer.join();
  close(ends[0]);
  return all;
}

TEST(PipedLines, GivesLinesWithTheirBlanks) {
  EXPECT_THAT(LinesOf("one\n\n two \r\nthree"), ElementsAre("one", "", " two ", "three"));
  EXPECT_THAT(LinesOf(""), ElementsAre());
  EXPECT_THAT(LinesOf("one\n"), ElementsAre("one"));
}

TEST(PipedLines, CutsWhatIsTooLongForAMessageAndGoesOn) {
  const std::vector<std::string> lines = LinesOf(std::string(3 * kMostMessageBytes, 'x') + "\nnext\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_GT(lines[0].size(), kMostMessageBytes);
  EXPECT_LT(lines[0].size(), 2 * kMostMessageBytes);
  EXPECT_EQ(lines[1], "next");
}

TEST(PipedLines, ReadsOnlyWhenToldThatItCan) {
  PipedLines lines(-1);
  const absl::StatusOr<LineRead> read = lines.Read("", [](int) { return Awaited::kSignal; });
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->kind, LineRead::Kind::kSignal);
  EXPECT_EQ(
      lines.Read("", [](int) -> absl::StatusOr<Awaited> { return absl::UnavailableError("lost"); }).status().message(),
      "lost");
  EXPECT_FALSE(lines.Read("", Ready).ok());
}

}  // namespace
}  // namespace stagecoach
