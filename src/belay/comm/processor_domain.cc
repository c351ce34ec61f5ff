#include "belay/comm/processor_domain.h"

#include <hwloc.h>

#include <memory>
#include <type_traits>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

using Topology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;
using Set = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Topology load_topology(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, &hwloc_topology_destroy};
  Topology topology(raw, &hwloc_topology_destroy);
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0) {
    fail(ExitCode::usage, "'{}' is not a topology that hwloc understands", synthetic);
  }
  if (hwloc_topology_load(raw) != 0) return {nullptr, &hwloc_topology_destroy};
  return topology;
}

}  // namespace

int bound_package(const std::string& synthetic, const std::string& bound) {
  const Topology topology = load_topology(synthetic);
  if (topology == nullptr) return -1;  // a host that hwloc cannot read counts as one part
  if (hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PACKAGE) < 2) return -1;
  const Set set(hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  if (bound.empty()) {
    if (hwloc_get_cpubind(topology.get(), set.get(), HWLOC_CPUBIND_PROCESS) != 0) return -1;
  } else {
    hwloc_bitmap_list_sscanf(set.get(), bound.c_str());
  }
  if (hwloc_bitmap_iszero(set.get()) != 0) return -1;
  hwloc_obj_t package = nullptr;
  while ((package = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, package)) !=
         nullptr) {
    if (hwloc_bitmap_isincluded(set.get(), package->cpuset) != 0) {
      return static_cast<int>(package->logical_index);
    }
  }
  return -1;
}

}  // namespace belay::comm
