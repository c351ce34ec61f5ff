#include "belay/comm/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLeast = 256;
constexpr std::size_t kMost = std::size_t{1} << 30;
// Beyond this many ranks, what costs messages without saving bytes is not considered: patterns in
// which everybody talks to everybody, and rings in pieces.
constexpr int kMostForDirect = 128;

[[noreturn]] void refuse_forced(std::string_view text, std::string_view why) {
  fail(ExitCode::usage,
       "'{}' does not force a choice: {}; write all_reduce=ring, all_reduce:0-65536=direct, or "
       "broadcast:1048576-=chain x16",
       text, why);
}

std::size_t parse_bytes(std::string_view whole, std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse_forced(whole, fmt::format("'{}' is not a number of bytes", text));
  }
  return value;
}

// "direct/ring"
void parse_levels(std::string_view whole, std::string_view text, Choice& choice) {
  const std::size_t slash = text.find('/');
  bool inner_known = false;
  bool outer_known = false;
  for (int i = 0; i < kInners; ++i) {
    if (text.substr(0, slash) != name_of(static_cast<Inner>(i))) continue;
    choice.inner = static_cast<Inner>(i);
    inner_known = true;
  }
  for (int i = 0; i < kOuters && slash != std::string_view::npos; ++i) {
    if (text.substr(slash + 1) != name_of(static_cast<Outer>(i))) continue;
    choice.outer = static_cast<Outer>(i);
    outer_known = true;
  }
  if (!inner_known || !outer_known) {
    refuse_forced(whole, "a hierarchy is written hierarchical direct/ring");
  }
}

}  // namespace

std::string to_string(const Choice& choice) {
  std::string text(name_of(choice.algorithm));
  if (choice.algorithm == Algorithm::hierarchical) {
    text += fmt::format(" {}/{}", name_of(choice.inner), name_of(choice.outer));
  }
  if (choice.segments > 1) text += fmt::format(" x{}", choice.segments);
  return text;
}

void put_choice(Signature& signature, const Choice& choice) {
  signature.algorithm = static_cast<std::uint8_t>(choice.algorithm);
  signature.segments = static_cast<std::uint16_t>(choice.segments);
  signature.inner = static_cast<std::uint8_t>(choice.inner);
  signature.outer = static_cast<std::uint8_t>(choice.outer);
}

Choice choice_of(const Signature& signature) {
  return {.algorithm = static_cast<Algorithm>(signature.algorithm),
          .segments = signature.segments,
          .inner = static_cast<Inner>(signature.inner),
          .outer = static_cast<Outer>(signature.outer)};
}

Choice without_shared_memory(Choice choice) {
  if (needs_shared_memory(choice.algorithm)) choice.algorithm = Algorithm::direct;
  return choice;
}

Choice choose_by_size(Collective collective, int ranks, std::size_t bytes) {
  constexpr int kFew = 8;
  switch (collective) {
    case Collective::all_reduce:
      if (bytes <= 16 * kKiB) {
        return {.algorithm = ranks <= 3 ? Algorithm::one_shot : Algorithm::recursive_doubling};
      }
      if (ranks <= kFew) return {.algorithm = Algorithm::direct_store};
      return {.algorithm = bytes <= kMiB ? Algorithm::halving_doubling : Algorithm::ring};
    case Collective::reduce_scatter:
    case Collective::all_gather:
      if (ranks <= kFew) return {.algorithm = Algorithm::direct};
      return {.algorithm = bytes <= kMiB ? Algorithm::halving_doubling : Algorithm::ring};
    case Collective::broadcast:
    case Collective::reduce:
      if (bytes <= 256 * kKiB) return {.algorithm = Algorithm::binomial};
      return {.algorithm = Algorithm::chain, .segments = 16};
    case Collective::all_to_all:
      return {.algorithm = ranks <= kFew ? Algorithm::direct : Algorithm::pairwise};
    case Collective::barrier:
      break;
  }
  return {.algorithm = Algorithm::dissemination};
}

