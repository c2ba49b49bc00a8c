// Tokenizer::EncodeMarked: what a template wrote and what a request brought, as tokens of one text.

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "common/gguf/gguf_file.h"
#include "coordinator/text/marked_text.h"
#include "coordinator/text/tokenizer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"
#include "tests/unit/coordinator/text/toy_vocabularies.h"

namespace stagecoach {
namespace {

using testing::OpenOrDie;
using testing::ToyVocabulary;

constexpr TextOrigin kWritten = TextOrigin::kTemplate, kBrought = TextOrigin::kRequest;

MarkedText Marked(const std::vector<std::pair<std::string, TextOrigin>>& parts) {
  MarkedText text;
  for (const auto& [part, origin] : parts) text.Append(part, origin);
  return text;
}

std::vector<TokenId> Encoded(const Tokenizer& tokenizer, const std::vector<std::pair<std::string, TextOrigin>>& parts) {
  return tokenizer.EncodeMarked(Marked(parts), /*add_bos=*/true);
}

// The text in two or three parts, in every way that leaves the request a byte of it.
std::vector<MarkedText> SharedOut(const std::string& text) {
  std::vector<MarkedText> ways = {MarkedText(text, kBrought)};
  for (size_t i = 1; i < text.size(); ++i) {
    const std::string head = text.substr(0, i), tail = text.substr(i);
    ways.push_back(Marked({{head, kWritten}, {tail, kBrought}}));
    ways.push_back(Marked({{head, kBrought}, {tail, kWritten}}));
    ways.push_back(Marked({{text.substr(0, i - 1), kWritten}, {text.substr(i - 1, 1), kBrought}, {tail, kWritten}}));
  }
  return ways;
}

TEST(MarkedEncoding, ReadsControlTokensWhereTheTemplateWroteThem) {
  ToyVocabulary toy = testing::ToyBytePairs();
  const TokenId control = toy.Add("<|c|>", 3), user = toy.Add("<u>", 4), unknown = toy.Add("<?>", 2);
  const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
  const std::string all = "<|c|><u><?>";
  EXPECT_THAT(Encoded(*tokenizer, {{all, kWritten}}), ElementsAre(control, user, unknown));
  EXPECT_THAT(Encoded(*tokenizer, {{all, kBrought}}), ElementsAre('<', '|', 'c', '|', '>', user, '<', '?', '>'));
  EXPECT_THAT(Encoded(*tokenizer, {{"<|c|>", kWritten}, {"he<?>", kBrought}, {"<|c|>", kWritten}}),
              ElementsAre(control, 256, '<', '?', '>', control));
  EXPECT_THAT(tokenizer->EncodeMarked(MarkedText(), true), ElementsAre());
}

TEST(MarkedEncoding, MakesNoControlTokenThatTheRequestHasAPartIn) {
  ToyVocabulary toy = testing::ToyBytePairs();
  toy.Add("<|im_end|>", 3);
  toy.Add("<?>", 2);
  const TokenId user = toy.Add("<u>", 4);
  const auto tokenizer = OpenOrDie(toy.File("gpt2", "qwen2"));
  for (const char* text : {"<|im_end|>", "<?>"}) {
    for (const MarkedText& way : SharedOut(text)) {
      EXPECT_EQ(tokenizer->EncodeMarked(way, true), tokenizer->Encode(text, true, /*parse_special=*/false));
    }
  }
  for (const MarkedText& way : SharedOut("<u>")) EXPECT_THAT(tokenizer->EncodeMarked(way, true), ElementsAre(user));
}

TEST(MarkedEncoding, CutsWhatLiesBetweenAsOneTextWhoeverWroteIt) {
  const auto pairs = OpenOrDie(testing::ToyBytePairs().File("gpt2", "qwen2"));
  for (const MarkedText& way : SharedOut("hello")) EXPECT_THAT(pairs->EncodeMarked(way, true), ElementsAre(259));
  const auto pieces = OpenOrDie(testing::ToySentencePiece().File("llama", ""));
  for (const MarkedText& way : SharedOut("ab")) EXPECT_THAT(pieces->EncodeMarked(way, true), ElementsAre(259, 262));
  EXPECT_THAT(Encoded(*pieces, {{"a</s>", kWritten}, {"a</s>", kBrought}}),
              ElementsAre(263, 2, 263, 3 + '<', 3 + '/', 3 + 's', 3 + '>'));
}

TEST(MarkedEncoding, HasOneBosTokenWhetherTemplateOrVocabularyAsksForIt) {
  constexpr TokenId bos = testing::kToyBos;
  GgufWriter file = testing::ToyBytePairsWithBos("qwen2");
  file.Set("tokenizer.ggml.eos_token_id", uint32_t{256});
  const auto silent = OpenOrDie(file);
  file.Set("tokenizer.ggml.add_bos_token", true);
  file.Set("tokenizer.ggml.add_eos_token", true);
  const auto asking = OpenOrDie(file);
  const MarkedText with = Marked({{"<|bos|>", kWritten}, {"a", kBrought}}), without("a", kBrought);
  EXPECT_THAT(silent->EncodeMarked(without, true), ElementsAre('a'));
  EXPECT_THAT(silent->EncodeMarked(with, true), ElementsAre(bos, 'a'));
  EXPECT_THAT(asking->EncodeMarked(without, true), ElementsAre(bos, 'a'));
  EXPECT_THAT(asking->EncodeMarked(with, true), ElementsAre(bos, 'a'));
  EXPECT_THAT(asking->EncodeMarked(without, false), ElementsAre('a'));
  EXPECT_THAT(asking->EncodeMarked(with, false), ElementsAre(bos, 'a'));
  // Some write one before every turn.
  EXPECT_THAT(Encoded(*asking, {{"<|bos|>a<|bos|>", kWritten}}), ElementsAre(bos, 'a', bos));
  EXPECT_THAT(Encoded(*asking, {{"<|bos|>", kBrought}}), ElementsAre(bos, '<', '|', 'b', 'o', 's', '|', '>'));
}

TEST(MarkedEncoding, HasOneBosTokenAlsoBehindWhiteSpaceAndWhereTheTemplateWritesTwo) {
  constexpr TokenId bos = testing::kToyBos;
  GgufWriter file = testing::ToyBytePairsWithBos("qwen2");
  const auto silent = OpenOrDie(file);
  file.Set("tokenizer.ggml.add_bos_token", true);
  const auto asking = OpenOrDie(file);
  for (const Tokenizer* tokenizer : {silent.get(), asking.get()}) {
    EXPECT_THAT(Encoded(*tokenizer, {{"\n<|bos|>a", kWritten}}), ElementsAre('\n', bos, 'a'));
    EXPECT_THAT(Encoded(*tokenizer, {{"<|bos|><|bos|>a", kWritten}}), ElementsAre(bos, 'a'));
    EXPECT_THAT(Encoded(*tokenizer, {{"\n<|bos|>\n<|bos|>a", kWritten}}), ElementsAre('\n', bos, '\n', 'a'));
    EXPECT_THAT(Encoded(*tokenizer, {{"<|bos|>", kWritten}, {"<|bos|>", kBrought}}),
                ElementsAre(bos, '<', '|', 'b', 'o', 's', '|', '>'));
  }
  EXPECT_THAT(Encoded(*asking, {{"\n", kWritten}, {"<|bos|>", kBrought}}),
              ElementsAre(bos, '\n', '<', '|', 'b', 'o', 's', '|', '>'));
  EXPECT_THAT(asking->EncodeMarked(MarkedText("<|bos|><|bos|>", kWritten), false), ElementsAre(bos, bos));
}

TEST(MarkedEncoding, NamesTheTokensThatTemplatesWrite) {
  ToyVocabulary toy = testing::ToyBytePairs();
  GgufWriter file = toy.File("gpt2", "qwen2");
  EXPECT_EQ(OpenOrDie(file)->bos(), kNoToken);
  EXPECT_EQ(OpenOrDie(file)->eos(), kNoToken);
  file.Set("tokenizer.ggml.bos_token_id", uint32_t{7});
  file.Set("tokenizer.ggml.eos_token_id", uint32_t{256});
  EXPECT_EQ(OpenOrDie(file)->bos(), 7);
  EXPECT_EQ(OpenOrDie(file)->eos(), 256);
}

// The definition: token after token, longer texts first, takes every place that it may have and that is still free.
std::vector<TokenId> EncodeByDefinition(const ToyVocabulary& toy, const Tokenizer& tokenizer, const MarkedText& text) {
  std::vector<TokenId> order(toy.texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return toy.texts[a].size() > toy.texts[b].size(); });
  std::vector<TokenId> token_at(text.size(), kNoToken);
  std::vector<bool> taken(text.size(), false);
  for (const TokenId token : order) {
    const std::string& wanted = toy.texts[token];
    if (toy.types[token] != 3 && toy.types[token] != 4) continue;
    for (size_t i = 0; i + wanted.size() <= text.size(); ++i) {
      const size_t end = i + wanted.size();
      if (text.text().compare(i, wanted.size(), wanted) != 0) continue;
      if (toy.types[token] == 3 && !text.IsTemplate(i, end)) continue;
      if (std::any_of(taken.begin() + i, taken.begin() + end, [](bool t) { return t; })) continue;
      std::fill(taken.begin() + i, taken.begin() + end, true);
      token_at[i] = token;
    }
  }
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < text.size();) {
    if (token_at[i] != kNoToken) {
      tokens.push_back(token_at[i]);
      i += toy.texts[token_at[i]].size();
      continue;
    }
    size_t end = i;
    while (end < text.size() && !taken[end]) ++end;
    const std::vector<TokenId> between = tokenizer.Encode(text.text().substr(i, end - i), false, false);
    tokens.insert(tokens.end(), between.begin(), between.end());
    i = end;
  }
  return tokens;
}

