#include "belay/model/parameter_store.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "belay/base/parallel.h"
#include "belay/base/philox.h"

namespace belay {
namespace {

// Two normal values from two words (Box & Muller, Ann. Math. Stat. 29, 1958).
void normal_pair(std::uint32_t a, std::uint32_t b, float std, float* dst) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;  // (0, 1]
  const double radius = std::sqrt(-2.0 * std::log(u)) * static_cast<double>(std);
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1p-32;
  dst[0] = static_cast<float>(radius * std::cos(angle));
  dst[1] = static_cast<float>(radius * std::sin(angle));
}

// Elements [first, first + size) of a parameter; first is a multiple of 4.
void fill_normal(std::span<float> values, std::int64_t first, const RandomKey& key, float std) {
  constexpr std::int64_t kPiece = 1 << 14;
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for(pieces_of(count, kPiece), [&](std::int64_t piece) {
    const std::int64_t end = std::min(count, (piece + 1) * kPiece);
    for (std::int64_t i = piece * kPiece; i < end; i += 4) {
      const PhiloxBlock words = random_block(key, static_cast<std::uint64_t>((first + i) / 4));
      std::array<float, 4> drawn{};
      normal_pair(words[0], words[1], std, drawn.data());
      normal_pair(words[2], words[3], std, drawn.data() + 2);
      const std::int64_t n = std::min<std::int64_t>(4, end - i);
      for (std::int64_t j = 0; j < n; ++j) {
        values[static_cast<std::size_t>(i + j)] = drawn[static_cast<std::size_t>(j)];
      }
    }
  });
}

// Random streams below this belong to dropout (see model/pass.h).
constexpr std::uint32_t kInitStream = 1U << 31;

// With one rank a shard is the whole state.
ShardOptions effective(const ShardOptions& options) {
  return options.stage == ZeroStage::none ? ShardOptions{} : options;
}

bool whole_masters(const StoreOptions& options) {
  const ZeroStage stage = options.shard.stage;
  return stage == ZeroStage::none || (options.compute == DType::f32 && stage != ZeroStage::weights);
}

// Places of the parameters that are whole where masters are not; returns how many elements.
std::int64_t place_vectors(const ParameterTable& table, const StoreOptions& options,
                           std::vector<std::int64_t>& places) {
  std::int64_t next = 0;
  for (const Parameter& parameter : table.all()) {
    const bool kept = options.compute != DType::f32 && !whole_masters(options);
    places.push_back(kept && !parameter.compute_copy ? next : -1);
    if (places.back() >= 0) next += (parameter.elements() + 31) / 32 * 32;
  }
  return next;
}

struct Elements {
  std::int64_t masters, vectors, grads, grad_pool, moments, copies, weight_pool;
};

Elements elements_of(const ParameterTable& table, const StoreOptions& options, const ShardMap& map,
                     const ParameterPool& pool) {
  const ZeroStage stage = options.shard.stage;
  const std::int64_t flat = table.flat_elements();
  const std::int64_t shard = map.shard_elements();
  const bool low = options.compute != DType::f32;
  const bool pooled_weights = stage == ZeroStage::weights;
  const bool pooled_grads = options.train && stage >= ZeroStage::gradients;
  std::vector<std::int64_t> places;
  Elements e{};
  e.masters = whole_masters(options) ? flat : shard;
  e.vectors = place_vectors(table, options, places);
  if (options.train) {
    e.grads = stage >= ZeroStage::gradients ? shard : flat;
    e.moments = shard;
  }
  if (pooled_grads) e.grad_pool = pool.elements();
  if (low) e.copies = pooled_weights ? shard : flat;
  if (pooled_weights) e.weight_pool = pool.elements();
  return e;
}

std::unique_ptr<DeviceMemory> allocate(Device& device, std::int64_t elements, DType dtype,
                                       std::string_view purpose) {
  if (elements == 0) return nullptr;
  return device.allocate(static_cast<std::size_t>(elements) * size_of(dtype), purpose);
}

Tensor view(const std::unique_ptr<DeviceMemory>& block, DType dtype, std::int64_t at,
            const Shape& shape) {
  BELAY_CHECK(block != nullptr);
  auto* base = static_cast<std::byte*>(block->address());
  return {base + static_cast<std::size_t>(at) * size_of(dtype), dtype, shape};
}

}  // namespace

