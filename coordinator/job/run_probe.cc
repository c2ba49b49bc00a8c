#include "coordinator/job/run_probe.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/transport/link_meter.h"
#include "common/transport/wait_ladder.h"
#include "common/wire/bit_class.h"
#include "common/wire/frame.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/plan/cpu_plan.h"
#include "coordinator/plan/probe_plan.h"

namespace stagecoach {
namespace {

constexpr int64_t kReportUs = 500000;
constexpr int64_t kCheckUs = 1000000;
constexpr double kLinkTimeoutS = 10;    // the slowest link that passes moves 6 MiB in that time
constexpr int64_t kWorkUs = 300000000;  // for a measurement, as long as heartbeats come
constexpr int64_t kNoLimitUs = int64_t{1} << 60;

absl::StatusCode CodeOf(int code) {
  const bool known =
      code > static_cast<int>(absl::StatusCode::kOk) && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kInternal;
}

class ProbeJob {
 public:
  ProbeJob(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
           const pb::ConfigureJob& job)
      : endpoint_(endpoint),
        hellos_(hellos),
        stages_(hellos.begin() + 1, hellos.end()),
        channel_(channel),
        job_(job),
        link_us_(static_cast<int64_t>(
            (job.probe().link_timeout_s() > 0 ? job.probe().link_timeout_s() : kLinkTimeoutS) * 1e6)),
        pool_(kMaxSetupFrameBytes, 0),
        roster_(stages_, kNoLimitUs, MonotonicUs()) {
    for (const pb::Hello& hello : stages_) hosts_.push_back(hello.host());
    groups_ = GroupByHost(hosts_);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(CheckStages());
    RETURN_IF_ERROR(Introduce());
    RETURN_IF_ERROR(SayReady());
    RETURN_IF_ERROR(MeasureOwnLinks());
    RETURN_IF_ERROR(MeasureNeighbours());
    RETURN_IF_ERROR(CheckModel());
    if (job_.probe().speeds()) {
      RETURN_IF_ERROR(MeasureSpeeds());
      RETURN_IF_ERROR(TimeModel());
    }
    report_.set_complete(true);
    RETURN_IF_ERROR(Say(1, ""));
    return EndInOrder();
  }

 private:
  int count() const { return static_cast<int>(stages_.size()); }

  absl::Status CheckStages() const {
    if (job_.stages() == 0 || job_.stages() == count()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("`stages` asks for ", job_.stages(), " stages, but this world has ",
                                                   count(), "; start as many stage_workers as `stages` says"));
  }

  // Tells every stage who it is; what it says of its host goes into the report.
  absl::Status Introduce() {
    const std::vector<StageCpus> cpus = PlanCpus(stages_, job_.threads(), job_.cpu_bind() != pb::CPU_BIND_NONE);
    ASSIGN_OR_RETURN(const StageIsas isas, ChooseIsas(stages_, WantedIsaOf(job_)));  // as a job would choose them
    isas_ = isas.isas;
    for (const pb::Hello& hello : hellos_) *report_.add_hellos() = hello;
    *report_.mutable_coordinator() = DescribeHost();
    for (int stage = 0; stage < count(); ++stage) {
      const int rank = stages_[static_cast<size_t>(stage)].rank();
      RETURN_IF_ERROR(endpoint_->OpenReceive(Channel::kTelemetry, rank, kMaxTelemetryFrameBytes, 2));
      RETURN_IF_ERROR(OpenPingAnswers(endpoint_, rank));
      pb::ProbedStage* probed = report_.add_stages();
      probed->set_stage(stage);
      probed->set_rank(rank);
      const StageCpus& planned = cpus[static_cast<size_t>(stage)];
      probed->set_threads(planned.threads);
      probed->mutable_cpus()->Add(planned.cpus.begin(), planned.cpus.end());
      contended_.push_back(planned.contended);
      pb::ProbeOrder order;
      pb::ProbeBegin* begin = order.mutable_begin();
      begin->set_stage(stage);
      begin->set_previous_rank(stage == 0 ? kCoordinatorRank : RankOf(stage - 1));
      begin->set_next_rank(stage + 1 == count() ? kCoordinatorRank : RankOf(stage + 1));
      RETURN_IF_ERROR(Order(stage, std::move(order)));
    }
    RETURN_IF_ERROR(AwaitWork());
    for (const auto& [stage, answer] : answers_) *report_.mutable_stages(stage)->mutable_host() = answer.host();
    return absl::OkStatus();
  }

