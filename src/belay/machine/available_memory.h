#pragma once
// How much memory this process can still take.

#include <cstddef>
#include <string>

namespace belay {

// Bytes: the kernel's MemAvailable, or less where a control group (v2 or v1, of this process or one
// above it) limits memory; the group's cached file pages count as free. 0 when nothing tells.
// `root` stands for "/" and is another directory in tests.
std::size_t available_memory(const std::string& root = "");

// Throws Error(capacity) when `needed` bytes are more than there are: "WHAT needs 3.1 GB but ...".
// `advice` says how to need less.
void require_memory(std::size_t needed, const std::string& what, const std::string& advice);

}  // namespace belay