ParameterStore::Bytes ParameterStore::bytes(const ParameterTable& table,
                                            const StoreOptions& options) {
  const ShardMap map(table, effective(options.shard));
  const Elements e = elements_of(table, options, map, ParameterPool(table, map));
  const auto f32 = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * 4; };
  Bytes bytes;
  bytes.masters = f32(e.masters + e.vectors);
  bytes.vectors = f32(e.vectors);
  bytes.grads = f32(e.grads + e.grad_pool);
  bytes.moments = 2 * f32(e.moments);
  bytes.copies = static_cast<std::size_t>(e.copies) * size_of(options.compute);
  bytes.gathered = static_cast<std::size_t>(e.weight_pool) * size_of(options.compute);
  return bytes;
}

ParameterStore::ParameterStore(Device& device, const ParameterTable& table,
                               const StoreOptions& options)
    : table_(table), options_(options), map_(table, effective(options.shard)), pool_(table, map_) {
  place_vectors(table, options, vector_places_);
  const Elements e = elements_of(table, options, map_, pool_);
  masters_ = allocate(device, e.masters, DType::f32, "parameters");
  vectors_ = allocate(device, e.vectors, DType::f32, "parameters");
  grads_ = allocate(device, e.grads, DType::f32, "gradients");
  grad_pool_ = allocate(device, e.grad_pool, DType::f32, "gradients");
  m_ = allocate(device, e.moments, DType::f32, "first moments");
  v_ = allocate(device, e.moments, DType::f32, "second moments");
  copies_ = allocate(device, e.copies, options.compute, "low-precision weights");
  weight_pool_ = allocate(device, e.weight_pool, options.compute, "gathered weights");
}

Tensor ParameterStore::whole(State state, int index) const {
  const Parameter& parameter = table_[index];
  if (state == State::masters) {
    const std::int64_t place = vector_places_[static_cast<std::size_t>(index)];
    if (place >= 0) return view(vectors_, DType::f32, place, parameter.shape);
    BELAY_CHECK(whole_masters(options_));
    return view(masters_, DType::f32, parameter.offset, parameter.shape);
  }
  BELAY_CHECK(stage() == ZeroStage::none);
  return view(state == State::m ? m_ : v_, DType::f32, parameter.offset, parameter.shape);
}

Tensor ParameterStore::grad(int index) const {
  const Parameter& parameter = table_[index];
  if (grad_pool_ != nullptr) return view(grad_pool_, DType::f32, pool_.of(index), parameter.shape);
  return view(grads_, DType::f32, parameter.offset, parameter.shape);
}

Tensor ParameterStore::copy(int index) const {
  if (copies_ == nullptr || !table_[index].compute_copy) return {};
  BELAY_CHECK(stage() != ZeroStage::weights);
  return view(copies_, options_.compute, table_[index].offset, table_[index].shape);
}

Tensor ParameterStore::weight(int index) const {
  const Parameter& parameter = table_[index];
  const bool low = options_.compute != DType::f32 && parameter.compute_copy;
  if (stage() == ZeroStage::weights && (low || options_.compute == DType::f32)) {
    return view(weight_pool_, options_.compute, pool_.of(index), parameter.shape);
  }
  return low ? copy(index) : master(index);
}

Tensor ParameterStore::owned(State state, const ShardRun& run) const {
  const Shape shape{run.count};
  if (state != State::masters) {
    return view(state == State::m ? m_ : v_, DType::f32, run.shard, shape);
  }
  if (vector_places_[static_cast<std::size_t>(run.parameter)] >= 0) {
    return view(vectors_, DType::f32, vector_place(run), shape);
  }
  return view(masters_, DType::f32, whole_masters(options_) ? run.flat : run.shard, shape);
}

Tensor ParameterStore::owned_grad(const ShardRun& run) const {
  return view(grads_, DType::f32, grad_pool_ != nullptr ? run.shard : run.flat, {run.count});
}

Tensor ParameterStore::owned_copy(const ShardRun& run) const {
  if (copies_ == nullptr || !table_[run.parameter].compute_copy) return {};
  const bool pooled = stage() == ZeroStage::weights;
  return view(copies_, options_.compute, pooled ? run.shard : run.flat, {run.count});
}

bool ParameterStore::is_whole(State state, int index) const {
  if (stage() == ZeroStage::none) return true;
  return state == State::masters &&
         (whole_masters(options_) || vector_places_[static_cast<std::size_t>(index)] >= 0);
}

std::vector<Tensor> ParameterStore::owned_gradients() const {
  std::vector<Tensor> all;
  for (const ShardRun& run : map_.runs()) all.push_back(owned_grad(run));
  return all;
}

Tensor ParameterStore::grad_block(const ShardGroup& group) const {
  const std::int64_t at = grad_pool_ != nullptr ? group.shard : group.own_begin;
  return view(grads_, DType::f32, at, {group.own_elements()});
}

