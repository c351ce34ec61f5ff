#pragma once
// The steps around the model in a tokenizer.json: normalizer, pre_tokenizer and decoder.

#include "belay/data/bpe_tokenizer.h"
#include "belay/data/tokenizer_json_fields.h"

namespace belay::data {

// Fills in what the steps decide: byte_level, prepend, prefix, prefix_first, normalizer, splitter,
// decode_replace and decode_strip. Error(data) for a step that is not supported.
void read_tokenizer_steps(const simdjson::dom::object& top, const JsonFields& fields,
                          BpeDefinition& definition);

}  // namespace belay::data
