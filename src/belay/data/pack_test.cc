#include "belay/data/pack.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "belay/data/bpe_trainer.h"
#include "belay/data/test_files.h"

namespace belay::data {
namespace {

PackOptions bytes_options(const TestDirectory& directory, std::vector<std::string> inputs) {
  PackOptions options;
  options.inputs = std::move(inputs);
  options.out = directory.path("out");
  options.tokenizer = "bytes";
  return options;
}

// The documents of a dataset as text in the byte vocabulary; id 256 shows as '$'.
std::vector<std::string> documents_of(const std::string& path) {
  std::vector<std::string> documents;
  const Dataset dataset = Dataset::open(path, 64);
  for (const Dataset::Source& source : dataset.sources()) {
    for (std::size_t d = 0; d + 1 < source.starts.size(); ++d) {
      documents.emplace_back();
      for (std::uint64_t i = source.starts[d]; i < source.starts[d + 1]; ++i) {
        const std::int64_t id = source.tokens.at(static_cast<std::int64_t>(i));
        documents.back() += id == 256 ? '$' : static_cast<char>(id);
      }
    }
  }
  return documents;
}

TEST(Pack, ABlankRecordLeavesNoTrace) {
  const TestDirectory directory;
  const std::string a = "{\"text\":\"one\"}\n";
  const std::string b = "{\"text\":\"two\"}\n";
  const std::string blank = "{\"text\":\"\"}\n";
  PackOptions options = bytes_options(directory, {directory.write("a.jsonl", a + b)});
  options.append_eod = true;
  EXPECT_EQ(pack(options).counters.documents_empty, 0);
  EXPECT_EQ(documents_of(options.out), (std::vector<std::string>{"one$", "two$"}));
  const std::string tokens = directory.read("out/tokens.bin");
  const std::string documents = directory.read("out/documents.bin");
  options.overwrite = true;
  for (const std::string& content : {blank + a + b, a + blank + b, a + b + blank}) {
    options.inputs = {directory.write("b.jsonl", content)};
    EXPECT_EQ(pack(options).counters.documents_empty, 1);
    EXPECT_EQ(directory.read("out/tokens.bin"), tokens);
    EXPECT_EQ(directory.read("out/documents.bin"), documents);
  }
}

TEST(Pack, NothingToWriteIsAnErrorThatLeavesNothing) {
  const TestDirectory directory;
  const std::string blank = "{\"text\":\"\"}\n";
  PackOptions options = bytes_options(directory, {directory.write("a.jsonl", blank + blank)});
  EXPECT_TRUE(contains(error_of([&] { pack(options); }), "0 documents in 1 files: 2 empty"));
  options.inputs = {directory.write("b.jsonl", "{\"txt\":\"one\"}\n")};
  const std::string message = error_of([&] { pack(options); });
  EXPECT_TRUE(contains(message, "b.jsonl: line 1 has no key \"text\""));
  EXPECT_EQ(directory.entries(), 2);
}

TEST(Pack, ABadLineIsNamedOrDroppedAndCounted) {
  const TestDirectory directory;
  const std::string good = "{\"text\":\"one\"}\n";
  PackOptions options = bytes_options(
      directory, {directory.write("bad.jsonl", good + good + "{\"text\":\"\xE6\"}\n" + good)});
  EXPECT_TRUE(contains(error_of([&] { pack(options); }),
                       "bad.jsonl: line 3 is not UTF-8 at byte 9 of the line (39 of the file), "
                       "which is 0xE6"));
  EXPECT_EQ(directory.entries(), 1);
  options.skip_bad = true;
  EXPECT_EQ(pack(options).counters.lines_bad, 1);
  EXPECT_EQ(documents_of(options.out).size(), 3U);

  options = bytes_options(
      directory, {directory.write("two.jsonl", good + good + good + "{\"text\":\"a\"}{}\n")});
  options.overwrite = true;
  EXPECT_TRUE(contains(error_of([&] { pack(options); }),
                       "two.jsonl: line 4 has extra data after the JSON value at byte 12"));
  EXPECT_EQ(documents_of(options.out).size(), 3U);  // what stood there before
}

TEST(Pack, LinesWithoutSpacesAreKeptWholeInLinearTime) {
  const TestDirectory directory;
  const auto seconds = [&](std::size_t bytes) {
    const std::string text(bytes, 'x');
    PackOptions options =
        bytes_options(directory, {directory.write("a.jsonl", "{\"text\":\"" + text + "\"}\n")});
    options.overwrite = true;
    const PackReport report = pack(options);
    EXPECT_TRUE(documents_of(options.out) == std::vector<std::string>{text});
    return report.seconds;
  };
  seconds(std::size_t{1} << 20);  // warm
  double one = 1e9;
  double two = 1e9;
  for (int i = 0; i < 5; ++i) {
    one = std::min(one, seconds(std::size_t{1} << 20));
    two = std::min(two, seconds(std::size_t{2} << 20));
  }
  EXPECT_LT(two, 3.0 * one + 0.05);
}

TEST(Pack, TooLongLinesAreCountedAndIfAllAreTheOptionIsNamed) {
  const TestDirectory directory;
  const std::string line = "{\"text\":\"" + std::string(4988, 'x') + "\"}\n";
  ASSERT_EQ(line.size(), 5000U);
  PackOptions options = bytes_options(directory, {directory.write("a.jsonl", line + line + line)});
  options.input.max_line_bytes = 4096;
  EXPECT_TRUE(contains(error_of([&] { pack(options); }),
                       "3 of 3 lines were over 4096 bytes; raise --max-line-bytes"));
  options.inputs = {directory.write("b.jsonl", "{\"text\":\"a\"}\n" + line + "{\"text\":\"b\"}\n")};
  EXPECT_EQ(pack(options).counters.lines_too_long, 1);
  EXPECT_EQ(documents_of(options.out), (std::vector<std::string>{"a", "b"}));
}

TEST(Pack, TextOfASpecialTokenIsTextUnlessAskedFor) {
  const TestDirectory directory;
  const std::string text = "a<|endoftext|>b";
  PackOptions options =
      bytes_options(directory, {directory.write("a.jsonl", "{\"text\":\"" + text + "\"}\n")});
  BpeTrainer trainer({.vocab_size = 257});  // the bytes and <|endoftext|>
  options.tokenizer = directory.write("tokenizer.json", trainer.finish());
  options.append_eod = true;
  const auto ids_of = [&] {
    const Dataset dataset = Dataset::open(options.out, 8);
    const Dataset::Source source = dataset.sources().front();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(source.tokens.count));
    source.tokens.read(0, ids);
    return ids;
  };
  const PackReport report = pack(options);
  EXPECT_EQ(report.train.documents, 1);
  EXPECT_EQ(report.counters.special_text_seen, 1);
  std::vector<std::int32_t> ids = ids_of();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 256), 1);
  ASSERT_EQ(ids.back(), 256);
  ids.pop_back();
  EXPECT_EQ(load_tokenizer(options.tokenizer)->decode(ids), text);

  options.map_special = true;
  options.overwrite = true;
  EXPECT_EQ(pack(options).counters.special_text_seen, 1);
  ids = ids_of();
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 256), 2);
}

