#pragma once
// The terminal that results are printed to.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace belay {

// Columns of standard output, at most 120; 80 when it is no terminal.
inline int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::min<int>(size.ws_col, 120);
}

}  // namespace belay