  absl::Status SayReady() {
    pb::EngineMessage message;
    for (const pb::StageSummary& summary : Summaries()) *message.mutable_ready()->add_stages() = summary;
    return channel_->Send(message);
  }

  absl::Status MeasureOwnLinks() {
    for (int stage = 0; stage < count(); ++stage) {
      RETURN_IF_ERROR(Say(0.1 * stage / count(), absl::StrCat("the link to ", NameOf(stage))));
      pb::ProbeLink* link = report_.add_links();
      link->set_from_stage(LinkFacts::kCoordinator);
      link->set_to_stage(stage);
      LinkMeter meter(endpoint_, RankOf(stage), ++last_meter_);
      meter_ = &meter;
      RETURN_IF_ERROR(meter.Begin());
      const int64_t deadline_us = MonotonicUs() + link_us_;
      absl::Status status;
      while (status.ok() && !meter.done() && MonotonicUs() < deadline_us) status = Turn();
      meter_ = nullptr;
      RETURN_IF_ERROR(status);
      if (!meter.done()) {
        link->set_error(NoFrames(absl::StrCat("the coordinator on ", hellos_[0].host()), NameOf(stage)));
        continue;
      }
      link->set_latency_us(meter.latency_us());
      link->set_bytes_per_s(meter.bytes_per_s());
      link->set_clock_offset_us(meter.clock().offset_us());
      link->set_clock_error_us(meter.clock().error_us());
    }
    return absl::OkStatus();
  }

  absl::Status MeasureNeighbours() {
    std::map<int, pb::ProbeLink> links;
    for (const std::vector<int>& round : LinkRounds(hosts_)) {
      RETURN_IF_ERROR(Say(0.1 + 0.1 * static_cast<double>(links.size()) / count(),
                          absl::StrCat("the link from ", NameOf(round.front()))));
      for (const int stage : round) {
        pb::ProbeOrder order;
        order.mutable_link();
        RETURN_IF_ERROR(Order(stage, std::move(order)));
      }
      RETURN_IF_ERROR(AwaitAnswers(link_us_));
      for (const int stage : round) {
        pb::ProbeLink& link = links[stage];
        const auto answer = answers_.find(stage);
        if (answer != answers_.end() && answer->second.has_link()) link = answer->second.link();
        link.set_from_stage(stage);
        link.set_to_stage(stage + 1);
        if (answer == answers_.end()) link.set_error(NoFrames(NameOf(stage), NameOf(stage + 1)));
      }
    }
    for (const auto& [stage, link] : links) *report_.add_links() = link;
    return absl::OkStatus();
  }

  // Every stage at once: it is the header alone.
  absl::Status CheckModel() {
    if (job_.model_path().empty()) return absl::OkStatus();
    RETURN_IF_ERROR(Say(0.2, "the model on every host"));
    for (int stage = 0; stage < count(); ++stage) {
      pb::ProbeOrder order;
      FillModel(stage, order.mutable_model());
      RETURN_IF_ERROR(Order(stage, std::move(order)));
    }
    RETURN_IF_ERROR(AwaitAll());
    for (int stage = 0; stage < count(); ++stage) TakeModel(stage);
    return absl::OkStatus();
  }