TEST(Pack, TheOutputDoesNotDependOnThreads) {
  const TestDirectory directory;
  std::string text;
  for (std::size_t i = 0; i < 60000; ++i) {
    text += fmt::format("{{\"text\":\"document {} {}\"}}\n", i, std::string(i % 90, 'y'));
  }
  PackOptions options = bytes_options(directory, {directory.write("a.jsonl", text)});
  options.row_len = 128;
  options.val_out = directory.path("val");
  options.overwrite = true;
  options.threads = 1;
  pack(options);
  const std::string tokens = directory.read("out/tokens.bin");
  const std::string pieces = directory.read("out/pieces.bin");
  const std::string rows = directory.read("out/row_tokens.bin");
  const std::string held_out = directory.read("val/tokens.bin");
  for (const int threads : {2, 5}) {
    options.threads = threads;
    pack(options);
    EXPECT_TRUE(directory.read("out/tokens.bin") == tokens);
    EXPECT_TRUE(directory.read("out/pieces.bin") == pieces);
    EXPECT_TRUE(directory.read("out/row_tokens.bin") == rows);
    EXPECT_TRUE(directory.read("val/tokens.bin") == held_out);
  }
}

TEST(Pack, HoldsOutTheSameDocumentsEveryTime) {
  const TestDirectory directory;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("{{\"text\":\"{}\"}}\n", i);
  PackOptions options = bytes_options(directory, {directory.write("a.jsonl", text)});
  options.val_out = directory.path("val");
  options.val_share = 0.1;
  const PackReport report = pack(options);
  ASSERT_TRUE(report.val.has_value());
  EXPECT_EQ(report.train.documents + report.val->documents, 1000);
  EXPECT_NEAR(static_cast<double>(report.val->documents), 100.0, 40.0);
  options.val_share = 0.0;
  options.overwrite = true;
  EXPECT_TRUE(contains(error_of([&] { pack(options); }), "of 1000 documents 0 were held out"));
}

TEST(Pack, TokenFilesAreInputsToo) {
  const TestDirectory directory;
  PackOptions options = bytes_options(
      directory, {directory.write("a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"second\"}\n")});
  pack(options);
  options.tokenizer.clear();
  options.inputs = {directory.path("out")};
  options.out = directory.path("mega");
  options.format = StoreFormat::megatron;
  EXPECT_EQ(pack(options).vocab_size, 257);
  options.inputs = {directory.path("mega"), directory.path("out")};
  options.out = directory.path("again");
  options.format = StoreFormat::belay;
  options.row_len = 4;
  options.packing = Packing::documents;
  const PackReport report = pack(options);
  EXPECT_EQ(documents_of(options.out),
            (std::vector<std::string>{"one", "second", "one", "second"}));
  EXPECT_EQ(report.train.packing->rows, 5);  // two full ones, 3, 2 + 2, and 3
  EXPECT_EQ(Dataset::open(options.out, 4).tokenizer(),
            directory.path("again/tokenizer.bytes.json"));
}

