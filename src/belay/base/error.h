#pragma once
// Errors carry the process exit code that the user guide documents. A message says what happened,
// shows the offending values and what to do about it.

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace belay {

enum class ExitCode : int {
  ok = 0,
  failure = 1,        // internal failure; a bug
  usage = 2,          // wrong command line or configuration
  data = 3,           // bad or missing data, file or checkpoint
  numerics = 4,       // the numbers broke: non-finite loss, gradient, ...
  communication = 5,  // a rank or a link failed
  capacity = 6,       // does not fit: memory or disk
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Throws belay::Error with a formatted message: fail(ExitCode::data, "{}: line {}", path, line).
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// The exception that is being handled, as an Error: the system's own, for want of memory or of a
// file, get their exit codes, any other is an internal failure. Only in a handler.
Error current_error();

}  // namespace belay