Choice choose_doubling_tree_ring(Collective collective, int ranks, std::size_t bytes) {
  if (collective != Collective::all_reduce) return choose_by_size(collective, ranks, bytes);
  if (bytes < kMiB) return {.algorithm = Algorithm::recursive_doubling};
  if (bytes < 16 * kMiB) return {.algorithm = Algorithm::double_tree, .segments = 16};
  return {.algorithm = Algorithm::ring};
}

Choice choose_ring_tree_hierarchical(Collective collective, int ranks, std::size_t bytes) {
  if (collective != Collective::all_reduce) return choose_by_size(collective, ranks, bytes);
  if (bytes < kMiB) return {.algorithm = Algorithm::ring};
  if (bytes < 128 * kMiB) return {.algorithm = Algorithm::double_tree, .segments = 16};
  return {.algorithm = Algorithm::hierarchical, .inner = Inner::ring, .outer = Outer::ring};
}

std::vector<Choice> candidates_of(Collective collective, int ranks, bool domains,
                                  bool shared_memory) {
  std::vector<Choice> candidates;
  const bool direct = ranks <= kMostForDirect;
  for (const Algorithm algorithm : algorithms_of(collective)) {
    switch (algorithm) {
      case Algorithm::direct:
      case Algorithm::one_shot:
      case Algorithm::pairwise:
        if (direct || collective == Collective::all_to_all) {
          candidates.push_back({.algorithm = algorithm});
        }
        break;
      case Algorithm::direct_store:
        if (direct && shared_memory) candidates.push_back({.algorithm = algorithm});
        break;
      case Algorithm::double_ring:
        if (direct) candidates.push_back({.algorithm = algorithm});
        break;
      case Algorithm::segmented_ring:
        if (!direct) break;
        for (const int segments : {2, 4, 8}) {
          candidates.push_back({.algorithm = algorithm, .segments = segments});
        }
        break;
      case Algorithm::double_tree:
      case Algorithm::chain:
        for (const int segments : {1, 4, 16, 64}) {
          candidates.push_back({.algorithm = algorithm, .segments = segments});
        }
        break;
      case Algorithm::hierarchical:
        if (!domains) break;
        for (const Inner inner : {Inner::ring, Inner::circulant, Inner::direct, Inner::leader}) {
          for (const Outer outer :
               {Outer::ring, Outer::recursive_doubling, Outer::halving_doubling}) {
            candidates.push_back({.algorithm = algorithm, .inner = inner, .outer = outer});
          }
        }
        break;
      default:
        candidates.push_back({.algorithm = algorithm});
    }
  }
  return candidates;
}

namespace {

// What a byte costs depends on how much memory a call walks through, more than on how it is cut
// into messages: every curve becomes the line through its first point with the mean slope up to
// the size of the vector.
Curve for_vectors_of(const Curve& curve, double bytes) {
  const double first = curve.bytes().front();
  const double alpha = curve.seconds().front();
  const double most = std::max(std::min(bytes, curve.bytes().back()), 2 * first);
  return Curve::line(alpha, std::max(curve(most) - alpha, 0.0) / most);
}

LevelModel for_vectors_of(const LevelModel& level, double bytes) {
  return {for_vectors_of(level.move, bytes), for_vectors_of(level.reduce, bytes)};
}

MachineModel for_vectors_of(const MachineModel& model, double bytes) {
  MachineModel result = model;
  result.inner = for_vectors_of(model.inner, bytes);
  result.outer = for_vectors_of(model.outer, bytes);
  result.post = for_vectors_of(model.post, bytes);
  result.copy = for_vectors_of(model.copy, bytes);
  return result;
}

}  // namespace

