// The user guide's configuration tables are those of the program.

#include <gtest/gtest.h>

#include "belay/base/file.h"
#include "belay/train/run_config.h"

namespace belay {
namespace {

TEST(GuideTest, ConfigurationTablesAreThoseOfTheProgram) {
  RunConfig config;
  const std::string expected = config::to_markdown(sections_of(config));
  const std::string guide = read_file(BELAY_SOURCE_DIR "/docs/guide.md");
  EXPECT_NE(guide.find(expected), std::string::npos)
      << "put this into docs/guide.md in place of its tables:\n"
      << expected;
}

}  // namespace
}  // namespace belay
