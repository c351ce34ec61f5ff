#include "belay/train/plain_memory.h"

#include <algorithm>
#include <memory>

#include "belay/device/plain/plain.h"

namespace belay {
namespace {

// Logits of all rows, and those of the largest block: with their gradient where it lies apart.
struct Logits {
  std::size_t all = 0;
  std::size_t block = 0;

  void add(const CrossEntropyArgs& args) {
    const bool apart = !args.d_logits.empty() && args.d_logits.data != args.logits.data;
    const std::size_t bytes = args.logits.bytes() + (apart ? args.d_logits.bytes() : 0);
    all += bytes;
    block = std::max(block, bytes);
  }
};

}  // namespace

PlainMemory plain_memory(std::span<const OpCall> calls) {
  PlainMemory memory;
  Logits logits;
  std::size_t scratch = 0;
  const auto device = make_device("cpu");
  const auto lane = device->create_lane();
  for (const OpCall& call : calls) {
    if (call.op == CrossEntropyArgs::kName) {
      logits.add(call.as<CrossEntropyArgs>());
      continue;
    }
    // Composing only hands out addresses.
    Arena nowhere("plain operators", reinterpret_cast<void*>(std::uintptr_t{1} << 44),
                  std::size_t{1} << 61);
    const plain::Composition composition = plain::compose({*lane, nowhere}, call);
    scratch = std::max(scratch, composition.scratch_bytes);
    if (call.op == AttentionForwardArgs::kName) {
      const Tensor& lse = call.as<AttentionForwardArgs>().lse;
      memory.scores += composition.kept_bytes - (lse.empty() ? 0 : lse.bytes());
    } else if (call.op == NormForwardArgs::kName) {
      memory.normalised += composition.kept_bytes;
    } else if (call.op == ActivationForwardArgs::kName) {
      memory.activated += composition.kept_bytes;
    }
  }
  memory.temporaries = std::max(logits.all - logits.block, scratch);
  return memory;
}

}  // namespace belay
