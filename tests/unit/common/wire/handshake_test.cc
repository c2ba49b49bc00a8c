#include "common/wire/handshake.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

// A coordinator and three stages, each on a host of its own.
std::vector<pb::Hello> GoodWorld() {
  std::vector<std::string> bytes = {MakeHello(pb::Hello::ROLE_COORDINATOR, {}).SerializeAsString()};
  for (int stage = 0; stage < 3; ++stage) {
    pb::Hello hello = MakeHello(pb::Hello::ROLE_STAGE, {InstructionSet::kScalar, InstructionSet::kAvx2});
    hello.set_host("node" + std::to_string(stage));
    hello.set_rank(99);  // a rank's own word on it does not count
    bytes.push_back(hello.SerializeAsString());
  }
  return ParseHellos(bytes).value();
}

TEST(Handshake, AWorldOfOneVersionWithTheCoordinatorAsRank0CanBeAJob) {
  const std::vector<pb::Hello> hellos = GoodWorld();
  EXPECT_TRUE(CheckWorld(hellos).ok()) << CheckWorld(hellos);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(hellos[rank].rank(), rank);
  EXPECT_EQ(hellos[0].isas_size(), 0);
  ASSERT_EQ(hellos[2].isas_size(), 2);
  EXPECT_EQ(hellos[2].isas(1), pb::INSTRUCTION_SET_AVX2);
  EXPECT_GT(hellos[1].pid(), 0);
  EXPECT_GT(hellos[1].available_memory_bytes(), 0u);
}

TEST(Handshake, AWorldThatCanBeNoJobSaysWhatIsWrongWithWhichRank) {
  const struct {
    std::function<void(std::vector<pb::Hello>*)> change;
    std::string message;
  } cases[] = {
      {[](auto* w) { (*w)[2].set_protocol_version(kProtocolVersion + 1); },
       absl::StrCat("rank 2 on node1 runs version 0.1.0 (protocol ", kProtocolVersion + 1, ")")},
      {[](auto* w) { (*w)[3].set_program_version("9.9"); }, "rank 3 on node2 runs version 9.9"},
      {[](auto* w) { (*w)[1].clear_isas(); }, "rank 1 on node0: its instruction sets: it names none"},
      {[](auto* w) { (*w)[1].set_isas(0, static_cast<pb::InstructionSet>(50)); },
       "rank 1 on node0: its instruction sets: `isa` is number 50"},
      {[](auto* w) { (*w)[3].set_role(pb::Hello::ROLE_COORDINATOR); }, "2 coordinators and 2 stage_workers"},
      {[](auto* w) { (*w)[0].set_role(pb::Hello::ROLE_STAGE); }, "0 coordinators and 4 stage_workers"},
      {[](auto* w) { std::swap((*w)[0], (*w)[1]); }, "rank 0 is a stage_worker"},
      {[](auto* w) { w->resize(1); }, "a coordinator and no stage_worker"},
  };
  for (const auto& one : cases) {
    std::vector<pb::Hello> world = GoodWorld();
    one.change(&world);
    const absl::Status status = CheckWorld(world);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << one.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.message));
    EXPECT_EQ(absl::StrContains(status.message(), "srun with --mpi=pmix"), world.size() == 1) << status;
  }
}

TEST(Handshake, ARankThatSaysAnythingElseIsNamed) {
  const absl::StatusOr<std::vector<pb::Hello>> hellos = ParseHellos({GoodWorld()[0].SerializeAsString(), "\xff\xff"});
  EXPECT_EQ(hellos.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(hellos.status().message()), HasSubstr("rank 1 did not introduce itself"));
}

}  // namespace
}  // namespace stagecoach
