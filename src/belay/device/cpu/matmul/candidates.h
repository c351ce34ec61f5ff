#pragma once
// What the speed of this host's matrix products depends on besides the shape.

#include <string>

namespace belay {

// Processor model, thread count and library versions: measurements made under another identity do
// not apply here.
std::string cpu_matmul_identity();

}  // namespace belay
