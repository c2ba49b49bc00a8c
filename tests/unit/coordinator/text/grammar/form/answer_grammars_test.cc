#include "coordinator/text/grammar/form/answer_grammars.h"

#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

AnswerForm PatternForm(const std::string& text) {
  return {.content = ContentForm{.kind = ContentForm::Kind::kRegex, .schema = {}, .text = text, .choices = {}},
          .calls = std::nullopt};
}

std::unique_ptr<Tokenizer> TokenizerOf(testing::ToyVocabulary toy, const char* model, const char* pre) {
  const TokenId end = toy.Add("<|im_end|>", 3);
  GgufWriter writer = toy.File(model, pre);
  writer.Set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end));
  return testing::OpenOrDie(writer);
}

struct KeptGrammars : ::testing::Test {
  KeptGrammars() : tokenizer(TokenizerOf(testing::ToyBytePairs(), "gpt2", "qwen2")), grammars(tokenizer.get()) {}
  std::shared_ptr<const std::string> Get(const AnswerForm& form, OutputFormat format = OutputFormat::kPlain,
                                         const std::string& prompt_end = "") {
    const auto program = grammars.Get(form, format, {.prompt_end = prompt_end});
    EXPECT_EQ(program.status().ToString(), "OK");
    return program.ok() ? *program : nullptr;
  }

  const std::unique_ptr<Tokenizer> tokenizer;
  AnswerGrammars grammars;
};

TEST_F(KeptGrammars, AreSharedByEqualForms) {
  const auto digits = Get(PatternForm("\\d+"));
  EXPECT_EQ(Get(PatternForm("\\d+")), digits);
  EXPECT_EQ(Get(PatternForm("\\d+"), OutputFormat::kPlain, "what was asked"), digits) << "other prompts change nothing";
  EXPECT_NE(Get(PatternForm("\\d*")), digits);
  const auto thinks = Get(PatternForm("\\d+"), OutputFormat::kHermesJson);
  EXPECT_NE(thinks, digits);
  EXPECT_NE(Get(PatternForm("\\d+"), OutputFormat::kHermesJson, "<think>\n"), thinks);
  EXPECT_EQ(Get(PatternForm("\\d+"), OutputFormat::kHermesJson, "assistant\n"), thinks);

  std::set<std::shared_ptr<const std::string>> programs;
  for (const bool required : {false, true}) {
    for (const bool several : {false, true}) {
      for (const char* name : {"a", "b"}) {
        for (const bool bind : {false, true}) {
          AnswerForm form;
          form.calls = CallForm{{{name, {{"type", "object"}}, bind}}, required, several};
          programs.insert(Get(form, OutputFormat::kHermesJson));
        }
      }
    }
  }
  EXPECT_EQ(programs.size(), 16u);
}

TEST_F(KeptGrammars, SayHowLongEachTookThatWasCompiled) {
  std::vector<int64_t> times_us;
  grammars.OnCompiled([&times_us](int64_t us) { times_us.push_back(us); });
  Get(PatternForm("(a|b){1,2000}"));
  EXPECT_THAT(times_us, ElementsAre(::testing::Gt(0)));
  Get(PatternForm("(a|b){1,2000}"));
  EXPECT_EQ(times_us.size(), 1u) << "it was kept";
  EXPECT_FALSE(grammars.Get(PatternForm("(a"), OutputFormat::kPlain, {}).ok());
  EXPECT_EQ(times_us.size(), 2u) << "in vain, too";
}

TEST_F(KeptGrammars, AreThoseThatWereAskedForLast) {
  const auto first = Get(PatternForm("a0")), second = Get(PatternForm("a1"));
  for (size_t i = 2; i < AnswerGrammars::kMostKept; ++i) Get(PatternForm(absl::StrCat("a", i)));
  EXPECT_EQ(Get(PatternForm("a0")), first) << "all are there";
  Get(PatternForm("one more"));
  EXPECT_EQ(Get(PatternForm("a0")), first);
  EXPECT_NE(Get(PatternForm("a1")), second) << "it had not been asked for for the longest time";
}

TEST_F(KeptGrammars, AreKeptAlsoWhereThereIsNone) {
  const auto first = Get(PatternForm("a0"));
  for (size_t i = 1; i < AnswerGrammars::kMostKept; ++i) {
    EXPECT_FALSE(grammars.Get(PatternForm(absl::StrCat("(a", i)), OutputFormat::kPlain, {}).ok());
  }
  EXPECT_EQ(Get(PatternForm("a0")), first);
  for (size_t i = 1; i <= AnswerGrammars::kMostKept; ++i) {
    const auto error = grammars.Get(PatternForm(absl::StrCat("(b", i)), OutputFormat::kPlain, {}).status();
    EXPECT_EQ(grammars.Get(PatternForm(absl::StrCat("(b", i)), OutputFormat::kPlain, {}).status(), error);
  }
  EXPECT_NE(Get(PatternForm("a0")), first) << "those that there are not were asked for since";
}

TEST_F(KeptGrammars, AreNotDrivenOutByALargeForm) {
  const auto first = Get(PatternForm("a0"));
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    EXPECT_FALSE(grammars.Get(PatternForm(std::string(6 << 20, letter)), OutputFormat::kPlain, {}).ok());
  }
  EXPECT_EQ(Get(PatternForm("a0")), first);
}

TEST_F(KeptGrammars, AreMadeByManyAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int j = 0; j < 20; ++j) EXPECT_FALSE(Get(PatternForm(absl::StrCat("b", j % 5)))->empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*Get(PatternForm("b1")), *Get(PatternForm("b1")));
}

TEST_F(KeptGrammars, SayWhatIsWrong) {
  EXPECT_THAT(grammars.Get(PatternForm("(a"), OutputFormat::kPlain, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(IsEmpty())));
}

TEST(NoGrammars, AreMadeForAVocabularyThatCannotWriteEveryText) {
  testing::ToyVocabulary toy = testing::ToySentencePiece();
  toy.types[3 + '7'] = 5;  // unused
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerOf(std::move(toy), "llama", "default");
  AnswerGrammars grammars(tokenizer.get());
  EXPECT_THAT(grammars.Get(PatternForm("a"), OutputFormat::kPlain, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no token for byte 55")));
}

}  // namespace
}  // namespace stagecoach
