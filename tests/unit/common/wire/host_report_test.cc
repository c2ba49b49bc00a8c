#include "common/wire/host_report.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/wire/handshake.h"

namespace stagecoach {
namespace {

TEST(HostReport, IsFoundAmongWhatALoginPrints) {
  pb::HostReport report;
  *report.mutable_hello() = MakeHello(pb::Hello::ROLE_STAGE, {InstructionSet::kScalar});
  report.add_left()->set_name("stage_worker");
  const std::string line = EncodeHostReport(report);
  for (const std::string& text : {line, line + "\r\n", "Welcome to host\n" + line + "\nbye\n"}) {
    const absl::StatusOr<pb::HostReport> found = FindHostReport(text);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->SerializeAsString(), report.SerializeAsString());
  }
  const std::string printed = "Welcome!\n" + line + "\n";
  for (size_t bytes = 0; bytes < printed.size(); ++bytes) EXPECT_FALSE(HoldsHostReport(printed.substr(0, bytes)));
  EXPECT_TRUE(HoldsHostReport(printed));
}

TEST(HostReport, AnythingElseIsNone) {
  EXPECT_EQ(FindHostReport("usage: ...").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindHostReport("").status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"stagecoach-host-report:", "stagecoach-host-report:0", "stagecoach-host-report:zz",
                           "stagecoach-host-report:ffff", "stagecoach-host-report:12021000"}) {
    EXPECT_EQ(FindHostReport(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace stagecoach
