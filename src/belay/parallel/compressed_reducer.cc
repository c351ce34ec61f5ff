#include "belay/parallel/compressed_reducer.h"

#include <algorithm>
#include <cstring>

#include "belay/base/check.h"
#include "belay/comm/compression/block_quantiser.h"

namespace belay {

using comm::Compression;
using comm::kQuantBlock;
using comm::quant_blocks;

namespace {

constexpr std::int64_t kSmall = 1024;    // elements; below this there is nothing to gain
constexpr std::int64_t kRunBlocks = 64;  // are worked on at a time, so that they stay in the caches

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

std::size_t message_of(std::int64_t blocks) {
  return aligned(static_cast<std::size_t>(blocks) *
                 (sizeof(float) + static_cast<std::size_t>(kQuantBlock)));
}

struct SparseLayout {
  std::int64_t chosen = 0;
  comm::IndexCode code = comm::IndexCode::words;
  std::size_t value_bytes = 0;
  std::size_t index_bytes = 0;
};

SparseLayout sparse_layout(std::int64_t elements, const CompressionOptions& options) {
  SparseLayout layout;
  layout.chosen = comm::share_of(elements, options.ratio);
  layout.code = comm::best_index_code(elements, layout.chosen);
  const auto chosen = static_cast<std::size_t>(layout.chosen);
  const auto blocks = static_cast<std::size_t>(quant_blocks(layout.chosen));
  // Codes stop where there are no more values, not at the end of a block.
  layout.value_bytes = aligned(options.mode == Compression::topk ? chosen * sizeof(float)
                                                                 : blocks * sizeof(float) + chosen);
  layout.index_bytes = aligned(comm::index_bytes(layout.code, elements, layout.chosen));
  return layout;
}

// The most that a rank's messages take, of which it receives as many as there are heads.
std::size_t sent_bytes(std::int64_t bucket, std::int64_t parameters,
                       const CompressionOptions& options, int size) {
  if (options.mode == Compression::int8) {
    const std::int64_t blocks = bucket / kQuantBlock + parameters;
    return static_cast<std::size_t>(size) * message_of(blocks / size + 1);
  }
  // A piece may begin or end in the middle of anything, so each costs a little more than its share.
  constexpr std::size_t kPerPiece = 2 * static_cast<std::size_t>(kQuantBlock);
  const SparseLayout whole = sparse_layout(bucket, options);
  return whole.value_bytes + whole.index_bytes + static_cast<std::size_t>(parameters) * kPerPiece;
}

}  // namespace

CompressionOptions compression_options(const comm::CommConfig& config) {
  return {config.compression, config.compression_level, config.topk_ratio};
}

std::vector<bool> compressible(const ParameterTable& table) {
  std::vector<bool> result;
  for (const Parameter& parameter : table.all()) {
    result.push_back(parameter.shape.rank() >= 2 && parameter.elements() >= kSmall);
  }
  return result;
}

CompressedReducer::CompressedReducer(comm::Communicator& communicator, const ParameterTable& table,
                                     std::int64_t bucket_elements,
                                     const CompressionOptions& options,
                                     std::vector<bool> compressed)
    : communicator_(communicator),
      options_(options),
      group_(communicator, options.level),
      residuals_(table, std::move(compressed)),
      top_k_(comm::takes_top_k(options.mode) ? bucket_elements : 0) {
  BELAY_CHECK(options.mode != Compression::none);
  parts_.reserve(static_cast<std::size_t>(table.size()));
  const std::size_t bytes = sent_bytes(bucket_elements, table.size(), options, group_.size());
  const auto size = static_cast<std::size_t>(group_.size());
  const bool sparse = comm::takes_top_k(options.mode);
  room_ = static_cast<float*>(
      communicator.allocate(static_cast<std::size_t>(bucket_elements) * sizeof(float)));
  // Calls among heads read as much as they write.
  const bool whole = sparse && group_.has_inside();
  sent_ = static_cast<std::byte*>(communicator.allocate(whole ? bytes * size : bytes));
  received_ = static_cast<std::byte*>(communicator.allocate(sparse ? bytes * size : bytes));
  if (sparse) {
    const std::int64_t chosen = comm::share_of(bucket_elements, options.ratio);
    indices_.resize(static_cast<std::size_t>(chosen + 1));
    values_.resize(indices_.size());
  }
}

CompressedReducer::~CompressedReducer() {
  communicator_.deallocate(received_);
  communicator_.deallocate(sent_);
  communicator_.deallocate(room_);
}

std::size_t CompressedReducer::bytes(const ParameterTable& table, std::int64_t bucket_elements,
                                     const CompressionOptions& options, int size) {
  std::int64_t kept = 0;
  const std::vector<bool> marked = compressible(table);
  for (int index = 0; index < table.size(); ++index) {
    if (marked[static_cast<std::size_t>(index)]) kept += table[index].elements();
  }
  std::size_t total = Residuals::bytes(kept);
  total += static_cast<std::size_t>(bucket_elements) * sizeof(float);
  const std::size_t messages = sent_bytes(bucket_elements, table.size(), options, size);
  if (!comm::takes_top_k(options.mode)) return total + 2 * messages;
  const std::int64_t chosen = comm::share_of(bucket_elements, options.ratio);
  return total + 2 * messages * static_cast<std::size_t>(size) +
         comm::TopK::bytes(bucket_elements) +
         static_cast<std::size_t>(chosen) * (sizeof(std::uint32_t) + sizeof(float));
}

void CompressedReducer::begin_step(double multiplier) {
  BucketReducer::begin_step(multiplier);
  residuals_.begin_step(multiplier);
}

void CompressedReducer::end_step(bool counts) {
  if (counts) {
    residuals_.keep();
  } else {
    residuals_.discard();
  }
}

void CompressedReducer::reduce(std::span<float> bucket, std::span<const BucketPiece> pieces) {
  if (send_all_) return sum_all(bucket, pieces);
  lay_out(bucket, pieces);
  sum_plain(bucket, pieces);
  const double plain = sum_traffic(plain_, group_.size());
  count_traffic(plain + sum_traffic(packed_, group_.size()), plain);
  if (parts_.empty()) return;
  if (group_.has_inside()) pack();
  if (options_.mode == Compression::int8) {
    reduce_quantised();
  } else {
    reduce_sparse();
  }
  if (group_.has_inside()) unpack();
}

void CompressedReducer::lay_out(std::span<float> bucket, std::span<const BucketPiece> pieces) {
  parts_.clear();
  plain_ = packed_ = blocks_ = 0;
  std::size_t at = 0;
  for (const BucketPiece& piece : pieces) {
    if (!residuals_.has(piece.parameter)) {
      plain_ += piece.count;
      continue;
    }
    Part part;
    part.piece = piece;
    part.residual = residuals_.place(piece.parameter, piece.begin, piece.count);
    part.gradient = bucket.data() + piece.at;
    part.packed = room_ + packed_;
    part.first_block = blocks_;
    if (comm::takes_top_k(options_.mode)) {
      const SparseLayout layout = sparse_layout(piece.count, options_);
      part.chosen = layout.chosen;
      part.code = layout.code;
      part.values_at = at;
      part.indices_at = at + layout.value_bytes;
      at += layout.value_bytes + layout.index_bytes;
    }
    packed_ += piece.count;
    blocks_ += quant_blocks(piece.count);
    parts_.push_back(part);
  }
  per_owner_ = (blocks_ + group_.size() - 1) / group_.size();
  message_bytes_ = options_.mode == Compression::int8 ? message_of(per_owner_) : at;
}

// Everything as it is, and what is still owed.
void CompressedReducer::sum_all(std::span<float> bucket, std::span<const BucketPiece> pieces) {
  for (const BucketPiece& piece : pieces) {
    if (!residuals_.has(piece.parameter)) continue;
    const Residuals::Place owed = residuals_.place(piece.parameter, piece.begin, piece.count);
    float* const gradient = bucket.data() + piece.at;
    comm::add_scaled(gradient, owed.before, owed.factor, gradient, piece.count);
    std::fill_n(owed.after, piece.count, 0.0F);
  }
  communicator_.all_reduce(bucket.data(), bucket.data(), std::ssize(bucket), DType::f32,
                           comm::ReduceOp::sum);
  const double sent = sum_traffic(std::ssize(bucket), group_.size());
  count_traffic(sent, sent);
}

// Pieces that are not compressed, together.
void CompressedReducer::sum_plain(std::span<float> bucket, std::span<const BucketPiece> pieces) {
  if (plain_ == 0) return;
  const auto sum = [&](float* values, std::int64_t count) {
    communicator_.all_reduce(values, values, count, DType::f32, comm::ReduceOp::sum);
  };
  if (packed_ == 0) return sum(bucket.data(), std::ssize(bucket));
  float* end = room_;
  for (const BucketPiece& piece : pieces) {
    if (residuals_.has(piece.parameter)) continue;
    end = std::copy_n(bucket.data() + piece.at, piece.count, end);
  }
  sum(room_, plain_);
  const float* begin = room_;
  for (const BucketPiece& piece : pieces) {
    if (residuals_.has(piece.parameter)) continue;
    std::copy_n(begin, piece.count, bucket.data() + piece.at);
    begin += piece.count;
  }
}

// Heads take over what the others of their domain have, with what those still owed.
void CompressedReducer::pack() {
  for (const Part& part : parts_) {
    comm::add_scaled(part.gradient, part.residual.before, part.residual.factor, part.packed,
                     part.piece.count);
    if (group_.position() < 0) std::fill_n(part.residual.after, part.piece.count, 0.0F);
  }
  group_.reduce_inside(room_, packed_);
}

void CompressedReducer::unpack() {
  group_.spread_inside(room_, packed_);
  for (const Part& part : parts_) std::copy_n(part.packed, part.piece.count, part.gradient);
}

// What is to be sent of a part's elements, in its packed place.
void CompressedReducer::fill(const Part& part, std::int64_t begin, std::int64_t count) {
  if (group_.has_inside()) return;  // it is there
  comm::add_scaled(part.gradient + begin, part.residual.before + begin, part.residual.factor,
                   part.packed + begin, count);
}

// Where the sums go.
float* CompressedReducer::target(const Part& part) const {
  return group_.has_inside() ? part.packed : part.gradient;
}

// Blocks of one part that one rank owns.
struct CompressedReducer::Run {
  const Part& part;
  std::int64_t begin = 0;  // element of the part
  std::int64_t count = 0;
  std::int64_t block = 0;  // of the owner's
};

template <class Body>
void CompressedReducer::for_runs(int owner, const Body& body) {
  const std::int64_t first = owner * per_owner_;
  const std::int64_t last = std::min(first + per_owner_, blocks_);
  for (const Part& part : parts_) {
    const std::int64_t part_end = part.first_block + quant_blocks(part.piece.count);
    std::int64_t block = std::max(first, part.first_block);
    const std::int64_t end = std::min(last, part_end);
    for (; block < end; block += kRunBlocks) {
      const std::int64_t begin = (block - part.first_block) * kQuantBlock;
      const std::int64_t blocks = std::min(kRunBlocks, end - block);
      const std::int64_t count = std::min(blocks * kQuantBlock, part.piece.count - begin);
      body(Run{part, begin, count, block - first});
    }
  }
}

void CompressedReducer::reduce_quantised() {
  const auto scales = [](std::byte* message, std::int64_t block) {
    return reinterpret_cast<float*>(message) + block;
  };
  const auto codes = [&](std::byte* message, std::int64_t block) {
    return reinterpret_cast<std::int8_t*>(message +
                                          static_cast<std::size_t>(per_owner_) * sizeof(float)) +
           block * kQuantBlock;
  };
  const auto message = [&](std::byte* messages, int of) {
    return messages + static_cast<std::size_t>(of) * message_bytes_;
  };
  const int own = group_.position();
  for (int owner = 0; own >= 0 && owner < group_.size(); ++owner) {
    std::byte* const to = message(sent_, owner);
    for_runs(owner, [&](const Run& run) {
      fill(run.part, run.begin, run.count);
      if (owner == own) return;  // needs no code
      comm::quantise(run.part.packed + run.begin, run.count, codes(to, run.block),
                     scales(to, run.block), run.part.residual.after + run.begin);
    });
  }
  const auto bytes = static_cast<std::int64_t>(message_bytes_);
  group_.all_to_all(sent_, received_, bytes);
  if (own >= 0) {
    for_runs(own, [&](const Run& run) {
      float* const sum = run.part.packed + run.begin;
      for (int from = 0; from < group_.size(); ++from) {
        if (from == own) continue;
        std::byte* const theirs = message(received_, from);
        comm::add_dequantised(codes(theirs, run.block), scales(theirs, run.block), run.count, sum);
      }
      comm::quantise(sum, run.count, codes(sent_, run.block), scales(sent_, run.block),
                     run.part.residual.after + run.begin);
    });
  }
  group_.all_gather(sent_, received_, bytes);
  for (int owner = 0; own >= 0 && owner < group_.size(); ++owner) {
    std::byte* const from = message(received_, owner);
    for_runs(owner, [&](const Run& run) {
      comm::dequantise(codes(from, run.block), scales(from, run.block), run.count,
                       target(run.part) + run.begin);
    });
  }
  count_traffic(0, 2.0 * (group_.size() - 1) * static_cast<double>(message_bytes_));
}

void CompressedReducer::encode_sparse(Part& part, std::byte* message) {
  const std::int64_t count = part.piece.count;
  float* const left = part.residual.after;
  if (group_.has_inside()) {
    std::copy_n(part.packed, count, left);
  } else {
    comm::add_scaled(part.gradient, part.residual.before, part.residual.factor, left, count);
  }
  const auto indices = top_k_.select({left, static_cast<std::size_t>(count)}, part.chosen);
  std::byte* const values_at = message + part.values_at;
  for (std::size_t i = 0; i < indices.size(); ++i) values_[i] = left[indices[i]];
  if (options_.mode == Compression::topk) {
    std::memcpy(values_at, values_.data(), indices.size() * sizeof(float));
    for (const std::uint32_t index : indices) left[index] = 0;
  } else {
    auto* const scales = reinterpret_cast<float*>(values_at);
    auto* const codes = reinterpret_cast<std::int8_t*>(scales + quant_blocks(part.chosen));
    comm::quantise(values_.data(), part.chosen, codes, scales, values_.data());
    for (std::size_t i = 0; i < indices.size(); ++i) left[indices[i]] = values_[i];
  }
  // After the values: their last block is filled up, and reaches to where this begins.
  comm::encode_indices(part.code, count, indices, message + part.indices_at);
}

void CompressedReducer::add_sparse(const Part& part, const std::byte* message, float* dst) {
  const auto chosen = static_cast<std::size_t>(part.chosen);
  const std::span<std::uint32_t> indices(indices_.data(), chosen);
  comm::decode_indices(part.code, part.piece.count, message + part.indices_at, indices);
  const std::byte* const values_at = message + part.values_at;
  if (options_.mode == Compression::topk) {
    std::memcpy(values_.data(), values_at, chosen * sizeof(float));
  } else {
    const auto* const scales = reinterpret_cast<const float*>(values_at);
    const auto* const codes =
        reinterpret_cast<const std::int8_t*>(scales + quant_blocks(part.chosen));
    comm::dequantise(codes, scales, part.chosen, values_.data());
  }
  for (std::size_t i = 0; i < chosen; ++i) dst[indices[i]] += values_[i];
}

void CompressedReducer::reduce_sparse() {
  const bool head = group_.position() >= 0;
  if (head) {
    for (Part& part : parts_) encode_sparse(part, sent_);
  }
  group_.all_gather(sent_, received_, static_cast<std::int64_t>(message_bytes_));
  if (head) {
    for (const Part& part : parts_) {
      std::fill_n(target(part), part.piece.count, 0.0F);
      for (int from = 0; from < group_.size(); ++from) {
        add_sparse(part, received_ + static_cast<std::size_t>(from) * message_bytes_, target(part));
      }
    }
  }
  count_traffic(0, (group_.size() - 1) * static_cast<double>(message_bytes_));
}

}  // namespace belay