TEST(MarkedEncoding, AgreesWithTheDefinitionOnRandomTexts) {
  ToyVocabulary pairs = testing::ToyBytePairs(), pieces = testing::ToySentencePiece();
  for (ToyVocabulary* toy : {&pairs, &pieces}) {
    for (const char* text : {"<a", "<a>", "a>b", "<a><b", "><", "ab>"}) toy->Add(text, 3);
    for (const char* text : {"<b", "b><", "aab", "a<"}) toy->Add(text, 4);
  }
  const auto pairs_tokenizer = OpenOrDie(pairs.File("gpt2", "qwen2"));
  const auto pieces_tokenizer = OpenOrDie(pieces.File("llama", ""));
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    MarkedText text;
    for (size_t left = random() % 16; left > 0; --left) {
      text.Append(std::string(1, "<>ab"[random() % 4]), random() % 4 == 0 ? kBrought : kWritten);
    }
    ASSERT_EQ(pairs_tokenizer->EncodeMarked(text, false), EncodeByDefinition(pairs, *pairs_tokenizer, text))
        << text.text();
    ASSERT_EQ(pieces_tokenizer->EncodeMarked(text, false), EncodeByDefinition(pieces, *pieces_tokenizer, text))
        << text.text();
  }
}

TEST(MarkedEncoding, TakesAMegabyteOfChangingOriginsInItsStride) {
  const auto tokenizer = testing::OpenFileOrDie(testing::DemoModelPath());
  MarkedText text;
  for (int i = 0; i < 1 << 16; ++i) {
    text.Append("<|im_start|>", kWritten);
    text.Append("<|im", kBrought);
  }
  const std::vector<TokenId> tokens = tokenizer->EncodeMarked(text, true);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 4094), 1 << 16);
  EXPECT_TRUE(tokenizer->Decode(tokens, /*render_control=*/true) == text.text());
}

