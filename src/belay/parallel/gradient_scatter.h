#pragma once
// Sums gradients over the ranks of a run whose state is sharded, each rank getting its own part of
// the sums (Rajbhandari et al., "ZeRO", SC 2020, section 5): while the backward pass goes on, each
// group of the shard map is packed into a buffer as its gradients become ready, and reduced and
// scattered by a thread beside the computing one.
//
// A buffer holds the group as it lies in the flat state, so every rank's block is contiguous. What
// has been packed is cleared: the next layer accumulates where this one has been. Nothing is
// allocated after construction.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "belay/comm/progress_thread.h"
#include "belay/model/pass.h"
#include "belay/parallel/bucket_reducer.h"

namespace belay {

class GradientScatter final : public GradientListener {
 public:
  using Ready = std::function<void(std::span<const ShardRun>)>;

  // All must outlive it. At least kLeastBuffers, or as many as there are groups, each with room
  // for one. Without `overlap` every collective is waited for at once. A `reducer`, if any, makes
  // the sums on all ranks, which then take their parts.
  GradientScatter(Device& device, const ParameterStore& store, comm::ProgressThread& progress,
                  std::span<void* const> buffers, bool overlap, BucketReducer* reducer = nullptr);
  GradientScatter(const GradientScatter&) = delete;
  GradientScatter& operator=(const GradientScatter&) = delete;

  // So many groups may be begun and not yet complete: a layer's parameters are ready from its end
  // to its beginning, but for a bias that follows its weight, so that at most three groups hold an
  // end of what has been packed.
  static constexpr std::size_t kLeastBuffers = 3;
  // Device memory that it takes.
  static std::size_t bytes(const ShardMap& map);

  // Starts a pass. The sums overwrite this rank's part of the gradients, or are added to it.
  // `ready`, if any, hears of this rank's runs of each group once they are the sums.
  void begin(Lane& lane, bool add, const Ready* ready);
  void gradient_ready(int parameter) override;
  // Takes part without a gradient.
  void contribute_nothing(int parameter);
  // With `drain`, returns when this rank has its part of all. Without, a pass that follows goes on
  // while the last groups of this one are under way. Error(communication) from the collectives.
  void finish(bool drain);
  // Bytes that this rank has sent without a reducer.
  [[nodiscard]] double sent_bytes() const { return sent_bytes_; }

 private:
  struct Buffer {
    float* memory = nullptr;
    int group = -1;            // none: free
    std::int64_t missing = 0;  // elements
    bool add = false;          // as begin() said
    const Ready* ready = nullptr;
    comm::ProgressThread::Ticket ticket = 0;
    std::vector<BucketPiece> pieces{};                     // for the reducer
    std::function<void(comm::Communicator&)> reduction{};  // by it
  };

  void pack(int parameter, bool nothing);
  Buffer& buffer_of(int group);
  void hand_over(Buffer& buffer);
  void take_back();

  const ParameterStore& store_;
  comm::ProgressThread& progress_;
  bool overlap_;
  BucketReducer* reducer_;
  double sent_bytes_ = 0;
  std::vector<std::int64_t> filled_;  // elements of each group without gaps
  std::vector<Buffer> buffers_;
  std::vector<std::size_t> pending_;  // handed over, a ring; oldest first
  std::size_t oldest_ = 0;
  std::size_t held_ = 0;
  std::unique_ptr<DeviceMemory> staging_;
  Lane* lane_ = nullptr;
  bool add_ = false;
  const Ready* ready_ = nullptr;
};

}  // namespace belay
