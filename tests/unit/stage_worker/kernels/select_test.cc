#include "stage_worker/kernels/select.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "stage_worker/kernels/kernels.h"
#include "tests/testing/status_is.h"

namespace stagecoach {
namespace {

TEST(SelectKernels, ChoosesTheLastOfTheAvailableInstructionSets) {
  const std::vector<std::string> names = absl::StrSplit(AvailableIsas(), ", ");
  EXPECT_EQ(names.front(), "scalar");
  EXPECT_EQ(SelectKernels("auto").value()->isa, names.back());
  EXPECT_EQ(SelectKernels("").value()->isa, names.back());
  for (const std::string& name : names) EXPECT_EQ(SelectKernels(name).value()->isa, name);
}

TEST(SelectKernels, NamesAllInstructionSetsWhenItKnowsNoSuchName) {
  const absl::Status status = SelectKernels("mmx").status();
  EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(AvailableIsas())));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("'mmx'"));
}

TEST(KvType, IsFoundByItsNameAlone) {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    EXPECT_EQ(ParseKvType(KvTypeName(type)).value(), type);
  }
  EXPECT_EQ(ParseKvType("q4_0").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(ParseKvType("F16").status().message().find("f32, f16, bf16, q8_0"), std::string::npos);
  EXPECT_EQ(KvTileBytes(KvType::kF32, 128), 16u * 128 * 4);
  EXPECT_EQ(KvTileBytes(KvType::kBF16, 20), 16u * 20 * 2);
  EXPECT_EQ(KvTileBytes(KvType::kQ8_0, 64), 16u * 2 * 36);
}

}  // namespace
}  // namespace stagecoach
