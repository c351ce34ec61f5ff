#pragma once
// What this machine sustains, measured with all compute threads: the two sides of a roofline.

namespace belay {

struct MachineRates {
  // Bytes per second to and from memory outside every cache, each byte read or written counted
  // once: the best of copy (16 bytes an element) and triad (24 bytes; McCalpin's STREAM), with
  // stores that bypass the caches.
  double memory_bytes_per_s = 0;
  double read_bytes_per_s = 0;  // a plain read of one array
  double copy_bytes_per_s = 0;
  double triad_bytes_per_s = 0;
  // Matrix products of 1024 x 1024 x 1024 through oneDNN; bf16 is 0 where the processor has no
  // bf16 products of its own.
  double gemm_f32_flops_per_s = 0;
  double gemm_bf16_flops_per_s = 0;
};

// Takes about half a second and 200 MB. Every figure is the best of several tries, because
// neighbours only ever slow a machine down. Throws Error(capacity) when memory is short.
MachineRates measure_rates();

}  // namespace belay
