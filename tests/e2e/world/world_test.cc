// The other way to start: mpirun -n 1 coordinator <verb> ... : -n S stage_worker.

#include <filesystem>

#include "absl/strings/str_split.h"
#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

int Occurrences(const std::string& text, const std::string& part) {
  const std::vector<std::string> parts = absl::StrSplit(text, part);
  return static_cast<int>(parts.size()) - 1;
}

TEST(World, GivesTheSameTextAsTheSelfLaunchedForm) {
  const std::string expected = Coordinator(Generate({"--pp", "2", "-p", kPrompt, "-n", "20"})).out;
  EXPECT_THAT(World(Generate({"-p", kPrompt, "-n", "20"}), 2), Prints(expected));
  EXPECT_EQ(World(Generate({"-n", "20"}), 3, kPrompt).out, expected) << "the prompt from standard input";
}

TEST(World, RunsABatchAndAPerplexity) {
  const TempDir directory;
  const std::string in = directory.File("in.jsonl"), out = directory.File("out.jsonl"), text = directory.File("t.txt");
  WriteFileOrDie(in, BatchInputLine("a", {{"prompt", kPrompt}, {"max_tokens", 4}}) + "bad\n");
  const ProgramResult batch = World(Batch(in, out), 2);
  EXPECT_EQ(batch.exit_code, 0) << batch;
  EXPECT_EQ(ReadBatchOutput(out).size(), 2u);
  EXPECT_EQ(World(Batch(in, out), 2).exit_code, 0) << "nothing left to do is no failure";
  WriteFileOrDie(text, Repeated("And it came to pass", 60));
  const ProgramResult perplexity = World({"perplexity", "-m", DemoModelPath(), "-f", text, "-c", "64"}, 2);
  EXPECT_THAT(perplexity, Prints(HasSubstr("perplexity")));
}

TEST(World, LeavesWithItsExitCodeWhenTheVerbFails) {
  EXPECT_THAT(World({"generate", "-m", "/nowhere/m.gguf", "-p", "x"}, 2),
              EndsWithCode(3, HasSubstr("/nowhere/m.gguf")));
  const ProgramResult split = World(Generate({"-p", "x", "--layer-split", "4,5"}), 2);
  EXPECT_EQ(split.exit_code, 2) << split;
  const ProgramResult other_split = World(Generate({"-p", "x", "--layer-split", "4,2,2"}), 2);
  EXPECT_NE(other_split.exit_code, 0) << other_split;
  EXPECT_FALSE(other_split.timed_out);
}

TEST(World, NeverLeavesWithZeroBesideStages) {
  for (const Words& arguments :
       {Words{"--help"}, Words{"generate", "--help"}, Words{"--version"}, Words{"generate", "--frobnicate"},
        Words{"generate", "-m", DemoModelPath(), "-p", "x", "-n", "0"}, Words{},
        Words{"inspect", "-m", DemoModelPath()}, Words{"tokenize", "-m", DemoModelPath(), "-p", "x"},
        Words{"generate", "-m", DemoModelPath(), "-p", "x", "--dry-run"}}) {
    const ProgramResult result = World(arguments, 1);
    EXPECT_EQ(result.exit_code, 2) << result;
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(Occurrences(result.err, "coordinator: "), 1) << result;
  }
}

// Of the wrong worlds each ends by itself with one message that says how to start.
void ExpectOneMessage(const ProgramResult& result) {
  EXPECT_FALSE(result.timed_out) << result;
  EXPECT_NE(result.exit_code, 0) << result;
  EXPECT_EQ(Occurrences(result.err, "start it as: mpirun -n 1 coordinator"), 1) << result;
}

TEST(World, WithoutAStageEndsInOneMessage) { ExpectOneMessage(World(Generate({"-p", "x"}), 0)); }

TEST(World, WithTwoCoordinatorsEndsInOneMessage) {
  const Words two = Joined({"--oversubscribe", "-n", "2", CoordinatorProgram()}, Generate({"-p", "x"}));
  ExpectOneMessage(RunProgram("mpirun", Joined(two, {":", "-n", "1", StageWorkerProgram()}), "", 90, AllowRoot()));
}

TEST(World, WithoutACoordinatorEndsInOneMessage) {
  const ProgramResult result =
      RunProgram("mpirun", {"--oversubscribe", "-n", "2", StageWorkerProgram()}, "", 90, AllowRoot());
  ExpectOneMessage(result);
  EXPECT_THAT(result.err, ContainsRegex("stage_worker \\(rank 0 on .+\\): this world has 0 coordinators"));
}

TEST(World, OfTasksThatSrunTellsNothingNamesItsOption) {
  EXPECT_THAT(RunProgram(StageWorkerProgram(), {}, "", 90, {{"SLURM_PROCID", "1"}}),
              EndsWithCode(2, HasSubstr("--mpi=pmix")));
}

// A container may have no /dev/shm.
TEST(World, MeetsInAnOrdinaryDirectoryWhereThereIsNoSharedMemory) {
  const TempDir directory;
  const std::string ordinary = std::filesystem::path(directory.path()).filename().string();
  const std::string name = "stagecoach." + ordinary.substr(ordinary.size() - 6);
  auto environment = AllowRoot();
  environment.emplace_back("OMPI_MCA_btl_vader_backing_directory", "/nonexistent/" + name);
  const ProgramResult result =
      RunProgram("mpirun", WorldArguments(Generate({"-p", kPrompt, "-n", "3"}), 1), "", 90, environment);
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_TRUE(std::filesystem::is_directory("/tmp/" + name));
  std::filesystem::remove_all("/tmp/" + name);
}

TEST(World, WithTheCoordinatorLastEndsInOneMessage) {
  const Words last = {"--oversubscribe", "-n", "1", StageWorkerProgram(), ":", "-n", "1", CoordinatorProgram()};
  ExpectOneMessage(RunProgram("mpirun", Joined(last, Generate({"-p", "x"})), "", 90, AllowRoot()));
}

}  // namespace
}  // namespace stagecoach::testing
