#include "belay/data/packing_figures.h"

#include <gtest/gtest.h>

#include "belay/base/philox.h"

namespace belay::data {
namespace {

TEST(PackingCounter, CountsDocumentsCutInsideASentence) {
  PackingCounter counter(8);
  // Ends where the first row does.
  const std::vector<Cut> first = {{3, false}};
  counter.append(8, first);
  counter.end_document();
  // Concatenated and alone, its rows end between sentences.
  const std::vector<Cut> second = {{8, true}};
  counter.append(10, second);
  counter.end_document();
  EXPECT_EQ(counter.cut_documents().concat, 0);
  EXPECT_EQ(counter.cut_documents().document_per_row, 0);
  // A row ends behind its sixth token, which ends a sentence; alone, behind the eighth.
  const std::vector<Cut> third = {{6, false}};
  counter.append(9, third);
  counter.end_document();
  EXPECT_EQ(counter.cut_documents().concat, 0);
  EXPECT_EQ(counter.cut_documents().document_per_row, 1);
  EXPECT_EQ(counter.cut_documents().sentences, 0);
  // A sentence of nine tokens cannot be kept whole by anyone.
  counter.append(9, {});
  counter.end_document();
  EXPECT_EQ(counter.cut_documents().concat, 1);
  EXPECT_EQ(counter.cut_documents().document_per_row, 2);
  EXPECT_EQ(counter.cut_documents().sentences, 1);
  EXPECT_EQ(counter.concat_rows(), 5);            // 36 tokens
  EXPECT_EQ(counter.document_per_row_rows(), 7);  // 1 + 2 + 2 + 2
}

// Against the definition, documents coming in parts of any size.
TEST(PackingCounter, AgreesWithTheDefinition) {
  for (const std::uint64_t row_len : {1U, 7U, 16U, 64U}) {
    PackingCounter counter(static_cast<std::int64_t>(row_len));
    CutDocuments expected;
    std::uint64_t begin = 0;
    std::uint64_t rows = 0;
    for (std::uint64_t d = 0; d < 400; ++d) {
      const PhiloxBlock draw = random_block({.seed = 21000 + row_len}, d);
      const std::uint64_t length = draw[0] % 90;
      std::vector<bool> good(length + 1, false);
      for (std::uint64_t i = 1; i < length; ++i) {
        good[i] = random_block({.seed = 22000 + d}, i)[0] % 9 == 0;
      }
      for (std::uint64_t at = 0; at < length;) {
        const std::uint64_t count =
            std::min<std::uint64_t>(length - at, 1 + random_block({.seed = 23000 + d}, at)[0] % 40);
        std::vector<Cut> cuts;
        for (std::uint64_t i = 1; i <= count; ++i) {
          if (good[at + i]) cuts.push_back({i, false});
        }
        counter.append(count, cuts);
        at += count;
      }
      counter.end_document();
      bool concat = false;
      bool alone = false;
      bool sentence = false;
      std::uint64_t since = 0;
      for (std::uint64_t i = 1; i < length; ++i) {
        concat = concat || ((begin + i) % row_len == 0 && !good[i]);
        alone = alone || (i % row_len == 0 && !good[i]);
        if (good[i]) since = i;
        sentence = sentence || i + 1 - since > row_len;
      }
      expected.concat += concat ? 1 : 0;
      expected.document_per_row += alone ? 1 : 0;
      expected.sentences += sentence ? 1 : 0;
      begin += length;
      rows += (length + row_len - 1) / row_len;
    }
    EXPECT_EQ(counter.cut_documents().concat, expected.concat);
    EXPECT_EQ(counter.cut_documents().document_per_row, expected.document_per_row);
    EXPECT_EQ(counter.cut_documents().sentences, expected.sentences);
    EXPECT_EQ(counter.document_per_row_rows(), static_cast<std::int64_t>(rows));
  }
}

}  // namespace
}  // namespace belay::data
