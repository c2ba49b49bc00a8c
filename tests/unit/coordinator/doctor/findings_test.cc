#include "coordinator/doctor/findings.h"

#include <functional>

#include "common/wire/handshake.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

using Level = Finding::Level;

// Two stages on two hosts where nothing is wrong.
pb::ProbeReport Healthy() {
  pb::ProbeReport report;
  for (const char* host : {"front", "a", "b"}) {
    pb::Hello* hello = report.add_hellos();
    hello->set_host(host);
    hello->set_allowed_cores(4);
    hello->set_available_memory_bytes(uint64_t{8} << 30);
    hello->add_isas(pb::INSTRUCTION_SET_AVX2);
    for (int cpu = 0; cpu < 4; ++cpu) hello->add_cpus()->set_cpu(cpu);
  }
  for (int stage = 0; stage < 2; ++stage) {
    pb::ProbedStage* probed = report.add_stages();
    probed->set_stage(stage);
    probed->set_threads(4);
    pb::ProbeHost* host = probed->mutable_host();
    host->set_memory_bytes(uint64_t{16} << 30);
    host->set_huge_pages("madvise");
    host->set_huge_wanted_bytes(64 << 20);
    host->set_huge_bytes(64 << 20);
    host->set_shared_memory_bytes(uint64_t{1} << 30);
    host->set_binds(true);
    host->set_load(0.1);
    probed->mutable_model()->add_fingerprints()->set_size_bytes(5);
  }
  for (const auto& [from, to] : {std::pair(-1, 0), std::pair(-1, 1), std::pair(0, 1)}) {
    pb::ProbeLink* link = report.add_links();
    link->set_from_stage(from);
    link->set_to_stage(to);
    link->set_latency_us(20);
    link->set_bytes_per_s(1e9);
    link->set_clock_error_us(3);
  }
  return report;
}

const std::vector<FileFingerprint> kModel = {{.size_bytes = 5}};

const std::vector<FileFingerprint> kDraft = {{.size_bytes = 3}};

// The same with a draft on a host of its own, to which the last stage sends nothing.
pb::ProbeReport WithDraft() {
  pb::ProbeReport report = Healthy();
  *report.add_hellos() = report.hellos(2);
  report.mutable_hellos(3)->set_host("c");
  pb::ProbedStage* draft = report.add_stages();
  *draft = report.stages(1);
  draft->set_stage(2);
  draft->set_draft(true);
  draft->mutable_model()->mutable_fingerprints(0)->set_size_bytes(3);
  for (const int from : {-1, 1}) {
    pb::ProbeLink* link = report.add_links();
    *link = report.links(0);
    link->set_from_stage(from);
    link->set_to_stage(2);
    if (from == 1) link->set_error("no frame was answered");
  }
  return report;
}

// The one finding that is not ok.
Finding Only(const pb::ProbeReport& report) {
  Finding only;
  int others = 0;
  for (const Finding& finding : FindingsOfReport(report, kModel)) {
    if (finding.level == Level::kOk) continue;
    only = finding;
    ++others;
  }
  EXPECT_EQ(others, 1);
  return only;
}

TEST(Findings, OfAHealthyClusterAreAllOk) {
  const Findings findings = FindingsOfReport(Healthy(), kModel);
  EXPECT_EQ(findings.size(), 2u + 3u + 1u);  // hosts, links, the model
  for (const Finding& finding : findings) EXPECT_EQ(finding.level, Level::kOk) << finding.subject << finding.found;
  EXPECT_EQ(VerdictOf(findings), ExitCode::kOk);
}

// A healthy cluster but for this.
pb::ProbeReport ReportWith(const std::function<void(pb::ProbeReport*)>& harm) {
  pb::ProbeReport report = Healthy();
  harm(&report);
  return report;
}

