#ifndef STAGECOACH_COORDINATOR_CLI_BENCH_ACCOUNT_TEXT_H_
#define STAGECOACH_COORDINATOR_CLI_BENCH_ACCOUNT_TEXT_H_

#include <string>
#include <vector>

#include "coordinator/cli/bench/load_account.h"

namespace stagecoach {

// What a table says of a stage beside its account.
struct AccountedStage {
  std::string name;      // "stage 0, layers 0-27, 2 threads on host"
  double read_gbps = 0;  // what so many threads read there; 0: not known
};

// Tables of a load, in milliseconds a step: of each stage by its parts, then of the step through all stages, which ends
// with the sum of all lines, the measured time and, where steps overlap, how many were in flight.
std::string AccountText(const std::string& load, const LoadAccount& account, const std::vector<AccountedStage>& stages);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_BENCH_ACCOUNT_TEXT_H_
