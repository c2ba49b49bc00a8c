#include "coordinator/plan/host_profile.h"

#include <set>
#include <utility>
#include <vector>

#include "coordinator/plan/probe_plan.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"

namespace stagecoach {
namespace {

using Rounds = std::vector<std::vector<int>>;

constexpr uint64_t kGib = uint64_t{1} << 30;

HostProfile Measured() {
  HostProfile profile = {.measured_at = "2026-11-22T16:00:00Z", .coordinator = 1, .draft = 0};
  HostFacts first;
  first.name = "node1";
  first.slots = 2;
  first.cores = 4;
  first.hardware_threads = 8;
  first.numa_nodes = 2;
  first.memory_bytes = 16 * kGib + 12345;
  first.available_bytes = 7 * kGib + 1;
  first.huge_pages = "madvise";
  first.isas = {"avx512-vnni", "avx2", "scalar"};
  first.isa = "avx2";
  first.speeds = {{1, 2, 11.3, 512.7, 0, 99.1}, {1, 4, 20.1, 1000.9, 0, 200.3}, {2, 2, 19.7, 1001, 0, 201}};
  first.steps = {{1, 1, 513, 2, 512.3, 8000.1}, {8, 8, 518, 2, 610.25, 8100.5}, {64, 1, 64, 2, 2000, 0}};
  HostFacts second = {.name = "front", .slots = 0};
  second.memory_bytes = second.available_bytes = kGib;
  profile.hosts = {first, second};
  profile.stages = {{0, 2, 2, -12.5, 3.25}, {0, 1, 2, 0.1, 1.5}};
  profile.links = {{1, 0, 31.1, 9.41, LinkFacts::kCoordinator, 0},
                   {1, 0, 30.9, 9.39, LinkFacts::kCoordinator, 1},
                   {0, 0, 0.7, 61.2, 0, 1}};
  profile.model = ProbedModel{"/models/a \"b\".gguf", 123456789012, 0xfedcba9876543210, 3, 16000000, 165000000, "f16"};
  return profile;
}

TEST(HostProfile, IsTheSameAfterWritingAndReading) {
  HostProfile profile = Measured();
  EXPECT_EQ(ParseHostProfile("p.json", HostProfileJson(profile)).value(), profile);
  profile.model.reset();
  profile.default_link = LinkFacts{0, 0, 30, 10};
  EXPECT_EQ(ParseHostProfile("p.json", HostProfileJson(profile)).value(), profile);
}

TEST(HostProfile, OfAHandWrittenClusterHasTheDefaultsThatItsDescriptionStates) {
  const auto profile = ParseHostProfile("cluster.json", R"(
      {"hosts": [{"name": "node1", "cores": 16, "memory_gib": 64, "read_gb_s": 80, "int8_gops": 3000},
                 {"name": "node2", "cores": 8, "memory_gib": 32.5, "read_gb_s": 40, "int8_gops": 1000,
                  "bf16_gops": 500, "f32_gops": 300, "slots": 2, "available_gib": 30}],
       "link": {"latency_us": 30, "bandwidth_gbit_s": 10}})")
                           .value();
  ASSERT_EQ(profile.hosts.size(), 2u);
  const HostFacts& first = profile.hosts[0];
  EXPECT_EQ(first.slots, 1);
  EXPECT_EQ(first.hardware_threads, 16);
  EXPECT_EQ(first.numa_nodes, 1);
  EXPECT_EQ(first.memory_bytes, 64 * kGib);
  EXPECT_EQ(first.available_bytes, 64 * kGib);
  EXPECT_EQ(first.speeds, (std::vector<HostSpeed>{{1, 16, 80, 3000, 0, 750}}));
  const HostFacts& second = profile.hosts[1];
  EXPECT_EQ(second.slots, 2);
  EXPECT_EQ(second.memory_bytes, 65 * kGib / 2);
  EXPECT_EQ(second.available_bytes, 30 * kGib);
  EXPECT_EQ(second.speeds, (std::vector<HostSpeed>{{1, 8, 40, 1000, 500, 300}}));
  EXPECT_EQ(profile.coordinator, 0);
  EXPECT_TRUE(profile.stages.empty());
  EXPECT_EQ(profile.default_link.value().bytes_per_s(), 1.25e9);
}

TEST(HostProfile, TheExamplesOfTheHelpAndOfDeployAreRead) {
  EXPECT_EQ(ParseHostProfile("cluster.json", kClusterFileExample).value().hosts.size(), 1u);
  const auto profile = ReadHostProfile(testing::SourcePath("deploy/hostfiles/cluster.json")).value();
  EXPECT_EQ(profile.hosts.size(), 3u);
  EXPECT_EQ(LinkBetween(profile, 1, 0)->bandwidth_gbit_s, 25);
  EXPECT_EQ(LinkBetween(profile, 0, 2)->bandwidth_gbit_s, 10);
  EXPECT_EQ(profile.uplinks.size(), 1u);
}

TEST(HostProfile, InstructionSetsAreBestFirstInWhateverOrderTheyAreWritten) {
  const auto profile = ParseHostProfile("f", R"({"hosts": [{"name": "a", "cores": 2, "memory_gib": 4, "read_gb_s": 10,
      "int8_gops": 100, "isas": ["scalar", "avx512-vnni", "avx2"]}]})");
  EXPECT_THAT(profile.value().hosts[0].isas, ElementsAre("avx512-vnni", "avx2", "scalar"));
}

