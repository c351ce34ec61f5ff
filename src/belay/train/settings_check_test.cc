#include "belay/train/settings_check.h"

#include <gtest/gtest.h>

#include "belay/train/run_config.h"

namespace belay {
namespace {

TEST(SettingsCheck, KeyAndBothValuesAreNamed) {
  RunConfig here;
  RunConfig there;
  EXPECT_EQ(difference_of_settings(to_toml(here), to_toml(there)), "");
  there.model.seq_len = 128;
  here.model.seq_len = 256;
  EXPECT_EQ(difference_of_settings(to_toml(here), to_toml(there)),
            "model.seq_len is 256 here and 128 there");
  there.comm.bucket_mb = 10;
  EXPECT_EQ(difference_of_settings(to_toml(here), to_toml(there)),
            "comm.bucket_mb is 25.0 here and 10.0 there; model.seq_len is 256 here and 128 there");
}

TEST(SettingsCheck, OptionsAndMissingKeysToo) {
  EXPECT_EQ(difference_of_settings("[a]\nx = \"1 # 2\"  # what\n", "[a]\nx = \"1 # 3\"  # what\n"),
            "a.x is \"1 # 2\" here and \"1 # 3\" there");
  EXPECT_EQ(difference_of_settings("[a]\nx = 1\n--out runs/a\n", "[a]\nx = 1\n--out runs/b\n"),
            "--out is runs/a here and runs/b there");
  EXPECT_EQ(difference_of_settings("[a]\nx = 1\n", "[a]\ny = 1\n"),
            "a.x is 1 here and not set there; a.y is not set here and 1 there");
  EXPECT_EQ(difference_of_settings("[a]\na = 1\nb = 1\nc = 1\nd = 1\ne = 1\n", ""),
            "a.a is 1 here and not set there; a.b is 1 here and not set there; a.c is 1 here and "
            "not set there; and 2 more");
}

}  // namespace
}  // namespace belay
