#pragma once
// RowPacker: puts documents into rows of a fixed length, some at a time, so that memory does not
// grow with their number. The rows depend on the documents alone.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "belay/data/sentence_cuts.h"
#include "belay/data/store_format.h"

namespace belay::data {

enum class Packing : std::uint8_t {
  concat,     // no rows of its own: documents one after another, cut where a row ends
  documents,  // documents that fit in a row are whole, longer ones cut where a row ends
  sentences,  // documents that fit in a row are mostly whole, longer ones cut between sentences
};

constexpr std::string_view name_of(Packing packing) {
  switch (packing) {
    case Packing::concat:
      return "concat";
    case Packing::documents:
      return "documents";
    case Packing::sentences:
      return "sentences";
  }
  return {};
}

class RowPacker {
 public:
  using Emit = std::function<void(std::span<const Piece>)>;  // receives each finished row

  RowPacker() = default;
  RowPacker(const RowPacker&) = delete;
  RowPacker& operator=(const RowPacker&) = delete;
  virtual ~RowPacker() = default;

  // The open document goes on for `tokens`, with cuts relative to their start.
  virtual void append(std::uint64_t tokens, std::span<const Cut> cuts) = 0;
  virtual void end_document() = 0;
  // Emits what is still held back.
  virtual void finish() = 0;
};

// Null for Packing::concat.
std::unique_ptr<RowPacker> make_row_packer(Packing packing, std::int64_t row_len,
                                           RowPacker::Emit emit);

}  // namespace belay::data
