#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "belay/base/error.h"
#include "belay/snapshot/elements.h"
#include "belay/snapshot/hf_checkpoint.h"
#include "belay/snapshot/hf_weights.h"

namespace belay {
namespace {

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHead = "lm_head.weight";

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Buffers that some writers store beside the weights: rotary frequencies and GPT-2's causal masks.
bool is_buffer(std::string_view name) {
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !all_digits(name.substr(0, dot))) return false;
  name.remove_prefix(dot);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

}  // namespace

HfWeights::HfWeights(const std::string& path, const ParameterTable& table,
                     const ImportOptions& options)
    : checkpoint_(HfCheckpoint::open(path)), table_(table), problems_(checkpoint_.problems()) {
  match_table();
  find_unknown(options.allow_unknown);
  if (!problems_.empty()) {
    fail(ExitCode::data, "{}: these weights do not fit the model; nothing was loaded:\n  {}", path,
         fmt::join(problems_, "\n  "));
  }
}

void HfWeights::read(int index, std::span<float> dst) const {
  const Parameter& parameter = table_[index];
  for (const HfPart& part : parameter.hf) {
    const HfCheckpoint::Entry& entry = *find(part.name);
    read_part(parameter, part, *weight_dtype(entry.info->dtype), entry.bytes(), dst);
    entry.file->release(*entry.info);
  }
}

const HfCheckpoint::Entry* HfWeights::find(const std::string& name) const {
  const HfCheckpoint::Entry* entry = checkpoint_.find(name);
  return entry != nullptr ? entry : checkpoint_.find(std::string(kPrefix) + name);
}

void HfWeights::match_table() {
  for (const Parameter& parameter : table_.all()) {
    for (const HfPart& part : parameter.hf) {
      const HfCheckpoint::Entry* entry = find(part.name);
      if (entry == nullptr) {
        problems_.push_back(fmt::format("tensor {} is missing", part.name));
        continue;
      }
      used_.insert(entry->info->name);
      const std::vector<std::uint64_t> expected = part_shape(parameter, part);
      if (entry->info->shape != expected) {
        problems_.push_back(fmt::format("tensor {} has shape {}, the model needs {}", part.name,
                                        shape_text(entry->info->shape), shape_text(expected)));
      }
      if (!weight_dtype(entry->info->dtype)) {
        problems_.push_back(fmt::format("tensor {} is {}; F32, BF16 and F16 are read", part.name,
                                        name_of(entry->info->dtype)));
      }
    }
  }
}

void HfWeights::find_unknown(bool allowed) {
  for (const HfCheckpoint::Entry& entry : checkpoint_.entries()) {
    const std::string& name = entry.info->name;
    if (used_.contains(name) || is_buffer(name)) continue;
    if (name == kHead) {
      check_tied_head(entry);
    } else if (!allowed) {
      problems_.push_back(fmt::format("tensor {} is unknown to the model", name));
    }
  }
}

void HfWeights::check_tied_head(const HfCheckpoint::Entry& head) {
  const int index = table_.find("embedding.weight");
  const HfCheckpoint::Entry* embedding = index < 0 ? nullptr : find(table_[index].hf.front().name);
  if (embedding == nullptr) return;  // reported already
  const std::span<const std::byte> a = head.bytes();
  const std::span<const std::byte> b = embedding->bytes();
  if (head.info->dtype != embedding->info->dtype || head.info->shape != embedding->info->shape ||
      !std::equal(a.begin(), a.end(), b.begin(), b.end())) {
    problems_.push_back(fmt::format(
        "tensor {} differs from {}, but the model ties them; set tie_word_embeddings to false",
        kHead, embedding->info->name));
  }
}

void import_weights(const std::string& path, const ParameterTable& table, const ParameterSink& sink,
                    const ImportOptions& options) {
  const HfWeights weights(path, table, options);
  std::vector<float> values;
  for (int index = 0; index < table.size(); ++index) {
    values.resize(static_cast<std::size_t>(table[index].elements()));
    weights.read(index, values);
    sink(index, values);
  }
}

}  // namespace belay