ChoiceTable::ChoiceTable(const MachineModel& model, int ranks, std::size_t post_bytes) {
  constexpr int kElement = 4;
  const bool domains = members_of_domains(model.domain_of).size() > 1;
  Layout layout;
  layout.domain_of = model.domain_of;
  for (std::size_t c = 0; c < parts_.size(); ++c) {
    const auto collective = static_cast<Collective>(c);
    Part& part = parts_[c];
    part.candidates = candidates_of(collective, ranks, domains, model.shares_memory);
    for (std::size_t bytes = kLeast; bytes <= kMost; bytes *= 2) {
      const MachineModel sized = for_vectors_of(model, static_cast<double>(bytes));
      std::vector<double> seconds;
      for (const Choice& choice : part.candidates) {
        ScheduleKey key{.collective = collective, .algorithm = choice.algorithm};
        key.ranks = ranks;
        key.count = static_cast<std::int64_t>(bytes) / kElement;
        if (collective == Collective::all_to_all) {
          // Whole blocks, and one at least: what moves nothing takes no time, by any algorithm.
          key.count = std::max<std::int64_t>(key.count / ranks, 1) * ranks;
        }
        key.segments = choice.segments;
        key.post_elements = static_cast<std::int64_t>(post_bytes) / kElement;
        key.inner = choice.inner;
        key.outer = choice.outer;
        seconds.push_back(
            ranks == 1 ? 0
                       : simulate(make_schedule(key, layout), sized, kElement, kElement).seconds);
      }
      const auto best = std::min_element(seconds.begin(), seconds.end());
      const auto index = static_cast<std::size_t>(best - seconds.begin());
      part.entries.push_back({bytes, part.candidates[index], *best});
      part.predictions.push_back(std::move(seconds));
      // Size means nothing to a barrier.
      if (collective == Collective::barrier) break;
    }
  }
}

void ChoiceTable::correct(Collective collective, std::span<const MeasuredSize> measured) {
  Part& part = parts_[static_cast<std::size_t>(collective)];
  if (measured.empty()) return;
  const auto ratio = [&](const MeasuredSize& size, std::size_t candidate) {
    const double predicted = predictions(collective, size.bytes)[candidate];
    return predicted > 0 ? size.seconds[candidate] / predicted : 0;
  };
  for (std::size_t s = 0; s < part.entries.size(); ++s) {
    ChoiceEntry& entry = part.entries[s];
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t candidate = 0; candidate < part.candidates.size(); ++candidate) {
      // The measured sizes on both sides; one of them, or none, at the ends.
      double below = 0;
      double above = 0;
      for (const MeasuredSize& size : measured) {
        const double here = ratio(size, candidate);
        if (here <= 0) continue;
        if (size.bytes <= entry.bytes) below = here;
        if (size.bytes >= entry.bytes && above == 0) above = here;
      }
      if (below == 0 && above == 0) continue;
      const double factor = below == 0 ? above : above == 0 ? below : std::sqrt(below * above);
      const double seconds = part.predictions[s][candidate] * factor;
      if (seconds >= least) continue;
      least = seconds;
      entry.choice = part.candidates[candidate];
      entry.predicted_s = seconds;
    }
  }
}

std::size_t ChoiceTable::index_of(Collective collective, std::size_t bytes) const {
  // Sizes are split half-way (as a factor) between two entries.
  const std::size_t scaled = bytes > kMost ? kMost : bytes * 1000 / 1414;
  const auto exponent = static_cast<int>(std::bit_width(std::max<std::size_t>(scaled, 1) - 1));
  const auto least = static_cast<int>(std::bit_width(kLeast)) - 1;
  const auto index = static_cast<std::size_t>(std::max(exponent - least, 0));
  return std::min(index, of(collective).entries.size() - 1);
}

const ChoiceEntry& ChoiceTable::entry(Collective collective, std::size_t bytes) const {
  return of(collective).entries[index_of(collective, bytes)];
}

std::span<const double> ChoiceTable::predictions(Collective collective, std::size_t bytes) const {
  return of(collective).predictions[index_of(collective, bytes)];
}

std::string ChoiceTable::to_text() const {
  std::string text =
      fmt::format("{:<15} {:>12}  {:<32} {:>12}\n", "collective", "up to bytes", "algorithm", "us");
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (const ChoiceEntry& entry : entries(collective)) {
      fmt::format_to(std::back_inserter(text), "{:<15} {:>12}  {:<32} {:>12.2f}\n",
                     name_of(collective), entry.bytes, to_string(entry.choice),
                     entry.predicted_s * 1e6);
    }
  }
  return text;
}

