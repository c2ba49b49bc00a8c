// doctor: would a job run here, and if not, why.

#include <set>

#include "absl/time/time.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "coordinator/cli/options/cluster_options.h"
#include "coordinator/cli/options/option_values.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/tensor_check.h"
#include "coordinator/cli/verb.h"
#include "coordinator/doctor/findings.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/job/draft_setup.h"
#include "coordinator/launch/launch_check.h"
#include "coordinator/launch/launch_plan.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/plan/cluster_plan.h"
#include "coordinator/plan/job_plan.h"
#include "coordinator/session/cluster_run.h"

namespace stagecoach {
namespace {

using Model = std::shared_ptr<const ModelDescription>;

constexpr absl::Duration kProgramAnswers = absl::Seconds(20);

Finding FromStatus(std::string subject, const absl::Status& status, ExitCode code = ExitCode::kLaunch) {
  return ErrorOfMessage(std::move(subject), WithFlags(status.message()), code);
}

class DoctorVerb : public Verb {
 public:
  DoctorVerb()
      : Verb("doctor", "tell whether a job would run here (exit code 0), and if not, why",
             "coordinator doctor -m model.gguf --hostfile hosts") {}
  bool NeedsCluster() const override { return !options_.dry_run; }

  void AddOptions(CLI::App* app) override {
    AddProbeOptions(app, &options_, "the hosts alone are looked at");
    AddText(app, "--draft-model", &draft_path_, "FILE",
            "look at a job's draft, too: its file and tokens, and on its host (the host file's line with `draft`, else "
            "this one) the file and the room");
    AddFlag(app, "--check", &check_, "read the whole model file here, too: is a tensor damaged?");
    AddFlag(app, "--json", &json_, "print the findings as JSON");
    AddVerbosityOptions(app, &verbosity_);
  }

  absl::Status Run(const RunContext& context) override {
    verbosity_.Apply();
    RETURN_IF_ERROR(FindModel());
    RETURN_IF_ERROR(FindDraft());
    ASSIGN_OR_RETURN(LaunchOptions launch, MakeLaunchOptions(options_, context));
    if (draft_ != nullptr) launch.job.set_draft_model_path(AbsolutePath(draft_path_));
    launch.job.mutable_probe();
    if (options_.dry_run) return PrintLaunch(launch);
    if (!context.joined) FindLaunch(launch);
    // What the model lacks keeps no rank from starting; a launch that cannot be would only say so once more.
    if (const ExitCode verdict = VerdictOf(findings_); verdict == ExitCode::kOk || verdict == ExitCode::kInputFile) {
      if (model_ == nullptr) launch.job.clear_model_path();
      RETURN_IF_ERROR(FindByJob(std::move(launch), context));
    }
    return Conclude();
  }

 private:
  // A usage error ends the verb; what is wrong with the file is a finding.
  absl::Status FindModel() {
    RETURN_IF_ERROR(ResolveModel(&options_, /*required=*/false));
    if (options_.model.empty())
      return check_ ? UsageError("--check reads a model file; give it by -m") : absl::OkStatus();
    absl::StatusOr<Model> model = OpenDescription(options_.model, options_.q2_layout);
    if (!model.ok()) {
      findings_.push_back(FromStatus("model", model.status(), ExitCode::kInputFile));
      return absl::OkStatus();
    }
    model_ = *std::move(model);
    findings_.push_back(Finding::Ok("model", absl::StrCat(model_->file->path(), ", ", model_->hyper.architecture, ", ",
                                                          model_->hyper.layer_count(), " layers")));
    if (check_) FindDamage();
    return absl::OkStatus();
  }

  absl::Status FindDraft() {
    if (draft_path_.empty()) return absl::OkStatus();
    if (options_.model.empty()) return UsageError("--draft-model guesses for a model; give that by -m");
    options_.speculate = Speculate::kAuto;  // as a job that has one
    if (model_ == nullptr) return absl::OkStatus();
    absl::StatusOr<Model> draft = OpenDescription(draft_path_, options_.q2_layout);
    if (!draft.ok()) {
      findings_.push_back(DraftFinding(FromStatus("draft", draft.status(), ExitCode::kInputFile)));
    } else if (const absl::Status tokens = CheckDraft(*model_, **draft); !tokens.ok()) {
      findings_.push_back(FromStatus("draft", tokens, ExitCode::kInputFile));
    } else {
      draft_ = *std::move(draft);
      findings_.push_back(
          Finding::Ok("draft", absl::StrCat(draft_->file->path(), ", ", draft_->hyper.architecture, ", ",
                                            draft_->hyper.layer_count(), " layers, tokens as the model's")));
    }
    return absl::OkStatus();
  }

