#include "belay/comm/fault_script.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "belay/base/error.h"

namespace belay::comm {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kTimes[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kThousands[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}};

struct Name {
  std::string_view name;
  FaultKind kind;
};
constexpr Name kFaults[] = {{"bandwidth", FaultKind::bandwidth}, {"delay", FaultKind::delay},
                            {"drop", FaultKind::drop},           {"late", FaultKind::late},
                            {"kill", FaultKind::kill},           {"stop", FaultKind::stop}};

constexpr bool of_rank_itself(FaultKind kind) {
  return kind == FaultKind::late || kind == FaultKind::kill || kind == FaultKind::stop;
}

// The next word; `text` loses it.
std::string_view take_word(std::string_view& text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size());
  text.remove_prefix(begin);
  const std::string_view word = text.substr(0, text.find_first_of(" \t\n"));
  text.remove_prefix(word.size());
  return word;
}

class ClauseParser {
 public:
  ClauseParser(std::string_view clause, int ranks)
      : clause_(clause), rest_(clause), ranks_(ranks) {}

  void parse(std::vector<Fault>& faults) {
    const std::string_view target = take_word(rest_);
    std::vector<Fault> links;
    bool rank_itself = false;
    if (target == "all") {
      links.push_back({});
    } else if (target == "link") {
      links = parse_link(take_word(rest_));
    } else if (target == "rank") {
      const int rank = parse_rank(take_word(rest_));
      rank_itself = true;
      links.resize(2);
      links[0].from = links[1].to = rank;
    } else {
      refuse(target, "a clause begins with link, rank or all");
    }
    const std::size_t first = faults.size();
    FaultSpan span;
    for (std::string_view word = take_word(rest_); !word.empty(); word = take_word(rest_)) {
      if (word.starts_with("from=")) {
        parse_when(word, word.substr(5), span, true);
      } else if (word.starts_with("to=")) {
        parse_when(word, word.substr(3), span, false);
      } else {
        add_fault(word, links, rank_itself, faults);
      }
    }
    if (faults.size() == first) refuse(target, "it says nothing of what goes wrong");
    for (std::size_t i = first; i < faults.size(); ++i) {
      FaultSpan& own = faults[i].span;
      own.first_call = std::max(own.first_call, span.first_call);
      own.first_s = std::max(own.first_s, span.first_s);
      own.last_call = span.last_call;
      own.last_s = span.last_s;
      if (own.first_call > own.last_call || own.first_s > own.last_s) {
        refuse(target, "it ends before it begins");
      }
    }
  }

 private:
  [[noreturn]] void refuse(std::string_view part, std::string_view why) const {
    fail(ExitCode::usage,
         "comm.inject: '{}' in '{}': {}; a clause is 'link A->B', 'link A-B', 'rank R' or 'all', "
         "then bandwidth=BYTES_PER_S, delay=5ms, drop (links), late=5ms, kill, stop (rank R), "
         "then perhaps from=WHEN to=WHEN, a number of a call or a time; clauses are separated by "
         "';', as in 'link 0-1 bandwidth=1e8 from=100 to=400; rank 2 kill@call=20'",
         part, clause_, why);
  }

