#include "coordinator/serve/http/http_head.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/serve/http/boost.h"

namespace stagecoach {
namespace {

namespace beast_http = boost::beast::http;

std::string Text(boost::beast::string_view text) { return std::string(text.data(), text.size()); }
bool IsDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

HttpError Malformed(absl::string_view what) {
  return {400, "malformed_request", absl::StrCat("the request is malformed: ", what)};
}

// The fields that both kinds of heads have, with what says where the body ends.
struct Fields {
  HttpHeaders all;
  bool chunked = false;
  int64_t content_length = -1;
  std::string error;

  void Add(absl::string_view name, absl::string_view value) {
    std::string lower = absl::AsciiStrToLower(name);
    if (lower == "content-length") {
      AddLength(value);
    } else if (lower == "transfer-encoding") {
      if (chunked || !absl::EqualsIgnoreCase(value, "chunked")) error = "its Transfer-Encoding is not 'chunked' alone";
      chunked = true;
    }
    if (chunked && content_length >= 0) error = "it has both Content-Length and Transfer-Encoding";
    all.emplace_back(std::move(lower), value);
  }

 private:
  void AddLength(absl::string_view value) {
    int64_t length;
    if (content_length >= 0) {
      error = "it has more than one Content-Length";
    } else if (!IsDigits(value) || !absl::SimpleAtoi(value, &length)) {
      error = "its Content-Length is no number";
    } else {
      content_length = length;
    }
  }
};

// Beast's grammar of a head: the callbacks about bodies are never called, since the body is skipped.
template <bool isRequest>
class HeadParser : public beast_http::basic_parser<isRequest> {
 public:
  HeadParser() {
    this->skip(true);
    this->header_limit(UINT32_MAX);  // the limits are HeadEnd's
  }

  // Whether it is a head as the standard wants it.
  bool Parse(absl::string_view bytes) {
    boost::beast::error_code error;
    const size_t used = this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    return !error && this->is_header_done() && used == bytes.size();
  }

  Fields fields;
  std::string method, target;
  int version = 0, status = 0;

 private:
  using ErrorCode = boost::beast::error_code;
  using StringView = boost::beast::string_view;
  void on_request_impl(beast_http::verb, StringView method_name, StringView request_target, int http_version,
                       ErrorCode&) override {
    method = Text(method_name);
    target = Text(request_target);
    version = http_version;
  }
  void on_response_impl(int code, StringView, int http_version, ErrorCode&) override {
    status = code;
    version = http_version;
  }
  void on_field_impl(beast_http::field, StringView name, StringView value, ErrorCode&) override {
    fields.Add({name.data(), name.size()}, {value.data(), value.size()});
  }
  void on_header_impl(ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorCode&) override {}
  std::size_t on_body_impl(StringView body, ErrorCode&) override { return body.size(); }
  void on_chunk_header_impl(std::uint64_t, StringView, ErrorCode&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, StringView body, ErrorCode&) override { return body.size(); }
  void on_finish_impl(ErrorCode&) override {}
};

// Percent-decoding, of what stays printable.
bool Decode(absl::string_view text, std::string* decoded) {
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || !absl::ascii_isxdigit(text[i + 1]) || !absl::ascii_isxdigit(text[i + 2]))
        return false;
      c = absl::HexStringToBytes(text.substr(i + 1, 2))[0];
      i += 2;
    }
    if (!absl::ascii_isprint(c)) return false;
    decoded->push_back(c);
  }
  return true;
}

// A path from which no file outside of a directory can be reached.
bool HasDotSegment(absl::string_view path) {
  return absl::StrContains(absl::StrCat(path, "/"), "/./") || absl::StrContains(absl::StrCat(path, "/"), "/../");
}

// The parts of a target: "/path?query", "http://host/path?query" or "*".
std::optional<HttpError> SetTarget(absl::string_view target, RequestHead* head) {
  if (target == "*" && head->method == "OPTIONS") {
    head->path = "/";
    return std::nullopt;
  }
  const size_t scheme_end = target.find("://");
  if (!absl::StartsWith(target, "/") && scheme_end != target.npos) {
    target.remove_prefix(scheme_end + 3);
    const size_t end = std::min(target.size(), target.find_first_of("/?"));
    head->authority = std::string(target.substr(0, end));
    target.remove_prefix(end);
    if (!absl::StartsWith(target, "/")) target = "/";
  }
  target = target.substr(0, target.find('?'));
  if (!absl::StartsWith(target, "/") || !Decode(target, &head->path) || HasDotSegment(head->path)) {
    return Malformed("its path has to begin with '/', hold printable ASCII characters and no segment '.' or '..'");
  }
  return std::nullopt;
}

}  // namespace

std::optional<HttpError> HeadEnd::Line(absl::string_view line) {
  if (lines_ == 0 && static_cast<int64_t>(line.size()) > most_first_line_bytes_) {
    return HttpError{431, "header_too_large",
                     absl::StrCat("the request line has more than ", most_first_line_bytes_, " bytes")};
  }
  if (!absl::ConsumeSuffix(&line, "\r")) return Malformed("a line of its head does not end with CR LF");
  if (line.find('\r') != line.npos || line.find('\0') != line.npos) {
    return Malformed("a line of its head holds a CR or a NUL");
  }
  if (lines_ > 0 && !line.empty() && (line[0] == ' ' || line[0] == '\t')) return Malformed("a field is folded");
  if (++lines_ > most_fields_ + 1 && !line.empty()) {
    return HttpError{431, "header_too_large", absl::StrCat("the head has more than ", most_fields_, " fields")};
  }
  return std::nullopt;
}

