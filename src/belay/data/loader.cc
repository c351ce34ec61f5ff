#include "belay/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "belay/base/arena.h"
#include "belay/base/check.h"

namespace belay::data {
namespace {

// i32 elements per buffer start, so that each of a batch's four arrays is aligned.
constexpr std::int64_t kAlignedIds = static_cast<std::int64_t>(kAlignment / sizeof(std::int32_t));

struct AlignedFree {
  void operator()(std::int32_t* memory) const {
    ::operator delete[](memory, std::align_val_t{kAlignment});
  }
};

// A batch number goes to slot number % depth; `ready` tells which batch the slot holds.
struct Slot {
  Batch batch;
  std::unique_ptr<std::int32_t[], AlignedFree> memory;
  std::int64_t array = 0;  // elements between the four arrays
  std::vector<std::int64_t> samples;
  std::int64_t ready = -1;
  std::exception_ptr error;
};

}  // namespace

struct Loader::State {
  const Dataset& dataset;
  const SampleOrder* order;  // nullptr: sequential
  LoaderOptions options;
  std::vector<Slot> slots;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable filled;
  std::condition_variable freed;
  std::int64_t consumed = 0;  // batches before this one may be overwritten
  std::int64_t claimed = 0;   // next batch that no worker has taken
  std::int64_t returned = -1;
  bool stopping = false;

  State(const Dataset& source, const SampleOrder* sample_order, const LoaderOptions& given)
      : dataset(source), order(sample_order), options(given) {
    if (options.stride == 0) options.stride = options.rows;
    BELAY_CHECK(options.rows > 0 && options.start >= 0 && options.workers >= 0);
    BELAY_CHECK(options.depth >= 2 && options.offset >= 0);
    BELAY_CHECK(options.offset + options.rows <= options.stride);
    BELAY_CHECK(order != nullptr || options.start == 0);
    BELAY_CHECK(order == nullptr || order->samples() == dataset.samples());
    const std::int64_t elements = options.rows * dataset.seq_len();
    const std::int64_t array = pieces(elements) * kAlignedIds;
    slots.resize(static_cast<std::size_t>(options.depth));
    for (Slot& slot : slots) {
      slot.array = array;
      slot.memory.reset(static_cast<std::int32_t*>(
          ::operator new[](static_cast<std::size_t>(4 * array) * sizeof(std::int32_t),
                           std::align_val_t{kAlignment})));
      slot.samples.resize(static_cast<std::size_t>(options.rows));
      const auto count = static_cast<std::size_t>(elements);
      std::int32_t* base = slot.memory.get();
      slot.batch = {.rows = options.rows,
                    .seq_len = dataset.seq_len(),
                    .tokens = {base, count},
                    .targets = {base + array, count},
                    .positions = {base + 2 * array, count},
                    .doc_begin = {base + 3 * array, count},
                    .counted = 0,
                    .samples = slot.samples};
    }
    for (int i = 0; i < options.workers; ++i) threads.emplace_back([this] { work(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    freed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  static std::int64_t pieces(std::int64_t elements) {
    return (elements + kAlignedIds - 1) / kAlignedIds;
  }

  [[nodiscard]] std::int64_t batches() const {
    return (dataset.samples() + options.stride - 1) / options.stride;
  }

  [[nodiscard]] std::int64_t sample_of(std::int64_t batch, std::int64_t row) const {
    if (order != nullptr) {
      const std::int64_t step = options.per_step > 0 ? batch / options.per_step : 0;
      const std::int64_t place = batch - step * options.per_step;
      return order->at(options.start + step * options.step_rows + place * options.stride +
                       options.offset + row);
    }
    const std::int64_t position = batch % batches() * options.stride + options.offset + row;
    return position < dataset.samples() ? position : -1;
  }

  Slot& slot_of(std::int64_t batch) {
    return slots[static_cast<std::size_t>(batch % options.depth)];
  }

  void fill(std::int64_t number, Slot& slot) const {
    slot.error = nullptr;
    try {
      for (std::int64_t row = 0; row < options.rows; ++row) {
        const std::int64_t sample = sample_of(number, row);
        slot.samples[static_cast<std::size_t>(row)] = sample;
        if (sample >= 0) dataset.prefetch(sample);
      }
      slot.batch.counted = 0;
      const auto width = static_cast<std::size_t>(dataset.seq_len());
      for (std::int64_t row = 0; row < options.rows; ++row) {
        std::int32_t* at = slot.memory.get() + row * dataset.seq_len();
        const RowSpans spans{.tokens = {at, width},
                             .targets = {at + slot.array, width},
                             .positions = {at + 2 * slot.array, width},
                             .doc_begin = {at + 3 * slot.array, width}};
        const std::int64_t sample = slot.samples[static_cast<std::size_t>(row)];
        if (sample < 0) {
          dataset.fill_padding(spans);
        } else {
          slot.batch.counted += dataset.fill(sample, spans);
        }
      }
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      freed.wait(lock, [&] { return stopping || claimed < consumed + options.depth; });
      if (stopping) return;
      const std::int64_t number = claimed++;
      Slot& slot = slot_of(number);
      lock.unlock();
      fill(number, slot);
      lock.lock();
      slot.ready = number;
      filled.notify_all();
    }
  }

  const Batch& next() {
    std::unique_lock lock(mutex);
    const std::int64_t number = ++returned;
    consumed = number;
    Slot& slot = slot_of(number);
    if (threads.empty()) {
      fill(number, slot);
    } else {
      freed.notify_all();
      filled.wait(lock, [&] { return slot.ready == number; });
    }
    if (slot.error) std::rethrow_exception(slot.error);
    return slot.batch;
  }
};

Loader::Loader(const Dataset& dataset, const SampleOrder& order, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset, &order, options)) {}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset, nullptr, options)) {}

Loader::~Loader() = default;

const Batch& Loader::next() {
  return state_->next();
}

std::int64_t Loader::batches() const {
  return state_->batches();
}

}  // namespace belay::data
