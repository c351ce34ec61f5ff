#pragma once
// Text normalisation before pre-tokenisation. Input and output are valid UTF-8.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace belay::data {

class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;
  virtual ~Normalizer() = default;
  // The normalised text: `text` itself if nothing changes, else a view of `buffer`, which must not
  // be what `text` points into.
  [[nodiscard]] virtual std::string_view apply(std::string_view text,
                                               std::string& buffer) const = 0;
};

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

std::unique_ptr<Normalizer> make_unicode_normalizer(UnicodeForm form);
// Replaces each occurrence of `what` (not empty).
std::unique_ptr<Normalizer> make_replace_normalizer(const std::string& what,
                                                    const std::string& with);
std::unique_ptr<Normalizer> make_sequence_normalizer(
    std::vector<std::unique_ptr<Normalizer>> parts);

}  // namespace belay::data
