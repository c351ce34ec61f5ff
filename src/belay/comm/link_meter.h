#pragma once
// What the links to a rank carried, and in which time: from when the message had been sent and the
// receiver asked for it, until it was used. Who comes late costs the link nothing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace belay::comm {

// A direction between two ranks.
struct Link {
  int from = 0;
  int to = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

// Of one rank, over all messages to it of at least kMeteredBytes.
class LinkMeter {
 public:
  struct Carried {
    double bytes = 0;
    double ns = 0;
    bool same_clock = false;  // the sender's: messages say when they were sent
  };

  explicit LinkMeter(int ranks)
      : carried_(static_cast<std::size_t>(ranks)), until_(carried_.size()) {}

  // `sent`: by the clock of this host; 0: not known. `asked`: when the receiver first looked.
  void received(int from, std::size_t bytes, std::uint64_t sent, std::uint64_t asked,
                std::uint64_t now) {
    const auto peer = static_cast<std::size_t>(from);
    // One message after the other: what two waited for together counts once.
    const std::uint64_t begin = std::max({sent, asked, until_[peer]});
    carried_[peer].bytes += static_cast<double>(bytes);
    carried_[peer].ns += now > begin ? static_cast<double>(now - begin) : 0.0;
    carried_[peer].same_clock = sent != 0;
    until_[peer] = now;
  }

  [[nodiscard]] const std::vector<Carried>& carried() const { return carried_; }
  void reset() {
    for (Carried& link : carried_) link.bytes = link.ns = 0;
  }

 private:
  std::vector<Carried> carried_;
  std::vector<std::uint64_t> until_;
};

}  // namespace belay::comm
