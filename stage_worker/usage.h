#ifndef STAGECOACH_STAGE_WORKER_USAGE_H_
#define STAGECOACH_STAGE_WORKER_USAGE_H_

#include "common/base/manual_page.h"

namespace stagecoach {

// What users start stage_worker with; it has other tasks on a host, which the coordinator starts.
inline constexpr char kModelFlag[] = "--model";
inline constexpr char kCheckKernelsFlag[] = "--check-kernels";
inline constexpr char kManualFlag[] = "--manual";

// What --help and the manual page say.
const ManualPage& StageWorkerManual();

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_USAGE_H_
