#include "belay/data/input_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "belay/data/test_files.h"

namespace belay::data {
namespace {

std::string gzip(std::string_view text) {
  const TestDirectory directory;
  const std::string path = directory.path("x.gz");
  ::gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(file);
  return directory.read("x.gz");
}

std::string zstd(std::string_view text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

struct Content {
  std::vector<std::string> documents;
  PackCounters counters;
};

Content read_all(const std::vector<std::string>& paths, const InputOptions& options = {}) {
  Content content;
  InputReader reader(collect_inputs(paths, nullptr, content.counters), options);
  InputBatch batch;
  bool open = false;
  while (reader.next(batch)) {
    for (const InputPart& part : batch.parts) {
      if (!open) content.documents.emplace_back();
      content.documents.back() += batch.text.substr(part.begin, part.size);
      open = !part.ends_document;
    }
  }
  content.counters.add(reader.counters());
  return content;
}

TEST(InputReader, CompressedFilesReadLikePlainOnes) {
  const TestDirectory directory;
  std::string text;
  for (int i = 0; i < 50000; ++i) text += fmt::format("line {} of the text\n", i);
  const std::string half = text.substr(0, text.size() / 2);
  const std::string rest = text.substr(text.size() / 2);
  const std::vector<std::string> files = {
      directory.write("a.txt", text), directory.write("b.txt.gz", gzip(text)),
      directory.write("c.txt.zst", zstd(text)),
      directory.write("d.txt.gz", gzip(half) + gzip(rest)),  // several members and frames
      directory.write("e.txt.zst", zstd(half) + zstd(rest))};
  const Content content = read_all(files);
  ASSERT_EQ(content.documents.size(), files.size());
  for (const std::string& document : content.documents) EXPECT_TRUE(document == text);
}

TEST(InputReader, DamagedCompressionIsAnErrorWithTheFile) {
  const TestDirectory directory;
  const std::string text(100000, 'x');
  const auto refusal = [&](std::string_view name, const std::string& content) {
    const std::string path = directory.write(name, content);
    return error_of([&] { read_all({path}); });
  };
  const std::string packed = gzip(text);
  EXPECT_TRUE(contains(refusal("cut.txt.gz", packed.substr(0, packed.size() - 9)), "cut.txt.gz"));
  EXPECT_TRUE(contains(refusal("plain.txt.gz", "not compressed"), "byte 0 does not begin gzip"));
  // What follows a member is another member or an error, never dropped in silence.
  EXPECT_TRUE(contains(refusal("tail.txt.gz", packed + "garbage"), "does not begin gzip"));
  std::string second = packed;
  second[0] = 'x';
  EXPECT_TRUE(contains(refusal("second.txt.gz", packed + second), "does not begin gzip"));
  EXPECT_EQ(
      read_all({directory.write("zeros.txt.gz", packed + std::string(600, '\0'))}).documents.size(),
      1U);
  const std::string frame = zstd(text);
  EXPECT_TRUE(contains(refusal("cut.txt.zst", frame.substr(0, frame.size() - 1)), "truncated"));
  EXPECT_TRUE(contains(refusal("plain.txt.zst", "not compressed"), "plain.txt.zst"));
}

TEST(InputReader, SplitsTextOnALine) {
  const TestDirectory directory;
  InputOptions options;
  options.split_on = "%";
  const std::string path = directory.write("a.txt", "one\ntwo\n%\nthree %\n%\r\n%\nfour\n%\n");
  EXPECT_EQ(read_all({path}, options).documents,
            (std::vector<std::string>{"one\ntwo\n", "three %\n", "", "four\n"}));
  EXPECT_EQ(read_all({path}).documents.size(), 1U);
}

TEST(InputReader, ExpandsDirectoriesInOrderOfPath) {
  const TestDirectory directory;
  directory.write("in/b.txt", "b");
  directory.write("in/a/z.txt", "z");
  directory.write("in/c.jsonl", "{}\n");
  directory.write("in/readme.md", "skipped");
  const Content content = read_all({directory.path("in")});
  EXPECT_EQ(content.documents, (std::vector<std::string>{"z", "b", "{}\n"}));
  EXPECT_EQ(content.counters.files, 3);
  EXPECT_EQ(content.counters.files_skipped, 1);
  directory.write("other/readme.md", "nothing");
  EXPECT_TRUE(
      contains(error_of([&] { read_all({directory.path("other")}); }), "no .txt or .jsonl"));
  EXPECT_TRUE(
      contains(error_of([&] { read_all({directory.path("missing.txt")}); }), "no such file"));
  EXPECT_TRUE(contains(
      error_of([&] { read_all({directory.path("in/readme.md")}); }, ExitCode::usage), "--input"));
}

TEST(InputReader, RemovesAByteOrderMark) {
  const TestDirectory directory;
  const Content content =
      read_all({directory.write("a.txt", "\xEF\xBB\xBFtext"), directory.write("b.txt", "\xEF\xBB"),
                directory.write("c.txt", "")});
  EXPECT_EQ(content.documents, (std::vector<std::string>{"text", "\xEF\xBB", ""}));
  EXPECT_EQ(content.counters.byte_order_marks, 1);
}

TEST(InputReader, DropsAndCountsLongLines) {
  const TestDirectory directory;
  const std::string line = std::string(5000, 'x') + "\n";
  InputOptions options;
  options.max_line_bytes = 4096;
  const Content all = read_all({directory.write("a.jsonl", line + line + line)}, options);
  EXPECT_EQ(all.counters.lines_too_long, 3);
  EXPECT_EQ(all.counters.lines, 3);
  const Content one = read_all({directory.write("b.jsonl", "one\n" + line + "two")}, options);
  EXPECT_EQ(one.documents, (std::vector<std::string>{"one\n", "two"}));
  EXPECT_EQ(one.counters.lines_too_long, 1);
  options.max_line_bytes = 5000;
  EXPECT_EQ(read_all({directory.path("a.jsonl")}, options).counters.lines_too_long, 0);
}

TEST(InputReader, LongTextComesInPartsThatJoinToTheWhole) {
  const TestDirectory directory;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("Zeile {} \u4e2d\u6587\n", i);
  text += std::string(5000, 'x');
  InputOptions options;
  options.max_document_bytes = 1000;
  const Content content = read_all({directory.write("a.txt", text)}, options);
  ASSERT_EQ(content.documents.size(), 1U);
  EXPECT_TRUE(content.documents.front() == text);
  EXPECT_GE(content.counters.documents_cut, static_cast<std::int64_t>(text.size() / 1000));
}

TEST(CutPoint, PrefersALineFeedBetweenWordsAndElseAWholeCharacter) {
  EXPECT_EQ(cut_point("abc\ndefgh", 6), 4U);
  EXPECT_EQ(cut_point("abcd\n\nef gh", 9), 9U);   // a blank line is no place to cut
  EXPECT_EQ(cut_point("abcd\n ef gh", 9), 9U);    // nor is an indented one
  EXPECT_EQ(cut_point("ab\u4e2d\u6587", 6), 5U);  // not inside the second character
  EXPECT_EQ(cut_point("\x80\x80\x80\x80\x80\x80", 4), 4U);
  EXPECT_EQ(cut_point("\u4e2d", 1), 1U);  // must make progress
}

}  // namespace
}  // namespace belay::data
