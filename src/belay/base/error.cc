#include "belay/base/error.h"

#include <exception>
#include <filesystem>
#include <new>

namespace belay {

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::filesystem::filesystem_error& error) {
    const bool full = error.code() == std::errc::no_space_on_device;
    return {full ? ExitCode::capacity : ExitCode::data, error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::capacity,
            "out of memory: the system refused an allocation; use a smaller model, batch or input"};
  } catch (const std::exception& error) {
    return {ExitCode::failure, fmt::format("internal failure, please report it: {}", error.what())};
  }
}

}  // namespace belay
