#ifndef STAGECOACH_COMMON_BASE_STATUS_MACROS_H_
#define STAGECOACH_COMMON_BASE_STATUS_MACROS_H_

// RETURN_IF_ERROR and ASSIGN_OR_RETURN in the shape newer Abseil versions give them; Debian 12's Abseil has neither.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define STAGECOACH_CONCAT_INNER(a, b) a##b
#define STAGECOACH_CONCAT(a, b) STAGECOACH_CONCAT_INNER(a, b)

// Evaluates an expression of type absl::Status; returns it from the current function when it is not OK.
#define RETURN_IF_ERROR(expr)                                               \
  do {                                                                      \
    if (absl::Status sc_status = (expr); !sc_status.ok()) return sc_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): assigns the value of a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) STAGECOACH_ASSIGN_OR_RETURN(STAGECOACH_CONCAT(sc_statusor_, __LINE__), lhs, expr)
#define STAGECOACH_ASSIGN_OR_RETURN(statusor, lhs, expr)   \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = std::move(statusor).value()

#endif  // STAGECOACH_COMMON_BASE_STATUS_MACROS_H_