namespace {

// What would be ignored, or done in another way than it says, was not meant.
void check_choice(std::string_view text, const Choice& choice, bool has_segments, bool has_levels) {
  const std::string_view name = name_of(choice.algorithm);
  const bool hierarchical = choice.algorithm == Algorithm::hierarchical;
  if (has_levels && !hierarchical) refuse_forced(text, fmt::format("{} has no levels", name));
  if (!has_segments) return;
  const bool segmented = hierarchical ? choice.outer == Outer::double_tree
                                      : choice.algorithm == Algorithm::segmented_ring ||
                                            choice.algorithm == Algorithm::double_tree ||
                                            choice.algorithm == Algorithm::chain;
  if (!segmented) {
    refuse_forced(text, fmt::format("{} does not cut vectors into segments",
                                    to_string({.algorithm = choice.algorithm,
                                               .inner = choice.inner,
                                               .outer = choice.outer})));
  }
  if (choice.algorithm == Algorithm::segmented_ring && choice.segments > kMostLanes) {
    refuse_forced(text, fmt::format("a segmented_ring has {} segments at most", kMostLanes));
  }
}

}  // namespace

ForcedChoice parse_forced(std::string_view text) {
  ForcedChoice forced;
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) refuse_forced(text, "there is no '='");
  std::string_view left = text.substr(0, equals);
  std::string_view right = text.substr(equals + 1);
  if (const std::size_t colon = left.find(':'); colon != std::string_view::npos) {
    const std::string_view range = left.substr(colon + 1);
    left = left.substr(0, colon);
    const std::size_t dash = range.find('-');
    if (dash == std::string_view::npos) refuse_forced(text, "a range is written 0-65536");
    if (dash > 0) forced.least_bytes = parse_bytes(text, range.substr(0, dash));
    if (dash + 1 < range.size()) forced.most_bytes = parse_bytes(text, range.substr(dash + 1));
    if (forced.least_bytes > forced.most_bytes) {
      refuse_forced(text,
                    fmt::format("no size is from {} to {}", forced.least_bytes, forced.most_bytes));
    }
  }
  const auto collective = parse_collective(left);
  if (!collective) refuse_forced(text, fmt::format("'{}' is not a collective", left));
  forced.collective = *collective;
  bool has_segments = false;
  bool has_levels = false;
  if (const std::size_t times = right.find(" x"); times != std::string_view::npos) {
    has_segments = true;
    const std::size_t segments = parse_bytes(text, right.substr(times + 2));
    if (segments < 1 || segments > 1024) refuse_forced(text, "1 to 1024 segments are possible");
    forced.choice.segments = static_cast<int>(segments);
    right = right.substr(0, times);
  }
  if (const std::size_t space = right.find(' '); space != std::string_view::npos) {
    has_levels = true;
    parse_levels(text, right.substr(space + 1), forced.choice);
    right = right.substr(0, space);
  }
  const auto algorithm = parse_algorithm(right);
  const auto known = algorithms_of(forced.collective);
  if (!algorithm || std::find(known.begin(), known.end(), *algorithm) == known.end()) {
    refuse_forced(text, fmt::format("{} has no algorithm '{}'", left, right));
  }
  forced.choice.algorithm = *algorithm;
  check_choice(text, forced.choice, has_segments, has_levels);
  return forced;
}

Chooser with_forced(std::vector<ForcedChoice> forced, Chooser otherwise) {
  return [forced = std::move(forced), otherwise = std::move(otherwise)](
             Collective collective, int ranks, std::size_t bytes) {
    for (const ForcedChoice& each : forced) {
      if (each.collective == collective && bytes >= each.least_bytes && bytes <= each.most_bytes) {
        return each.choice;
      }
    }
    return otherwise(collective, ranks, bytes);
  };
}

}  // namespace belay::comm
