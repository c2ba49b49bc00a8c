#ifndef STAGECOACH_COORDINATOR_FRONT_STATISTICS_SUM_H_
#define STAGECOACH_COORDINATOR_FRONT_STATISTICS_SUM_H_

#include "proto/engine.pb.h"

namespace stagecoach {

// Adds the statistics of a later job of the same session: counts and times sum up, the bubble is averaged over busy
// time and its floor over the time of the ideal pipeline (so that the difference of two sums is that of the present
// job), and what describes a stage (host, process, memory) is that of the later job. Peaks are the larger one.
void AddStatistics(const pb::JobStatistics& later, pb::JobStatistics* sum);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_STATISTICS_SUM_H_
