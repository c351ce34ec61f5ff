#include "belay/data/train_tokenizer.h"

#include <algorithm>

#include "belay/base/log.h"
#include "belay/data/bpe_trainer.h"
#include "belay/data/jsonl.h"

namespace belay::data {

std::unique_ptr<Tokenizer> train_tokenizer(std::int32_t vocab_size,
                                           const std::vector<InputFile>& files,
                                           const InputOptions& options,
                                           const std::string& text_key) {
  BpeTrainerOptions trainer_options;
  trainer_options.vocab_size = vocab_size;
  BpeTrainer trainer(trainer_options);
  std::vector<InputFile> texts;
  std::copy_if(files.begin(), files.end(), std::back_inserter(texts),
               [](const InputFile& file) { return file.kind != InputKind::tokens; });
  InputReader reader(texts, options);
  InputBatch batch;
  JsonlParser parser;
  JsonlError ignored;
  while (reader.next(batch)) {
    for (const InputPart& part : batch.parts) {
      std::string_view text = std::string_view(batch.text).substr(part.begin, part.size);
      if (part.kind == InputKind::jsonl && !parser.parse(text, text_key, text, ignored)) continue;
      trainer.feed(text);
    }
  }
  log::info("training a tokenizer of {} tokens on {:.1f} MB", vocab_size,
            static_cast<double>(reader.counters().bytes_read) / 1e6);
  return tokenizer_from_json(trainer.finish(), "the trained tokenizer");
}

}  // namespace belay::data
