#ifndef STAGECOACH_TESTS_TESTING_PATHS_H_
#define STAGECOACH_TESTS_TESTING_PATHS_H_

// Where the sources and this build of them are. Only the file behind it depends on that, so that a compiler cache finds
// every other object again in another clone.

#include <string>

namespace stagecoach::testing {

std::string SourcePath(const std::string& relative = "");
std::string BuildPath(const std::string& relative = "");
// Below the directory of test data that is not part of the project, whether it is there or not.
std::string PathOfShared(const std::string& relative);

// The programs of this build, with absolute paths.
std::string CoordinatorProgram();
std::string StageWorkerProgram();

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_PATHS_H_
