#ifndef STAGECOACH_TESTS_TESTING_SANITIZERS_H_
#define STAGECOACH_TESTS_TESTING_SANITIZERS_H_

namespace stagecoach::testing {

// Whether this program is built with a sanitizer, under which everything takes about ten times as long. A sanitizer
// looks for accesses and arithmetic that are wrong, and has seen a path when that ran once with its edge cases; what
// many random cases, long texts and large sizes are there for, the answers, the plain build compares with all of them.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STAGECOACH_SANITIZED
#endif
#endif
#if defined(STAGECOACH_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// Or run by an emulator, which takes as long.
#if defined(STAGECOACH_EMULATED)
inline constexpr bool kSlow = true;
#else
inline constexpr bool kSlow = kSanitized;
#endif

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_SANITIZERS_H_
