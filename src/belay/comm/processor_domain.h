#pragma once
// Which part of this host's processors the process may run on, by hwloc.

#include <string>

namespace belay::comm {

// The number of the processor package within whose processors the process is bound, counted as
// hwloc does; -1 if it may run on several packages, or if the host has only one. `synthetic` and
// `bound` replace the host and the binding in tests: a topology as hwloc describes it in
// HWLOC_SYNTHETIC ("pack:2 core:4"), and a list of processors ("0-3").
int bound_package(const std::string& synthetic = "", const std::string& bound = "");

}  // namespace belay::comm
