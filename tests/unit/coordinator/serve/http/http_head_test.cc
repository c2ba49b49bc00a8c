#include "coordinator/serve/http/http_head.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

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
      const auto taken = chunks.Read(absl::string_view(bytes).substr(at, 1 + random() % 40), 10'000, &read);
      ASSERT_TRUE(taken.ok()) << taken.status();
      at += *taken;
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

}  // namespace
}  // namespace stagecoach
