#include "belay/comm/simulated_cluster.h"

#include <map>
#include <string>

namespace belay::comm {
namespace {

constexpr int kElement = 2;
constexpr int kWide = 4;

class Cluster {
 public:
  explicit Cluster(int devices) : devices_(devices), model_(ascend_cluster(devices)) {
    layout_.domain_of = model_.domain_of;
  }

  double time(const Choice& choice, std::size_t bytes) {
    const std::string name = to_string(choice) + " " + std::to_string(bytes);
    if (const auto known = known_.find(name); known != known_.end()) return known->second;
    ScheduleKey key{.collective = Collective::all_reduce, .algorithm = choice.algorithm};
    key.ranks = devices_;
    key.count = static_cast<std::int64_t>(bytes) / kElement;
    key.segments = choice.segments;
    key.inner = choice.inner;
    key.outer = choice.outer;
    const double seconds = simulate(make_schedule(key, layout_), model_, kElement, kWide).seconds;
    known_[name] = seconds;
    return seconds;
  }

  double time(const Chooser& chooser, std::size_t bytes) {
    return time(chooser(Collective::all_reduce, devices_, bytes), bytes);
  }

  Choice best(std::size_t bytes) {
    const std::vector<Choice> candidates =
        candidates_of(Collective::all_reduce, devices_, true, model_.shares_memory);
    Choice best = candidates.front();
    for (const Choice& candidate : candidates) {
      if (time(candidate, bytes) < time(best, bytes)) best = candidate;
    }
    return best;
  }

 private:
  int devices_;
  MachineModel model_;
  Layout layout_;
  std::map<std::string, double> known_;
};

}  // namespace

MachineModel ascend_cluster(int devices) {
  constexpr double kHccs = 18.3e9;
  constexpr double kRoce = 200e9 / 8 * 0.85;
  constexpr double kReduce = 1e12;  // bytes per second of a device's vector units
  MachineModel model;
  model.rank_moves_data = false;
  model.full_mesh = true;
  model.inner = {Curve::line(2e-6, 1 / kHccs), Curve::line(2e-6, 1 / kHccs + 1 / kReduce)};
  model.outer = {Curve::line(1e-5, 1 / kRoce), Curve::line(1e-5, 1 / kRoce + 1 / kReduce)};
  model.post = model.outer.move;
  model.copy = Curve::line(1e-6, 1 / kReduce);
  model.message_gap_s = 1e-6;
  model.extra_part_s_per_byte = 1 / kReduce;
  for (int device = 0; device < devices; ++device) model.domain_of.push_back(device / 8);
  return model;
}

SimulatedCluster simulate_cluster(int devices) {
  constexpr std::size_t kWidth = 10240;
  constexpr std::int64_t kLayers = 80;
  constexpr std::size_t kVocab = 50304;
  SimulatedCluster result;
  result.devices = devices;
  result.sizes = {
      {.name = "norms, biases", .bytes = kWidth * kElement, .count = 6 * kLayers + 2},
      {.name = "bias of query, key, value", .bytes = 3 * kWidth * kElement, .count = kLayers},
      {.name = "bias of the inner layer", .bytes = 4 * kWidth * kElement, .count = kLayers},
      {.name = "attention output", .bytes = kWidth * kWidth * kElement, .count = kLayers},
      {.name = "query, key, value", .bytes = 3 * kWidth * kWidth * kElement, .count = kLayers},
      {.name = "feed-forward", .bytes = 4 * kWidth * kWidth * kElement, .count = 2 * kLayers},
      {.name = "embedding", .bytes = kVocab * kWidth * kElement, .count = 1}};
  Cluster cluster(devices);
  double tensors = 0;
  for (SimulatedSize& size : result.sizes) {
    size.choice = cluster.best(size.bytes);
    size.ring_s = cluster.time(Choice{.algorithm = Algorithm::ring}, size.bytes);
    size.doubling_tree_ring_s = cluster.time(Chooser(choose_doubling_tree_ring), size.bytes);
    size.ring_tree_hierarchical_s =
        cluster.time(Chooser(choose_ring_tree_hierarchical), size.bytes);
    size.adaptive_s = cluster.time(size.choice, size.bytes);
    const auto count = static_cast<double>(size.count);
    tensors += count;
    result.ring_s += count * size.ring_s;
    result.doubling_tree_ring_s += count * size.doubling_tree_ring_s;
    result.ring_tree_hierarchical_s += count * size.ring_tree_hierarchical_s;
    result.adaptive_s += count * size.adaptive_s;
  }
  for (double* const mean : {&result.ring_s, &result.doubling_tree_ring_s,
                             &result.ring_tree_hierarchical_s, &result.adaptive_s}) {
    *mean /= tensors;
  }
  return result;
}

}  // namespace belay::comm
