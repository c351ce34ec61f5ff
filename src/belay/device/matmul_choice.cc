#include "belay/device/matmul_choice.h"

#include <fmt/core.h>

#include <array>
#include <charconv>

#include "belay/base/error.h"

namespace belay {
namespace {

// Cuts the text before the next `stop` (or the end) off the front.
std::string_view take(std::string_view& text, char stop) {
  const std::size_t end = std::min(text.find(stop), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

}  // namespace

MatmulKey MatmulKey::of(const MatmulArgs& args) {
  return {args.m(),         args.n(),         args.k(),        args.a.dtype,      args.dst.dtype,
          args.transpose_a, args.transpose_b, args.accumulate, !args.bias.empty()};
}

std::string MatmulKey::text() const {
  return fmt::format("{}x{}x{} {}{} {}->{}{}{}", m, n, k, transpose_a ? 't' : 'n',
                     transpose_b ? 't' : 'n', name_of(src), name_of(dst), bias ? " +bias" : "",
                     accumulate ? " +acc" : "");
}

MatmulKey MatmulKey::parse(std::string_view text) {
  std::string_view rest = text;
  const auto bad = [text] { fail(ExitCode::data, "'{}' is not a matrix-product shape", text); };
  MatmulKey key;
  std::string_view sizes = take(rest, ' ');
  for (std::int64_t* size : {&key.m, &key.n, &key.k}) {
    const std::string_view digits = take(sizes, 'x');
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), *size);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size() || *size < 0) bad();
  }
  const std::string_view layout = take(rest, ' ');
  if (layout.size() != 2) bad();
  key.transpose_a = layout[0] == 't';
  key.transpose_b = layout[1] == 't';
  std::string_view types = take(rest, ' ');
  const auto src = parse_dtype(take(types, '-'));
  if (types.empty()) bad();
  const auto dst = parse_dtype(types.substr(1));
  if (!src || !dst) bad();
  key.src = *src;
  key.dst = *dst;
  while (!rest.empty()) {
    const std::string_view flag = take(rest, ' ');
    if (flag == "+bias") {
      key.bias = true;
    } else if (flag == "+acc") {
      key.accumulate = true;
    } else {
      bad();
    }
  }
  return key;
}

std::size_t MatmulKeyHash::operator()(const MatmulKey& key) const {
  const std::uint64_t flags =
      static_cast<std::uint64_t>(key.src) | static_cast<std::uint64_t>(key.dst) << 8 |
      static_cast<std::uint64_t>(key.transpose_a) << 16 |
      static_cast<std::uint64_t>(key.transpose_b) << 17 |
      static_cast<std::uint64_t>(key.accumulate) << 18 | static_cast<std::uint64_t>(key.bias) << 19;
  std::uint64_t hash = flags;
  for (const std::int64_t size : {key.m, key.n, key.k}) {
    hash = (hash ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return hash;
}

std::string_view MatmulChoices::find(const MatmulKey& key) const {
  const auto entry = choices_.find(key);
  return entry == choices_.end() ? std::string_view{} : std::string_view(entry->second.kernel);
}

}  // namespace belay
