#pragma once
// gloo's all-reduce over the ranks of one host, to compare with. Built where gloo's headers are
// (Debian: libgloo-dev).

#include <cstdint>
#include <memory>
#include <string>

namespace belay::comm {

class GlooBaseline {
 public:
  // directory: empty, and the same for all ranks, which meet there. Error(communication) if they do
  // not.
  GlooBaseline(int rank, int size, const std::string& directory);
  ~GlooBaseline();
  GlooBaseline(const GlooBaseline&) = delete;
  GlooBaseline& operator=(const GlooBaseline&) = delete;

  // A sum of f32 values. Input and output differ.
  void all_reduce(const float* input, float* output, std::int64_t count);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belay::comm
