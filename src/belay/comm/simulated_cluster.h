#pragma once
// All-reduce on a cluster of accelerators in virtual time: the adaptive choice beside a flat ring
// and the fixed tables, on the gradients of a large model.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/comm/choice.h"

namespace belay::comm {

// Eight devices to a host, each with a link to every other and a network card of its own. The
// figures are those of an Ascend 910B host: HCCS links of 18.3 GB/s as its collective library
// reckons with, 200 Gbit/s RoCE at 85%. Latencies are assumed: 2 us within a host, 10 us between.
MachineModel ascend_cluster(int devices);

struct SimulatedSize {
  std::string name;        // of the tensor
  std::size_t bytes = 0;   // of its gradient
  std::int64_t count = 1;  // how many the model has
  Choice choice{};         // of the adaptive chooser
  double ring_s = 0;
  double doubling_tree_ring_s = 0;
  double ring_tree_hierarchical_s = 0;
  double adaptive_s = 0;
};

struct SimulatedCluster {
  int devices = 0;
  std::vector<SimulatedSize> sizes;
  // Means over all tensors.
  double ring_s = 0;
  double doubling_tree_ring_s = 0;
  double ring_tree_hierarchical_s = 0;
  double adaptive_s = 0;
};

// bf16 gradients of a decoder of 100 billion parameters (80 layers of width 10240), each tensor by
// itself.
SimulatedCluster simulate_cluster(int devices);

}  // namespace belay::comm