  void FindDamage() {
    constexpr size_t kMostNamed = 8;
    ProgressLine progress(verbosity_.ShowProgress());
    progress.Draw("reading the model's file");
    const absl::StatusOr<std::vector<CheckedTensor>> checked = CheckTensors(*model_->file);
    progress.Clear();
    if (!checked.ok()) {
      findings_.push_back(FromStatus("model", checked.status(), ExitCode::kInputFile));
      return;
    }
    const std::vector<GgufTensor>& tensors = model_->file->tensors();
    size_t damaged = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!(*checked)[i].damage.has_value() || ++damaged > kMostNamed) continue;
      Finding finding =
          FromStatus("model", DamagedError(*model_->file, tensors[i], *(*checked)[i].damage), ExitCode::kInputFile);
      if (options_.allow_damaged) finding.level = Finding::Level::kWarning;
      findings_.push_back(std::move(finding));
    }
    if (damaged > kMostNamed) {
      findings_.push_back(Finding::Warning("model", absl::StrCat(damaged - kMostNamed, " more tensors are damaged"),
                                           "`coordinator inspect --check` lists all"));
    }
    if (damaged == 0) {
      findings_.push_back(Finding::Ok("model", absl::StrCat(tensors.size(), " tensors were read, none is damaged")));
    }
  }

  // The programs, the hosts, and what these answer.
  void FindLaunch(const LaunchOptions& launch) {
    const pb::Hello own = MakeHello(pb::Hello::ROLE_COORDINATOR, {});
    const absl::StatusOr<std::string> stage_worker = FindStageWorker(launch);
    if (stage_worker.ok()) {
      FindStageWorkerVersion(*stage_worker, own);
    } else {
      findings_.push_back(FromStatus("stage_worker", stage_worker.status()));
    }
    const absl::StatusOr<LaunchPlan> plan = ResolveLaunch(launch);
    if (!plan.ok()) {
      if (plan.status() != stage_worker.status()) findings_.push_back(FromStatus("launch", plan.status()));
      return;
    }
    for (const std::string& shortage : ShortagesHere(plan->PlaceAll(), launch.job.threads())) {
      findings_.push_back(ErrorOfMessage("this host", shortage));
    }
    FindLauncherVersion(*plan);
    std::vector<HostQuestion> questions;
    std::set<std::string> asked;
    for (const LaunchHost& host : plan->hosts) {
      if (host.here || !asked.insert(host.name()).second) continue;
      // The others are asked for it by the job.
      const std::string model = host.slots.spare ? ModelOnHost(launch.job, host.slots) : "";
      questions.push_back(AskHost(*plan->backend, plan->programs, host.name(), /*clear=*/{}, model,
                                  AwaitsTrial(*plan->backend, launch.host_timeout, /*stays=*/false)));
    }
    ProgressLine progress(verbosity_.ShowProgress());
    if (!questions.empty()) {
      progress.Draw(absl::StrCat("asking the hosts, for at most ", absl::FormatDuration(launch.host_timeout)));
    }
    const TriedHosts tried = AskAndTry(std::move(questions), plan->hosts, plan->stages, launch.host_timeout);
    progress.Clear();
    for (const Findings& found : {FindingsOfSurvey(tried.answers, own, plan->hosts, plan->stages, launch.job.threads()),
                                  FindingsOfNetwork(tried, plan->backend->OwnNetworks(), plan->hosts, plan->stages)}) {
      findings_.insert(findings_.end(), found.begin(), found.end());
    }
  }

  void FindStageWorkerVersion(const std::string& path, const pb::Hello& own) {
    const absl::StatusOr<ProgramOutput> output = RunForOutput({path, kHostReportFlag}, kProgramAnswers);
    if (!output.ok()) {
      findings_.push_back(FromStatus("stage_worker", output.status()));
      return;
    }
    const absl::StatusOr<pb::HostReport> report = FindHostReport(output->text);
    const std::string other = report.ok() ? OtherVersion(report->hello(), own) : "is not one of this version";
    if (other.empty()) {
      findings_.push_back(
          Finding::Ok("stage_worker", absl::StrCat(path, ", version ", report->hello().program_version())));
    } else {
      findings_.push_back(Finding::Error("stage_worker", absl::StrCat(path, " ", other),
                                         "install coordinator and stage_worker of one build"));
    }
  }

