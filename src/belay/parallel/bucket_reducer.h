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

class BucketReducer {
 public:
  virtual ~BucketReducer() = default;
  // A collective: every rank has the same pieces. The bucket becomes the sum over the ranks, with
  // the same bits on all of them. Called by the exchange's thread, bucket after bucket.
  // Error(communication) from the collectives.
  virtual void reduce(std::span<float> bucket, std::span<const BucketPiece> pieces) = 0;
};

// Every element is sent.
class DenseReducer final : public BucketReducer {
 public:
  explicit DenseReducer(comm::Communicator& communicator) : communicator_(communicator) {}
  void reduce(std::span<float> bucket, std::span<const BucketPiece>) override {
    communicator_.all_reduce(bucket.data(), bucket.data(), std::ssize(bucket), DType::f32,
                             comm::ReduceOp::sum);
  }

 private:
  comm::Communicator& communicator_;
};

}  // namespace belay