Tensor ParameterStore::weight_block(const ShardGroup& group) const {
  const auto& block = copies_ != nullptr ? copies_ : masters_;
  const bool pooled = stage() == ZeroStage::weights;
  return view(block, options_.compute, pooled ? group.shard : group.own_begin,
              {group.own_elements()});
}

Tensor ParameterStore::weight_group(const ShardGroup& group) const {
  if (stage() == ZeroStage::weights) {
    return view(weight_pool_, options_.compute, pool_.at(group.unit, group.begin),
                {group.elements()});
  }
  return view(copies_ != nullptr ? copies_ : masters_, options_.compute, group.begin,
              {group.elements()});
}

Tensor ParameterStore::vectors() const {
  if (vectors_ == nullptr) return {};
  return view(vectors_, DType::f32, 0,
              {static_cast<std::int64_t>(vectors_->bytes() / sizeof(float))});
}

std::int64_t ParameterStore::vector_place(const ShardRun& run) const {
  return vector_places_[static_cast<std::size_t>(run.parameter)] + run.begin;
}

void ParameterStore::each_gradient(const std::function<void(const Tensor&)>& visit) const {
  if (grad_pool_ != nullptr) {
    visit(view(grad_pool_, DType::f32, 0, {pool_.elements()}));
    if (map_.shard_elements() > 0) visit(view(grads_, DType::f32, 0, {map_.shard_elements()}));
    return;
  }
  for (int index = 0; index < table_.size(); ++index) visit(grad(index));
}

void ParameterStore::load_part(Lane& lane, State state, int index, std::int64_t first,
                               std::span<const float> host) const {
  const auto end = first + static_cast<std::int64_t>(host.size());
  if (is_whole(state, index)) {
    const Tensor flat = whole(state, index).reshaped({table_[index].elements()});
    return write(lane, flat.rows(first, end), host);
  }
  const auto [first_group, last_group] = map_.groups_of(table_, index);
  for (int number = first_group; number < last_group; ++number) {
    for (const ShardRun& run : map_.runs_of(map_.groups()[static_cast<std::size_t>(number)])) {
      if (run.parameter != index) continue;
      const std::int64_t begin = std::max(first, run.begin);
      const std::int64_t stop = std::min(end, run.begin + run.count);
      if (begin >= stop) continue;
      write(lane, owned(state, run).rows(begin - run.begin, stop - run.begin),
            host.subspan(static_cast<std::size_t>(begin - first),
                         static_cast<std::size_t>(stop - begin)));
    }
  }
}

void ParameterStore::load(Lane& lane, State state, int index, std::span<const float> host) const {
  BELAY_CHECK(static_cast<std::int64_t>(host.size()) == table_[index].elements());
  load_part(lane, state, index, 0, host);
}

void ParameterStore::initialise(Lane& lane, std::uint64_t seed) const {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // elements in host memory at once
  std::vector<float> values;
  for (int index = 0; index < table_.size(); ++index) {
    const Parameter& parameter = table_[index];
    const RandomKey key{seed, 0, kInitStream + static_cast<std::uint32_t>(index)};
    for (std::int64_t begin = 0; begin < parameter.elements(); begin += kChunk) {
      const std::int64_t end = std::min(parameter.elements(), begin + kChunk);
      values.assign(static_cast<std::size_t>(end - begin),
                    parameter.init == Init::ones ? 1.0F : 0.0F);
      if (parameter.init == Init::normal) {
        fill_normal(values, begin, key, static_cast<float>(parameter.init_std));
      }
      load_part(lane, State::masters, index, begin, values);
    }
  }
  refresh_copies(lane);
}

void ParameterStore::write(Lane& lane, const Tensor& device_tensor, std::span<const float> host) {
  BELAY_CHECK(device_tensor.bytes() == host.size_bytes());
  lane.copy_in(device_tensor.data, host.data(), host.size_bytes());
  lane.wait();
}

void ParameterStore::read(Lane& lane, const Tensor& device_tensor, std::span<float> host) {
  BELAY_CHECK(device_tensor.bytes() == host.size_bytes());
  lane.copy_out(host.data(), device_tensor.data, host.size_bytes());
  lane.wait();
}

void ParameterStore::refresh_copies(Lane& lane) const {
  for (const ShardRun& run : map_.runs()) {
    const Tensor low = owned_copy(run);
    if (!low.empty()) launch(lane, CastArgs{owned(State::masters, run), low});
  }
  lane.wait();
}

}  // namespace belay
