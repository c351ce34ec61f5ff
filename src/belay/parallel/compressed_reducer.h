#pragma once
// Sums gradients over the ranks with fewer bytes than they have (facts of each mode: the user
// guide). What a rank does not send stays in its residuals and is added to the next gradient: error
// feedback (Seide et al. 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019).
//
//   topk, topk_int8  Every rank sends the largest elements of its own sum, with their places; all
//                    add them up in the order of ranks. (Aji, Heafield 2017; Lin et al., "Deep
//                    Gradient Compression", ICLR 2018.)
//   int8             Every rank sends blocks of eight bits to their owners, which add them up in
//                    f32 and send eight bits of the sum to all. What that second rounding loses
//                    stays with the owner.
//
// A block never reaches into another parameter, and what is not finite stays so: a step is skipped,
// and its parameter named, as without compression.

#include <vector>

#include "belay/comm/compression/sparse_code.h"
#include "belay/comm/compression/top_k.h"
#include "belay/parallel/bucket_reducer.h"
#include "belay/parallel/compression_group.h"
#include "belay/parallel/residuals.h"

namespace belay {

struct CompressionOptions {
  comm::Compression mode = comm::Compression::int8;
  comm::CompressionLevel level = comm::CompressionLevel::all;
  double ratio = 0.25;  // of topk
};
CompressionOptions compression_options(const comm::CommConfig& config);

// What may be compressed at all: matrices, if they are not small.
std::vector<bool> compressible(const ParameterTable& table);

class CompressedReducer final : public BucketReducer {
 public:
  // A collective. Buckets hold at most `bucket_elements`; parameters not marked are sent as they
  // are. The communicator and the table must outlive the reducer.
  CompressedReducer(comm::Communicator& communicator, const ParameterTable& table,
                    std::int64_t bucket_elements, const CompressionOptions& options,
                    std::vector<bool> compressed);
  ~CompressedReducer() override;
  CompressedReducer(const CompressedReducer&) = delete;
  CompressedReducer& operator=(const CompressedReducer&) = delete;

  // What this takes, on ranks that exchange with as many as `size`.
  static std::size_t bytes(const ParameterTable& table, std::int64_t bucket_elements,
                           const CompressionOptions& options, int size);

  // Whether the steps that follow send gradients as they are, with what is still owed: a warm-up
  // (Lin et al., section 3.3; Tang et al., "1-bit Adam", ICML 2021).
  void send_all(bool all) { send_all_ = all; }

  void reduce(std::span<float> bucket, std::span<const BucketPiece> pieces) override;
  void begin_step(double multiplier) override;
  void end_step(bool counts) override;

  [[nodiscard]] Residuals& residuals() { return residuals_; }
  [[nodiscard]] const CompressionGroup& group() const { return group_; }

 private:
  // A compressed piece of the present bucket.
  struct Part {
    BucketPiece piece;
    Residuals::Place residual;
    float* gradient = nullptr;     // in the bucket
    float* packed = nullptr;       // its place in room_
    std::int64_t first_block = 0;  // int8
    // topk: how many are sent, and where their values and indices are in a message.
    std::int64_t chosen = 0;
    comm::IndexCode code = comm::IndexCode::words;
    std::size_t values_at = 0;
    std::size_t indices_at = 0;
  };
  struct Run;

  void sum_all(std::span<float> bucket, std::span<const BucketPiece> pieces);
  void sum_plain(std::span<float> bucket, std::span<const BucketPiece> pieces);
  void lay_out(std::span<float> bucket, std::span<const BucketPiece> pieces);
  void pack();
  void unpack();
  void reduce_quantised();
  void reduce_sparse();
  void encode_sparse(Part& part, std::byte* message);
  void add_sparse(const Part& part, const std::byte* message, float* dst);
  void fill(const Part& part, std::int64_t begin, std::int64_t count);
  [[nodiscard]] float* target(const Part& part) const;
  template <class Body>
  void for_runs(int owner, const Body& body);

  comm::Communicator& communicator_;
  CompressionOptions options_;
  CompressionGroup group_;
  Residuals residuals_;
  bool send_all_ = false;
  std::vector<Part> parts_;
  std::int64_t plain_ = 0;      // elements of the present bucket that are sent as they are
  std::int64_t packed_ = 0;     // and of all parts
  std::int64_t blocks_ = 0;     // int8: of all parts
  std::int64_t per_owner_ = 0;  // of those, how many each owns
  std::size_t message_bytes_ = 0;
  // Room for a bucket, for what a rank sends, and for what it receives.
  float* room_ = nullptr;
  std::byte* sent_ = nullptr;
  std::byte* received_ = nullptr;
  comm::TopK top_k_;
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
};

}  // namespace belay
