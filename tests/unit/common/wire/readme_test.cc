// The frame that proto/README.md draws is the one the encoder writes.

#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/wire/frame.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/unit/common/wire/frame_samples.h"

namespace stagecoach {
namespace {

// A chunk of three tokens of sequence 1 at positions 22 to 24, from stage 0 to stage 1: hidden states of width 4,
// blocks of 8 tokens, and beside the group of all layers that see everything one with a window of 8.
std::string DrawnFrame() {
  FrameLimits limits = SmallLimits();
  limits.hidden = 4;
  limits.group_blocks = {16, 12};
  limits.group_windows = {0, 8};
  StepFrame frame;
  frame.batch.number = 7;
  SequenceSlice slice;
  slice.sequence = 1;
  slice.start = 22;
  slice.count = 3;
  slice.new_blocks = {{15}, {4}};
  slice.released_blocks = {0, 1};
  slice.sample = true;
  frame.batch.slices = {slice};
  frame.times = {{0, 1'700'000'000'000'000, 1'700'000'000'000'040, 1'700'000'000'000'900, 55}};
  frame.has_hidden = true;
  FrameBuffer buffer = StepBuffer(limits);
  for (int i = 0; i < 12; ++i) {
    const float value = 0.5f * static_cast<float>(i);
    EncodeHidden(WireType::kF32, &value, 1, buffer.payload() + 4 * i);
  }
  EXPECT_TRUE(EncodeStep(limits, frame, &buffer).ok());
  EXPECT_TRUE(DecodeStep(limits, buffer.message(), 7, true).ok());
  return std::string(buffer.message().begin(), buffer.message().end());
}

// The bytes of the lines "<offset, 4 hex digits>  <hex bytes>  | <meaning>" of the README, each of which must start
// where the last ended.
std::string BytesOfReadme() {
  std::ifstream file(testing::SourcePath("proto/README.md"));
  EXPECT_TRUE(file.good());
  std::string bytes;
  for (std::string line; std::getline(file, line);) {
    const size_t bar = line.find('|');
    if (line.size() < 6 || bar == std::string::npos || line.find_first_not_of("0123456789abcdef") != 4) continue;
    EXPECT_EQ(line.substr(0, 4), absl::StrCat(absl::Hex(bytes.size(), absl::kZeroPad4))) << line;
    std::istringstream words(line.substr(4, bar - 4));
    for (std::string word; words >> word;) bytes += absl::HexStringToBytes(word);
  }
  return bytes;
}

TEST(ProtoReadme, DrawsTheBytesThatTheEncoderWrites) {
  EXPECT_EQ(absl::BytesToHexString(BytesOfReadme()), absl::BytesToHexString(DrawnFrame()));
}

}  // namespace
}  // namespace stagecoach
