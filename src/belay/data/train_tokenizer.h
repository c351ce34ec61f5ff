#pragma once
// A tokenizer trained on the very inputs that are to be packed.

#include <memory>
#include <string>
#include <vector>

#include "belay/data/input_reader.h"
#include "belay/data/tokenizer.h"

namespace belay::data {

// Reads all text and JSONL files once. Lines that are not what they should be are left to the
// reading that packs, which reports or counts them.
std::unique_ptr<Tokenizer> train_tokenizer(std::int32_t vocab_size,
                                           const std::vector<InputFile>& files,
                                           const InputOptions& options,
                                           const std::string& text_key);

}  // namespace belay::data
