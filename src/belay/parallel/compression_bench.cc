#include "belay/parallel/compression_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "belay/base/error.h"
#include "belay/base/median.h"
#include "belay/comm/compression/block_quantiser.h"
#include "belay/comm/fault_transport.h"
#include "belay/comm/topology.h"
#include "belay/comm/world.h"
#include "belay/parallel/compression_choice.h"
#include "belay/parallel/rank_threads.h"

namespace belay {
namespace {

using comm::Compression;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<Compression> wanted_modes(const std::string& name) {
  std::vector<Compression> modes;
  for (const Compression mode : {Compression::int8, Compression::topk, Compression::topk_int8}) {
    if (name == "all" || name == name_of(mode)) modes.push_back(mode);
  }
  if (modes.empty()) {
    fail(ExitCode::usage, "--mode '{}' is not one of all, int8, topk, topk_int8", name);
  }
  return modes;
}

comm::CompressionLevel wanted_level(const std::string& name) {
  for (const auto level : {comm::CompressionLevel::all, comm::CompressionLevel::slow}) {
    if (name == name_of(level)) return level;
  }
  fail(ExitCode::usage, "--level '{}' is not one of all, slow", name);
}

// The codecs by themselves: one thread, nothing sent.
class CodecTimes {
 public:
  explicit CodecTimes(std::span<const float> values)
      : values_(values),
        left_(values.size()),
        codes_(
            static_cast<std::size_t>(comm::quant_blocks(std::ssize(values)) * comm::kQuantBlock)),
        scales_(static_cast<std::size_t>(comm::quant_blocks(std::ssize(values)))),
        top_k_(std::ssize(values)) {}

  void measure(const CompressionOptions& options, CompressionRow& row) {
    const auto bytes = static_cast<double>(values_.size_bytes());
    if (options.mode == Compression::int8) {
      row.encode_gbps = bytes / best([&] { quantise(values_.data(), std::ssize(values_)); }) * 1e-9;
      row.decode_gbps = bytes / best([&] { dequantise(std::ssize(values_), left_.data()); }) * 1e-9;
      return;
    }
    const std::int64_t count = std::ssize(values_);
    const std::int64_t chosen = comm::share_of(count, options.ratio);
    const comm::IndexCode code = comm::best_index_code(count, chosen);
    std::vector<std::byte> message(comm::index_bytes(code, count, chosen));
    std::vector<float> picked(static_cast<std::size_t>(chosen));
    std::vector<std::uint32_t> places(picked.size());
    row.encode_gbps = bytes / best([&] {
                        std::copy(values_.begin(), values_.end(), left_.begin());
                        const auto indices = top_k_.select(left_, chosen);
                        for (std::size_t i = 0; i < indices.size(); ++i) {
                          picked[i] = left_[indices[i]];
                          left_[indices[i]] = 0;
                        }
                        if (options.mode == Compression::topk_int8) quantise(picked.data(), chosen);
                        comm::encode_indices(code, count, indices, message.data());
                      }) *
                      1e-9;
    row.decode_gbps = bytes / best([&] {
                        std::fill(left_.begin(), left_.end(), 0.0F);
                        comm::decode_indices(code, count, message.data(), places);
                        if (options.mode == Compression::topk_int8) {
                          dequantise(chosen, picked.data());
                        }
                        for (std::size_t i = 0; i < places.size(); ++i)
                          left_[places[i]] += picked[i];
                      }) *
                      1e-9;
  }

 private:
  void quantise(const float* values, std::int64_t count) {
    comm::quantise(values, count, codes_.data(), scales_.data(), left_.data());
  }
  void dequantise(std::int64_t count, float* dst) {
    comm::dequantise(codes_.data(), scales_.data(), count, dst);
  }
  template <class Body>
  static double best(Body body) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
      const Clock::time_point begin = Clock::now();
      body();
      least = std::min(least, seconds_since(begin));
    }
    return least;
  }

  std::span<const float> values_;
  std::vector<float> left_;
  std::vector<std::int8_t> codes_;
  std::vector<float> scales_;
  comm::TopK top_k_;
};

