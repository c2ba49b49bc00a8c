#ifndef STAGECOACH_COMMON_BASE_CHECK_H_
#define STAGECOACH_COMMON_BASE_CHECK_H_

// CHECK and friends: for our own bugs, never for what a user, a file or a peer can cause. Debian 12's Abseil has none.

#include <sstream>
#include <string>

namespace stagecoach::internal {

// Prints "<file>:<line>: CHECK failed: <condition> <detail>" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& detail);

template <typename A, typename B>
std::string CheckDetail(const A& a, const B& b) {
  std::ostringstream out;
  out << "(" << a << " vs. " << b << ")";
  return out.str();
}

}  // namespace stagecoach::internal

#define CHECK(condition)                                                                       \
  do {                                                                                         \
    if (!(condition)) ::stagecoach::internal::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define STAGECOACH_CHECK_OP(a, op, b)                                                     \
  do {                                                                                    \
    if (!((a)op(b)))                                                                      \
      ::stagecoach::internal::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,          \
                                          ::stagecoach::internal::CheckDetail((a), (b))); \
  } while (false)

#define CHECK_EQ(a, b) STAGECOACH_CHECK_OP(a, ==, b)
#define CHECK_LT(a, b) STAGECOACH_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) STAGECOACH_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) STAGECOACH_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) STAGECOACH_CHECK_OP(a, >=, b)

#endif  // STAGECOACH_COMMON_BASE_CHECK_H_
