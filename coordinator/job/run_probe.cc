#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/transport/link_meter.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/job/probe_exchange.h"
#include "coordinator/job/run_engine.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/plan/probe_plan.h"

namespace stagecoach {
namespace {

constexpr double kLinkTimeoutS = 10;  // the slowest link that passes moves 6 MiB in that time
constexpr int64_t kLastOrdersUs = 2000000;
constexpr int kMostCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

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
        exchange_(endpoint, stages_, channel) {
    for (const pb::Hello& hello : stages_) hosts_.push_back(hello.host());
    groups_ = GroupByHost(hosts_);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(CheckWorld(job_, count() - (job_.draft_model_path().empty() ? 0 : 1)));
    RETURN_IF_ERROR(exchange_.Open());
    RETURN_IF_ERROR(Introduce());
    RETURN_IF_ERROR(SendReady());
    RETURN_IF_ERROR(MeasureOwnLinks());
    RETURN_IF_ERROR(MeasureNeighbours());
    RETURN_IF_ERROR(CheckModel());
    if (job_.probe().speeds()) {
      RETURN_IF_ERROR(MeasureSpeeds());
      RETURN_IF_ERROR(TimeModel());
    }
    report_.set_done(1);
    report_.set_complete(true);
    RETURN_IF_ERROR(exchange_.Send(report_));
    return EndInOrder();
  }

 private:
  int count() const { return static_cast<int>(stages_.size()); }
  // The last one, where the job has a draft.
  bool IsDraft(int stage) const { return stage + 1 == count() && !job_.draft_model_path().empty(); }

  // Tells every stage who it is; what it says of its host goes into the report.
  absl::Status Introduce() {
    const std::vector<StageCpus> cpus =
        PlanCpus(stages_, job_.threads(), job_.cpu_bind() != NameOf(kCpuBinds, CpuBind::kNone));
    ASSIGN_OR_RETURN(const StageIsas isas, ChooseIsas(stages_, WantedIsaOf(job_)));  // as a job would choose them
    isas_ = isas.isas;
    for (const pb::Hello& hello : hellos_) *report_.add_hellos() = hello;
    *report_.mutable_coordinator() = DescribeHost();
    for (int stage = 0; stage < count(); ++stage) {
      const int rank = stages_[static_cast<size_t>(stage)].rank();
      pb::ProbedStage* probed = report_.add_stages();
      probed->set_stage(stage);
      probed->set_rank(rank);
      probed->set_draft(IsDraft(stage));
      const StageCpus& planned = cpus[static_cast<size_t>(stage)];
      probed->set_threads(planned.threads);
      probed->mutable_cpus()->Add(planned.cpus.begin(), planned.cpus.end());
      contended_.push_back(planned.contended);
      pb::ProbeOrder order;
      pb::ProbeBegin* begin = order.mutable_begin();
      begin->set_stage(stage);
      begin->set_previous_rank(stage == 0 ? kCoordinatorRank : exchange_.RankOf(stage - 1));
      begin->set_next_rank(stage + 1 == count() ? kCoordinatorRank : exchange_.RankOf(stage + 1));
      RETURN_IF_ERROR(exchange_.Order(stage, std::move(order)));
    }
    RETURN_IF_ERROR(exchange_.AwaitWork());
    for (const auto& [stage, answer] : exchange_.answers())
      *report_.mutable_stages(stage)->mutable_host() = answer.host();
    return absl::OkStatus();
  }

  absl::Status SendReady() {
    pb::EngineMessage message;
    AddSummaries(message.mutable_ready()->mutable_stages());
    return channel_->Send(message);
  }