TEST(Findings, NameEachWeaknessWithItsFix) {
  const struct {
    std::function<void(pb::ProbeReport*)> harm;
    const char *subject, *found;
  } cases[] = {
      {[](auto* r) { r->mutable_stages(1)->mutable_host()->set_huge_pages("never"); }, "host b",
       "huge pages for weights alone"},
      {[](auto* r) {
         r->mutable_stages(1)->mutable_host()->set_huge_pages("never");
         r->mutable_stages(1)->mutable_host()->set_huge_bytes(0);
       },
       "host b", "no huge pages: memory"},
      {[](auto* r) {
         r->mutable_stages(1)->mutable_host()->set_huge_pages_denied(true);
         r->mutable_stages(1)->mutable_host()->set_huge_bytes(0);
       },
       "host b", "denied to the stage's process"},
      {[](auto* r) { r->mutable_stages(0)->mutable_host()->set_huge_bytes(6 << 20); }, "host a",
       "6 of 64 MiB got the huge pages"},
      {[](auto* r) { r->mutable_stages(0)->mutable_host()->set_shared_memory_bytes(8 << 20); }, "host a",
       "8 MiB are free in /dev/shm"},
      {[](auto* r) { r->mutable_stages(0)->mutable_host()->set_cpu_quota(1.5); }, "host a",
       "a CPU quota of 1.5 cores over 4 hardware threads"},
      {[](auto* r) { r->mutable_stages(0)->mutable_host()->set_binds(false); }, "host a", "cannot be bound"},
      {[](auto* r) { r->mutable_stages(0)->mutable_host()->set_load(3.5); }, "host a", "load of 3.5 on 4 cores"},
      {[](auto* r) { r->mutable_stages(0)->set_threads(8); }, "host a", "1 stage of 8 threads on 4 cores"},
      {[](auto* r) { r->mutable_hellos(1)->mutable_cpus(3)->set_node(1); }, "host a", "2 NUMA nodes, but 1 stage"},
      {[](auto* r) { r->mutable_links(2)->set_bytes_per_s(1e7); }, "stage 0 on a -> stage 1 on b", "0.1 Gbit/s"},
      {[](auto* r) { r->mutable_links(1)->set_clock_offset_us(-2500000); }, "stage 1 on b", "-2.500 s"},
  };
  for (const auto& [harm, subject, found] : cases) {
    const pb::ProbeReport report = ReportWith(harm);
    EXPECT_EQ(Only(report).subject, subject);
    EXPECT_THAT(Only(report).found, HasSubstr(found));
    EXPECT_EQ(VerdictOf(FindingsOfReport(report, kModel)), ExitCode::kOk) << found;
  }
  EXPECT_THAT(Only(ReportWith(cases[0].harm)).fix, HasSubstr("transparent_hugepage/enabled"));
  EXPECT_THAT(Only(ReportWith(cases[2].harm)).fix, HasSubstr("PR_SET_THP_DISABLE"));
  EXPECT_THAT(Only(ReportWith(cases[3].harm)).fix, HasSubstr("compact_memory"));
  // A kernel that does not tell is no weakness.
  for (const Finding& finding : FindingsOfReport(ReportWith([](auto* r) {
                                                   r->mutable_stages(0)->mutable_host()->clear_huge_wanted_bytes();
                                                   r->mutable_stages(0)->mutable_host()->clear_huge_bytes();
                                                 }),
                                                 kModel)) {
    EXPECT_EQ(finding.level, Level::kOk) << finding.found;
  }
}

TEST(Findings, AreErrorsWhereAJobWouldNotRun) {
  const Finding link = Only(ReportWith([](auto* r) { r->mutable_links(2)->set_error("no frame was answered"); }));
  EXPECT_EQ(link.level, Level::kError);
  EXPECT_EQ(VerdictOf({link}), ExitCode::kLaunch);
  const Finding unreadable = Only(ReportWith([](auto* r) {
    r->mutable_stages(1)->set_model_code(5);
    r->mutable_stages(1)->set_model_error("cannot open '/m.gguf'");
  }));
  EXPECT_EQ(unreadable.subject, "stage 1 on b");
  EXPECT_EQ(VerdictOf({unreadable}), ExitCode::kInputFile);
  const auto print = [](pb::ProbeReport* r) { return r->mutable_stages(1)->mutable_model()->mutable_fingerprints(0); };
  EXPECT_THAT(Only(ReportWith([&](auto* r) { print(r)->set_sample_hash(6); })).found, HasSubstr("another one"));
  const Finding other = Only(ReportWith([&](auto* r) { print(r)->set_size_bytes(6); }));
  EXPECT_THAT(other.found, HasSubstr("another one"));
  EXPECT_EQ(VerdictOf({other, Finding::Error("host x", "gone", "", ExitCode::kLaunch)}), ExitCode::kLaunch);
}