TEST(Pack, TrainsATokenizerOnTheInputsAndCarriesItAlong) {
  const TestDirectory directory;
  std::string lines;
  std::string text;
  for (int i = 0; i < 300; ++i) {
    lines += "{\"text\":\"the cat and the hat \u6625\u5929\"}\n";
    text += "the cat and the hat\n";
  }
  PackOptions options =
      bytes_options(directory, {directory.write("a.jsonl", lines), directory.write("b.txt", text)});
  options.tokenizer = "train:280";
  options.append_eod = true;
  const PackReport report = pack(options);
  EXPECT_EQ(report.train.documents, 301);
  EXPECT_GT(report.bytes_per_token(), 2.0);
  const Dataset dataset = Dataset::open(options.out, 8);
  const Dataset::Source source = dataset.sources().front();
  std::vector<std::int32_t> ids(source.starts[301] - source.starts[300] - 1);
  source.tokens.read(static_cast<std::int64_t>(source.starts[300]), ids);
  EXPECT_TRUE(load_tokenizer(dataset.tokenizer())->decode(ids) == text);
  options.overwrite = true;
  options.tokenizer = "train:many";
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage), "train:VOCAB"));
}

TEST(Pack, ADocumentEndsOnce) {
  const TestDirectory directory;
  PackOptions options = bytes_options(directory, {directory.write("a.txt", "some text")});
  options.append_eod = true;
  options.format = StoreFormat::megatron;
  options.out = directory.path("tokens");
  const std::int64_t tokens = pack(options).train.tokens;
  EXPECT_EQ(tokens, 10);
  options.inputs = {directory.path("tokens.bin")};
  options.out = directory.path("again");
  EXPECT_EQ(pack(options).train.tokens, tokens);
}

TEST(Pack, TellsWhatDoesNotGoTogether) {
  const TestDirectory directory;
  PackOptions options = bytes_options(directory, {directory.write("a.txt", "text")});
  options.format = StoreFormat::megatron;
  options.row_len = 8;
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage), "--seq-len"));
  options = bytes_options(directory, {directory.path("a.txt")});
  options.tokenizer.clear();
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage), "--tokenizer"));
  options = bytes_options(directory, {directory.path("a.txt")});
  pack(options);
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage), "--overwrite"));
  options.out = directory.path("");
  options.overwrite = true;  // must never replace a directory that is not a store
  EXPECT_TRUE(contains(error_of([&] { pack(options); }, ExitCode::usage), "not a token store"));
}

// Runs `action` in a child process and returns its peak resident memory in bytes.
template <class Action>
std::int64_t peak_memory_of(Action&& action) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    action();
    ::_exit(0);
  }
  int status = 0;
  struct rusage usage {};
  ::wait4(child, &status, 0, &usage);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

TEST(Pack, MemoryDoesNotGrowWithTheInput) {
  const TestDirectory directory;
  const auto peak = [&](int megabytes, const char* name, bool lines) {
    std::string text;
    const std::string line =
        lines ? "{\"text\":\"" + std::string(80, 'x') + "\"}\n" : std::string(80, 'x') + "\n";
    while (std::ssize(text) < (megabytes << 20)) text += line;
    PackOptions options = bytes_options(directory, {directory.write(name, text)});
    options.overwrite = true;
    options.threads = 2;
    options.row_len = lines ? 64 : 0;
    text.clear();
    text.shrink_to_fit();
    return peak_memory_of([&] { pack(options); });
  };
  // Queues fill as threads happen to run, so peaks differ by some; by the input they would by more.
  constexpr std::int64_t kSlack = std::int64_t{40} << 20;
  EXPECT_LT(peak(120, "b.jsonl", true), peak(20, "a.jsonl", true) + kSlack);
  EXPECT_LT(peak(140, "b.txt", false), peak(40, "a.txt", false) + kSlack);
}

TEST(Pack, AKilledRunLeavesNothingUnderTheFinalName) {
  const TestDirectory directory;
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "{\"text\":\"a document of some length\"}\n";
  PackOptions options = bytes_options(directory, {directory.write("a.jsonl", text)});
  options.threads = 1;
  for (const int milliseconds : {2, 10, 30}) {
    const ::pid_t child = ::fork();
    if (child == 0) {
      // Endless, so that the signal always meets a run in progress.
      options.progress = [](const PackProgress&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      };
      pack(options);
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(directory.exists("out"));
  }
  options.progress = nullptr;
  EXPECT_EQ(pack(options).train.documents, 200000);
  EXPECT_EQ(directory.entries(), 2);  // what the killed runs left is gone
}

}  // namespace
}  // namespace belay::data
