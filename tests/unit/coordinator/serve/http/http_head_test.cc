#include "coordinator/serve/http/http_head.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "coordinator/serve/http/api_keys.h"
#include "tests/testing/matchers.h"
#include "tests/testing/shared_data.h"

namespace stagecoach {
namespace {

constexpr char kHead[] =
    "POST /v1/models/org%2fname?beta=true HTTP/1.1\r\nHOST: localhost:80\r\nX-Two:  words here \t\r\n"
    "Content-Length: 12\r\nConnection: keep-alive\r\nExpect: 100-Continue\r\n\r\n";

HeadEnd Limits() { return {16 << 10, 8 << 10, 100}; }

TEST(HttpHead, IsReadTheSameWhereverItIsCut) {
  const std::string bytes = absl::StrCat(kHead, "the body");
  for (size_t cut = 0; cut <= sizeof(kHead) - 2; ++cut) {
    HeadEnd end = Limits();
    ASSERT_FALSE(end.Look(bytes.substr(0, cut))) << cut;
    ASSERT_EQ(end.size(), 0) << cut;
    ASSERT_FALSE(end.Look(bytes)) << cut;
    ASSERT_EQ(end.size(), sizeof(kHead) - 1) << cut;
  }
  RequestHead head;
  ASSERT_FALSE(ParseRequestHead(kHead, &head));
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/models/org/name");
  EXPECT_EQ(head.authority, "localhost:80");
  EXPECT_EQ(head.content_length, 12);
  EXPECT_TRUE(head.keep_alive && head.expects_continue && head.http_1_1 && !head.chunked);
  EXPECT_THAT(head.headers,
              ElementsAre(Pair("host", "localhost:80"), Pair("x-two", "words here"), Pair("content-length", "12"),
                          Pair("connection", "keep-alive"), Pair("expect", "100-Continue")));
}

TEST(HttpHead, OfRandomBytesIsReadOrRefused) {
  std::mt19937 random(1);
  const std::string seeds[] = {kHead, "GET / HTTP/1.0\r\n\r\n",
                               "POST http://a:1/b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"};
  int read = 0, refused = 0, begun = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = seeds[random() % std::size(seeds)];
    for (int change = random() % 3; change >= 0; --change) {
      const size_t at = random() % bytes.size();
      constexpr char kLikely[] = "\r\n :,%/.\t\0;9A";
      const char c = random() % 2 == 0 ? kLikely[random() % sizeof(kLikely)] : static_cast<char>(random());
      switch (random() % 3) {
        case 0: bytes[at] = c; break;
        case 1: bytes.insert(at, 1, c); break;
        default: bytes.erase(at, 1 + random() % 4); break;
      }
      if (bytes.empty()) bytes = "x";
    }
    HeadEnd end = Limits();
    RequestHead head;
    auto error = end.Look(bytes);
    if (!error && end.size() == 0) {
      ++begun;
      continue;
    }
    if (!error) error = ParseRequestHead(bytes.substr(0, end.size()), &head);
    error ? ++refused : ++read;
    if (error) continue;
    ASSERT_EQ(head.path[0], '/') << bytes;
    ASSERT_EQ(head.path.find("/../"), std::string::npos) << bytes;
    ASSERT_FALSE(head.chunked && head.content_length >= 0) << bytes;
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(begun, 100);
}

TEST(ChunkedBody, IsReadTheSameHoweverItIsCut) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::string body, framed, read;
    for (int chunk = random() % 5; chunk > 0; --chunk) {
      const std::string text(1 + random() % 300, static_cast<char>(random()));
      body += text;
      absl::StrAppend(&framed, absl::Hex(text.size()), random() % 2 == 0 ? "" : ";a=\"b\"", "\r\n", text, "\r\n");
    }
    absl::StrAppend(&framed, random() % 2 == 0 ? "0\r\n\r\n" : "000\r\nName: value\r\n\r\n");
    const std::string bytes = framed + "GET / next";
    ChunkedBody chunks;
    size_t at = 0;
    while (!chunks.done()) {
      ASSERT_LT(at, framed.size());
      at += chunks.Read(absl::string_view(bytes).substr(at, 1 + random() % 40), 10'000, &read).value();
    }
    ASSERT_EQ(at, framed.size());
    ASSERT_EQ(read, body);
  }
}

TEST(ChunkedBody, HoldsNoMoreThanIsAllowed) {
  std::string read;
  ChunkedBody chunks;
  EXPECT_TRUE(chunks.Read("5\r\nhello\r\n5\r\n", 10, &read).ok());
  EXPECT_TRUE(chunks.Read("world\r\n", 10, &read).ok());
  EXPECT_EQ(chunks.Read("1\r\n", 10, &read).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(read, "helloworld");
}

TEST(HttpHead, OfAnAnswerSaysHowItsBodyEnds) {
  const auto head = ParseResponseHead("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\nConnection: Close\r\n\r\n");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->status, 404);
  EXPECT_EQ(head->content_length, 7);
  EXPECT_FALSE(head->keep_alive || head->chunked);
  EXPECT_FALSE(ParseResponseHead("HTTP/1.0 200\r\nTransfer-Encoding: gzip\r\n\r\n").ok());
  EXPECT_FALSE(ParseResponseHead("HTTP/1.1 2000 OK\r\n\r\n").ok());
}

absl::StatusOr<ApiKeys> ReadKeys(const std::string& text) {
  const ::stagecoach::testing::TempDir directory;
  ::stagecoach::testing::WriteFileOrDie(directory.File("keys"), text);
  return ApiKeys::Read(directory.File("keys"));
}

TEST(ApiKeys, ReadsNamesKeysClassesAndWeights) {
  const auto keys = ReadKeys("# people\n\nalice:sk-1\n  bob:sk-2:interactive\r\nnightly:sk-3:batch:0.5\n").value();
  ASSERT_EQ(keys.all().size(), 3);
  EXPECT_EQ(keys.Find("sk-1")->name, "alice");
  EXPECT_EQ(keys.Find("sk-1")->key_class, PriorityClass::kDefault);
  EXPECT_EQ(keys.Find("sk-2")->key_class, PriorityClass::kInteractive);
  EXPECT_EQ(keys.Find("sk-3")->key_class, PriorityClass::kBatch);
  EXPECT_EQ(keys.Find("sk-3")->weight, 0.5);
  for (const char* wrong : {"", "sk-", "sk-11", "sk-4", "SK-1"}) EXPECT_EQ(keys.Find(wrong), nullptr) << wrong;
}

TEST(ApiKeys, SaysWhichLineIsWrongAndNeverAKey) {
  const std::pair<std::string, std::string> cases[] = {
      {"a:hid-den\nb\n", "line 2: expected name:key[:class[:weight]]"},
      {"a:hid-den:default:1:2\n", "line 1: expected name:key[:class[:weight]]"},
      {"a b:hid-den\n", "line 1: the name has to be"},
      {":hid-den\n", "line 1: the name has to be"},
      {"a:\n", "the key of 'a' has to be"},
      {"a:hid- den\n", "the key of 'a' has to be"},
      {"a:hid-den:fast\n", "the class has to be"},
      {"a:hid-den:batch:0\n", "the weight of 'a'"},
      {"a:hid-den:batch:nan\n", "the weight of 'a'"},
      {"a:hid-den:batch:many\n", "the weight of 'a'"},
      {"a:hid-den\na:other\n", "line 2: there is a second 'a'"},
      {"a:hid-den\nb:hid-den\n", "line 2: 'a' and 'b' have the same key"},
      {"# none\n", "has no key"},
      {"a:" + std::string(2000, 'h') + "\n", "keys'"},
  };
  for (const auto& [text, what] : cases) {
    const auto keys = ReadKeys(text);
    EXPECT_THAT(keys.status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what))) << text;
    EXPECT_THAT(keys.status().message(), Not(HasSubstr("hid-")));
  }
  EXPECT_EQ(ApiKeys::Read("/nowhere/at/all").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagecoach
