#pragma once
// Settings that all ranks must share, as the text of a configuration.

#include <string>
#include <string_view>

namespace belay {

// Where two configurations of the same version differ: "comm.bucket_mb is 25 here and 10 there", up
// to three keys; empty if they are equal.
std::string difference_of_settings(std::string_view here, std::string_view there);

}  // namespace belay
