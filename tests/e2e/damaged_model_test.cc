// A model with a hole, as a download leaves one that made room for the whole file first, through the real programs.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTensor[] = "blk.6.ffn_down.weight";

class DamagedModel : public ::testing::Test {
 protected:
  DamagedModel() {
    const auto sound = GgufFile::Open(DemoModelPath()).value();
    std::string bytes = ReadFileOrDie(DemoModelPath());
    const uint64_t begin = sound->FindTensor(kTensor)->file_offset + 10000;
    bytes.replace(begin, 16384, 16384, '\0');
    WriteFileOrDie(path_, bytes);
    damage_ = absl::StrCat("tensor '", kTensor, "' of layer 6 has a hole, 16384 zero bytes at offset ", begin, " of '",
                           path_, "'");
  }

  ProgramResult Run(const Words& words, const Words& more = {}) const {
    return Coordinator(Joined(Joined(words, {"-m", path_}), more));
  }

  const TempDir directory_;
  const std::string path_ = directory_.File("hole.gguf");
  const Words generate_ = {"generate", "--pp", "2", "-p", "x", "-n", "4"};
  std::string damage_;
};

TEST_F(DamagedModel, IsRefusedByTheStageThatLoadsItFromAFileAndFromAStream) {
  for (const char* weights : {"file", "stream"}) {
    const ProgramResult result = Run(generate_, {"--weights", weights});
    EXPECT_EQ(result.exit_code, 3) << result;
    EXPECT_THAT(result.err, AllOf(HasSubstr("stage 1 on "), HasSubstr(damage_), HasSubstr("download it again"),
                                  HasSubstr("give --allow-damaged to take it as it is")));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(DamagedModel, IsLoadedWhereTheUserWantsIt) {
  const ProgramResult result = Run(generate_, {"--allow-damaged"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.err, HasSubstr(damage_ + "; it is loaded all the same"));
}

TEST_F(DamagedModel, IsFoundByInspectAndDoctorWhenTheyAreAsked) {
  EXPECT_EQ(Run({"inspect"}).exit_code, 0) << "which reads the header alone";
  const ProgramResult inspect = Run({"inspect", "--check"});
  EXPECT_EQ(inspect.exit_code, 3) << inspect;
  EXPECT_THAT(inspect.out, AllOf(HasSubstr("damaged          " + damage_), HasSubstr("damaged are 1\n")));
  EXPECT_THAT(inspect.err, HasSubstr("copy or download the file again"));
  const ProgramResult doctor = Run({"doctor", "--check"});
  EXPECT_EQ(doctor.exit_code, 3) << doctor;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("error    model: " + damage_), HasSubstr("every stage sees the same file")));
}

TEST(SoundModel, HasAChecksumForEveryTensor) {
  const ProgramResult text = Coordinator({"inspect", "--check", "-m", DemoModelPath()});
  EXPECT_EQ(text.exit_code, 0) << text;
  EXPECT_THAT(text.out, AllOf(HasSubstr("damaged are 0\n"), Not(HasSubstr("damaged          "))));
  const ProgramResult result = Coordinator({"inspect", "--check", "--json", "-m", DemoModelPath()});
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["damaged_tensors"], 0);
  for (const Json& tensor : json["tensor_list"]) {
    EXPECT_EQ(tensor["crc32c"].get<std::string>().size(), 8u);
    EXPECT_TRUE(tensor["damage"].is_null());
  }
  const ProgramResult doctor = Coordinator({"doctor", "--check", "-m", DemoModelPath()});
  EXPECT_EQ(doctor.exit_code, 0) << doctor;
  EXPECT_THAT(doctor.out, HasSubstr("none is damaged\n"));
}

}  // namespace
}  // namespace stagecoach::testing
