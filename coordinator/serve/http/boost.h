#ifndef STAGECOACH_COORDINATOR_SERVE_HTTP_BOOST_H_
#define STAGECOACH_COORDINATOR_SERVE_HTTP_BOOST_H_

// The one home of Boost: sockets of Asio 1.18, Beast's parser of heads. Read by a few sources of this folder only, for
// it takes long to compile. Asio 1.18 uses std::exchange without <utility>, so that comes first.

#include <utility>

#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ip/v6_only.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/http/basic_parser.hpp"

#endif  // STAGECOACH_COORDINATOR_SERVE_HTTP_BOOST_H_
