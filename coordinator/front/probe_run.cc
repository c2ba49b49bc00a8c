#include "coordinator/front/probe_run.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/progress_line.h"
#include "coordinator/front/session.h"
#include "coordinator/front/signals.h"

namespace stagecoach {

absl::StatusOr<pb::ProbeReport> RunProbeJob(LaunchOptions options, int engine_descriptor, bool show_progress) {
  SignalWatch& signals = SignalWatch::Get();
  std::unique_ptr<Session> session;
  if (engine_descriptor >= 0) {
    options.job.set_stages(options.stages);
    session = Session::Join(engine_descriptor, std::move(options.job));
  } else {
    options.max_losses = 1;  // a measurement with a relaunch in it is none
    options.relaunch_timeout = absl::ZeroDuration();
    absl::StatusOr<std::unique_ptr<Session>> launched = Session::Launch(options);
    if (!launched.ok()) return LaunchFailure(launched.status());
    session = *std::move(launched);
  }
  session->WatchDescriptor(signals.descriptor());
  ProgressLine progress(show_progress);
  while (!session->probe_report().complete()) {
    const pb::ProbeReport& report = session->probe_report();
    progress.Draw(session->job_ready() ? ProgressText("probing", report.done(), report.doing())
                                       : "starting the stages");
    const absl::Status status = session->Next(absl::Milliseconds(200)).status();
    signals.Clear();
    if (signals.stops() > 0) return absl::CancelledError("interrupted before everything was measured");
    if (!status.ok()) return JobFailure(status);
  }
  progress.Clear();
  pb::ProbeReport report = session->probe_report();
  signals.EndAtSecondStop();
  const absl::Status ended = session->Finish().status();
  if (!ended.ok()) LogVerbose(absl::StrCat("the job did not end in order: ", ended.message()));
  return report;
}

}  // namespace stagecoach
