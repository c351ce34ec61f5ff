#pragma once
// How weights pass between files and whoever holds them (device memory is opaque to this room): one
// parameter at a time through host memory, so that a large model needs room for one parameter only.

#include <functional>
#include <span>

namespace belay {

// Fills host memory with the elements of parameter `index`. May be called several times for one.
using ParameterReader = std::function<void(int index, std::span<float> dst)>;
// Takes the elements of parameter `index`; called once for each.
using ParameterSink = std::function<void(int index, std::span<const float> src)>;

}  // namespace belay
