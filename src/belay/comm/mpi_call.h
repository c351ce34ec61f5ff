#pragma once
// MPI with errors as belay::Error.

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <string>

#include "belay/base/error.h"

namespace belay::comm {

// what: "MPI_Isend to rank 3", for the message.
inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(ExitCode::communication, "{} failed: {}", what,
       std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace belay::comm
