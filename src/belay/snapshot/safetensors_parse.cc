// The header parser of safetensors files, fed with untrusted bytes.

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "belay/base/error.h"
#include "belay/snapshot/safetensors.h"

namespace belay {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::uint64_t kPrefix = 8;

std::optional<StoredType> parse_type(std::string_view name) {
  for (int value = 0; value <= static_cast<int>(StoredType::u64); ++value) {
    const auto type = static_cast<StoredType>(value);
    if (name_of(type) == name) return type;
  }
  return std::nullopt;
}

// Walks the header as parser events, so that memory grows only with text that is really there.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return scalar("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return scalar("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (skipped_ > 0) return true;
    if (place_ == Place::shape) {
      tensor_.shape.push_back(value);
    } else if (place_ == Place::offsets) {
      if (offsets_ == 2) bad_offsets();
      (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
      ++offsets_;
    } else {
      return scalar("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (skipped_ > 0) return true;
    if (place_ == Place::metadata) {
      if (!header_.metadata.emplace(key_, value).second) {
        refuse("metadata key '{}' appears twice", key_);
      }
    } else if (place_ == Place::tensor && key_ == "dtype") {
      const std::optional<StoredType> type = parse_type(value);
      if (!type) refuse("tensor '{}': unknown dtype '{}'", tensor_.name, value);
      tensor_.dtype = *type;
    } else {
      return scalar("a string");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (skipped_ > 0) return true;
    key_ = name;
    if (place_ == Place::header && !names_.insert(name).second) {
      refuse("{} '{}' appears twice", name == "__metadata__" ? "key" : "tensor", name);
    }
    if (place_ == Place::tensor) {
      bool* seen = name == "dtype"          ? &has_dtype_
                   : name == "shape"        ? &has_shape_
                   : name == "data_offsets" ? &has_offsets_
                                            : nullptr;
      if (seen != nullptr && std::exchange(*seen, true)) {
        refuse("tensor '{}': key '{}' appears twice", tensor_.name, name);
      }
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (skipped_ > 0) {
      ++skipped_;
    } else if (place_ == Place::start) {
      place_ = Place::header;
    } else if (place_ == Place::header && key_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::header) {
      place_ = Place::tensor;
      tensor_ = {};
      tensor_.name = key_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      offsets_ = 0;
    } else {
      nested("an object");
    }
    return true;
  }

  bool end_object() override {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    if (place_ == Place::tensor) {
      for (const auto& [seen, name] :
           {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"),
            std::pair(has_offsets_, "data_offsets")}) {
        if (!seen) refuse("tensor '{}': '{}' is missing", tensor_.name, name);
      }
      header_.tensors.push_back(std::move(tensor_));
    }
    place_ = Place::header;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skipped_ > 0) {
      ++skipped_;
    } else if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      nested("a list");
    }
    return true;
  }

  bool end_array() override {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    if (place_ == Place::offsets && offsets_ != 2) bad_offsets();
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    refuse("the header is not JSON: error at its byte {}", position);
  }

 private:
  enum class Place { start, header, metadata, tensor, shape, offsets };

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ExitCode::data, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void bad_offsets() const {
    refuse("tensor '{}': data_offsets must hold two numbers", tensor_.name);
  }
  // Keys of a tensor that the format does not know are passed over, as the reference reader does.
  [[nodiscard]] bool unknown_key() const {
    return place_ == Place::tensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets";
  }
  bool scalar(std::string_view what) {
    if (skipped_ > 0 || unknown_key()) return true;
    misplaced(what);
  }
  void nested(std::string_view what) {
    if (!unknown_key()) misplaced(what);
    ++skipped_;
  }
  [[noreturn]] void misplaced(std::string_view what) const {
    switch (place_) {
      case Place::start:
        refuse("the header is {}, not a JSON object", what);
      case Place::header:
        refuse("entry '{}' of the header is {}, not an object", key_, what);
      case Place::metadata:
        refuse("metadata key '{}' is {}; only strings are allowed", key_, what);
      default:
        refuse("tensor '{}': '{}' holds {}", tensor_.name, key_, what);
    }
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  Place place_ = Place::start;
  std::uint64_t skipped_ = 0;  // depth below an unknown key
  std::string key_;
  TensorInfo tensor_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;
  std::unordered_set<std::string> names_;
};

void check_text(std::string_view text, const std::string& path) {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    fail(ExitCode::data, "{}: the header is not UTF-8", path);
  }
  // The JSON parser would take a NUL byte for the end and skip a byte order mark; neither is JSON.
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    fail(ExitCode::data, "{}: the header is not JSON: it does not begin with '{{'", path);
  }
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fail(ExitCode::data, "{}: the header is not JSON: byte {} is NUL", path, nul);
  }
}

// The tensors must tile the data exactly, each with as many bytes as its shape asks for.
void check_layout(SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& path) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  std::uint64_t covered = 0;
  for (const TensorInfo& info : header.tensors) {
    if (info.end < info.begin) {
      fail(ExitCode::data, "{}: tensor '{}': its data ends at {}, before it begins at {}", path,
           info.name, info.end, info.begin);
    }
    if (info.begin != covered) {
      fail(ExitCode::data,
           "{}: tensor '{}': its data begins at {}, but the tensors before it end "
           "at {}: {}",
           path, info.name, info.begin, covered,
           info.begin < covered ? "they overlap" : "there is a hole");
    }
    if (info.end > data_bytes) {
      fail(ExitCode::data,
           "{}: tensor '{}': its data ends at {}, but the file holds only {} bytes "
           "of data; the file is cut short",
           path, info.name, info.end, data_bytes);
    }
    std::uint64_t bits = bits_of(info.dtype);
    for (const std::uint64_t dim : info.shape) {
      if (__builtin_mul_overflow(bits, dim, &bits)) {
        fail(ExitCode::data, "{}: tensor '{}': the size of shape {} overflows 64 bits", path,
             info.name, shape_text(info.shape));
      }
    }
    if (bits % 8 != 0) {
      fail(ExitCode::data, "{}: tensor '{}': shape {} of {} is {} bits, not whole bytes", path,
           info.name, shape_text(info.shape), name_of(info.dtype), bits);
    }
    if (bits / 8 != info.bytes()) {
      fail(ExitCode::data, "{}: tensor '{}': {} bytes of data, but shape {} of {} needs {}", path,
           info.name, info.bytes(), shape_text(info.shape), name_of(info.dtype), bits / 8);
    }
    covered = info.end;
  }
  if (covered != data_bytes) {
    fail(ExitCode::data, "{}: {} bytes follow the last tensor; nothing may", path,
         data_bytes - covered);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kPrefix) {
    fail(ExitCode::data, "{}: {} bytes are too few for a safetensors file", path, file.size());
  }
  std::uint64_t length = 0;
  for (std::size_t byte = 0; byte < kPrefix; ++byte) {
    length |= std::to_integer<std::uint64_t>(file[byte]) << (8 * byte);
  }
  if (length > kMaxHeader) {
    fail(ExitCode::data,
         "{}: header length {} is above the format's limit of {}; this is not a "
         "safetensors file",
         path, length, kMaxHeader);
  }
  if (length > file.size() - kPrefix) {
    fail(ExitCode::data, "{}: header length {} reaches past the end of the file ({} bytes)", path,
         length, file.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kPrefix, length);
  check_text(text, path);
  SafetensorsHeader header;
  HeaderReader reader(path, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  header.data_begin = kPrefix + length;
  check_layout(header, file.size() - header.data_begin, path);
  return header;
}

}  // namespace belay
