#pragma once
// Ways around slow links. Decided from what all ranks know alike, so all go the same way.
//
// Rings pass a slow link by another order of ranks. A direct exchange has no order, every rank
// sends to every other; but what it sends are contributions to the owner of a block, and the
// owner's result to all: so a rank that owns nothing gets no contributions, and sends no results.
// Sums keep their order either way, and order-stable ones their bits.

#include <optional>
#include <span>
#include <vector>

#include "belay/comm/choice.h"
#include "belay/comm/link_meter.h"
#include "belay/comm/patterns/patterns.h"

namespace belay::comm {

// An order of the ring in which no link leads from a rank to the next; not against it either, where
// there is such an order. As near to `order` (empty: 0, 1, ...) and with as few changes of domain
// (empty: one) as exchanging two places again and again comes. Nothing if none was found.
std::optional<std::vector<int>> ring_around(std::span<const Link> slow, int ranks,
                                            std::span<const int> order,
                                            std::span<const int> domain_of);

// The blocks of an all-reduce, of which ranks at the end of a slow link (for a direct exchange also
// those at its beginning) own nothing. Even, if no rank would be left.
Blocks blocks_around(std::span<const Link> slow, Range range, int ranks, bool direct);

// What to choose instead where links are slow: rings for all-gathers, and for reduce-scatters whose
// order may change; for all-reduces a ring stays, and the rest becomes the direct exchange. Other
// collectives have no way around.
Choice choice_around(const Choice& choice, Collective collective, bool order_stable);

}  // namespace belay::comm
