// Fetching a batch must not touch the heap: it happens inside the steady training step.

#include <gtest/gtest.h>

#include "belay/base/allocation_count.h"
#include "belay/data/loader.h"
#include "belay/data/pack.h"
#include "belay/data/test_files.h"

namespace belay::data {
namespace {

TEST(DataAllocationTest, ASteadyBatchAllocatesNothing) {
  const TestDirectory directory;
  std::string text;
  for (const std::size_t length : {13U, 30U, 7U, 5000U}) {
    text += "{\"text\":\"" + std::string(length, 'x') + "\"}\n";
  }
  PackOptions options;
  options.inputs = {directory.write("in.jsonl", text)};
  options.out = directory.path("store");
  options.tokenizer = "bytes";
  pack(options);
  const Dataset dataset = Dataset::open(options.out, 8);
  const SampleOrder order(3, dataset.samples());
  for (const int workers : {0, 2}) {
    Loader loader(dataset, order, {.rows = 4, .workers = workers});
    for (int step = 0; step < 10; ++step) loader.next();
    const std::int64_t before = allocation_count();
    for (int step = 0; step < 200; ++step) loader.next();
    EXPECT_EQ(allocation_count() - before, 0) << workers << " workers";
  }
}

}  // namespace
}  // namespace belay::data
