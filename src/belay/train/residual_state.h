#pragma once
// What compression still owes, between running ranks and a snapshot.

#include <exception>
#include <string>
#include <string_view>

#include "belay/parallel/residuals.h"
#include "belay/snapshot/snapshot.h"
#include "belay/train/rank_group.h"

namespace belay {

// In the run directory, while a snapshot is being taken; saves that were killed leave names behind
// that begin so.
inline constexpr std::string_view kUnfinishedResiduals = "residuals.unfinished";

// A file that holds every rank's residuals, until it moves into a snapshot; else it goes.
class ResidualFile {
 public:
  ResidualFile() = default;  // none: nothing is compressed
  // A collective; the first rank writes `path`, on the file system of the snapshot, if there is
  // room for both. What goes wrong there is kept for attach_to(), so that the others are not left
  // waiting.
  ResidualFile(const RankGroup& ranks, const Residuals& residuals, std::string path);
  ~ResidualFile();
  ResidualFile(ResidualFile&& other) noexcept;
  ResidualFile& operator=(ResidualFile&&) = delete;

  // On the first rank; throws what went wrong.
  void attach_to(SnapshotOptions& options) const;
  [[nodiscard]] std::uint64_t bytes() const { return file_.bytes; }

 private:
  void write(const RankGroup& ranks, const Residuals& residuals);

  std::string path_;
  WrittenFile file_;
  std::exception_ptr failure_;
};

// Size of the file that so many ranks write.
std::uint64_t residual_file_bytes(const Residuals& residuals, int ranks);

// Whether the snapshot has any.
bool has_residuals(const std::string& dir);

// This rank's part of the residuals in the snapshot, if it has any. With another number of ranks
// than wrote it, rank i takes what ranks i, i + ranks, ... had, so that their sum stays. Returns
// how many ranks wrote it, 0 if none. Error(data) if it does not fit.
int load_residuals(const std::string& dir, const RankGroup& ranks, Residuals& residuals);

}  // namespace belay
