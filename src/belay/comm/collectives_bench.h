#pragma once
// Times collectives over the world's ranks. Calls alternate with MPI's own, each after a barrier,
// so that both see the same machine. A call's time is that of the slowest rank.
//
// A row's algorithm is the one that ran: with injected faults, and over messages, ranks share no
// memory, and a direct exchange takes the place of direct_store.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "belay/comm/collective.h"
#include "belay/comm/world.h"

namespace belay::comm {

struct CollectivesBench {
  std::string collective = "all_reduce";  // or all
  std::string algorithm = "auto";         // or all, or a name
  std::string dtype = "f32";
  std::int64_t min_bytes = 4096;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  int iterations = 20;
  double seconds = 0.2;
  std::string chooser = "model";   // the name of a ChooserKind
  std::vector<std::string> force;  // as parse_forced() takes them
  std::string rank_map;            // a file; empty: domains are found out
  std::string inject;              // faults, as FaultScript reads them
  bool regret = false;             // time every candidate beside the choice
  bool order_stable = false;
  bool messages = false;
  bool private_memory = false;
  bool out_of_place = false;  // all_reduce, which else is in place, as gradients are summed
  bool gloo = true;  // beside gloo too, where it was built in and all ranks are on one host
};

// One size. bytes: of the whole vector. Bandwidths in 1e9 bytes per second: algbw is bytes over the
// median time, busbw what a link carries (2(p-1)/p of it for all_reduce, (p-1)/p for
// reduce_scatter, all_gather and all_to_all). 0: not measured.
struct CollectiveTiming {
  Collective collective = Collective::all_reduce;
  std::int64_t bytes = 0;
  DType dtype = DType::f32;
  std::string algorithm;
  double us = 0;  // median
  double mean_us = 0;
  double p99_us = 0;
  double algbw_gbps = 0;
  double busbw_gbps = 0;
  bool correct = false;  // on all ranks
  double mpi_us = 0;     // median of MPI's all-reduce
  double gloo_us = 0;    // median of gloo's
  std::string best;      // with regret: the fastest candidate
  double regret = 0;     // time of the choice over the fastest's, less 1
};

struct CollectivesReport {
  int rank = 0;
  int ranks = 1;
  std::vector<CollectiveTiming> rows;
  double mpi_ratio = 0;    // geometric mean of mpi_us / us over the rows that have both
  double least_ratio = 0;  // the smallest
  std::string topology;    // of the ranks, in a line
  std::string table;       // of choices, with chooser model
};

// Every rank calls it; on_row is called on rank 0. Error(usage) for unknown names.
CollectivesReport bench_collectives(World& world, const CollectivesBench& options,
                                    const std::function<void(const CollectiveTiming&)>& on_row);

// Error(failure) on all ranks if a result was wrong; the first rank's says which.
void refuse_wrong_results(const CollectivesReport& report);

}  // namespace belay::comm
