#include "belay/data/row_packer.h"

#include <utility>

#include "belay/base/check.h"

namespace belay::data {
namespace {
// Bounds memory; enough choice that more of it hardly lowers the padding.
constexpr std::size_t kOpenRows = 4096;
}  // namespace

RowPacker::RowPacker(std::int64_t row_len, std::function<void(std::span<const Piece>)> emit)
    : row_len_(static_cast<std::uint64_t>(row_len)), emit_(std::move(emit)) {
  BELAY_CHECK(row_len > 0);
}

void RowPacker::add(std::uint64_t begin, std::uint64_t length) {
  for (; length >= row_len_; begin += row_len_, length -= row_len_) {
    const Piece whole{.begin = begin, .length = static_cast<std::uint32_t>(row_len_)};
    emit_(std::span(&whole, 1));
  }
  if (length == 0) return;

  const Piece piece{.begin = begin, .length = static_cast<std::uint32_t>(length)};
  const auto fit = by_space_.lower_bound({length, 0});
  std::uint64_t number = next_row_;
  if (fit != by_space_.end()) {
    number = fit->second;
    by_space_.erase(fit);
  } else {
    ++next_row_;
    open_.emplace(number, Row{.space = row_len_, .pieces = {}});
  }
  Row& row = open_.at(number);
  row.pieces.push_back(piece);
  row.space -= length;
  if (row.space == 0) {
    close(number);
    return;
  }
  by_space_.emplace(row.space, number);
  if (open_.size() > kOpenRows) {
    const std::uint64_t fullest = by_space_.begin()->second;
    by_space_.erase(by_space_.begin());
    close(fullest);
  }
}

void RowPacker::close(std::uint64_t row) {
  const auto found = open_.find(row);
  emit_(found->second.pieces);
  open_.erase(found);
}

void RowPacker::finish() {
  while (!open_.empty()) close(open_.begin()->first);
  by_space_.clear();
}

}  // namespace belay::data
