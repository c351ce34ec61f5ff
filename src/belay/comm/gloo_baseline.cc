#include "belay/comm/gloo_baseline.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>

#include "belay/base/error.h"

namespace belay::comm {

struct GlooBaseline::State {
  State(int rank, int size) : context(std::make_shared<gloo::rendezvous::Context>(rank, size)) {}
  std::shared_ptr<gloo::rendezvous::Context> context;
};

GlooBaseline::GlooBaseline(int rank, int size, const std::string& directory)
    : state_(std::make_unique<State>(rank, size)) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "localhost";
    gloo::rendezvous::FileStore store(directory);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    state_->context->connectFullMesh(store, device);
  } catch (const std::exception& error) {
    fail(ExitCode::communication, "gloo cannot connect the ranks: {}", error.what());
  }
}

GlooBaseline::~GlooBaseline() = default;

void GlooBaseline::all_reduce(const float* input, float* output, std::int64_t count) {
  gloo::AllreduceOptions options(state_->context);
  const auto elements = static_cast<std::size_t>(count);
  options.setInput(const_cast<float*>(input), elements);
  options.setOutput(output, elements);
  options.setReduceFunction([](void* sum, const void* first, const void* second, std::size_t n) {
    gloo::sum<float>(sum, first, second, n);
  });
  gloo::allreduce(options);
}

}  // namespace belay::comm
