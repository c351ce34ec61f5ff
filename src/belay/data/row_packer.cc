#include "belay/data/row_packer.h"

#include "belay/data/document_packer.h"
#include "belay/data/sentence_packer.h"

namespace belay::data {

std::unique_ptr<RowPacker> make_row_packer(Packing packing, std::int64_t row_len,
                                           RowPacker::Emit emit) {
  switch (packing) {
    case Packing::concat:
      break;
    case Packing::documents:
      return std::make_unique<DocumentPacker>(row_len, std::move(emit));
    case Packing::sentences:
      return std::make_unique<SentencePacker>(row_len, std::move(emit));
  }
  return nullptr;
}

}  // namespace belay::data
