#include "tests/testing/shared_data.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/check.h"
#include "tests/testing/paths.h"

namespace stagecoach::testing {

std::string SharedPath(const std::string& relative) {
  const std::string path = PathOfShared(relative);
  return std::filesystem::exists(path) ? path : "";
}

std::string DemoModelPath() { return SourcePath("deploy/models/demo-q8_0.gguf"); }

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "stagecoach-test-XXXXXX").string();
  CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  CHECK(in.good());
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

void WriteFileOrDie(const std::string& path, const std::string& contents) {
  std::ofstream out(path, std::ios::binary);
  out << contents;
  CHECK(out.good());
}

}  // namespace stagecoach::testing
