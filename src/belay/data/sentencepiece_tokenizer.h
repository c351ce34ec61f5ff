#pragma once
// Tokenizer over a sentencepiece .model (Kudo and Richardson, "SentencePiece", EMNLP 2018). What
// the model's own normalisation drops (runs of spaces, compatibility characters) is lost, as its
// maker chose; bytes that are not UTF-8 become U+FFFD, as in the library.

#include <memory>
#include <string>

#include "belay/data/tokenizer.h"

namespace belay::data {

// Error(data) if `model` is not a sentencepiece model; `origin` is the path, for messages.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(std::string model,
                                                        const std::string& origin);

}  // namespace belay::data
