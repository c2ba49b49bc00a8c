// header_only_models DIRECTORY [SHAPE...]: writes header-only files of these models, or of all, and lists them with
// what of their headers is unverified.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/gguf/model_shapes.h"
#include "tests/testing/header_only_model.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: header_only_models DIRECTORY [SHAPE...]\n");
    return 2;
  }
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  for (const stagecoach::ModelShape& shape : stagecoach::ModelShapes()) {
    const bool asked = std::find(wanted.begin(), wanted.end(), shape.name) != wanted.end();
    // "tiny" is nobody's model, so that no vocabulary is known of it.
    if (wanted.empty() ? std::string(shape.name) == "tiny" : !asked) continue;
    const std::string path = absl::StrCat(argv[1], "/", shape.name, ".gguf");
    stagecoach::testing::WriteHeaderOnlyModel(path, shape, stagecoach::testing::UsualTypeOf(shape));
    const std::string doubt = shape.unverified == nullptr ? "" : absl::StrCat("  unverified: ", shape.unverified);
    std::printf("%s  %s%s\n", path.c_str(), shape.form.architecture, doubt.c_str());
  }
  return 0;
}
