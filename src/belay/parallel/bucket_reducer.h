#pragma once
// How the gradients of a full bucket become their sums over the ranks.

#include <cstdint>
#include <span>

#include "belay/comm/communicator.h"

namespace belay {

// A piece of a gradient that lies in a bucket.
struct BucketPiece {
  int parameter = 0;
  std::int64_t begin = 0;  // element of the gradient
  std::int64_t count = 0;
  std::int64_t at = 0;  // element of the bucket
  bool last = false;    // of the gradient
};

// Of a step, in bytes that this rank sends to others, or on behalf of its domain to other domains,
// where every sum moves as little as it can: 2(p-1)/p of it, by ring or direct exchange.
struct BucketTraffic {
  double dense_bytes = 0;  // had all been sent as it is
  double sent_bytes = 0;
};

// f32 elements summed among `ranks`.
constexpr double sum_traffic(std::int64_t elements, int ranks) {
  return 2.0 * (ranks - 1) / ranks * static_cast<double>(elements) * sizeof(float);
}

class BucketReducer {
 public:
  virtual ~BucketReducer() = default;
  // A collective: every rank has the same pieces. The bucket becomes the sum over the ranks, with
  // the same bits on all of them. Called by the exchange's thread, bucket after bucket.
  // Error(communication) from the collectives.
  virtual void reduce(std::span<float> bucket, std::span<const BucketPiece> pieces) = 0;

  // Between steps. The step that follows multiplies its losses by `multiplier`, a power of two.
  virtual void begin_step(double multiplier) {
    static_cast<void>(multiplier);
    traffic_ = {};
  }
  // The step changed the parameters, or was as if it had never been.
  virtual void end_step(bool counts) { static_cast<void>(counts); }
  [[nodiscard]] const BucketTraffic& traffic() const { return traffic_; }

 protected:
  void count_traffic(double dense_bytes, double sent_bytes) {
    traffic_.dense_bytes += dense_bytes;
    traffic_.sent_bytes += sent_bytes;
  }

 private:
  BucketTraffic traffic_;
};

// Every element is sent.
class DenseReducer final : public BucketReducer {
 public:
  explicit DenseReducer(comm::Communicator& communicator) : communicator_(communicator) {}
  void reduce(std::span<float> bucket, std::span<const BucketPiece>) override {
    communicator_.all_reduce(bucket.data(), bucket.data(), std::ssize(bucket), DType::f32,
                             comm::ReduceOp::sum);
    const double bytes = sum_traffic(std::ssize(bucket), communicator_.size());
    count_traffic(bytes, bytes);
  }

 private:
  comm::Communicator& communicator_;
};

}  // namespace belay