TEST(HostProfile, ThatIsWrongIsRefusedWithTheFileTheFieldAndWhatWasFound) {
  const auto sized = [](const std::string& fields) {
    return R"({"hosts": [{"name": "a", "cores": 2, "memory_gib": )" + fields + "}]}";
  };
  const std::string host = R"({"name": "a", "cores": 2, "memory_gib": 4, "read_gb_s": 10, "int8_gops": 100)";
  const auto with = [&](const std::string& fields) { return R"({"hosts": [)" + host + ", " + fields + "}]}"; };
  const auto beside = [&](const std::string& fields) { return R"({"hosts": [)" + host + "}], " + fields + "}"; };
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"expected JSON, found"}},
      {"{\"hosts\": [", {"expected JSON, found"}},
      {"[]", {"the document", "an object", "array"}},
      {"{}", {"hosts", "found none"}},
      {R"({"hosts": 7})", {"hosts", "a list", "found 7"}},
      {R"({"hosts": [7]})", {"hosts[0]", "an object", "found 7"}},
      {R"({"hosts": []})", {"hosts", "at least one host"}},
      {beside(R"("version": 2)"), {"version", "found 2"}},
      {R"({"hosts": [{"cores": 2, "memory_gib": 4}]})", {"hosts[0].name", "a value", "none"}},
      {with(R"("core": 3)"), {"hosts[0].core", "cores", "a field of another name"}},
      {with(R"("slots": -1)"), {"hosts[0].slots", "an integer", "found -1"}},
      {with(R"("slots": 18446744073709551615)"), {"hosts[0].slots", "18446744073709551615"}},
      {with(R"("numa_nodes": "two")"), {"hosts[0].numa_nodes", "'two'"}},
      {with(R"("isas": ["sse9"])"), {"hosts[0].isas", "sse9"}},
      {with(R"("isa": "sse9")"), {"hosts[0].isa", "sse9"}},
      {with(R"("huge_pages": "maybe")"), {"hosts[0].huge_pages", "maybe"}},
      // What no machine is.
      {with(R"("available_gib": 5)"), {"hosts[0].available_gib", "no more than memory_gib", "found 5"}},
      {with(R"("hardware_threads": 1)"), {"hosts[0].hardware_threads", "at least the 2 of cores", "found 1"}},
      {with(R"("numa_nodes": 3)"), {"hosts[0].numa_nodes", "at most the 2 of hardware_threads", "found 3"}},
      {with(R"("isas": ["avx2", "neon-dotprod"])"), {"hosts[0].isas", "avx2 and neon-dotprod"}},
      {with(R"("isas": ["avx2", "scalar"], "isa": "avx512")"), {"hosts[0].isa", "one of the host's isas", "avx512"}},
      {sized(R"(4, "read_gb_s": 1e6, "int8_gops": 1)"), {"hosts[0].read_gb_s", "to 500000", "1000000"}},
      {R"({"hosts": [)" + host + "}, " + host + "}]}", {"hosts[1].name", "\"a\" again"}},
      {with(R"("cores": 3)"), {"once in an object", "\"cores\" twice"}},
      {sized(R"(4, "read_gb_s": 0, "int8_gops": 1)"), {"hosts[0].read_gb_s", "found 0"}},
      {sized(R"(4, "read_gb_s": 1e-320, "int8_gops": 1)"), {"hosts[0].read_gb_s", "a number"}},
      {sized(R"(1e300, "read_gb_s": 1, "int8_gops": 1)"), {"hosts[0].memory_gib", "1e+300"}},
      {sized("1e999"), {"\"memory_gib\"", "found 1e999"}},
      {sized(R"(4, "read_gb_s": 10)"), {"hosts[0].int8_gops", "a value", "none"}},
      {sized(R"(4, "speeds": [])"), {"hosts[0].speeds", "at least one"}},
      {sized(R"(4, "speeds": [{"stages": 1}])"), {"hosts[0].speeds[0].threads", "none"}},
      {with(R"("steps": [{"rows": 1, "sequences": 2}])"), {"hosts[0].steps[0].sequences", "found 2"}},
      {beside(R"("coordinator": "b")"), {"coordinator", "the name of a host", "\"b\""}},
      {beside(R"("draft": "b")"), {"draft", "the name of a host", "\"b\""}},
      {beside(R"("link": {"latency_us": 1})"), {"link.bandwidth_gbit_s", "none"}},
      {beside(R"("links": [{"from": "a", "to": "c", "latency_us": 1, "bandwidth_gbit_s": 1}])"),
       {"links[0].to", "\"c\""}},
      {beside(R"("links": [{"from": "a", "to": "a", "latency_us": 1, "bandwidth_gbit_s": 1, "to_stage": 5}])"),
       {"links[0].to_stage", "found 5"}},
      {beside(R"("stages": [{"host": "a"}])"), {"stages[0].rank", "none"}},
      {beside(R"("model": {"name": "m", "file_bytes": 1, "header_hash": "xyz"})"),
       {"model.header_hash", "16 hexadecimal digits", "xyz"}},
      {deep, {"lists and objects in each other"}},
  };
  for (const auto& [text, parts] : cases) {
    const absl::StatusOr<HostProfile> profile = ParseHostProfile("bad.json", text);
    ASSERT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 200);
    EXPECT_THAT(profile.status().message(), HasSubstr("'bad.json'"));
    for (const std::string& part : parts) EXPECT_THAT(profile.status().message(), HasSubstr(part));
    EXPECT_LT(profile.status().message().size(), 1000u);
  }
}

