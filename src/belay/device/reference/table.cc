#include "belay/device/reference/kernels.h"

namespace belay {
namespace {

template <class... Args>
KernelTable make_table(OpList<Args...>) {
  return {{reference_candidates(OpTag<Args>{})...}};
}

}  // namespace

const KernelTable& reference_table() {
  static const KernelTable kTable = make_table(AllOps{});
  return kTable;
}

}  // namespace belay
