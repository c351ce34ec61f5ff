#pragma once
// From the loader's batches to what a program uploads.

#include <vector>

#include "belay/data/loader.h"
#include "belay/train/program.h"

namespace belay {

// With isolation off every token sees the whole row before it: positions count through and the
// attention bound is the row's start.
class BatchAdapter {
 public:
  BatchAdapter(std::int64_t rows, std::int64_t seq_len, bool isolate_documents);
  // Valid as long as the batch and the adapter are.
  [[nodiscard]] HostBatch adapt(const data::Batch& batch) const;

 private:
  std::vector<std::int32_t> positions_;  // empty: isolation on
  std::vector<std::int32_t> doc_begin_;
};

}  // namespace belay