// As for a stage: a copy has a time of its own.
TEST(Findings, ACopyOfTheModelWithAnotherTimeIsTheSameFile) {
  const pb::ProbeReport report =
      ReportWith([](auto* r) { r->mutable_stages(1)->mutable_model()->mutable_fingerprints(0)->set_modified_ns(7); });
  EXPECT_EQ(VerdictOf(FindingsOfReport(report, kModel)), ExitCode::kOk);
}

TEST(Findings, TakeTheEndOfAMessageForTheFix) {
  const Finding link = ErrorOfMessage("a -> b", "no frame; not one; open the ports");
  EXPECT_EQ(link.found, "no frame; not one");
  EXPECT_EQ(link.fix, "open the ports");
  const Finding none = ErrorOfMessage("a -> b", "no frame", ExitCode::kInputFile);
  EXPECT_EQ(none, Finding::Error("a -> b", "no frame", "", ExitCode::kInputFile));
}

HostAnswer AnswerOf(const std::string& host, const pb::Hello& hello) {
  HostAnswer answer;
  answer.host = host;
  *answer.report.emplace().mutable_hello() = hello;
  return answer;
}

TEST(Findings, OfTheSurveySayWhichHostCannotBeUsed) {
  const pb::Hello own = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
  pb::Hello old = own, old_reserve = own;
  for (pb::Hello* hello : {&old, &old_reserve}) hello->set_program_version("0.0.1");
  old.set_host("old");
  old_reserve.set_host("old reserve");
  std::vector<HostAnswer> answers = {AnswerOf("good", own),
                                     AnswerOf("old", old),
                                     {"gone", std::nullopt, "`ssh` ended with exit code 255: no route"},
                                     {"reserve", std::nullopt, ""},
                                     AnswerOf("old reserve", old_reserve)};
  answers[0].report->add_left()->set_pid(4711);
  std::vector<LaunchHost> hosts;
  for (const char* host : {"good", "old", "gone"}) hosts.push_back({{.name = host}});
  for (const char* host : {"reserve", "old reserve"}) hosts.push_back({{.name = host, .spare = true}});
  const Findings findings = FindingsOfSurvey(answers, own, hosts, /*stages=*/3);
  const std::pair<Level, const char*> expected[] = {
      {Level::kOk, "can be reached"},
      {Level::kWarning, "4711"},
      {Level::kError, "0.0.1"},
      {Level::kError, "no route"},
      {Level::kWarning, "gave no answer in time"},  // a job runs without a spare host
      {Level::kWarning, "0.0.1"},
  };
  ASSERT_EQ(findings.size(), std::size(expected));
  for (size_t i = 0; i < findings.size(); ++i) {
    EXPECT_EQ(findings[i].level, expected[i].first) << i;
    EXPECT_THAT(findings[i].found, HasSubstr(expected[i].second)) << i;
  }
  EXPECT_EQ(findings[3].subject, "host gone");
  EXPECT_EQ(findings[4].found, "gave no answer in time");
  EXPECT_THAT(findings[5].fix, HasSubstr("one version"));
  const std::vector<LaunchHost> good = {{{.name = "good", .spare = true}}};
  answers[0].model = "/m.gguf";
  const Findings lacking = FindingsOfSurvey({answers[0]}, own, good, /*stages=*/2);
  ASSERT_EQ(lacking.size(), 1u);
  EXPECT_EQ(lacking[0].level, Level::kWarning);
  EXPECT_THAT(lacking[0].found, HasSubstr("cannot read the model file '/m.gguf'"));
  EXPECT_THAT(lacking[0].fix, HasSubstr("say where it is by model=PATH in the host file"));
  const std::vector<LaunchHost> elsewhere = {{{.name = "good", .spare = true, .model = "/data/m.gguf"}}};
  EXPECT_THAT(FindingsOfSurvey({answers[0]}, own, elsewhere, /*stages=*/2)[0].fix,
              HasSubstr("mend model=/data/m.gguf of this host in the host file"));
  answers[0].report->mutable_hello()->set_model_path("/m.gguf");
  EXPECT_EQ(FindingsOfSurvey({answers[0]}, own, good, /*stages=*/2)[0].level, Level::kOk);
}

