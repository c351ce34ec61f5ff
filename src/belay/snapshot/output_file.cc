#include "belay/snapshot/output_file.h"

#include <fmt/core.h>
#include <xxhash.h>

#include "belay/base/check.h"
#include "belay/base/mapped_file.h"

namespace belay {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;

}  // namespace

struct OutputFile::HashState {
  HashState() { XXH3_64bits_reset(state.get()); }
  struct Free {
    void operator()(XXH3_state_t* pointer) const { XXH3_freeState(pointer); }
  };
  std::unique_ptr<XXH3_state_t, Free> state{XXH3_createState()};
};

OutputFile::OutputFile(const std::string& path)
    : file_(path), hash_(std::make_unique<HashState>()) {
  buffer_.reserve(kBuffer);
}

OutputFile::~OutputFile() = default;

void OutputFile::flush() {
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::append(std::span<const std::byte> bytes) {
  BELAY_CHECK(!file_.committed());
  XXH3_64bits_update(hash_->state.get(), bytes.data(), bytes.size());
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  if (bytes.size() >= kBuffer) {
    file_.write(bytes.data(), bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::append(std::string_view text) {
  append(std::as_bytes(std::span(text.data(), text.size())));
}

void OutputFile::finish() {
  flush();
  file_.commit();
}

std::uint64_t OutputFile::hash() const {
  return XXH3_64bits_digest(hash_->state.get());
}

WrittenFile write_text_file(const std::string& dir, std::string_view name, std::string_view text) {
  OutputFile file(fmt::format("{}/{}", dir, name));
  file.append(text);
  file.finish();
  return {std::string(name), file.bytes(), file.hash()};
}

WrittenFile copy_file_into(const std::string& path, const std::string& dir) {
  const MappedFile source(path);
  const std::string name = path.substr(path.rfind('/') + 1);
  OutputFile file(dir + "/" + name);
  file.append(source.bytes());
  file.finish();
  return {name, file.bytes(), file.hash()};
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace belay
