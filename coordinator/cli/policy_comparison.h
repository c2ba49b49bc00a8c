#ifndef STAGECOACH_COORDINATOR_CLI_POLICY_COMPARISON_H_
#define STAGECOACH_COORDINATOR_CLI_POLICY_COMPARISON_H_

// Policies side by side: which of them a user asks for, and what became of the same load under each.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_choices.h"
#include "coordinator/bench/sweep_point.h"

namespace stagecoach {

// The policies of comma lists, in their order, each once; "all" is every one that there is. `none` where none is given.
// kInvalidArgument: an unknown name, with the choices.
absl::StatusOr<std::vector<Policy>> ParsePolicies(const std::vector<std::string>& given, Policy none);

// A table with a row for each policy, in the order in which they come: the median of its points, which succeeded and
// have one load on one job but for the policy (and the repetition). The best of a column has a star, where one is
// better. With the share of good requests where the points have bounds for them.
std::string PolicyTable(const std::vector<SweepPoint>& points);

// Such a table for each load and job that has points of two policies at least, under a line that names it. Points that
// failed are left out.
std::string PolicyTables(const std::vector<SweepPoint>& points);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_POLICY_COMPARISON_H_