  absl::Status MeasureOwnLinks() {
    for (int stage = 0; stage < count(); ++stage) {
      RETURN_IF_ERROR(
          exchange_.ReportProgress(0.1 * stage / count(), absl::StrCat("the link to ", exchange_.NameOf(stage))));
      pb::ProbeLink* link = report_.add_links();
      link->set_from_stage(LinkFacts::kCoordinator);
      link->set_to_stage(stage);
      LinkMeter meter(endpoint_, exchange_.RankOf(stage), ++last_meter_);
      ASSIGN_OR_RETURN(const bool measured, exchange_.AwaitMeter(&meter, link_us_));
      if (!measured) {
        link->set_error(NoFrames(absl::StrCat("the coordinator on ", hellos_[0].host()), exchange_.NameOf(stage)));
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
      RETURN_IF_ERROR(exchange_.ReportProgress(0.1 + 0.1 * static_cast<double>(links.size()) / count(),
                                               absl::StrCat("the link from ", exchange_.NameOf(round.front()))));
      for (const int stage : round) {
        pb::ProbeOrder order;
        order.mutable_link();
        RETURN_IF_ERROR(exchange_.Order(stage, std::move(order)));
      }
      RETURN_IF_ERROR(exchange_.AwaitAnswers(link_us_));
      for (const int stage : round) {
        pb::ProbeLink& link = links[stage];
        const auto answer = exchange_.answers().find(stage);
        if (answer != exchange_.answers().end()) link = answer->second.link();
        link.set_from_stage(stage);
        link.set_to_stage(stage + 1);
        if (answer == exchange_.answers().end())
          link.set_error(NoFrames(exchange_.NameOf(stage), exchange_.NameOf(stage + 1)));
      }
    }
    for (const auto& [stage, link] : links) *report_.add_links() = link;
    return absl::OkStatus();
  }

  // Every stage at once: it is the header alone.
  absl::Status CheckModel() {
    if (job_.model_path().empty()) return absl::OkStatus();
    RETURN_IF_ERROR(exchange_.ReportProgress(0.2, "the model on every host"));
    for (int stage = 0; stage < count(); ++stage) {
      pb::ProbeOrder order;
      FillModel(stage, order.mutable_model());
      RETURN_IF_ERROR(exchange_.Order(stage, std::move(order)));
    }
    RETURN_IF_ERROR(exchange_.AwaitAll());
    for (int stage = 0; stage < count(); ++stage) TakeModel(stage);
    return absl::OkStatus();
  }

  absl::Status MeasureSpeeds() {
    std::vector<std::vector<SpeedRun>> runs;
    size_t most = 0;
    for (const HostStages& group : groups_) {
      const int first = group.stages.front();
      runs.push_back(SpeedRuns(static_cast<int>(group.stages.size()), report_.stages(first).threads(), CoresOf(first)));
      most = std::max(most, runs.back().size());
      report_.add_hosts()->set_host(group.host);
    }
    for (size_t i = 0; i < most; ++i) {
      RETURN_IF_ERROR(exchange_.ReportProgress(0.2 + 0.5 * static_cast<double>(i) / static_cast<double>(most),
                                               "memory and arithmetic"));
      for (size_t host = 0; host < groups_.size(); ++host) {
        if (i < runs[host].size()) RETURN_IF_ERROR(OrderSpeed(groups_[host], runs[host][i]));
      }
      RETURN_IF_ERROR(exchange_.AwaitWork());
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
      if (run.threads != threads->threads()) SpreadOver(run.threads, threads);
      RETURN_IF_ERROR(exchange_.Order(stage, std::move(order)));
    }
    return absl::OkStatus();
  }

  void TakeSpeed(const HostStages& group, const SpeedRun& run, pb::ProbedHost* host) {
    pb::ProbeSpeed sum;
    sum.set_stages(run.processes);
    sum.set_threads(run.threads);
    for (int i = 0; i < run.processes; ++i) {
      const pb::ProbeSpeed& one = exchange_.answers().at(group.stages[static_cast<size_t>(i)]).speed();
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
    RETURN_IF_ERROR(TimeModelOnce(0.7, /*all_cores=*/false));
    return TimeModelOnce(0.85, /*all_cores=*/true);
  }

  // With the threads that a job would give the stage, or with all cores of its host where these are more.
  absl::Status TimeModelOnce(double done, bool all_cores) {
    RETURN_IF_ERROR(exchange_.ReportProgress(done, "a layer of the model"));
    std::vector<int> timed;
    for (const HostStages& group : groups_) {
      const int stage = group.stages.front();
      const int cores = CoresOf(stage);
      if (report_.stages(stage).model_code() != 0) continue;
      if (all_cores && cores <= report_.stages(stage).threads()) continue;
      pb::ProbeOrder order;
      FillModel(stage, order.mutable_model());
      order.mutable_model()->set_timed(true);
      if (all_cores) SpreadOver(cores, order.mutable_model()->mutable_threads());
      RETURN_IF_ERROR(exchange_.Order(stage, std::move(order)));
      timed.push_back(stage);
    }
    RETURN_IF_ERROR(exchange_.AwaitAll());
    for (const int stage : timed) TakeModel(stage);
    return absl::OkStatus();
  }

  int CoresOf(int stage) const { return std::max(stages_[static_cast<size_t>(stage)].allowed_cores(), 1); }

  static void SpreadOver(int cores, pb::ProbeThreads* threads) {
    threads->set_threads(cores);
    threads->clear_cpus();  // those are the stage's own
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
    const std::string& path = IsDraft(stage) ? job_.draft_model_path() : job_.model_path();
    order->set_model_path(own_path.empty() ? path : own_path);
    order->set_q2_layout(job_.q2_layout());
    order->set_kv_type(job_.kv_type());
    FillThreads(stage, order->mutable_threads());
  }

  void TakeModel(int stage) {
    const pb::ProbeAnswer& answer = exchange_.answers().at(stage);
    pb::ProbedStage* probed = report_.mutable_stages(stage);
    if (answer.code() == 0) {
      auto steps = probed->model().steps();  // of another number of threads
      steps.MergeFrom(answer.model().steps());
      *probed->mutable_model() = answer.model();
      *probed->mutable_model()->mutable_steps() = std::move(steps);
    } else {
      probed->set_model_code(std::clamp(answer.code(), 1, kMostCode));
      probed->set_model_error(answer.error());
    }
  }

  absl::Status EndInOrder() {
    RETURN_IF_ERROR(exchange_.AwaitShutdown());
    for (int stage = 0; stage < count(); ++stage) {
      pb::ProbeOrder order;
      order.mutable_end();
      RETURN_IF_ERROR(exchange_.Order(stage, std::move(order)));
    }
    RETURN_IF_ERROR(exchange_.Drain(kLastOrdersUs));
    pb::EngineMessage message;
    message.mutable_status()->set_ended(true);
    AddSummaries(message.mutable_status()->mutable_statistics()->mutable_stages());
    RETURN_IF_ERROR(channel_->Send(message));
    return channel_->FlushWithin(absl::InfiniteDuration());
  }

  std::string NoFrames(const std::string& from, const std::string& to) const {
    return absl::StrCat("no frame of ", from, " was answered by ", to, " within ",
                        absl::FormatDuration(absl::Microseconds(link_us_)),
                        "; let the hosts reach each other's TCP ports, and check that the names mean the same network");
  }

  void AddSummaries(google::protobuf::RepeatedPtrField<pb::StageSummary>* summaries) const {
    for (int stage = 0; stage < count(); ++stage) {
      const pb::Hello& hello = stages_[static_cast<size_t>(stage)];
      pb::StageSummary& summary = *summaries->Add();
      summary.set_stage(stage);
      summary.set_host(hello.host());
      summary.set_pid(hello.pid());
      summary.set_rank(hello.rank());
      summary.set_isa(ToProto(isas_[static_cast<size_t>(stage)]));
      summary.set_threads(report_.stages(stage).threads());
      *summary.mutable_cpus() = report_.stages(stage).cpus();
    }
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

  ProbeExchange exchange_;
  pb::ProbeReport report_;
  uint32_t last_meter_ = 0;
};

}  // namespace

absl::Status RunProbe(Endpoint* endpoint, const std::vector<pb::Hello>& hellos, EngineChannel* channel,
                      const pb::ConfigureJob& job) {
  return ProbeJob(endpoint, hellos, channel, job).Run();
}

}  // namespace stagecoach
