#pragma once
// Brings the weights that layers use together, where each rank keeps or updates its part of them: a
// thread beside the computing one gathers group after group of the shard map.
//
// Where every rank holds whole weights they are gathered once after an update. Where weights are
// sharded too they are gathered for each unit when a pass comes to it, ahead of their use as far as
// there are buffers, into memory that the next layer takes over. Nothing is allocated after
// construction.

#include <span>
#include <vector>

#include "belay/comm/progress_thread.h"
#include "belay/model/pass.h"

namespace belay {

class WeightGather final : public UnitListener {
 public:
  // All must outlive it. Buffers have room for a group each, `vectors` for store.vectors(). Without
  // `overlap` every collective is waited for at once.
  WeightGather(const ParameterStore& store, comm::ProgressThread& progress,
               std::span<void* const> buffers, void* vectors, bool overlap);

  // After an update: each group of the map in their order, then finish. With sharded weights only
  // what is whole on every rank is exchanged. Error(communication) from the collectives.
  void send(Lane& lane, int group);
  void finish(Lane& lane);

  // Of sharded weights: a pass begins, backward too with `train`. It uses every unit in turn.
  void begin(Lane& lane, bool train);
  void use(int unit) override;
  // Bytes that this rank has sent.
  [[nodiscard]] double sent_bytes() const { return sent_bytes_; }

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    int group = 0;
    comm::ProgressThread::Ticket ticket = 0;
  };

  void start(int group);
  void copy_in_oldest();
  void start_ahead();
  void exchange_vectors(Lane& lane);

  const ParameterStore& store_;
  comm::ProgressThread& progress_;
  bool overlap_;
  double sent_bytes_ = 0;
  std::vector<Buffer> buffers_;  // a ring
  std::size_t oldest_ = 0;
  std::size_t held_ = 0;
  float* vectors_ = nullptr;
  Lane* lane_ = nullptr;
  std::vector<int> groups_;         // in the order in which a training pass uses them
  std::size_t forward_groups_ = 0;  // of a pass that goes forward only
  std::size_t wanted_ = 0;          // groups of this pass
  std::size_t next_start_ = 0;      // place in groups_
  std::size_t next_use_ = 0;
  std::vector<bool> resident_;  // by unit: its weights are there
};

}  // namespace belay
