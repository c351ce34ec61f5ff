#pragma once

namespace belay::comm {

// Asks the scheduler to give the calling thread short turns soon after it wakes, instead of long
// ones later: for threads that wait most of the time beside others that compute. Links stand idle
// while a message is there and its receiver does not run. Linux 6.12 and later; without effect
// elsewhere.
void ask_for_short_turns();

}  // namespace belay::comm
