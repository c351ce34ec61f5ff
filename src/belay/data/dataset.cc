#include "belay/data/dataset.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "belay/base/check.h"
#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/data/dataset_state.h"

namespace belay::data {
namespace {

// Positions in units that one thread scans at a time.
constexpr std::int64_t kScanGrain = std::int64_t{1} << 20;

std::uint64_t scan_largest(const TokenView& tokens) {
  const std::int64_t pieces = pieces_of(tokens.count, kScanGrain);
  std::vector<std::uint64_t> largest(static_cast<std::size_t>(pieces));
  parallel_for(pieces, [&](std::int64_t piece) {
    const std::int64_t begin = piece * kScanGrain;
    const std::int64_t end = std::min(begin + kScanGrain, tokens.count);
    largest[static_cast<std::size_t>(piece)] = tokens.largest(begin, end);
  });
  return largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
}

// Names the first id above `limit` in [begin, end).
[[noreturn]] void refuse_id(const TokenFile& source, std::int64_t begin, std::int64_t end,
                            std::int64_t limit, std::string_view why) {
  std::int64_t position = begin;
  while (position + 1 < end) {
    const std::int64_t id = source.tokens.at(position);
    if (id < 0 || id > limit) break;
    ++position;
  }
  const std::size_t document = source.document_at(position);
  fail(ExitCode::data, "{}: document {} holds id {} at its token {}: {}", source.file.path(),
       document, source.tokens.at(position),
       position - static_cast<std::int64_t>(source.starts[document]), why);
}

}  // namespace

const TokenFile& Dataset::State::source_of(std::int64_t sample) const {
  std::size_t index = sources.size() - 1;
  while (sources[index].first_row > sample) --index;
  return sources[index];
}

void Dataset::State::read_ids(const TokenFile& source, std::int64_t begin,
                              std::span<std::int32_t> ids) const {
  if (source.tokens.read(begin, ids) > static_cast<std::uint64_t>(limit)) {
    refuse_id(source, begin, begin + std::ssize(ids), limit,
              limit_from_header ? "more than the largest id that the header states; the file is "
                                  "damaged, pack again"
                                : "the vocabulary is smaller");
  }
}

// The ids of a packed row; what is padding in it is left out of `ids`.
void Dataset::State::read_row(std::int64_t sample, std::span<std::int32_t> ids) const {
  if (row_tokens.read(sample * stride, ids) > static_cast<std::uint64_t>(limit)) {
    fail(ExitCode::data,
         "{}: row {} holds an id above {}, the largest that {} states; the file is damaged, pack "
         "again",
         row_tokens_file.path(), sample, limit, kTokensFile);
  }
}

// Labels and bounds of a piece of one document whose ids stand at row position `at`.
std::int64_t Dataset::State::mark_piece(const TokenFile& source, std::int64_t begin,
                                        std::int64_t length, std::int64_t at,
                                        const RowSpans& row) const {
  const auto first = static_cast<std::size_t>(at);
  const auto count = static_cast<std::size_t>(length);
  const std::span<std::int32_t> ids = row.tokens.subspan(first, count);
  for (std::size_t i = 0; i < count; ++i) {
    row.positions[first + i] = static_cast<std::int32_t>(i);
    row.doc_begin[first + i] = static_cast<std::int32_t>(at);
  }
  std::copy(ids.begin() + 1, ids.end(), row.targets.begin() + at);
  std::int32_t& last = row.targets[first + count - 1];
  last = -1;
  const std::int64_t end = begin + length;
  if (static_cast<std::uint64_t>(end) < source.starts[source.document_at(begin) + 1]) {
    read_ids(source, end, std::span(&last, 1));
    return length;
  }
  return length - 1;
}

void Dataset::State::pad(std::int64_t at, const RowSpans& row) const {
  for (std::int64_t i = at; i < seq_len; ++i) {
    const auto index = static_cast<std::size_t>(i);
    row.tokens[index] = pad_id;
    row.targets[index] = -1;
    row.positions[index] = static_cast<std::int32_t>(i - at);
    row.doc_begin[index] = static_cast<std::int32_t>(at);
  }
}

Dataset::Dataset(std::unique_ptr<State> state) : state_(std::move(state)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

Dataset Dataset::open(const std::string& path, std::int64_t seq_len) {
  if (seq_len < 1 || seq_len > std::numeric_limits<std::int32_t>::max()) {
    fail(ExitCode::usage, "sequence length {} is out of range", seq_len);
  }
  auto state = std::make_unique<State>();
  state->seq_len = seq_len;
  state->open(path);
  return Dataset(std::move(state));
}

Dataset Dataset::open_documents(const std::string& path) {
  auto state = std::make_unique<State>();
  state->seq_len = 1;
  state->rows_wanted = false;
  state->open(path);
  return Dataset(std::move(state));
}

std::int64_t Dataset::samples() const {
  return state_->samples;
}
std::int64_t Dataset::seq_len() const {
  return state_->seq_len;
}
std::int64_t Dataset::tokens() const {
  return state_->tokens;
}
std::int64_t Dataset::documents() const {
  return state_->documents;
}
double Dataset::padding_share() const {
  const double places = static_cast<double>(samples()) * static_cast<double>(seq_len());
  return 1.0 - static_cast<double>(tokens()) / places;
}
bool Dataset::packed_rows() const {
  return !state_->rows.empty();
}
std::int32_t Dataset::vocab_size() const {
  return state_->vocab_size;
}
const std::string& Dataset::tokenizer() const {
  return state_->tokenizer;
}

std::int32_t Dataset::max_id() const {
  if (state_->limit_from_header) return static_cast<std::int32_t>(state_->limit);
  std::uint64_t largest = 0;
  for (const TokenFile& source : state_->sources) {
    const std::uint64_t top = scan_largest(source.tokens);
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (top > static_cast<std::uint64_t>(most)) {
      refuse_id(source, 0, source.tokens.count, most, "not an id");
    }
    largest = std::max(largest, top);
  }
  return static_cast<std::int32_t>(largest);
}

void Dataset::check_ids(std::int32_t vocab) {
  BELAY_CHECK(vocab > 0);
  const std::int64_t most = vocab - 1;
  // Padding counts in nothing, so any id that the model has will do.
  if (state_->pad_id > most) state_->pad_id = 0;
  if (state_->limit_from_header && state_->limit <= most) return;
  for (const TokenFile& source : state_->sources) {
    if (scan_largest(source.tokens) > static_cast<std::uint64_t>(most)) {
      refuse_id(source, 0, source.tokens.count, most,
                fmt::format("the model's vocabulary of {} ends at id {}", vocab, most));
    }
  }
  if (!state_->limit_from_header) state_->limit = most;
}

void Dataset::verify() const {
  const auto check = [](const MappedFile& file, StoreKind kind) {
    if (file.bytes().empty()) return;
    const StoreHeader header = parse_header(file.bytes(), kind, file.path());
    const std::uint64_t found = hash_bytes(file.bytes().subspan(kStoreHeaderBytes));
    if (found != header.payload_hash) {
      fail(ExitCode::data, "{}: checksum {:016x}, the header states {:016x}: the file is damaged",
           file.path(), found, header.payload_hash);
    }
  };
  if (!state_->limit_from_header) {
    static_cast<void>(max_id());  // there is no checksum; reading every id is what can be done
    return;
  }
  const TokenFile& source = state_->sources.front();
  check(source.file, StoreKind::tokens);
  check(source.starts_file, StoreKind::documents);
  check(state_->rows_file, StoreKind::rows);
  check(state_->pieces_file, StoreKind::pieces);
  check(state_->row_tokens_file, StoreKind::row_tokens);
  if (scan_largest(source.tokens) > static_cast<std::uint64_t>(state_->limit)) {
    refuse_id(source, 0, source.tokens.count, state_->limit,
              "more than the largest id that the header states");
  }
}

std::int64_t Dataset::fill(std::int64_t sample, const RowSpans& row) const {
  BELAY_CHECK(sample >= 0 && sample < samples());
  BELAY_CHECK(std::ssize(row.tokens) == seq_len() && std::ssize(row.targets) == seq_len());
  BELAY_CHECK(std::ssize(row.positions) == seq_len() && std::ssize(row.doc_begin) == seq_len());
  std::int64_t at = 0;
  std::int64_t counted = 0;
  if (packed_rows()) {
    const TokenFile& source = state_->sources.front();
    const auto index = static_cast<std::size_t>(sample);
    const std::span<const Piece> pieces =
        state_->pieces.subspan(state_->rows[index], state_->rows[index + 1] - state_->rows[index]);
    std::size_t used = 0;
    for (const Piece& piece : pieces) used += piece.length;
    state_->read_row(sample, row.tokens.first(used));
    for (const Piece& piece : pieces) {
      counted +=
          state_->mark_piece(source, static_cast<std::int64_t>(piece.begin), piece.length, at, row);
      at += piece.length;
    }
  } else {
    const TokenFile& source = state_->source_of(sample);
    std::int64_t begin = (sample - source.first_row) * seq_len();
    const std::int64_t end = std::min(begin + seq_len(), source.tokens.count);
    std::size_t document = source.document_at(begin);
    while (begin < end) {
      while (source.starts[document + 1] <= static_cast<std::uint64_t>(begin)) ++document;
      const std::int64_t stop =
          std::min(end, static_cast<std::int64_t>(source.starts[document + 1]));
      const std::int64_t length = stop - begin;
      state_->read_ids(
          source, begin,
          row.tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(length)));
      counted += state_->mark_piece(source, begin, length, at, row);
      at += stop - begin;
      begin = stop;
    }
  }
  state_->pad(at, row);
  return counted;
}

void Dataset::fill_padding(const RowSpans& row) const {
  state_->pad(0, row);
}

void Dataset::prefetch(std::int64_t sample) const {
  BELAY_CHECK(sample >= 0 && sample < samples());
  const TokenFile& source = state_->source_of(sample);
  const TokenView& tokens = packed_rows() ? state_->row_tokens : source.tokens;
  const std::int64_t begin =
      packed_rows() ? sample * state_->stride : (sample - source.first_row) * seq_len();
  const std::int64_t end = std::min(begin + seq_len() + 1, tokens.count);
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto width = width_of(tokens.type);
  const auto from = reinterpret_cast<std::uintptr_t>(tokens.data + begin * width);
  const auto to = reinterpret_cast<std::uintptr_t>(tokens.data + end * width);
  const std::uintptr_t aligned = from / page * page;
  ::madvise(reinterpret_cast<void*>(aligned), to - aligned, MADV_WILLNEED);
}

std::vector<Dataset::Source> Dataset::sources() const& {
  std::vector<Source> result;
  for (const TokenFile& source : state_->sources) {
    result.push_back({source.file.path(), source.tokens, source.starts});
  }
  return result;
}

}  // namespace belay::data
