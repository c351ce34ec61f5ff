#include "belay/comm/comm_config.h"

#include <string_view>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

// In the order of ChooserKind.
constexpr std::string_view kChoosers[] = {"model", "size", "doubling-tree-ring",
                                          "ring-tree-hierarchical"};

// In the order of their enums.
constexpr std::string_view kCompressions[] = {"none", "topk", "int8", "topk_int8"};
constexpr std::string_view kLevels[] = {"all", "slow"};
constexpr std::string_view kWhen[] = {"pays", "always"};

}  // namespace

std::string_view name_of(ChooserKind kind) {
  return kChoosers[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Compression compression) {
  return kCompressions[static_cast<std::size_t>(compression)];
}

std::string_view name_of(CompressionLevel level) {
  return kLevels[static_cast<std::size_t>(level)];
}

std::string_view name_of(CompressionWhen when) {
  return kWhen[static_cast<std::size_t>(when)];
}

void check_comm(const CommConfig& config) {
  if (config.compression == Compression::none || !config.order_stable) return;
  fail(ExitCode::usage,
       "comm.order_stable = true promises the bits of one rank, comm.compression = \"{}\" changes "
       "what ranks send; set one of them to false or \"none\"",
       name_of(config.compression));
}

std::span<const config::Field> CommConfig::fields() {
  using config::between;
  using config::field;
  static const config::Field kFields[] = {
      field<&CommConfig::timeout_s>(
          "timeout_s", "seconds after which a rank that others wait for counts as lost",
          between(0.1, 86400)),
      field<&CommConfig::bucket_mb>("bucket_mb", "MB of gradients that are summed together",
                                    between(0.001, 4096)),
      field<&CommConfig::buckets>("buckets", "buckets that may be under way at once",
                                  between(1, 1024)),
      field<&CommConfig::overlap>("overlap", "sum gradients while backward runs; false: after it"),
      field<&CommConfig::pipeline_depth>(
          "pipeline_depth",
          "micro-batches whose gradients may be under way to the other ranks while the next "
          "computes; 0: only the sum of a step's is sent",
          between(0, 64)),
      field<&CommConfig::order_stable>("order_stable",
                                       "the same bits for every algorithm, size of bucket and "
                                       "power of two of ranks, at some cost"),
      field<&CommConfig::chooser>(
          "chooser",
          "how algorithms are chosen: model measures the links at start, the others go by size",
          config::one_of(kChoosers)),
      field<&CommConfig::watch_links>(
          "watch_links", "find slow links and late ranks while training, and name them"),
      field<&CommConfig::slow_link>(
          "slow_link", "a link is slow when others carry so many times as much in the same time",
          between(1.2, 1000)),
      field<&CommConfig::reform>("reform", "lead calls around a slow link until it is well again"),
      field<&CommConfig::force>(
          "force", "choices to force, as in 'all_reduce:0-65536=direct; broadcast=chain x16'"),
      field<&CommConfig::rank_map>(
          "rank_map",
          "file of rank_id,npu_id,hccs_domain: which ranks share fast links; empty: found out"),
      field<&CommConfig::inject>(
          "inject",
          "faults to inject, for tests, as in 'link 0-1 bandwidth=1e8 from=100; rank 2 "
          "kill@call=20'"),
      field<&CommConfig::compression>(
          "compression",
          "of gradients between ranks: topk sends the largest, int8 8 bits of each, topk_int8 8 "
          "bits "
          "of the largest; what is not sent is added to the next step's",
          config::one_of(kCompressions)),
      field<&CommConfig::topk_ratio>("topk_ratio", "share of each tensor that topk sends",
                                     config::Rule{.low = 0, .high = 1, .open_low = true}),
      field<&CommConfig::compression_min_sparsity>(
          "compression_min_sparsity", "topk is used only where it leaves out at least this share",
          between(0, 1)),
      field<&CommConfig::compression_level>(
          "compression_level",
          "between which ranks: all, or slow: between domains only, plain sums inside them",
          config::one_of(kLevels)),
      field<&CommConfig::compression_when>(
          "compression_when",
          "pays: for tensors that it makes faster, by a measurement at start; always: for all but "
          "vectors and small ones",
          config::one_of(kWhen)),
      field<&CommConfig::compression_warmup>(
          "compression_warmup",
          "steps at the beginning of training that send gradients as they are", between(0, 1e12)),
  };
  return kFields;
}

std::vector<ForcedChoice> forced_choices(const CommConfig& config) {
  std::vector<ForcedChoice> forced;
  std::string_view rest = config.force;
  while (!rest.empty()) {
    const std::size_t end = rest.find(';');
    std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) forced.push_back(parse_forced(part));
  }
  return forced;
}

}  // namespace belay::comm
