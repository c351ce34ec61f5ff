#include "belay/data/sentence_packer.h"

#include <gtest/gtest.h>

#include <set>

#include "belay/base/philox.h"

namespace belay::data {
namespace {

struct Document {
  std::uint64_t length = 0;
  std::vector<Cut> cuts;
};

// A document of sentences of the given lengths; every third ends a paragraph.
Document of_sentences(const std::vector<std::uint64_t>& lengths) {
  Document document;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    document.length += lengths[i];
    if (i + 1 < lengths.size()) document.cuts.push_back({document.length, i % 3 == 2});
  }
  return document;
}

// Sentences of 1 to 2 * mean - 1 tokens.
Document made_up(std::uint64_t number, std::uint64_t tokens, std::uint32_t mean = 20) {
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t i = 0, total = 0; total < tokens; ++i) {
    lengths.push_back(1 + random_block({.seed = 3000 + number}, i)[0] % (2 * mean - 1));
    total += lengths.back();
  }
  return of_sentences(lengths);
}

using Rows = std::vector<std::vector<Piece>>;

struct Packed {
  Rows rows;
  std::uint64_t tokens = 0;
  std::int64_t pieces = 0;
  std::int64_t cuts_inside = 0;  // of a sentence
  double padding = 0.0;
};

// Packs and checks what always holds: each token once, each piece inside one document.
Packed pack(std::int64_t row_len, const std::vector<Document>& documents,
            std::uint64_t part = ~std::uint64_t{0}) {
  Packed result;
  SentencePacker packer(row_len, [&](std::span<const Piece> pieces) {
    result.rows.emplace_back(pieces.begin(), pieces.end());
  });
  std::set<std::uint64_t> good;  // where a piece may end
  std::set<std::uint64_t> starts;
  for (const Document& document : documents) {
    starts.insert(result.tokens);
    std::size_t next = 0;
    for (std::uint64_t at = 0; at < document.length;) {
      const std::uint64_t count = std::min(part, document.length - at);
      std::vector<Cut> cuts;
      for (; next < document.cuts.size() && document.cuts[next].at <= at + count; ++next) {
        cuts.push_back({document.cuts[next].at - at, document.cuts[next].paragraph});
      }
      packer.append(count, cuts);
      at += count;
    }
    packer.end_document();
    for (const Cut& cut : document.cuts) good.insert(result.tokens + cut.at);
    result.tokens += document.length;
    good.insert(result.tokens);
  }
  packer.finish();
  std::vector<bool> seen(result.tokens);
  for (const std::vector<Piece>& row : result.rows) {
    EXPECT_FALSE(row.empty());
    std::uint64_t used = 0;
    for (const Piece& piece : row) {
      ++result.pieces;
      used += piece.length;
      const std::uint64_t end = piece.begin + piece.length;
      const auto next_start = starts.upper_bound(piece.begin);
      EXPECT_TRUE(next_start == starts.end() || end <= *next_start);
      if (!good.contains(end)) ++result.cuts_inside;
      for (std::uint64_t i = piece.begin; i < end; ++i) {
        EXPECT_FALSE(seen[i]);
        seen[i] = true;
      }
    }
    EXPECT_LE(used, static_cast<std::uint64_t>(row_len));
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(result.tokens));
  const double places = static_cast<double>(result.rows.size()) * static_cast<double>(row_len);
  result.padding = 1.0 - static_cast<double>(result.tokens) / places;
  return result;
}

TEST(SentencePacker, LongDocumentsAreCutBetweenSentencesAndFilledWithWhatFits) {
  // 10 + 4 of the first fit a row of 16; the second has 2 tokens.
  const Packed packed = pack(16, {of_sentences({10, 4, 9}), of_sentences({2})});
  ASSERT_EQ(packed.rows.size(), 2U);
  ASSERT_EQ(packed.rows[0].size(), 2U);
  EXPECT_EQ(packed.rows[0][0].begin, 0U);
  EXPECT_EQ(packed.rows[0][0].length, 14U);
  EXPECT_EQ(packed.rows[0][1].begin, 23U);
  EXPECT_EQ(packed.rows[0][1].length, 2U);
  EXPECT_EQ(packed.rows[1][0].begin, 14U);
  EXPECT_EQ(packed.rows[1][0].length, 9U);
}