TEST(HostProfile, CutAnywhereIsRefusedOrTheSame) {
  const HostProfile profile = Measured();
  const std::string text = HostProfileJson(profile);
  for (size_t length = 0; length < text.size(); length += 7) {
    const absl::StatusOr<HostProfile> read = ParseHostProfile("p.json", text.substr(0, length));
    if (read.ok()) {
      EXPECT_EQ(*read, profile) << length;
    }
  }
}

TEST(HostProfile, ThatCannotBeReadIsNotFound) {
  EXPECT_EQ(ReadHostProfile("/nonexistent/profile.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadHostProfile("/").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadHostProfile("/dev/zero").status().code(), absl::StatusCode::kNotFound);
}

TEST(HostProfile, KnowsTheSlowestLinkBetweenTwoHosts) {
  HostProfile profile = Measured();
  profile.hosts.push_back(profile.hosts[0]);
  profile.hosts[2].name = "node3";
  const LinkFacts there = LinkBetween(profile, 1, 0).value(), back = LinkBetween(profile, 0, 1).value();
  EXPECT_EQ(there.latency_us, 31.1);
  EXPECT_EQ(there.bandwidth_gbit_s, 9.39);
  EXPECT_EQ(back.from, 0);
  EXPECT_EQ(back.to, 1);
  EXPECT_EQ(back.latency_us, 31.1);
  EXPECT_EQ(LinkBetween(profile, 0, 0)->latency_us, 0.7);
  EXPECT_EQ(LinkBetween(profile, 2, 2)->latency_us, kLocalLatencyUs);
  EXPECT_FALSE(LinkBetween(profile, 0, 2).has_value());
  profile.default_link = LinkFacts{0, 0, 55, 1};
  EXPECT_EQ(LinkBetween(profile, 0, 2)->latency_us, 55);
  EXPECT_EQ(LinkBetween(profile, 0, 2)->to, 2);
}

TEST(HostProfile, FindsTheSpeedThatFitsBest) {
  const HostProfile profile = Measured();
  const HostFacts& host = profile.hosts[0];
  EXPECT_EQ(SpeedOf(host, 1, 2), &host.speeds[0]);
  EXPECT_EQ(SpeedOf(host, 1, 3), &host.speeds[0]);
  EXPECT_EQ(SpeedOf(host, 1, 64), &host.speeds[1]);
  EXPECT_EQ(SpeedOf(host, 1, 1), &host.speeds[0]);
  EXPECT_EQ(SpeedOf(host, 5, 1), &host.speeds[2]);
  EXPECT_EQ(SpeedOf(profile.hosts[1], 1, 1), nullptr);
}

TEST(HostProfile, TellsASimulationOfJitterAndOfSharedUplinks) {
  const std::string hosts = R"({"hosts": [
      {"name": "a", "cores": 1, "memory_gib": 1, "read_gb_s": 1, "int8_gops": 1},
      {"name": "b", "cores": 1, "memory_gib": 1, "read_gb_s": 1, "int8_gops": 1}],
      "link": {"latency_us": 30, "bandwidth_gbit_s": 10, "jitter_us": 5}, "uplinks": )";
  const auto profile = ParseHostProfile("f", hosts + R"([{"name": "rack", "bandwidth_gbit_s": 40, "hosts": ["b"]}]})");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(LinkBetween(*profile, 0, 1)->jitter_us, 5);
  ASSERT_EQ(profile->uplinks.size(), 1u);
  EXPECT_EQ(profile->uplinks[0].hosts, std::vector<int>{1});
  EXPECT_EQ(*ParseHostProfile("f", HostProfileJson(*profile)), *profile);
  for (const char* wrong : {R"([{"name": "r", "bandwidth_gbit_s": 1, "hosts": ["c"]}]})",
                            R"([{"name": "r", "bandwidth_gbit_s": 1, "hosts": ["a", "a"]}]})",
                            R"([{"name": "r", "bandwidth_gbit_s": 0, "hosts": ["a"]}]})",
                            R"([{"name": "r", "bandwidth_gbit_s": 1, "hosts": [7]}]})", R"([{"name": "r"}]})",
                            R"([{"name": "r", "bandwidth_gbit_s": 1, "hosts": ["a"]},
                                {"name": "r", "bandwidth_gbit_s": 1, "hosts": ["b"]}]})"}) {
    const absl::Status status = ParseHostProfile("f", hosts + wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_NE(std::string(status.message()).find("uplinks["), std::string::npos) << status;
  }
}