  void FindLauncherVersion(const LaunchPlan& plan) {
    const absl::StatusOr<std::string> version = LauncherVersion(plan);
    const std::string name(plan.backend->name());
    if (!version.ok()) {
      findings_.push_back(FromStatus(name, version.status()));
    } else if (name == "mpirun" && !IsOpenMpiVersion(*version)) {
      findings_.push_back(Finding::Warning(
          name,
          absl::StrCat("'", plan.launcher, " --version' does not say that it is Open MPI's: ", ShownText(*version)),
          "a script around it may do so; otherwise repair or install Open MPI"));
    } else {
      findings_.push_back(Finding::Ok(name, *version));
    }
  }

  // What the ranks find, as a job that measures; and whether the planner would find room for the model.
  absl::Status FindByJob(LaunchOptions launch, const RunContext& context) {
    const pb::ConfigureJob job = launch.job;
    const bool streamed = job.weights() == pb::WEIGHT_SOURCE_STREAM;
    if (streamed) launch.job.clear_model_path();  // the stages need no file
    absl::StatusOr<pb::ProbeReport> report =
        RunProbeJob(std::move(launch), context.engine_descriptor, verbosity_.ShowProgress());
    if (absl::IsCancelled(report.status())) return report.status();
    if (!report.ok()) {
      findings_.push_back(FromStatus("job", report.status()));
      return absl::OkStatus();
    }
    const auto fingerprints = [streamed](const Model& model) {
      return model != nullptr && !streamed ? model->file->fingerprints() : std::vector<FileFingerprint>();
    };
    const Findings found = FindingsOfReport(*report, fingerprints(model_), fingerprints(draft_));
    findings_.insert(findings_.end(), found.begin(), found.end());
    if (model_ != nullptr && streamed) findings_.push_back(Finding::Ok("model", "is streamed: no other host needs it"));
    if (model_ != nullptr) FindRoom(job, *report);
    return absl::OkStatus();
  }

  void FindRoom(const pb::ConfigureJob& job, const pb::ProbeReport& report) {
    const std::vector<pb::Hello> all(report.hellos().begin() + 1, report.hellos().end());
    const bool drafts = report.stages(report.stages_size() - 1).draft();
    const std::vector<pb::Hello> stages(all.begin(), all.end() - (drafts ? 1 : 0));
    const absl::StatusOr<JobPlan> plan = PlanJobUnmeasured(job, stages, model_, {.run_id = 1, .epoch = 1});
    if (!plan.ok()) {
      findings_.push_back(FromStatus("memory", plan.status()));
      return;
    }
    findings_.push_back(Finding::Ok(
        "memory",
        absl::StrCat("the weights fit, and a KV cache of ",
                     int64_t{plan->group_blocks[plan->full_group()]} * job.block_tokens(), " tokens",
                     plan->state_slots > 0 ? absl::StrCat(" and ", plan->state_slots, " recurrent states") : "",
                     " beside them")));
    if (!drafts) return;
    const absl::StatusOr<JobPlan> draft = PlanDraft(job, *plan, *model_, all, *draft_, {.run_id = 1, .epoch = 2});
    findings_.push_back(draft.ok()
                            ? Finding::Ok("memory", absl::StrCat("the draft's weights fit on ", all.back().host(),
                                                                 ", and a KV cache of ",
                                                                 int64_t{draft->group_blocks[draft->full_group()]} *
                                                                     draft->stages[0].block_tokens(),
                                                                 " tokens beside them"))
                            : DraftFinding(FromStatus("memory", draft.status())));
  }

  absl::Status Conclude() {
    const ExitCode verdict = VerdictOf(findings_);
    int errors = 0;
    for (const Finding& finding : findings_) errors += finding.level == Finding::Level::kError ? 1 : 0;
    RETURN_IF_ERROR(WriteStdout(json_ ? FindingsJson(findings_) : FindingsText(findings_)));
    if (verdict == ExitCode::kOk) return json_ ? absl::OkStatus() : WriteStdout("a job would run here\n");
    return WithExitCode(absl::FailedPreconditionError(
                            absl::StrCat("a job would not run here: ", errors, errors == 1 ? " error" : " errors")),
                        verdict);
  }

  ClusterOptions options_;
  Verbosity verbosity_;
  bool json_ = false;
  bool check_ = false;
  std::string draft_path_;
  Model model_, draft_;  // nullptr: none, or a bad one
  Findings findings_;
};

}  // namespace

std::unique_ptr<Verb> MakeDoctorVerb() { return std::make_unique<DoctorVerb>(); }

}  // namespace stagecoach