TEST(SentencePacker, ASentenceLongerThanARowFillsRowsAndItsRestIsAChunk) {
  const Packed packed = pack(16, {of_sentences({5, 40, 6})});
  // 5; then 16 and 16 of the long one; its rest of 8, and 6.
  ASSERT_EQ(packed.rows.size(), 4U);
  EXPECT_EQ(packed.rows[0][0].length, 5U);
  EXPECT_EQ(packed.rows[1][0].length, 16U);
  EXPECT_EQ(packed.rows[2][0].length, 16U);
  EXPECT_EQ(packed.rows[3][0].length, 14U);
  EXPECT_EQ(packed.cuts_inside, 2);
}

TEST(SentencePacker, TextWithoutAnySentenceEndIsCutWhereRowsEnd) {
  const Packed packed = pack(64, {of_sentences({100000})});
  EXPECT_EQ(packed.rows.size(), 1563U);
  EXPECT_EQ(packed.pieces, 1563);
}

TEST(SentencePacker, DocumentsThatFitAreWholeWhileOthersFill) {
  std::vector<Document> documents;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    documents.push_back(made_up(i, 1 + random_block({.seed = 8}, i)[0] % 250));
  }
  const Packed packed = pack(256, documents);
  EXPECT_EQ(packed.cuts_inside, 0);
  EXPECT_LT(packed.padding, 0.005);
  EXPECT_LT(static_cast<double>(packed.pieces), 1.2 * static_cast<double>(documents.size()));
}

TEST(SentencePacker, MixedDocumentsLeaveNextToNoPadding) {
  std::vector<Document> documents;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    documents.push_back(made_up(i, 1 + random_block({.seed = 9}, i)[0] % 2000));
  }
  for (const std::int64_t row_len : {128, 256, 1024}) {
    const Packed packed = pack(row_len, documents);
    EXPECT_EQ(packed.cuts_inside, 0);
    EXPECT_LT(packed.padding, 0.005) << row_len;
  }
}

TEST(SentencePacker, OneLongDocumentFillsItsOwnRows) {
  const Packed packed = pack(256, {made_up(1, 1000000)});
  EXPECT_EQ(packed.cuts_inside, 0);
  EXPECT_LT(packed.padding, 0.005);
}

TEST(SentencePacker, RowsDoNotDependOnThePartsADocumentComesIn) {
  std::vector<Document> documents;
  for (std::uint64_t i = 0; i < 300; ++i) {
    documents.push_back(made_up(i, 1 + random_block({.seed = 10}, i)[0] % 9000));
  }
  const auto flat = [](const Rows& rows) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> pieces;
    for (const auto& row : rows) {
      for (const Piece& piece : row) pieces.emplace_back(piece.begin, piece.length);
      pieces.emplace_back(0, 0);
    }
    return pieces;
  };
  const auto whole = flat(pack(64, documents).rows);
  EXPECT_TRUE(flat(pack(64, documents, 1).rows) == whole);
  EXPECT_TRUE(flat(pack(64, documents, 777).rows) == whole);
}

TEST(SentencePacker, HoldsBackAWindowAndNoMore) {
  for (const std::uint64_t tokens : {3U, 60U, 100000U}) {
    std::uint64_t given = 0;
    std::uint64_t emitted = 0;
    std::uint64_t most = 0;
    SentencePacker packer(256, [&](std::span<const Piece> pieces) {
      for (const Piece& piece : pieces) emitted += piece.length;
    });
    const Document document = made_up(tokens, tokens);
    for (int i = 0; given < 6000000; ++i) {
      packer.append(document.length, document.cuts);
      packer.end_document();
      given += document.length;
      most = std::max(most, given - emitted);
    }
    packer.finish();
    EXPECT_EQ(emitted, given);
    // As many documents as are held back, or two million tokens and the last document.
    EXPECT_LE(most, std::min<std::uint64_t>(65537 * document.length, 2200000));
  }
}

TEST(SentencePacker, EmptyDocumentsLeaveNoTrace) {
  const Packed packed = pack(16, {of_sentences({}), of_sentences({3}), of_sentences({})});
  ASSERT_EQ(packed.rows.size(), 1U);
  EXPECT_EQ(packed.rows[0].size(), 1U);
  EXPECT_TRUE(pack(16, {}).rows.empty());
}

}  // namespace
}  // namespace belay::data