TEST(ProbePlan, GroupsStagesByHostInTheOrderOfTheFirstOnes) {
  EXPECT_THAT(GroupByHost({"b", "a", "b"}), ElementsAre(HostStages{"b", {0, 2}}, HostStages{"a", {1}}));
  EXPECT_TRUE(GroupByHost({}).empty());
}

TEST(ProbePlan, MeasuresLinksAtOnceThatShareNoHost) {
  EXPECT_EQ(LinkRounds({"a"}), Rounds());
  EXPECT_EQ(LinkRounds({"a", "b"}), (Rounds{{0}}));
  EXPECT_EQ(LinkRounds({"a", "b", "c", "d", "e"}), (Rounds{{0, 2}, {1, 3}}));
  EXPECT_EQ(LinkRounds({"a", "a", "b", "b"}), (Rounds{{0, 2}, {1}}));
  EXPECT_EQ(LinkRounds({"a", "a", "a"}), (Rounds{{0}, {1}}));
  EXPECT_EQ(LinkRounds({"a", "b", "a", "b"}), (Rounds{{0}, {1}, {2}}));
}

TEST(ProbePlan, MeasuresEveryLinkOnceHoweverHostsAreMixed) {
  for (int hosts = 1; hosts <= 5; ++hosts) {
    std::vector<std::string> names;
    for (int stage = 0; stage < 17; ++stage) names.push_back(std::to_string(stage * stage % 7 % hosts));
    std::set<int> seen;
    for (const std::vector<int>& round : LinkRounds(names)) {
      std::set<std::string> taken;
      for (const int stage : round) {
        EXPECT_TRUE(seen.insert(stage).second);
        const std::set<std::string> ends = {names[stage], names[stage + 1]};
        for (const std::string& end : ends) EXPECT_TRUE(taken.insert(end).second);
      }
    }
    EXPECT_EQ(seen.size(), 16u);
  }
}

