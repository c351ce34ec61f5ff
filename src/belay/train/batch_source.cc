#include "belay/train/batch_source.h"

namespace belay {

BatchAdapter::BatchAdapter(std::int64_t rows, std::int64_t seq_len, bool isolate_documents) {
  if (isolate_documents) return;
  doc_begin_.assign(static_cast<std::size_t>(rows * seq_len), 0);
  for (std::int64_t i = 0; i < rows * seq_len; ++i) {
    positions_.push_back(static_cast<std::int32_t>(i % seq_len));
  }
}

HostBatch BatchAdapter::adapt(const data::Batch& batch) const {
  return {batch.rows, batch.tokens.data(), batch.targets.data(),
          positions_.empty() ? batch.positions.data() : positions_.data(),
          doc_begin_.empty() ? batch.doc_begin.data() : doc_begin_.data()};
}

}  // namespace belay
