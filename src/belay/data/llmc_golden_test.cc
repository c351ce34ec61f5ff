// A token file in llm.c's format that another program wrote (tests/golden/golden_llmc.py).

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "belay/base/mapped_file.h"
#include "belay/data/foreign_format.h"

namespace belay::data {
namespace {

TEST(Llmc, ReadsAFileOfAnotherProgram) {
  const MappedFile file(BELAY_SOURCE_DIR "/tests/golden/llmc/tokens.bin");
  ASSERT_TRUE(looks_like_llmc(file.bytes()));
  const TokenView tokens = parse_llmc(file.bytes(), file.path());
  ASSERT_EQ(tokens.count, 700);
  std::vector<std::int32_t> ids(700);
  EXPECT_LT(tokens.read(0, ids), 97U);
  EXPECT_EQ(std::vector<std::int32_t>(ids.begin(), ids.begin() + 4),
            (std::vector<std::int32_t>{52, 58, 83, 54}));
  EXPECT_EQ(ids.back(), 18);
  EXPECT_EQ(std::accumulate(ids.begin(), ids.end(), 0), 31817);
}

}  // namespace
}  // namespace belay::data
