#include "belay/data/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/data/added_tokens.h"

namespace belay::data {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, const std::string& origin)
      : model_(std::move(model)), origin_(origin) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok()) {
      fail(ExitCode::data, "{}: not a sentencepiece model: {}", origin, status.message());
    }
    const int size = processor_.GetPieceSize();
    if (size <= 0) fail(ExitCode::data, "{}: a sentencepiece model without pieces", origin);
    for (int id = 0; id < size; ++id) {
      texts_.push_back(text_of(id));
      const std::string& piece = processor_.IdToPiece(id);
      if (processor_.IsControl(id) && !piece.empty()) controls_.add(piece, id);
    }
    // The model says only by its behaviour how it treats the space it puts in front of a text.
    drops_first_space_ = decode_pieces({"\u2581a"}) == "a";
    drops_all_leading_ = decode_pieces({"\u2581", "\u2581a"}) == "a";
  }

  [[nodiscard]] std::int32_t vocab_size() const override {
    return static_cast<std::int32_t>(texts_.size());
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids,
              SpecialText special) const override {
    std::size_t done = 0;
    if (special == SpecialText::map) {
      while (const auto match = controls_.find(text, done)) {
        encode_ordinary(text.substr(done, match->begin - done), ids);
        ids.push_back(match->token);
        done = match->end;
      }
    }
    encode_ordinary(text.substr(done), ids);
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    bool leading = drops_first_space_;
    for (const std::int32_t id : ids) {
      std::string_view piece = text_at(id);
      if (leading && !is_special(id)) {
        if (piece.starts_with(' ') && !processor_.IsByte(id) && !processor_.IsUnknown(id)) {
          piece.remove_prefix(1);
          leading = drops_all_leading_;
        }
        if (!piece.empty()) leading = false;
      } else {
        leading = leading && text.empty();
      }
      text.append(piece);
    }
    return text;
  }

  [[nodiscard]] std::string token_bytes(std::int32_t id) const override {
    return std::string(text_at(id));
  }
  [[nodiscard]] std::optional<std::int32_t> end_of_document() const override {
    return optional(processor_.eos_id());
  }
  [[nodiscard]] std::optional<std::int32_t> begin_of_document() const override {
    return optional(processor_.bos_id());
  }
  [[nodiscard]] std::optional<std::int32_t> padding() const override {
    return optional(processor_.pad_id());
  }
  [[nodiscard]] bool is_special(std::int32_t id) const override {
    return id >= 0 && id < vocab_size() && processor_.IsControl(id);
  }
  [[nodiscard]] std::int64_t count_special_text(std::string_view text) const override {
    std::int64_t count = 0;
    std::size_t from = 0;
    while (const auto match = controls_.find(text, from)) {
      ++count;
      from = match->end;
    }
    return count;
  }
  [[nodiscard]] std::string file_name() const override { return "tokenizer.model"; }
  void save(const std::string& path) const override { write_file(path, model_); }

 private:
  static std::optional<std::int32_t> optional(int id) {
    return id >= 0 ? std::optional<std::int32_t>(id) : std::nullopt;
  }

  [[nodiscard]] std::string_view text_at(std::int32_t id) const {
    if (id < 0 || id >= vocab_size()) {
      fail(ExitCode::data, "token id {} is outside the vocabulary [0, {}) of {}", id, vocab_size(),
           origin_);
    }
    return texts_[static_cast<std::size_t>(id)];
  }

  [[nodiscard]] std::string decode_pieces(const std::vector<std::string>& pieces) const {
    std::string text;
    const auto status = processor_.Decode(pieces, &text);
    if (!status.ok()) {
      fail(ExitCode::data, "{}: the sentencepiece model cannot decode: {}", origin_,
           status.message());
    }
    return text;
  }

  [[nodiscard]] std::string text_of(int id) const {
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id) && piece.size() == 6) {  // <0xHH>
      return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    }
    if (processor_.IsControl(id)) return piece;
    if (processor_.IsUnknown(id)) return decode_pieces({piece});
    std::string text;
    std::size_t done = 0;
    for (std::size_t at = piece.find(kSpaceMark); at != std::string::npos;
         at = piece.find(kSpaceMark, done)) {
      text.append(piece, done, at - done).push_back(' ');
      done = at + kSpaceMark.size();
    }
    return text.append(piece, done);
  }

  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return;
    std::vector<int> pieces;
    const auto status = processor_.Encode({text.data(), text.size()}, &pieces);
    if (!status.ok()) {
      fail(ExitCode::data, "{}: the sentencepiece model cannot encode: {}", origin_,
           status.message());
    }
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  std::string model_;
  std::string origin_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> texts_;
  TokenFinder controls_;
  bool drops_first_space_ = false;
  bool drops_all_leading_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model,
                                                        const std::string& origin) {
  return std::make_unique<SentencePieceTokenizer>(std::move(model), origin);
}

}  // namespace belay::data
