#include "coordinator/http/socket_output.h"

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace stagecoach {
namespace {

constexpr size_t kMostKeptBytes = 16 << 10;  // of the memory of an empty buffer: most clients idle most of the time

}  // namespace

void SocketOutput::NoteAppended() {
  appended_us_ = MonotonicUs();
  if (pending() == 0) progress_us_ = appended_us_;
}

void SocketOutput::Append(absl::string_view bytes) {
  NoteAppended();
  ready_.append(bytes.data(), bytes.size());
}

void SocketOutput::BeginStream(bool chunked) { chunked_ = chunked; }

void SocketOutput::AppendToStream(absl::string_view bytes) {
  NoteAppended();
  stream_.append(bytes.data(), bytes.size());
}

void SocketOutput::CloseChunk() {
  if (stream_.empty()) return;  // an empty chunk would end the stream
  if (chunked_) {
    absl::StrAppend(&ready_, absl::Hex(stream_.size()), "\r\n", stream_, "\r\n");
  } else {
    ready_ += stream_;
  }
  stream_.clear();
  if (stream_.capacity() > kMostKeptBytes) stream_.shrink_to_fit();
}

void SocketOutput::EndStream() {
  CloseChunk();
  if (chunked_) Append("0\r\n\r\n");
}

SocketOutput::Result SocketOutput::WriteTo(boost::asio::ip::tcp::socket& socket) {
  while (true) {
    if (sent_ == sending_.size()) {
      CloseChunk();
      sending_.clear();
      sent_ = 0;
      sending_.swap(ready_);
      if (sending_.empty()) break;
    }
    boost::system::error_code error;
    const size_t taken =
        socket.write_some(boost::asio::buffer(sending_.data() + sent_, sending_.size() - sent_), error);
    if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) return Result::kFull;
    if (error) return Result::kFailed;
    sent_ += taken;
    progress_us_ = MonotonicUs();
  }
  if (sending_.capacity() > kMostKeptBytes) sending_.shrink_to_fit();
  if (ready_.capacity() > kMostKeptBytes) ready_.shrink_to_fit();
  return Result::kAll;
}

}  // namespace stagecoach
