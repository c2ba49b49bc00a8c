#ifndef STAGECOACH_TESTS_TESTING_SHARED_DATA_H_
#define STAGECOACH_TESTS_TESTING_SHARED_DATA_H_

// Test data that is not part of the project (models in several types, vocabularies, reference results). A test that
// needs it skips with a message that names what is missing.

#include <string>

#include "gtest/gtest.h"

namespace stagecoach::testing {

// The path of a file below the shared directory, or an empty string when it is not there.
std::string SharedPath(const std::string& relative);

// The demo model that ships with the project; always there.
std::string DemoModelPath();

// A fresh private directory, removed with its contents when the object goes.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string ReadFileOrDie(const std::string& path);
void WriteFileOrDie(const std::string& path, const std::string& contents);

}  // namespace stagecoach::testing

// In a test body: std::string `name` is the path of the shared file, or the test is skipped and says why.
#define SHARED_FILE_OR_SKIP(name, relative)                             \
  const std::string name = ::stagecoach::testing::SharedPath(relative); \
  if (name.empty()) GTEST_SKIP() << "shared test data '" << (relative) << "' is not on this machine"

#endif  // STAGECOACH_TESTS_TESTING_SHARED_DATA_H_
