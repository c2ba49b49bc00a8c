#ifndef STAGECOACH_COORDINATOR_HTTP_CONNECTION_H_
#define STAGECOACH_COORDINATOR_HTTP_CONNECTION_H_

// One client's connection: reads a request, has it answered, and reads the next. It always waits until its socket is
// readable, also while an answer is made, so that a client that has gone is noticed; bytes that came early are kept for
// the next request, up to a limit. I/O thread; private to this folder.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/http/boost.h"
#include "coordinator/http/chunked_body.h"
#include "coordinator/http/connection_exchange.h"
#include "coordinator/http/http_head.h"
#include "coordinator/http/server_state.h"
#include "coordinator/http/socket_output.h"

namespace stagecoach {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ServerState* state);

  void Start();
  void RefuseForRoom();       // instead of Start
  void Advance();             // as far as it goes with what was read
  void Tick(int64_t now_us);  // deadlines, keep-alives
  void Stop();                // as soon as what is complete is written, at once where nothing is
  void Close();               // at once, and for good
  void Cut();                 // the same, with what the system still holds thrown away

  // Since when it does nothing; 0 when it has only the client's closing left to wait for; absent when it is in use.
  std::optional<int64_t> idle_since_us() const;
  size_t pending_bytes() const { return output_.pending(); }
  int64_t accounted_bytes() const { return accounted_bytes_; }  // that wait for this client, kept back ones too
  bool slow() const { return slow_; }
  void Count(HttpCounters* counters) const;

  // For the exchange that is open. They only append; the bytes leave when this turn of the I/O thread is over.
  void Answer(const HttpRequest& request, const HttpResponse& response);
  void BeginStream(const HttpRequest& request, const HttpStreamHead& head);
  void AppendToStream(absl::string_view bytes);
  void EndStream();
  void AbortSoon();
  void set_keep_alive(std::string bytes) { keep_alive_bytes_ = std::move(bytes); }
  void set_kept_bytes(int64_t bytes);

 private:
  enum class Stage { kHead, kBody, kAnswer, kLinger };

  void WaitReadable();
  void Read();
  bool Step();
  bool TakeHead();
  bool TakeRequest(RequestHead head);
  bool BeginBody(const RequestHead& head);
  bool TakeBody();
  bool TakeBodyBytes();
  bool Refuse(const HttpError& error);
  bool RefuseBody(const HttpError& error);
  void SkipBody(const RequestHead& head);
  void Dispatch();
  void CountBody(int64_t bytes);
  void NoteKey();

  std::string Head(const HttpRequest& request, int status, absl::string_view type, const HttpHeaders& headers,
                   int64_t length, bool chunked) const;
  void EndAnswer();
  void BeginRequest();
  void ScheduleFlush();
  void Flush();
  void Account();
  void PeerClosed();
  void TickRequest(int64_t now_us);
  void TickAnswer(int64_t now_us);
  bool SystemSaysClosed();

  ServerState* const state_;
  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  Stage stage_ = Stage::kHead;
  bool closed_ = false, peer_closed_ = false;
  bool waiting_read_ = false, waiting_write_ = false, flush_scheduled_ = false;

  std::string in_;  // read and not yet taken
  HeadEnd head_end_;
  HttpRequest request_;  // the one that is being read
  int64_t idle_since_us_ = 0;
  int64_t head_began_us_ = 0;  // 0: none of it is there
  int64_t body_began_us_ = 0, most_body_bytes_ = 0, counted_body_bytes_ = 0;
  int64_t ticked_us_ = 0;
  ChunkedBody chunks_;
  bool chunked_ = false;

  bool http_1_1_ = true, keep_alive_ = true;  // of the request that is answered or read
  ConnectionExchange* exchange_ = nullptr;    // that is open
  bool streaming_ = false;
  std::string keep_alive_bytes_;
  SocketOutput output_;
  int64_t kept_bytes_ = 0;       // by the handler, of the exchange that is open
  int64_t accounted_bytes_ = 0;  // of this connection in the state's sum
  bool slow_ = false;
  int64_t linger_until_us_ = 0;  // 0: not everything is written
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_HTTP_CONNECTION_H_
