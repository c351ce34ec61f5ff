#pragma once
// The file that keeps measured choices between runs:
//   {"format": 1, "machines": {IDENTITY: {SHAPE: {"kernel": NAME, "flops_per_s": RATE}}}}
// with SHAPE as MatmulKey::text() writes it.

#include <map>
#include <string>

#include "belay/device/matmul_choice.h"

namespace belay {

// $XDG_CACHE_HOME/belay/matmul.json, else ~/.cache/belay/matmul.json; empty when neither variable
// is set.
std::string default_matmul_cache_path();

class MatmulCache {
 public:
  // Reads the file if there is one. Anything wrong with it is logged and leaves the cache empty.
  MatmulCache(std::string path, std::string identity);
  // Null when the shape has no entry for this machine.
  [[nodiscard]] const MatmulChoice* find(const MatmulKey& key) const;
  void set(const MatmulKey& key, const MatmulChoice& choice);
  // Writes beside the file and renames; entries that other runs added meanwhile are kept. Returns
  // false, having logged why, when that fails.
  bool save();

 private:
  using Shapes = std::map<std::string, MatmulChoice>;
  using Machines = std::map<std::string, Shapes>;
  static Machines read(const std::string& path, bool report);

  std::string path_;
  std::string identity_;
  Machines machines_;
};

}  // namespace belay
