#include "stage_worker/check/self_check.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/aligned_buffer.h"
#include "common/host/host_info.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/select.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

std::vector<const Kernels*> AllKernels() {
  std::vector<const Kernels*> all;
  for (const std::string& isa : std::vector<std::string>(absl::StrSplit(AvailableIsas(), ", "))) {
    all.push_back(SelectKernels(isa).value());
  }
  return all;
}

TEST(PeakLoops, ReadEveryByteOnce) {
  AlignedBuffer data(4096);
  for (size_t i = 0; i < data.size(); ++i) data.data()[i] = static_cast<uint8_t>(i * 31 + i / 256);
  uint64_t expected = 0;
  for (size_t i = 0; i < data.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, data.data() + i, sizeof(word));
    expected += word;
  }
  for (const Kernels* kernels : AllKernels()) {
    for (const ReadPattern& pattern : kReadPatterns) {
      EXPECT_EQ(PeakLoopsOf(*kernels).read(data.data(), data.size(), pattern), expected)
          << kernels->isa << " " << pattern.streams << " " << pattern.ahead;
    }
  }
}

TEST(PeakLoops, CountTheirOperationsByTheRounds) {
  for (const Kernels* kernels : AllKernels()) {
    const PeakLoops& loops = PeakLoopsOf(*kernels);
    EXPECT_EQ(loops.bf16_dot != nullptr, kernels->bf16_dot) << kernels->isa;
    for (double (*loop)(int64_t) : {loops.int8_dot, loops.bf16_dot, loops.f32_fma}) {
      if (loop == nullptr) continue;
      EXPECT_GT(loop(1), 0) << kernels->isa;
      EXPECT_EQ(loop(10), 10 * loop(1)) << kernels->isa;
    }
  }
}

TEST(MachinePeaks, AreThereForWhatTheKernelsHave) {
  const Kernels& kernels = *SelectKernels("auto").value();
  const MachinePeaks peaks = MeasurePeaks(kernels, 2).value();
  EXPECT_EQ(peaks.threads, 2);
  EXPECT_GT(peaks.read_gbps, 0);
  EXPECT_GT(peaks.int8_gops, 0);
  EXPECT_GT(peaks.f32_gops, 0);
  EXPECT_EQ(peaks.bf16_gops > 0, kernels.bf16_dot);
  EXPECT_EQ(PeakGopsOf(peaks, kernels, TensorType::kQ8_0), peaks.int8_gops);
  EXPECT_EQ(PeakGopsOf(peaks, kernels, TensorType::kF32), peaks.f32_gops);
  EXPECT_EQ(PeakGopsOf(peaks, kernels, TensorType::kBF16), kernels.bf16_dot ? peaks.bf16_gops : peaks.f32_gops);
}

TEST(SelfCheck, ReportsOneLineOfJson) {
  const std::string report = SelfCheck({"--isa", "scalar", "--threads", "1"}).value();
  EXPECT_THAT(report, AllOf(StartsWith("{\"valid\": true, \"isa\": \"scalar\", \"cpu\": \""), Not(HasSubstr("\n"))));
  EXPECT_THAT(report, AllOf(HasSubstr("\"Q8_0\": \"int8\""), HasSubstr("\"differences\": []")));
  EXPECT_THAT(report, HasSubstr("\"peaks\": [{\"threads\": 1, \"read_gbps\": "));
}

TEST(SelfCheck, MeasuresNoMoreThreadsThanThereAreCores) {
  const std::string report = SelfCheck({"--isa", "scalar", "--threads", "1024,1000"}).value();
  EXPECT_THAT(report, HasSubstr(absl::StrCat("\"peaks\": [{\"threads\": ", AllowedCores(), ", ")));
  EXPECT_THAT(report, Not(HasSubstr("}, {")));
}

TEST(SelfCheck, RefusesArgumentsThatItDoesNotKnow) {
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--fast"}, "unexpected argument '--fast'"},
      {{"--isa"}, "--isa needs a value"},
      {{"--isa", "mmx"}, "`isa` is 'mmx', expected one of scalar, "},
      {{"--threads", "0"}, "'0' is no number of threads, expected 1 to 1024"},
      {{"--threads", "1,,2"}, "'' is no number of threads"},
      {{"--threads", "two"}, "'two' is no number of threads"},
  };
  for (const auto& [arguments, message] : wrong) {
    EXPECT_THAT(SelfCheck(arguments).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << message;
  }
}

}  // namespace
}  // namespace stagecoach