class Bench {
 public:
  Bench(comm::Communicator& communicator, const CompressionBench& options)
      : communicator_(communicator), options_(options) {
    const auto elements = static_cast<std::size_t>(options.max_bytes) / sizeof(float);
    values_.resize(elements);
    std::mt19937 random(static_cast<unsigned>(communicator.rank()));
    std::normal_distribution<float> normal;
    for (float& value : values_) value = normal(random);
    bucket_ = static_cast<float*>(communicator.allocate(elements * sizeof(float)));
  }
  ~Bench() { communicator_.deallocate(bucket_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  CompressionReport run(const std::vector<Compression>& modes, comm::CompressionLevel level,
                        const std::function<void(const CompressionRow&)>& on_row) {
    CompressionReport report;
    report.rank = communicator_.rank();
    report.ranks = communicator_.size();
    report.group = CompressionGroup(communicator_, level).size();
    if (report.group == 1) {
      fail(
          ExitCode::usage,
          "--level slow: all ranks are in one domain, so there is no slow link between them; start "
          "them on several hosts, or as threads with --domains 2");
    }
    for (const Compression mode : modes) {
      const CompressionOptions how{mode, level, options_.ratio};
      const auto timings = time_compression(communicator_, std::ssize(values_), how);
      for (std::int64_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= 4) {
        const std::int64_t elements = bytes / static_cast<std::int64_t>(sizeof(float));
        const CompressionTiming predicted = predict_compression(timings, elements);
        CompressionRow row = measure(how, elements);
        row.predicted_dense_us = predicted.dense_s * 1e6;
        row.predicted_us = predicted.compressed_s * 1e6;
        report.rows.push_back(row);
        if (communicator_.rank() == 0) on_row(row);
      }
    }
    return report;
  }

 private:
  CompressionRow measure(const CompressionOptions& how, std::int64_t elements) {
    ParameterTable table;
    Parameter tensor;
    tensor.name = "tensor";
    tensor.shape = {1, elements};
    table.add(tensor);
    CompressedReducer compressed(communicator_, table, elements, how, {true});
    DenseReducer dense(communicator_);
    CompressionRow row;
    row.mode = how.mode;
    row.bytes = elements * static_cast<std::int64_t>(sizeof(float));
    // In alternation, so that both see the same machine.
    std::vector<double> plain;
    std::vector<double> packed;
    for (int i = 0; i <= options_.iterations; ++i) {
      const double dense_s = time_of(dense, elements);
      const double packed_s = time_of(compressed, elements);
      if (i == 0) continue;  // prepares
      plain.push_back(dense_s);
      packed.push_back(packed_s);
    }
    row.dense_us = median(plain) * 1e6;
    row.us = median(packed) * 1e6;
    row.dense_bytes = compressed.traffic().dense_bytes;
    row.sent_bytes = compressed.traffic().sent_bytes;
    if (communicator_.rank() == 0) {
      CodecTimes({values_.data(), static_cast<std::size_t>(elements)}).measure(how, row);
    }
    communicator_.barrier();
    return row;
  }

  double time_of(BucketReducer& reducer, std::int64_t elements) {
    const BucketPiece piece{0, 0, elements, 0, true};
    std::copy_n(values_.begin(), elements, bucket_);
    communicator_.barrier();
    const Clock::time_point begin = Clock::now();
    reducer.begin_step(1);
    reducer.reduce({bucket_, static_cast<std::size_t>(elements)}, {&piece, 1});
    reducer.end_step(true);
    double time = seconds_since(begin);
    communicator_.all_reduce(&time, &time, 1, DType::f64, comm::ReduceOp::max);
    return time;
  }

  comm::Communicator& communicator_;
  const CompressionBench& options_;
  std::vector<float> values_;
  float* bucket_ = nullptr;
};

}  // namespace

CompressionReport bench_compression(comm::World& world, const CompressionBench& options,
                                    const std::function<void(const CompressionRow&)>& on_row) {
  const std::vector<Compression> modes = wanted_modes(options.mode);
  const comm::CompressionLevel level = wanted_level(options.level);
  const bool alone = world.size() == 1;
  const int ranks = alone ? options.threads : world.size();
  if (ranks < 2) {
    fail(ExitCode::usage, "one rank has nobody to send to; give --threads 2 or more");
  }
  CompressionReport report;
  const auto body = [&](comm::Transport& transport, comm::RankIs rank_is) {
    comm::FaultTransport faulty(transport, comm::FaultScript(options.inject, ranks), rank_is);
    comm::CommunicatorOptions how;
    for (int rank = 0; alone && rank < ranks; ++rank) {
      how.layout.domain_of.push_back(rank * options.domains / ranks);
    }
    comm::Communicator communicator(faulty, how);
    if (!alone) {
      communicator.set_layout(comm::find_topology(communicator, world.host_of()).layout());
    }
    CompressionReport mine = Bench(communicator, options).run(modes, level, on_row);
    if (mine.rank == 0 || !alone) report = std::move(mine);
  };
  if (alone) {
    run_as_threads(ranks,
                   [&](comm::Transport& transport) { body(transport, comm::RankIs::thread); });
  } else {
    body(world.transport(), comm::RankIs::process);
  }
  return report;
}

}  // namespace belay
