// Errors as values. Every function that can fail for a reason outside the program returns
// Result<T>; a broken assumption of the program itself aborts through PL_CHECK. The end of data
// and a stop are states, not errors, and never travel as an Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace paceline {

static_assert(__cplusplus >= 202002L,
              "Paceline needs C++20; with nvcc see cmake/PacelineCuda.cmake");

// A small closed set: callers switch on it, never on the text.
enum class Code : std::uint8_t {
  kInvalidArgument,  // the user asked for something impossible: config, usage, schema
  kNotFound,         // a file, a column, a checkpoint is not there
  kCorruptData,      // bytes were read but do not mean what they should
  kIo,               // the operating system refused or failed
  kTimeout,          // a bounded wait ended without its event
  kCancelled,        // stopped on request while the work was under way
  kOutOfMemory,      // an allocation failed
  kUnavailable,      // a peer, a device or a library is not usable here
  kDevice,           // the accelerator reported an error
  kInternal,         // a foreign exception, or a state that should not be
};

// "invalid argument", "not found", ...
std::string_view name_of(Code code);

// Source position without <source_location>, which clang 14 lacks with libstdc++ 12.
struct Loc {
  const char* file = "";
  int line = 0;
  static constexpr Loc here(const char* f = __builtin_FILE(), int l = __builtin_LINE()) {
    return {f, l};
  }
};

// What failed, on which input, what to try; context lines are added on the way up.
class Error {
 public:
  Error(Code code, std::string message, Loc at = Loc::here())
      : code_(code), message_(std::move(message)), at_(at) {}

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  Loc at() const { return at_; }

  // Adds "while <what>" around the error, innermost first.
  Error&& context(std::string what) && {
    context_.push_back(std::move(what));
    return std::move(*this);
  }

  // "message (while reading a; while training)": what a user sees, without source positions.
  std::string text() const;

 private:
  Code code_;
  std::string message_;
  Loc at_;
  std::vector<std::string> context_;
};

// Value or Error. [[nodiscard]] as a class: an ignored result does not compile.
template <typename T = void>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result(Error error)
      : Base(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return this->has_value(); }

  // Adds a context line to an error; a value passes untouched.
  Result context(std::string what) && {
    if (!ok()) return Result(std::move(this->error()).context(std::move(what)));
    return std::move(*this);
  }
};

// For the rare place where a result is dropped on purpose.
template <typename T>
void discard(Result<T>&&) {}

// The program's exit code: 2 when the user asked for what cannot be or is not there, else 1.
inline int exit_code(const Error& error) {
  return error.code() == Code::kInvalidArgument || error.code() == Code::kNotFound ? 2 : 1;
}

namespace detail {
[[noreturn]] void check_failed(const char* condition, const std::string& assumed, Loc at);
}  // namespace detail

}  // namespace paceline

// Aborts with the place and what was assumed. Always on. For bugs only, never for bad input.
#define PL_CHECK(condition, assumed)                                                    \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::paceline::detail::check_failed(#condition, (assumed), ::paceline::Loc::here()); \
  } while (0)

#define PL_CONCAT_INNER(a, b) a##b
#define PL_CONCAT(a, b) PL_CONCAT_INNER(a, b)

// PL_TRY(auto x, f()): x is the value, or the enclosing function returns the error.
#define PL_TRY(declaration, ...)                                               \
  auto PL_CONCAT(pl_try_, __LINE__) = (__VA_ARGS__);                           \
  if (!PL_CONCAT(pl_try_, __LINE__)) [[unlikely]]                              \
    return ::paceline::Error(std::move(PL_CONCAT(pl_try_, __LINE__).error())); \
  declaration = std::move(*PL_CONCAT(pl_try_, __LINE__))

// PL_TRY_VOID(f()): goes on, or the enclosing function returns the error.
#define PL_TRY_VOID(...)                                        \
  do {                                                          \
    auto pl_try_void = (__VA_ARGS__);                           \
    if (!pl_try_void) [[unlikely]]                              \
      return ::paceline::Error(std::move(pl_try_void.error())); \
  } while (0)
