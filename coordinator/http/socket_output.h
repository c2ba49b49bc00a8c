#ifndef STAGECOACH_COORDINATOR_HTTP_SOCKET_OUTPUT_H_
#define STAGECOACH_COORDINATOR_HTTP_SOCKET_OUTPUT_H_

// What waits to be written to one client: answers in their order, the last of them maybe a stream that goes on. What is
// appended to a stream between two writes becomes one chunk. I/O thread; private to this folder.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/http/boost.h"

namespace stagecoach {

class SocketOutput {
 public:
  void Append(absl::string_view bytes);  // as they are; not while a stream is open

  void BeginStream(bool chunked);  // not chunked: the stream ends with the connection
  void AppendToStream(absl::string_view bytes);
  void EndStream();

  enum class Result { kAll, kFull, kFailed };
  // Writes without waiting as much as the socket, which is not blocking, takes.
  Result WriteTo(boost::asio::ip::tcp::socket& socket);

  size_t pending() const { return sending_.size() - sent_ + ready_.size() + stream_.size(); }
  int64_t progress_us() const { return progress_us_; }  // when a byte was taken, or began to wait with none before it
  int64_t appended_us() const { return appended_us_; }  // when something was appended

 private:
  void NoteAppended();
  void CloseChunk();

  std::string sending_;  // its first sent_ bytes are gone
  size_t sent_ = 0;
  std::string ready_;   // follows
  std::string stream_;  // follows, without its frame
  bool chunked_ = false;
  int64_t progress_us_ = 0, appended_us_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_SOCKET_OUTPUT_H_