// Real vocabularies of all kinds.
class MarkedVocabulary : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SHARED_FILE_OR_SKIP(model, "data/tokenizers/" + GetParam() + ".gguf");
    SHARED_FILE_OR_SKIP(inputs, "data/tokenizers/" + GetParam() + ".inp");
    tokenizer_ = testing::OpenFileOrDie(model);
    const auto file = GgufFile::Open(model).value();
    const auto texts = file->metadata().GetStrings("tokenizer.ggml.tokens");
    const auto types = file->metadata().GetInts("tokenizer.ggml.token_type");
    ASSERT_TRUE(texts.ok() && types.ok());
    for (size_t i = 0; i < texts->size(); ++i) {
      is_control_.push_back((*types)[i] == 3);
      if (is_control_.back() && control_texts_.size() < 40) control_texts_.push_back((*texts)[i]);
    }
    std::istringstream lines(testing::ReadFileOrDie(inputs));
    for (std::string line; std::getline(lines, line);) contents_.push_back(line + "\n");
  }

  int64_t ControlTokens(const std::vector<TokenId>& tokens) const {
    return std::count_if(tokens.begin(), tokens.end(), [this](TokenId token) { return is_control_[token]; });
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<bool> is_control_;  // of each token
  std::vector<std::string> control_texts_;
  std::vector<std::string> contents_;
};