TEST(Findings, SayWhatASpareHostWouldBring) {
  const pb::Hello own = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
  pb::Hello spare = own;
  spare.set_allowed_cores(16);
  spare.set_available_memory_bytes(uint64_t{24} << 30);
  spare.add_isas(pb::INSTRUCTION_SET_AVX512_VNNI);
  spare.set_model_path("/data/m.gguf");
  HostAnswer answer = AnswerOf("reserve", spare);
  answer.model = "/data/m.gguf";
  pb::HostAddress* address = answer.report->add_addresses();
  address->set_interface("eth0");
  address->set_address("10.0.0.9");
  address->set_mtu(1500);
  answer.report->add_addresses()->set_loopback(true);
  const std::vector<LaunchHost> hosts = {{{.name = "reserve", .spare = true, .model = "/data/m.gguf"}}};
  const Findings findings = FindingsOfSurvey({answer}, own, hosts, /*stages=*/1);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].found, HasSubstr("; spare: 16 cores, avx512-vnni, 24.0 GiB free, links eth0 (10.0.0.9, MTU "
                                           "1500), has the model at '/data/m.gguf'"));
}

TEST(Findings, ShowNothingOfASpareHostThatATerminalWouldTakeForAnOrder) {
  const pb::Hello own = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
  HostAnswer answer = AnswerOf("reserve", own);
  pb::HostAddress* address = answer.report->add_addresses();
  address->set_interface("eth0\x1b[31m");
  address->set_address("fe80::1\n");
  const Findings findings = FindingsOfSurvey({answer}, own, {{{.name = "reserve", .spare = true}}}, /*stages=*/1);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].found, AllOf(HasSubstr("links 'eth0"), HasSubstr("('fe80::1"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(findings[0].found, Not(HasSubstr("\n")));
}

// A host that has the model elsewhere is told of that place.
TEST(Findings, NameTheModelsPathOfTheHostThatHasItElsewhere) {
  const auto other = [](auto* r) { r->mutable_stages(1)->mutable_model()->mutable_fingerprints(0)->set_size_bytes(6); };
  EXPECT_THAT(Only(ReportWith(other)).fix, HasSubstr("model=PATH in the host file"));
  const Finding elsewhere = Only(ReportWith([&](auto* r) {
    other(r);
    r->mutable_hellos(2)->set_model_path("/data/m.gguf");
  }));
  EXPECT_THAT(elsewhere.found, HasSubstr("its model file '/data/m.gguf' is another one"));
  EXPECT_THAT(elsewhere.fix, HasSubstr("model=/data/m.gguf of this host"));
}

TEST(Findings, AHostThatTheJobDoesWithoutIsNoError) {
  const pb::Hello own = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
  std::vector<HostAnswer> answers = {
      AnswerOf("good", own), {"gone", std::nullopt, "no route"}, {"reserve", std::nullopt, ""}};
  const std::vector<LaunchHost> hosts = {{{.name = "gone"}}, {{.name = "good"}}, {{.name = "reserve", .spare = true}}};
  const Findings one = FindingsOfSurvey(answers, own, hosts, /*stages=*/1);
  EXPECT_EQ(VerdictOf(one), ExitCode::kOk);
  EXPECT_EQ(one[1].level, Level::kWarning);
  EXPECT_EQ(one[1].found, "no route (a job of 1 stage does without it)");
  EXPECT_EQ(VerdictOf(FindingsOfSurvey(answers, own, hosts, /*stages=*/2)), ExitCode::kLaunch);
  answers[2] = AnswerOf("reserve", own);
  EXPECT_EQ(VerdictOf(FindingsOfSurvey(answers, own, hosts, /*stages=*/2)), ExitCode::kOk) << "the spare one stands in";
}

TEST(Findings, NameTheHostsThatCallThemselvesAlike) {
  pb::Hello own = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
  own.set_host("front");
  pb::Hello n1 = own, n2 = own;
  n1.set_host("n1");
  n2.set_host("n2");
  const std::vector<HostAnswer> answers = {AnswerOf("n1", n1), AnswerOf("10.0.0.1", n1), AnswerOf("n2", n2)};
  std::vector<LaunchHost> hosts = {{{.name = "n1"}}, {{.name = "10.0.0.1"}}, {{.name = "n2"}}};
  const Findings findings = FindingsOfSurvey(answers, own, hosts, /*stages=*/3);
  ASSERT_EQ(findings.size(), 4u);
  EXPECT_EQ(findings[3].level, Level::kWarning);
  EXPECT_EQ(findings[3].subject, "hosts n1 and 10.0.0.1");
  EXPECT_THAT(findings[3].found, HasSubstr("'n1'"));

  own.set_host("n2");
  EXPECT_EQ(FindingsOfSurvey(answers, own, hosts, /*stages=*/3).size(), 4u) << "no stage is here";
  hosts.push_back({{.name = "localhost"}, true});
  const Findings here = FindingsOfSurvey(answers, own, hosts, /*stages=*/4);
  ASSERT_EQ(here.size(), 5u);
  EXPECT_EQ(here[4].subject, "hosts localhost and n2");
}

TEST(Findings, AreOneLineEach) {
  const Findings findings = {Finding::Ok("mpirun", "4.1"), Finding::Error("host x", "is gone", "mend it")};
  EXPECT_EQ(FindingsText(findings), "ok       mpirun: 4.1\nerror    host x: is gone; mend it\n");
  EXPECT_THAT(FindingsJson(findings), AllOf(HasSubstr("\"would_run\": false"), HasSubstr("\"fix\": \"mend it\"")));
}

TEST(Findings, ADraftHasItsOwnFileAndKeepsNoJobFromRunning) {
  pb::ProbeReport report = WithDraft();
  Findings findings = FindingsOfReport(report, kModel, kDraft);
  EXPECT_EQ(VerdictOf(findings), ExitCode::kOk);
  const std::string text = FindingsText(findings);
  EXPECT_THAT(text, AllOf(HasSubstr("ok       host c: the draft, 4 cores"),
                          HasSubstr("the coordinator on front -> the draft on c: latency"),
                          HasSubstr("ok       the draft on c: sees the same file\n"),
                          HasSubstr("ok       model: every stage sees the same file\n"), Not(HasSubstr("b -> "))));
  EXPECT_THAT(text, Not(HasSubstr("warning")));
  const auto missing = [&] {
    report.mutable_stages(2)->set_model_code(5);
    report.mutable_stages(2)->set_model_error("cannot open '/draft.gguf'");
  };
  const auto other = [&] { report.mutable_stages(2)->mutable_model()->mutable_fingerprints(0)->set_size_bytes(5); };
  for (const std::function<void()>& spoil : {std::function<void()>(missing), std::function<void()>(other)}) {
    report = WithDraft();
    spoil();
    findings = FindingsOfReport(report, kModel, kDraft);
    EXPECT_EQ(VerdictOf(findings), ExitCode::kOk);
    EXPECT_THAT(FindingsText(findings), AllOf(HasSubstr("warning  the draft on c: "),
                                              HasSubstr(" (a job goes on without the draft); put the same file there"),
                                              HasSubstr("every stage sees the same file")));
  }
  report = WithDraft();
  report.mutable_hellos(3)->set_host("b");
  EXPECT_THAT(FindingsText(FindingsOfReport(report, kModel, kDraft)), HasSubstr("host b: 1 stage and the draft, "));
}

}  // namespace
}  // namespace stagecoach
