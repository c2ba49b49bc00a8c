#ifndef STAGECOACH_COORDINATOR_CLI_MANUAL_H_
#define STAGECOACH_COORDINATOR_CLI_MANUAL_H_

#include <vector>

#include "common/base/manual_page.h"
#include "coordinator/cli/command_table.h"

namespace stagecoach {

// A page for the program and one for every command below it: coordinator, coordinator-generate,
// coordinator-trace-summary.
std::vector<ManualPage> ManualPages(const Command& program);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_MANUAL_H_