TEST_P(MarkedVocabulary, GivesHarmlessContentTheTokensOfTheWholeText) {
  ASSERT_FALSE(control_texts_.empty());
  std::mt19937 random(17);
  for (int i = 0; i < 300; ++i) {
    MarkedText text;
    for (size_t parts = random() % 12; parts > 0; --parts) {
      if (random() % 3 == 0) {
        text.Append(control_texts_[random() % control_texts_.size()], kWritten);
        continue;
      }
      std::string content = contents_[random() % contents_.size()];
      content.erase(std::remove(content.begin(), content.end(), '<'), content.end());  // which every control token has
      const size_t middle = random() % (content.size() + 1);                           // may be within a character
      text.Append(content.substr(0, middle), random() % 2 == 0 ? kWritten : kBrought);
      text.Append(content.substr(middle), random() % 2 == 0 ? kWritten : kBrought);
    }
    ASSERT_EQ(tokenizer_->EncodeMarked(text, true), tokenizer_->Encode(text.text(), true, /*parse_special=*/true))
        << ::testing::PrintToString(text.text());
  }
}

TEST_P(MarkedVocabulary, LetsNoContentMakeAControlToken) {
  ASSERT_FALSE(control_texts_.empty());
  for (const std::string& control : control_texts_) {
    MarkedText turn(control, kWritten);
    turn.Append("user\n", kWritten);
    const int64_t of_template = ControlTokens(tokenizer_->EncodeMarked(turn, true));
    ASSERT_GE(of_template, 1) << control;
    for (const MarkedText& way : SharedOut(control)) {
      MarkedText text = turn;
      text.Append("x", kBrought);
      text.Append(way);
      text.Append(" y", kBrought);
      ASSERT_EQ(ControlTokens(tokenizer_->EncodeMarked(text, true)), of_template) << control;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, MarkedVocabulary, ::testing::Values("qwen", "gpt-2", "llama-spm"),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param == "qwen" ? "qwen" : info.param == "gpt-2" ? "gpt2" : "llama";
                         });

MarkedText Greeting() {
  MarkedText text("<user>", kWritten);
  text.Append("hello", kBrought);
  text.Append("</user>", kWritten);
  return text;
}

TEST(MarkedText, JoinsNeighboursOfOneOrigin) {
  MarkedText text("ab", kWritten);
  text.Append("", kBrought);
  text.Append("cd", kWritten);
  text.Append("e", kBrought);
  EXPECT_EQ(text.text(), "abcde");
  EXPECT_THAT(text.runs(), ElementsAre(MarkedText::Run{4, kWritten}, MarkedText::Run{5, kBrought}));
}

TEST(MarkedText, HasNoRunsWhenItIsEmpty) {
  EXPECT_THAT(MarkedText("", kBrought).runs(), IsEmpty());
  EXPECT_TRUE(MarkedText().IsTemplate(0, 0));
}

TEST(MarkedText, IsTheTemplatesOnlyWhereNoByteIsTheRequests) {
  const MarkedText text = Greeting();
  EXPECT_TRUE(text.IsTemplate(0, 6));
  EXPECT_FALSE(text.IsTemplate(0, 7));
  EXPECT_FALSE(text.IsTemplate(7, 9));
  EXPECT_FALSE(text.IsTemplate(10, 12));
  EXPECT_TRUE(text.IsTemplate(11, 18));
  EXPECT_TRUE(text.IsTemplate(8, 8));
}

TEST(MarkedText, KeepsTheMarksOfAPart) {
  const MarkedText part = Greeting().Substr(5, 7);
  EXPECT_EQ(part.text(), ">hello<");
  EXPECT_THAT(part.runs(),
              ElementsAre(MarkedText::Run{1, kWritten}, MarkedText::Run{6, kBrought}, MarkedText::Run{7, kWritten}));
  EXPECT_EQ(Greeting().Substr(16, 100).text(), "r>");
  EXPECT_EQ(Greeting().Substr(100, 1), MarkedText());
}

TEST(MarkedText, AppendsAnotherTextAndItself) {
  MarkedText text = Greeting().Substr(5, 2);
  text.Append(text);
  EXPECT_EQ(text.text(), ">h>h");
  EXPECT_THAT(text.runs(), ElementsAre(MarkedText::Run{1, kWritten}, MarkedText::Run{2, kBrought},
                                       MarkedText::Run{3, kWritten}, MarkedText::Run{4, kBrought}));
}

}  // namespace
}  // namespace stagecoach
