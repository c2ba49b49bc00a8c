#include "coordinator/cli/job_flags.h"

#include <string>

#include "CLI/App.hpp"
#include "coordinator/cli/cluster_options.h"
#include "gtest/gtest.h"
#include "proto/engine.pb.h"

namespace stagecoach {
namespace {

TEST(JobFlags, FieldsInBackquotesBecomeTheOptionsThatSetThem) {
  EXPECT_EQ(WithFlags("`kv_cache_bytes` is 7, `stages` is 2"), "--kv-cache-memory is 7, --pp is 2");
  EXPECT_EQ(WithFlags("lower `context` or `threads`"), "lower --ctx-size or --threads");
}

TEST(JobFlags, EverythingElseStaysAsItIs) {
  for (const char* message : {"", "context", "`", "a ` b", "`coordinator help`", "``", "`a``b`", "kv_cache_bytes`"}) {
    EXPECT_EQ(WithFlags(message), message);
  }
  EXPECT_EQ(WithFlags("`x`isa`y"), "`x--isay");
  EXPECT_EQ(WithFlags("a ` b `isa`"), "a ` b --isa");
}

TEST(JobFlags, EveryOptionNamedHereExistsAndSetsAFieldThatExists) {
  CLI::App app;
  ClusterOptions options;
  AddClusterOptions(&app, &options, "");
  const google::protobuf::Descriptor* job = pb::ConfigureJob::descriptor();
  int named = 0;
  for (int i = 0; i < job->field_count(); ++i) {
    const std::string flag(FlagOfField(job->field(i)->name()));
    if (flag.empty()) continue;
    ++named;
    EXPECT_NE(app.get_option_no_throw(flag), nullptr) << flag;
  }
  EXPECT_EQ(named, 27);
  for (const char* field : {"hostfile", "launcher_args", "stage_worker_path", "dry_run"}) {  // of the launch
    EXPECT_NE(app.get_option_no_throw(std::string(FlagOfField(field))), nullptr) << field;
  }
}

}  // namespace
}  // namespace stagecoach