std::optional<HttpError> HeadEnd::Look(absl::string_view bytes) {
  if (!bytes.empty() && !absl::ascii_isalpha(bytes[0])) {
    return Malformed(bytes[0] == '\x16' ? "it is TLS, which this server does not speak; put a reverse proxy before it"
                                        : "it is no HTTP");
  }
  while (size_ == 0) {
    const size_t end = bytes.find('\n', looked_);
    looked_ = end == bytes.npos ? bytes.size() : end + 1;
    if (static_cast<int64_t>(looked_) > most_bytes_) {
      return HttpError{431, "header_too_large", absl::StrCat("the head has more than ", most_bytes_, " bytes")};
    }
    if (end == bytes.npos) {
      // Too long already, wherever it ends.
      const auto begun = static_cast<int64_t>(bytes.size() - line_begin_);
      return lines_ == 0 && begun > most_first_line_bytes_ ? Line(bytes.substr(line_begin_)) : std::nullopt;
    }
    const absl::string_view line = bytes.substr(line_begin_, end - line_begin_);
    if (auto error = Line(line)) return error;
    if (line == "\r") size_ = looked_;
    line_begin_ = looked_;
  }
  return std::nullopt;
}

std::optional<HttpError> ParseRequestHead(absl::string_view bytes, RequestHead* head) {
  HeadParser<true> parser;
  if (!parser.Parse(bytes)) return Malformed("its head is no request of HTTP/1.1");
  if (!parser.fields.error.empty()) return Malformed(parser.fields.error);
  head->http_1_1 = parser.version == 11;
  if (parser.fields.chunked && !head->http_1_1) return Malformed("HTTP/1.0 has no Transfer-Encoding");
  head->method = parser.method;
  head->keep_alive = parser.keep_alive();
  head->chunked = parser.fields.chunked;
  head->content_length = parser.fields.content_length;
  head->headers = std::move(parser.fields.all);
  for (const auto& [name, value] : head->headers) {
    if (name != "expect" || !head->http_1_1) continue;
    (absl::EqualsIgnoreCase(value, "100-continue") ? head->expects_continue : head->expects_other) = true;
  }
  const auto hosts = std::count_if(head->headers.begin(), head->headers.end(),
                                   [](const auto& header) { return header.first == "host"; });
  if (hosts > 1 || (hosts == 0 && head->http_1_1)) return Malformed("it has to have one field Host");
  if (hosts > 0) head->authority = std::string(FindHeader(head->headers, "host"));
  return SetTarget(parser.target, head);
}

absl::StatusOr<ResponseHead> ParseResponseHead(absl::string_view bytes) {
  HeadParser<false> parser;
  if (!parser.Parse(bytes)) return absl::DataLossError("the answer is no HTTP/1.1");
  if (!parser.fields.error.empty())
    return absl::DataLossError(absl::StrCat("the answer is malformed: ", parser.fields.error));
  ResponseHead head;
  head.status = parser.status;
  head.chunked = parser.fields.chunked;
  head.content_length = parser.fields.content_length;
  head.headers = std::move(parser.fields.all);
  const absl::string_view connection = FindHeader(head.headers, "connection");
  head.keep_alive = parser.version == 11 ? !absl::EqualsIgnoreCase(connection, "close")
                                         : absl::EqualsIgnoreCase(connection, "keep-alive");
  return head;
}

absl::StatusOr<size_t> ChunkedBody::Read(absl::string_view bytes, int64_t most_bytes, std::string* body) {
  const size_t all = bytes.size();
  while (!bytes.empty() && !done()) {
    if (state_ == State::kData) {
      const size_t taken = std::min<uint64_t>(bytes.size(), left_);
      body->append(bytes.data(), taken);
      bytes.remove_prefix(taken);
      left_ -= taken;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    const size_t end = bytes.find('\n');
    const absl::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() > kMostLineBytes) return absl::InvalidArgumentError("a chunk's line is too long");
    absl::StrAppend(&line_, piece);
    if (end == bytes.npos) return all;
    bytes.remove_prefix(end + 1);
    RETURN_IF_ERROR(TakeLine(most_bytes));
    line_.clear();
  }
  return all - bytes.size();
}

absl::Status ChunkedBody::TakeLine(int64_t most_bytes) {
  absl::string_view line = line_;
  if (!absl::ConsumeSuffix(&line, "\r") || line.find('\r') != line.npos) {
    return absl::InvalidArgumentError("a chunk's line does not end with CR LF");
  }
  if (state_ == State::kDataEnd) {
    if (!line.empty()) return absl::InvalidArgumentError("a chunk is longer than its size says");
    state_ = State::kSize;
    return absl::OkStatus();
  }
  if (state_ == State::kTrailer) {
    trailer_bytes_ += line.size() + 2;
    if (trailer_bytes_ > kMostLineBytes) return absl::InvalidArgumentError("the trailers are too long");
    if (line.empty()) state_ = State::kDone;
    return absl::OkStatus();
  }
  const absl::string_view size = absl::StripTrailingAsciiWhitespace(line.substr(0, line.find(';')));
  if (size.empty() || size.size() > 16 || !std::all_of(size.begin(), size.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError("a chunk's size is no hexadecimal number");
  }
  uint64_t bytes = 0;
  if (!absl::SimpleHexAtoi(size, &bytes)) return absl::InvalidArgumentError("a chunk's size is no hexadecimal number");
  if (bytes > static_cast<uint64_t>(most_bytes) - static_cast<uint64_t>(announced_)) {
    return absl::ResourceExhaustedError(absl::StrCat("the body has more than ", most_bytes, " bytes"));
  }
  announced_ += static_cast<int64_t>(bytes);
  left_ = bytes;
  state_ = bytes == 0 ? State::kTrailer : State::kData;
  return absl::OkStatus();
}

}  // namespace stagecoach