  absl::Status MeasureSpeeds() {
    std::vector<std::vector<SpeedRun>> runs;
    size_t most = 0;
    for (const HostStages& group : groups_) {
      const int first = group.stages.front();
      runs.push_back(SpeedRuns(static_cast<int>(group.stages.size()), report_.stages(first).threads(),
                               std::max(stages_[static_cast<size_t>(first)].allowed_cores(), 1)));
      most = std::max(most, runs.back().size());
      report_.add_hosts()->set_host(group.host);
    }
    for (size_t i = 0; i < most; ++i) {
      RETURN_IF_ERROR(Say(0.2 + 0.5 * static_cast<double>(i) / static_cast<double>(most), "memory and arithmetic"));
      for (size_t host = 0; host < groups_.size(); ++host) {
        if (i < runs[host].size()) RETURN_IF_ERROR(OrderSpeed(groups_[host], runs[host][i]));
      }
      RETURN_IF_ERROR(AwaitWork());
      for (size_t host = 0; host < groups_.size(); ++host) {
        if (i < runs[host].size())
          TakeSpeed(groups_[host], runs[host][i], report_.mutable_hosts(static_cast<int>(host)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status OrderSpeed(const HostStages& group, const SpeedRun& run) {
    for (int i = 0; i < run.processes; ++i) {
      const int stage = group.stages[static_cast<size_t>(i)];
      pb::ProbeOrder order;
      order.mutable_speed()->set_processes(run.processes);
      pb::ProbeThreads* threads = order.mutable_speed()->mutable_threads();
      FillThreads(stage, threads);
      if (run.threads != threads->threads()) {  // all cores: not those of the stage alone
        threads->set_threads(run.threads);
        threads->clear_cpus();
      }
      RETURN_IF_ERROR(Order(stage, std::move(order)));
    }
    return absl::OkStatus();
  }

  void TakeSpeed(const HostStages& group, const SpeedRun& run, pb::ProbedHost* host) {
    pb::ProbeSpeed sum;
    sum.set_stages(run.processes);
    sum.set_threads(run.threads);
    for (int i = 0; i < run.processes; ++i) {
      const pb::ProbeSpeed& one = answers_.at(group.stages[static_cast<size_t>(i)]).speed();
      sum.set_read_gbps(sum.read_gbps() + one.read_gbps());
      sum.set_int8_gops(sum.int8_gops() + one.int8_gops());
      sum.set_bf16_gops(sum.bf16_gops() + one.bf16_gops());
      sum.set_f32_gops(sum.f32_gops() + one.f32_gops());
    }
    *host->add_speeds() = sum;
  }

  // The first stage of each host, all hosts at once.
  absl::Status TimeModel() {
    if (job_.model_path().empty()) return absl::OkStatus();
    RETURN_IF_ERROR(Say(0.7, "a layer of the model"));
    for (const HostStages& group : groups_) {
      const int stage = group.stages.front();
      if (report_.stages(stage).model_code() != 0) continue;
      pb::ProbeOrder order;
      FillModel(stage, order.mutable_model());
      order.mutable_model()->set_timed(true);
      RETURN_IF_ERROR(Order(stage, std::move(order)));
    }
    RETURN_IF_ERROR(AwaitAll());
    for (const HostStages& group : groups_) {
      if (answers_.contains(group.stages.front())) TakeModel(group.stages.front());
    }
    return absl::OkStatus();
  }

  void FillThreads(int stage, pb::ProbeThreads* threads) const {
    const pb::ProbedStage& probed = report_.stages(stage);
    threads->set_threads(probed.threads());
    *threads->mutable_cpus() = probed.cpus();
    threads->set_contended(contended_[static_cast<size_t>(stage)]);
    threads->set_isa(ToProto(isas_[static_cast<size_t>(stage)]));
  }

  void FillModel(int stage, pb::ProbeModelOrder* order) const {
    const std::string& own_path = stages_[static_cast<size_t>(stage)].model_path();
    order->set_model_path(own_path.empty() ? job_.model_path() : own_path);
    order->set_q2_layout(job_.q2_layout());
    order->set_kv_type(job_.kv_type());
    FillThreads(stage, order->mutable_threads());
  }

  void TakeModel(int stage) {
    const pb::ProbeAnswer& answer = answers_.at(stage);
    pb::ProbedStage* probed = report_.mutable_stages(stage);
    if (answer.code() == 0) {
      *probed->mutable_model() = answer.model();
    } else {
      probed->set_model_code(static_cast<int>(CodeOf(answer.code())));
      probed->set_model_error(answer.error());
    }
  }

  // --- orders and answers
  // ---------------------------------------------------------------------------------------------

  absl::Status Order(int stage, pb::ProbeOrder order) {
    if (open_.empty()) answers_.clear();
    order.set_number(++last_order_);
    std::shared_ptr<FrameBuffer> buffer = pool_.Acquire();
    RETURN_IF_ERROR(EncodeControl({}, order, buffer.get()));
    RETURN_IF_ERROR(endpoint_->Send(Channel::kSetup, RankOf(stage), std::move(buffer)));
    if (!order.has_end()) open_[stage] = last_order_;
    return absl::OkStatus();
  }

  // Until every order has its answer, at most so long; those without one are given up.
  absl::Status AwaitAnswers(int64_t most_us) {
    const int64_t deadline_us = MonotonicUs() + most_us;
    while (!open_.empty() && MonotonicUs() < deadline_us) RETURN_IF_ERROR(Turn());
    open_.clear();
    return absl::OkStatus();
  }

  // An answer to every order, which may be an error of the stage's.
  absl::Status AwaitAll() {
    const int64_t deadline_us = MonotonicUs() + kWorkUs;
    while (!open_.empty()) {
      if (MonotonicUs() >= deadline_us) {
        return absl::UnavailableError(absl::StrCat(NameOf(open_.begin()->first),
                                                   " has not measured what it was told to within ",
                                                   absl::FormatDuration(absl::Microseconds(kWorkUs))));
      }
      RETURN_IF_ERROR(Turn());
    }
    return absl::OkStatus();
  }

  // The same, and none may be an error.
  absl::Status AwaitWork() {
    RETURN_IF_ERROR(AwaitAll());
    for (const auto& [stage, answer] : answers_) {
      if (answer.code() == 0) continue;
      return absl::Status(CodeOf(answer.code()), absl::StrCat(NameOf(stage), ": ", answer.error()));
    }
    return absl::OkStatus();
  }

  // One round of the loop: a frame, the front, who is silent.
  absl::Status Turn() {
    absl::StatusOr<std::optional<ReceivedFrame>> polled = endpoint_->Poll();
    absl::Status status = polled.status();
    const bool arrived = polled.ok() && polled->has_value();
    if (arrived) status = Take(**polled);
    if (absl::IsInvalidArgument(status)) {  // nothing that a user could change
      return absl::UnavailableError(absl::StrCat("received a bad frame: ", status.message()));
    }
    RETURN_IF_ERROR(status);
    if (arrived) {
      ladder_.Progressed();
    } else {
      ladder_.Wait();
    }
    const int64_t now = MonotonicUs();
    if (now >= next_report_us_) RETURN_IF_ERROR(SendReport());
    if (now >= next_check_us_) {
      next_check_us_ = now + kCheckUs;
      RETURN_IF_ERROR(roster_.CheckAlive(now, -1));
    }
    return absl::OkStatus();
  }

  absl::Status Take(const ReceivedFrame& frame) {
    const int stage = roster_.StageOfRank(frame.source()).value();  // no other receive is open
    if (frame.channel() == Channel::kResult) {
      return meter_ != nullptr && RankOf(stage) == frame.source() ? meter_->Take(frame) : absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const ControlBody body, DecodeControl({}, frame.bytes()));
    if (const auto* heartbeat = std::get_if<pb::Heartbeat>(&body)) {
      if (heartbeat->stage() == stage) roster_.Heard(*heartbeat, MonotonicUs());
      return absl::OkStatus();
    }
    if (const auto* failure = std::get_if<pb::StageFailure>(&body)) {
      return absl::Status(CodeOf(failure->code()), failure->message());
    }
    const auto* answer = std::get_if<pb::ProbeAnswer>(&body);
    if (answer == nullptr || answer->stage() != stage) {
      return absl::InternalError(absl::StrCat(NameOf(stage), " sent what is no answer of its own"));
    }
    const auto open = open_.find(stage);
    if (open == open_.end() || open->second != answer->number()) return absl::OkStatus();  // given up before
    open_.erase(open);
    answers_[stage] = *answer;
    return absl::OkStatus();
  }

  // --- the front
  // ------------------------------------------------------------------------------------------------------

  absl::Status Say(double done, const std::string& doing) {
    report_.set_done(done);
    report_.set_doing(doing);
    return SendReport();
  }

  absl::Status SendReport() {
    next_report_us_ = MonotonicUs() + kReportUs;
    pollfd descriptor{.fd = channel_->descriptor(), .events = POLLRDHUP, .revents = 0};
    if (poll(&descriptor, 1, 0) > 0 && (descriptor.revents & (POLLRDHUP | POLLHUP)) != 0)
      return absl::UnavailableError("the front is gone");
    pb::EngineMessage message;
    pb::ProbeReport* report = message.mutable_probe_report();
    if (report_.complete()) {
      *report = report_;
    } else {
      report->set_done(report_.done());
      report->set_doing(report_.doing());
    }
    return channel_->Send(message);
  }

  absl::Status EndInOrder() {
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<pb::EngineMessage> message, channel_->Receive());
      if (message.has_value() && message->has_shutdown()) break;
      RETURN_IF_ERROR(Turn());
    }
    for (int stage = 0; stage < count(); ++stage) {
      pb::ProbeOrder order;
      order.mutable_end();
      RETURN_IF_ERROR(Order(stage, std::move(order)));
    }
    while (endpoint_->SendsPending()) RETURN_IF_ERROR(Turn());
    pb::EngineMessage message;
    message.mutable_status()->set_ended(true);
    for (const pb::StageSummary& summary : Summaries()) {
      *message.mutable_status()->mutable_statistics()->add_stages() = summary;
    }
    RETURN_IF_ERROR(channel_->Send(message));
    return channel_->FlushWithin(absl::InfiniteDuration());
  }

  // --- names
  // ----------------------------------------------------------------------------------------------------------

  int RankOf(int stage) const { return stages_[static_cast<size_t>(stage)].rank(); }
  std::string NameOf(int stage) const { return StageName(stage, hosts_[static_cast<size_t>(stage)]); }

  std::string NoFrames(const std::string& from, const std::string& to) const {
    return absl::StrCat("no frame of ", from, " was answered by ", to, " within ",
                        absl::FormatDuration(absl::Microseconds(link_us_)),
                        "; let the hosts reach each other's TCP ports, and check that the names mean the same network");
  }

  std::vector<pb::StageSummary> Summaries() const {
    std::vector<pb::StageSummary> summaries;
    for (int stage = 0; stage < count(); ++stage) {
      const pb::Hello& hello = stages_[static_cast<size_t>(stage)];
      pb::StageSummary& summary = summaries.emplace_back();
      summary.set_stage(stage);
      summary.set_host(hello.host());
      summary.set_pid(hello.pid());
      summary.set_rank(hello.rank());
      summary.set_isa(ToProto(isas_[static_cast<size_t>(stage)]));
      summary.set_threads(report_.stages(stage).threads());
      *summary.mutable_cpus() = report_.stages(stage).cpus();
    }
    return summaries;
  }

  Endpoint* const endpoint_;
  const std::vector<pb::Hello> hellos_;  // the coordinator's first
  const std::vector<pb::Hello> stages_;
  EngineChannel* const channel_;
  const pb::ConfigureJob& job_;
  const int64_t link_us_;           // for one link
  std::vector<std::string> hosts_;  // [stages]
  std::vector<HostStages> groups_;
  std::vector<bool> contended_;       // [stages]
  std::vector<InstructionSet> isas_;  // [stages]

  FramePool pool_;
  Roster roster_;
  WaitLadder ladder_;
  pb::ProbeReport report_;
  uint32_t last_order_ = 0;
  uint32_t last_meter_ = 0;
  LinkMeter* meter_ = nullptr;              // of the link that is being measured from here
  std::map<int, uint32_t> open_;            // orders without an answer, by stage
  std::map<int, pb::ProbeAnswer> answers_;  // to the latest orders, by stage
  int64_t next_report_us_ = 0;
  int64_t next_check_us_ = 0;
};

}  // namespace

absl::Status RunProbe(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
                      const pb::ConfigureJob& job) {
  return ProbeJob(endpoint, hellos, channel, job).Run();
}

}  // namespace stagecoach
