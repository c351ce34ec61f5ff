#pragma once
// `belay bench links`: latency and bandwidth of every link among the ranks, in both directions; one
// link at a time, and in rings, where every rank sends to the rank a fixed number of places further
// on, all at once.

#include <cstddef>
#include <string>
#include <vector>

#include "belay/comm/communicator.h"

namespace belay::comm {

struct LinksBench {
  std::size_t bytes = std::size_t{1} << 20;  // of the messages that bandwidth is measured with
  int repetitions = 8;                       // the best counts
  double factor = 2;                         // a link worse than the median by this factor is bad
  double timeout_s = 30;                     // as of every communicator
  std::string flight{};                      // where flight records go if it fails; empty: nowhere
};

// A square of numbers, [from * ranks + to]; 0 on the diagonal.
using LinkMatrix = std::vector<double>;

struct BadLink {
  int from = 0;
  int to = 0;
  double latency_us = 0;  // of the second measurement
  double gbps = 0;
  bool slow = false;  // bandwidth; else latency
  bool late = false;
};

struct RingTest {
  int step = 1;     // places from a rank to the next
  double us = 0;    // until the last message was there
  double gbps = 0;  // of the slowest link
  int slowest_from = 0;
  int slowest_to = 0;
  bool bad = false;  // slower than the median ring by the factor
};

struct LinksReport {
  int rank = 0;
  int ranks = 1;
  LinkMatrix latency_us;     // one link at a time
  LinkMatrix gbps;           // likewise
  LinkMatrix gbps_together;  // in the rings
  double median_latency_us = 0;
  double median_gbps = 0;
  std::vector<RingTest> rings;
  std::vector<BadLink> bad;    // confirmed by a second measurement
  std::vector<int> bad_ranks;  // most of whose links are bad
  double record_ns = 0;        // what a flight record costs a call
};

// Collective; every rank gets the report. Error(usage) with one rank. host_of: as World's.
LinksReport bench_links(Transport& transport, const std::vector<int>& host_of,
                        const LinksBench& options);

}  // namespace belay::comm
