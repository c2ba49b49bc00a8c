// Ways of splitting the work under MPI: corners of the equality matrix with the real programs, other numbers of stages,
// chunks, threads, blocks and micro-batches, and pools so small that sequences are preempted. Tokens and
// log-probabilities are compared by their exact digits.

#include "tests/e2e/support/programs.h"

namespace stagecoach::testing {
namespace {

Words Prompts() {
  Words prompts;
  const Words starts = {"In the beginning",      "And Jesus said unto them", "The king of Assyria", "LIBERTY, n.",
                        "Now the LORD had said", "Blessed are the",          "Hear, O Israel:",     "It came to pass"};
  for (size_t i = 0; i < starts.size(); ++i) {
    std::string prompt;
    for (size_t repeat = 0; repeat <= 3 * i; ++repeat) prompt += starts[(i + repeat) % starts.size()] + " ";
    prompts.push_back(prompt + starts[i]);
  }
  return prompts;
}

// The results without what may differ: times, stages.
Json Answers(const Words& options, size_t sequences, int* preemptions) {
  Words arguments = WordsOf(
      "generate -m MODEL --raw -n 80 --temp 0.9 --top-k 50 --seed 5 --repeat-penalty 1.1 --ignore-eos --logprobs 3 "
      "--output json -q");
  const Words prompts = Prompts();
  for (size_t i = prompts.size() - sequences; i < prompts.size(); ++i)
    arguments = Joined(arguments, {"-p", prompts[i]});
  const Json parsed = Json::parse(CoordinatorOut(Joined(arguments, options), "", 120), nullptr, false);
  if (parsed.is_discarded()) return Json();
  Json answers = Json::array();
  for (const Json& answer : sequences == 1 ? Json::array({parsed}) : parsed["results"]) {
    answers.push_back({{"tokens", answer["tokens"]}, {"text", answer["text"]}, {"logprobs", answer["logprobs"]}});
  }
  const Json& timings = parsed.contains("timings") ? parsed["timings"] : parsed["results"][0]["timings"];
  *preemptions = timings.value("preemptions", 0);
  return answers;
}

TEST(EqualityUnderMpi, ADozenCornersGiveTheSameBitsAsOneStage) {
  int preemptions = 0;
  const Json eight = Answers({"--pp", "1", "-t", "1"}, 8, &preemptions);
  ASSERT_EQ(eight.size(), 8u);
  ASSERT_EQ(eight[7]["tokens"].size(), 80u);
  struct Corner {
    size_t sequences;
    bool preempted;
    const char* options;
  };
  const std::vector<Corner> corners = {
      {1, false, "--pp 1 -t 2 --prefill-chunk 1"},
      {8, false, "--pp 1 -t 2 --micro-batches 4 --block-size 16"},
      {1, false, "--pp 2 -t 1 --prefill-chunk 7 --layer-split 1,7"},
      {8, false, "--pp 2 -t 2 --policy interleaved --prefill-chunk 64 --micro-batches 4"},
      {8, false, "--pp 2 -t 1 --policy prefill-first --block-size 64"},
      {8, true, "--pp 2 -t 1 --prefill-chunk 7 -c 256 --kv-cache-memory 1M"},
      {1, false, "--pp 3 -t 1 --prefill-chunk 64 --layer-split 1,6,1"},
      {8, false, "--pp 3 -t 1 --policy phases --prefill-chunk 7 --micro-batches 1 --layer-split 3,3,2"},
      {8, true, "--pp 3 -t 2 -c 256 --kv-cache-memory 600K --block-size 16"},
      {8, false, "--pp 3 -t 1 --slo-itl 1ms --chunking equal-time"},
      {1, false, "--pp 4 -t 1 --prefill-chunk 7 --micro-batches 4"},
      {8, false, "--pp 4 -t 1 --policy decode-priority --micro-batches 4"},
      {8, true, "--pp 4 -t 1 --prefill-chunk 1 -c 256 --kv-cache-memory 512K"},
  };
  for (const Corner& corner : corners) {
    const Json answers = Answers(WordsOf(corner.options), corner.sequences, &preemptions);
    ASSERT_EQ(answers.size(), corner.sequences) << corner.options;
    for (size_t i = 0; i < corner.sequences; ++i) {
      EXPECT_EQ(answers[i].dump(), eight[8 - corner.sequences + i].dump()) << corner.options << ", sequence " << i;
    }
    EXPECT_EQ(preemptions > 0, corner.preempted) << corner.options;
  }
}

TEST(Overlap, ALongPromptHasTwoOfItsChunksInFlightAtOnceOverTwoStages) {
  const TempDir dir;
  WriteFileOrDie(dir.File("prompt.txt"), Repeated("the", 600));
  const std::string result =
      CoordinatorOut(Joined(WordsOf("generate -m MODEL --raw -n 2 --pp 2 -t 1 --prefill-chunk 128 -q"),
                            {"-f", dir.File("prompt.txt"), "--step-log", dir.File("steps.jsonl")}));
  std::vector<Json> chunks;
  for (const std::string& line : Lines(ReadFileOrDie(dir.File("steps.jsonl")))) {
    const Json step = Json::parse(line);
    if (step["slices"].size() == 1 && step["slices"][0]["count"] > 1) chunks.push_back(step);
  }
  ASSERT_GE(chunks.size(), 5u);  // at least 600 tokens in chunks of 128
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i]["slices"][0]["start"], 128 * i);
    EXPECT_LT(chunks[i + 1]["submit_us"], chunks[i]["confirm_us"])
        << "chunk " << i + 1 << " waited for the one before it";
    ASSERT_EQ(chunks[i]["stages"].size(), 2u);
  }
}

}  // namespace
}  // namespace stagecoach::testing
