#include "belay/data/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>

#include "belay/base/error.h"

namespace belay::data {
namespace {

void check_icu(UErrorCode status, const char* what) {
  if (U_FAILURE(status)) fail(ExitCode::failure, "ICU: {}: {}", what, u_errorName(status));
}

// ICU takes 32-bit lengths; longer text is cut at a line break, across which nothing composes.
constexpr std::size_t kLongestPiece = std::size_t{1} << 28;

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form) {
    UErrorCode status = U_ZERO_ERROR;
    const bool compose = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
    const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
    normalizer_ = icu::Normalizer2::getInstance(
        nullptr, compatible ? "nfkc" : "nfc", compose ? UNORM2_COMPOSE : UNORM2_DECOMPOSE, status);
    check_icu(status, "no normalisation data");
  }

  [[nodiscard]] std::string_view apply(std::string_view text, std::string& buffer) const override {
    // ASCII is in every form.
    const auto high = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
    if (std::none_of(text.begin(), text.end(), high)) return text;
    UErrorCode status = U_ZERO_ERROR;
    if (text.size() <= kLongestPiece) {
      const bool done = normalizer_->isNormalizedUTF8(piece(text), status) != 0;
      check_icu(status, "quick check");
      if (done) return text;
    }
    buffer.clear();
    buffer.reserve(text.size());
    icu::StringByteSink<std::string> sink(&buffer);
    while (!text.empty()) {
      std::size_t length = text.size();
      if (length > kLongestPiece) {
        const std::size_t line = text.rfind('\n', kLongestPiece);
        if (line == std::string_view::npos) {
          fail(ExitCode::data, "a line of more than {} bytes cannot be normalised", kLongestPiece);
        }
        length = line + 1;
      }
      normalizer_->normalizeUTF8(0, piece(text.substr(0, length)), sink, nullptr, status);
      check_icu(status, "normalisation");
      text.remove_prefix(length);
    }
    return buffer;
  }

 private:
  static icu::StringPiece piece(std::string_view text) {
    return {text.data(), static_cast<std::int32_t>(text.size())};
  }
  const icu::Normalizer2* normalizer_;  // owned by ICU
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(std::string what, std::string with)
      : what_(std::move(what)), with_(std::move(with)) {}
  [[nodiscard]] std::string_view apply(std::string_view text, std::string& buffer) const override {
    std::size_t found = text.find(what_);
    if (found == std::string_view::npos) return text;
    buffer.clear();
    std::size_t done = 0;
    for (; found != std::string_view::npos; found = text.find(what_, done)) {
      buffer.append(text.substr(done, found - done)).append(with_);
      done = found + what_.size();
    }
    buffer.append(text.substr(done));
    return buffer;
  }

 private:
  std::string what_;
  std::string with_;
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  [[nodiscard]] std::string_view apply(std::string_view text, std::string& buffer) const override {
    std::string other;
    std::string* free = &buffer;
    std::string* used = &other;
    for (const auto& part : parts_) {
      const std::string_view result = part->apply(text, *free);
      if (result.data() == free->data()) std::swap(free, used);
      text = result;
    }
    if (text.data() != other.data()) return text;
    buffer = std::move(other);
    return buffer;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> make_unicode_normalizer(UnicodeForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}
std::unique_ptr<Normalizer> make_replace_normalizer(const std::string& what,
                                                    const std::string& with) {
  return std::make_unique<ReplaceNormalizer>(what, with);
}
std::unique_ptr<Normalizer> make_sequence_normalizer(
    std::vector<std::unique_ptr<Normalizer>> parts) {
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}

}  // namespace belay::data
