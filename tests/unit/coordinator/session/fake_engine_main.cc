#include "gtest/gtest.h"
#include "tests/unit/coordinator/session/fake_engine.h"

int main(int argc, char** argv) {
  stagecoach::MaybeRunFakeProgram(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