  template <class Units>
  [[nodiscard]] double parse_amount(std::string_view word, std::string_view text,
                                    const Units& units, std::string_view example) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    if (error == std::errc() && value >= 0 && value <= 1e18) {
      for (const Unit& each : units) {
        if (unit == each.name) return value * each.factor;
      }
    }
    refuse(word, fmt::format("it needs a value such as {}", example));
  }

  [[nodiscard]] int parse_rank(std::string_view text) const {
    int rank = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || end != text.data() + text.size() || rank < 0) {
      refuse(text, "a rank is a number");
    }
    if (rank >= ranks_) refuse(text, fmt::format("there are {} ranks, from 0", ranks_));
    return rank;
  }

  [[nodiscard]] std::vector<Fault> parse_link(std::string_view text) const {
    const std::size_t dash = text.find('-');
    if (dash == std::string_view::npos) refuse(text, "a link is written 0->1 or 0-1");
    const bool directed = text.substr(dash).starts_with("->");
    Fault fault;
    fault.from = parse_rank(text.substr(0, dash));
    fault.to = parse_rank(text.substr(dash + (directed ? 2 : 1)));
    if (fault.from == fault.to) refuse(text, "a link joins two ranks");
    std::vector<Fault> links{fault};
    std::swap(fault.from, fault.to);
    if (!directed) links.push_back(fault);
    return links;
  }

  // A number of a call, or a time.
  void parse_when(std::string_view word, std::string_view text, FaultSpan& span, bool first) const {
    std::uint64_t call = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), call);
    if (error == std::errc() && end == text.data() + text.size()) {
      (first ? span.first_call : span.last_call) = call;
      return;
    }
    (first ? span.first_s : span.last_s) = parse_amount(word, text, kTimes, "100 (a call) or 2s");
  }

  void add_fault(std::string_view word, const std::vector<Fault>& links, bool rank_itself,
                 std::vector<Fault>& faults) const {
    std::string_view text = word;
    Fault fault;
    if (const std::size_t at = word.find('@'); at != std::string_view::npos) {
      text = word.substr(0, at);
      const std::string_view when = word.substr(at + 1);
      if (!when.starts_with("call=") && !when.starts_with("time=")) {
        refuse(word, "after '@' comes call=N or time=T");
      }
      parse_when(word, when.substr(5), fault.span, true);
    }
    const std::string_view name = text.substr(0, text.find('='));
    const auto* const known = std::find_if(std::begin(kFaults), std::end(kFaults),
                                           [&](const Name& each) { return each.name == name; });
    if (known == std::end(kFaults)) {
      refuse(word, "the faults are bandwidth, delay, drop, late, kill, stop");
    }
    fault.kind = known->kind;
    const std::string_view value =
        name.size() == text.size() ? std::string_view() : text.substr(name.size() + 1);
    if (fault.kind == FaultKind::bandwidth) {
      fault.amount = parse_amount(word, value, kThousands, "1e8 or 100M");
      if (fault.amount <= 0) refuse(word, "a link without bandwidth is one with drop");
    } else if (fault.kind == FaultKind::delay || fault.kind == FaultKind::late) {
      fault.amount = parse_amount(word, value, kTimes, "5ms");
    } else if (name.size() != text.size()) {
      refuse(word, "it takes no value; when it begins is said by @call=N");
    }
    if (of_rank_itself(fault.kind)) {
      if (!rank_itself) refuse(word, "that happens to a rank: 'rank R'");
      fault.from = fault.to = links.front().from;
      faults.push_back(fault);
      return;
    }
    for (const Fault& link : links) {
      fault.from = link.from;
      fault.to = link.to;
      faults.push_back(fault);
    }
  }

  std::string_view clause_;
  std::string_view rest_;
  int ranks_;
};

}  // namespace

FaultScript::FaultScript(std::string_view text, int ranks) {
  while (!text.empty()) {
    const std::string_view clause = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(clause.size() + 1, text.size()));
    if (clause.find_first_not_of(" \t\n") == std::string_view::npos) continue;
    ClauseParser(clause, ranks).parse(faults_);
  }
}

LinkState FaultScript::link(int from, int to, std::uint64_t call, double seconds) const {
  LinkState state;
  for (const Fault& fault : faults_) {
    if (of_rank_itself(fault.kind) || (fault.from != Fault::kAny && fault.from != from) ||
        (fault.to != Fault::kAny && fault.to != to) || !fault.span.contains(call, seconds)) {
      continue;
    }
    if (fault.kind == FaultKind::bandwidth) state.bandwidth = fault.amount;
    if (fault.kind == FaultKind::delay) state.delay_s = fault.amount;
    if (fault.kind == FaultKind::drop) state.drop = true;
  }
  return state;
}

double FaultScript::late(int rank, std::uint64_t call, double seconds) const {
  double late = 0;
  for (const Fault& fault : faults_) {
    if (fault.kind == FaultKind::late && fault.from == rank && fault.span.contains(call, seconds)) {
      late = fault.amount;
    }
  }
  return late;
}

}  // namespace belay::comm
