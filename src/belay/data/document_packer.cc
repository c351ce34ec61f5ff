#include "belay/data/document_packer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "belay/base/check.h"

namespace belay::data {
namespace {
// Enough choice that a larger window hardly lowers the padding.
constexpr std::size_t kWindow = std::size_t{1} << 16;
}  // namespace

DocumentPacker::DocumentPacker(std::int64_t row_len, Emit emit)
    : row_len_(static_cast<std::uint64_t>(row_len)), emit_(std::move(emit)) {
  BELAY_CHECK(row_len > 0);
  window_.reserve(kWindow);
}

void DocumentPacker::append(std::uint64_t tokens, std::span<const Cut>) {
  end_ += tokens;
  for (; end_ - begin_ >= row_len_; begin_ += row_len_) {
    const Piece whole{.begin = begin_, .length = static_cast<std::uint32_t>(row_len_)};
    emit_(std::span(&whole, 1));
  }
}

void DocumentPacker::end_document() {
  if (begin_ == end_) return;
  window_.push_back({.begin = begin_, .length = static_cast<std::uint32_t>(end_ - begin_)});
  begin_ = end_;
  if (window_.size() == kWindow) place_window();
}

void DocumentPacker::place_window() {
  std::sort(window_.begin(), window_.end(), [](const Piece& a, const Piece& b) {
    return a.length != b.length ? a.length > b.length : a.begin < b.begin;
  });
  std::vector<std::vector<Piece>> rows;
  std::map<std::uint64_t, std::vector<std::size_t>> by_space;  // rows that have room
  for (const Piece& piece : window_) {
    std::size_t row = rows.size();
    std::uint64_t space = row_len_;
    if (const auto fit = by_space.lower_bound(piece.length); fit != by_space.end()) {
      space = fit->first;
      row = fit->second.back();
      fit->second.pop_back();
      if (fit->second.empty()) by_space.erase(fit);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(piece);
    space -= piece.length;
    if (space > 0) by_space[space].push_back(row);
  }
  for (const std::vector<Piece>& row : rows) emit_(row);
  window_.clear();
}

}  // namespace belay::data