TEST(ProbePlan, MeasuresOneProcessThenMoreAndMore) {
  EXPECT_THAT(SpeedRuns(6, 3, 3), ElementsAre(SpeedRun{1, 3}, SpeedRun{2, 3}, SpeedRun{4, 3}, SpeedRun{6, 3}));
  EXPECT_THAT(SpeedRuns(8, 3, 3), ElementsAre(SpeedRun{1, 3}, SpeedRun{2, 3}, SpeedRun{4, 3}, SpeedRun{8, 3}));
  EXPECT_THAT(SpeedRuns(2, 1, 2), ElementsAre(SpeedRun{1, 1}, SpeedRun{1, 2}, SpeedRun{2, 1}));
  EXPECT_THAT(SpeedRuns(1, 4, 4), ElementsAre(SpeedRun{1, 4}));
}

pb::Hello Hello(const std::string& host, int cores) {
  pb::Hello hello;
  hello.set_host(host);
  hello.set_allowed_cores(cores);
  hello.set_available_memory_bytes(1 << 30);
  hello.add_isas(pb::INSTRUCTION_SET_SCALAR);
  hello.add_isas(pb::INSTRUCTION_SET_AVX2);
  return hello;
}

TEST(ProbePlan, MakesAProfileOfAReport) {
  pb::ProbeReport report;
  *report.add_hellos() = Hello("front", 1);
  *report.add_hellos() = Hello("node", 4);
  *report.add_hellos() = Hello("node", 4);
  report.mutable_coordinator()->set_memory_bytes(7);
  for (int stage = 0; stage < 2; ++stage) {
    pb::ProbedStage* probed = report.add_stages();
    probed->set_stage(stage);
    probed->set_rank(2 - stage);
    probed->set_threads(2);
    probed->mutable_host()->set_memory_bytes(5);
  }
  pb::ProbeStepTime* step = report.mutable_stages(0)->mutable_model()->add_steps();
  step->set_rows(1);
  step->set_sequences(1);
  step->set_layer_us(9);
  report.mutable_stages(0)->mutable_model()->set_layer(4);
  pb::ProbedHost* host = report.add_hosts();
  host->set_host("node");
  for (const int stages : {2, 1}) {
    host->add_speeds()->set_stages(stages);
    host->mutable_speeds()->rbegin()->set_read_gbps(10 * stages);
  }
  for (const int from : {-1, 0}) {
    pb::ProbeLink* link = report.add_links();
    link->set_from_stage(from);
    link->set_to_stage(from + 1);
    link->set_latency_us(2);
    link->set_bytes_per_s(1e9);
    link->set_clock_offset_us(from < 0 ? 3 : 77);
  }
  pb::ProbeLink* broken = report.add_links();
  broken->set_from_stage(-1);
  broken->set_to_stage(1);
  broken->set_error("no frame came back");

  EXPECT_EQ(
      ProfileOf(report, "now", std::nullopt, {.isa = InstructionSet::kScalar, .bf16_dot = std::nullopt}).hosts[0].isa,
      "scalar");
  const HostProfile profile = ProfileOf(report, "now", ProbedModel{.name = "m"});
  EXPECT_EQ(profile.hosts[0].isa, "avx2") << "the best, as a job would choose it";
  EXPECT_EQ(profile.hosts[1].isa, "") << "nothing was measured there";
  ASSERT_EQ(profile.hosts.size(), 2u);
  EXPECT_EQ(profile.hosts[0].name, "node");
  EXPECT_EQ(profile.hosts[0].slots, 2);
  EXPECT_EQ(profile.hosts[0].memory_bytes, 5u);
  EXPECT_THAT(profile.hosts[0].isas, ElementsAre("avx2", "scalar"));
  ASSERT_EQ(profile.hosts[0].speeds.size(), 2u);
  EXPECT_EQ(profile.hosts[0].speeds[0].stages, 1);
  EXPECT_EQ(profile.hosts[0].speeds[1].read_gbps, 20);
  EXPECT_EQ(profile.coordinator, 1);
  EXPECT_EQ(profile.hosts[1].slots, 0);
  EXPECT_EQ(profile.hosts[1].memory_bytes, 7u);
  ASSERT_EQ(profile.stages.size(), 2u);
  EXPECT_EQ(profile.stages[0].rank, 2);
  EXPECT_EQ(profile.stages[0].clock_offset_us, 3);
  ASSERT_EQ(profile.links.size(), 2u);
  EXPECT_EQ(profile.links[0].from, 1);
  EXPECT_EQ(profile.links[0].to, 0);
  EXPECT_EQ(profile.links[0].bandwidth_gbit_s, 8);
  EXPECT_EQ(profile.links[1].from_stage, 0);
  EXPECT_EQ(profile.model.value().layer, 4);
}

}  // namespace
}  // namespace stagecoach
