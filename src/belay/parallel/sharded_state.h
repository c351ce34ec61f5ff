#pragma once
// A rank's dealings with the others where the state is sharded: gradients go to their owners,
// weights come from them (gradient_scatter.h, weight_gather.h), and what is asked of a whole
// parameter is collected. All ranks make the same calls in the same order.

#include <memory>
#include <span>
#include <vector>

#include "belay/parallel/exchange_buffers.h"
#include "belay/parallel/gradient_scatter.h"
#include "belay/parallel/weight_gather.h"

namespace belay {

struct ShardExchangeOptions {
  int buffers = 4;      // groups that may be under way at once
  bool overlap = true;  // false: every collective is waited for at once
};

class ShardedState final : public GradientListener, public UnitListener {
 public:
  // The communicator serves nobody else between the begin of a pass and its end. All must outlive
  // the state. Without a reducer gradients are summed as they are. Collective.
  ShardedState(Device& device, const ParameterStore& store, comm::Communicator& communicator,
               const ShardExchangeOptions& options,
               std::unique_ptr<BucketReducer> reducer = nullptr);
  ~ShardedState() override;
  ShardedState(const ShardedState&) = delete;
  ShardedState& operator=(const ShardedState&) = delete;

  // What a state over such a store allocates, on device and host.
  static std::size_t bytes(const ParameterTable& table, const StoreOptions& store,
                           const ShardExchangeOptions& options);

  // Whether gradients must be exchanged after every micro-batch, as no rank can keep them.
  [[nodiscard]] bool exchanges_every_round() const {
    return store_.stage() >= ZeroStage::gradients;
  }
  [[nodiscard]] bool gathers_weights() const { return store_.stage() == ZeroStage::weights; }

  // A pass through the model, backward too with `train`, uses sharded weights.
  void begin_weights(Lane& lane, bool train);
  void use(int unit) override;
  // Its gradients, as for GradientScatter.
  void begin_gradients(Lane& lane, bool add, const GradientScatter::Ready* ready);
  void gradient_ready(int parameter) override;
  void finish_gradients(bool drain);

  // For a rank without a micro-batch where others have one: takes part in a training pass, after
  // one that it had, or in a pass that only goes forward.
  void join_training(Lane& lane, bool add, const GradientScatter::Ready* ready);
  void join_forward(Lane& lane);

  // Within an update: the group's weights that this rank owns are new. After the last, finish.
  void send_weights(Lane& lane, int group) { gather_.send(lane, group); }
  void finish_weights(Lane& lane) { gather_.finish(lane); }
  // After this rank's part of the weights was loaded.
  void share_weights(Lane& lane);

  // In place: the sums over the ranks.
  void sum(std::span<double> values);
  // A parameter's whole state, into `dst` on the first rank; elsewhere it is empty.
  void collect(Lane& lane, ParameterStore::State state, int parameter, std::span<float> dst);

  // Milliseconds since construction: in collectives, and that the computing thread waited for them.
  struct Times {
    double busy_ms = 0;
    double exposed_ms = 0;
  };
  [[nodiscard]] Times times();
  // What this rank sends from now on: sums of gradients, and weights.
  void begin_step();
  [[nodiscard]] BucketTraffic traffic() const;

 private:
  // What a training pass announces, in order.
  struct Event {
    bool use = false;
    int index = 0;  // of the unit, or of the parameter whose gradient is ready
  };

  const ParameterStore& store_;
  comm::Communicator& communicator_;
  std::unique_ptr<BucketReducer> reducer_;
  std::unique_ptr<comm::ProgressThread> progress_;
  ExchangeBuffers gradients_;
  ExchangeBuffers weights_;  // none where they are not exchanged beside gradients
  ExchangeBuffers vectors_;  // at most one
  GradientScatter scatter_;
  WeightGather gather_;
  std::vector<Event> events_;
  bool recording_ = false;
  bool recorded_ = false;
  double sent_before_ = 0;
};

}  // namespace belay
