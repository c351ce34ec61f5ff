#include "belay/device/cpu/matmul/onednn.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "belay/base/arena.h"
#include "belay/base/error.h"
#include "belay/base/parallel.h"
#include "belay/device/matmul_choice.h"

namespace belay {
namespace {

void require(dnnl_status_t status, std::string_view what) {
  if (status != dnnl_success) {
    fail(ExitCode::failure, "oneDNN: {} failed with status {}", what, static_cast<int>(status));
  }
}

template <class Handle, dnnl_status_t (*destroy)(Handle)>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, dnnl_status_t (*destroy)(Handle)>
using Owned = std::unique_ptr<Handle, Destroy<Handle, destroy>>;

using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Memory = Owned<dnnl_memory_t, dnnl_memory_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using PrimitiveDesc = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Attributes = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;

struct Runtime {
  Engine engine;
  Stream stream;
  Runtime() {
    dnnl_engine_t raw_engine = nullptr;
    require(dnnl_engine_create(&raw_engine, dnnl_cpu, 0), "creating the engine");
    engine.reset(raw_engine);
    dnnl_stream_t raw_stream = nullptr;
    require(dnnl_stream_create(&raw_stream, raw_engine, dnnl_stream_default_flags),
            "creating the stream");
    stream.reset(raw_stream);
  }
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

dnnl_data_type_t type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl_bf16 : dnnl_f32;
}

dnnl_memory_desc_t describe(std::int64_t rows, std::int64_t cols, DType dtype, bool transposed) {
  const std::array<dnnl_dim_t, 2> dims{rows, cols};
  const std::array<dnnl_dim_t, 2> strides =
      transposed ? std::array<dnnl_dim_t, 2>{1, rows} : std::array<dnnl_dim_t, 2>{cols, 1};
  dnnl_memory_desc_t desc;
  require(dnnl_memory_desc_init_by_strides(&desc, 2, dims.data(), type_of(dtype), strides.data()),
          "describing an operand");
  return desc;
}

dnnl_memory_desc_t describe_any(std::int64_t rows, std::int64_t cols, DType dtype) {
  const std::array<dnnl_dim_t, 2> dims{rows, cols};
  dnnl_memory_desc_t desc;
  require(dnnl_memory_desc_init_by_tag(&desc, 2, dims.data(), type_of(dtype), dnnl_format_tag_any),
          "describing an operand");
  return desc;
}

Memory bare_memory(const dnnl_memory_desc_t& desc) {
  dnnl_memory_t memory = nullptr;
  require(dnnl_memory_create(&memory, &desc, runtime().engine.get(), DNNL_MEMORY_NONE),
          "creating a memory object");
  return Memory(memory);
}

Primitive make_primitive(const PrimitiveDesc& desc) {
  dnnl_primitive_t primitive = nullptr;
  require(dnnl_primitive_create(&primitive, desc.get()), "creating a primitive");
  return Primitive(primitive);
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// An operand as the caller holds it and, when the primitive wants another layout, the reorder.
struct Operand {
  Memory plain;
  Memory packed;  // null: the primitive reads `plain`
  Primitive reorder;
  std::size_t packed_bytes = 0;

  [[nodiscard]] dnnl_memory_t for_primitive() const { return packed ? packed.get() : plain.get(); }
};

Attributes user_scratchpad() {
  dnnl_primitive_attr_t attributes = nullptr;
  require(dnnl_primitive_attr_create(&attributes), "creating attributes");
  Attributes owned(attributes);
  require(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
          "setting the scratchpad mode");
  return owned;
}

Memory scratchpad_of(const PrimitiveDesc& desc, std::size_t& bytes) {
  const dnnl_memory_desc_t* scratchpad =
      dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
  bytes = dnnl_memory_desc_get_size(scratchpad);
  return bytes == 0 ? Memory() : bare_memory(*scratchpad);
}

// One matrix product, ready to run.
class Product {
 public:
  Product(const MatmulKey& key, bool packed);
  [[nodiscard]] bool supported() const { return primitive_ != nullptr; }
  [[nodiscard]] std::size_t workspace() const {
    return aligned(a_.packed_bytes) + aligned(b_.packed_bytes) + aligned(scratchpad_bytes_);
  }
  void run(const MatmulArgs& args, KernelContext& context);

 private:
  static Operand make_operand(const dnnl_memory_desc_t& plain, const dnnl_memory_desc_t& wanted);
  static void load(Operand& operand, void* data, std::byte*& workspace);

  std::mutex mutex_;  // the memory objects hold one call's pointers
  Operand a_;
  Operand b_;
  Memory bias_;
  Memory dst_;
  Memory scratchpad_;
  std::size_t scratchpad_bytes_ = 0;
  Primitive primitive_;
};

Product::Product(const MatmulKey& key, bool packed) {
  const dnnl_memory_desc_t plain_a = describe(key.m, key.k, key.src, key.transpose_a);
  const dnnl_memory_desc_t plain_b = describe(key.k, key.n, key.src, key.transpose_b);
  const dnnl_memory_desc_t any_a = describe_any(key.m, key.k, key.src);
  const dnnl_memory_desc_t any_b = describe_any(key.k, key.n, key.src);
  const dnnl_memory_desc_t bias = describe(1, key.n, key.src, false);
  const dnnl_memory_desc_t dst = describe(key.m, key.n, key.dst, false);

  dnnl_matmul_desc_t operation;
  if (dnnl_matmul_desc_init(&operation, packed && key.transpose_a ? &any_a : &plain_a,
                            packed ? &any_b : &plain_b, key.bias ? &bias : nullptr,
                            &dst) != dnnl_success) {
    return;
  }
  const Attributes attributes = user_scratchpad();
  if (key.accumulate) {
    dnnl_post_ops_t post_ops = nullptr;
    require(dnnl_post_ops_create(&post_ops), "creating post-operations");
    const PostOps owned(post_ops);
    require(dnnl_post_ops_append_sum(post_ops, 1.0F), "adding a sum");
    require(dnnl_primitive_attr_set_post_ops(attributes.get(), post_ops), "setting post-ops");
  }
  dnnl_primitive_desc_t raw = nullptr;
  if (dnnl_primitive_desc_create(&raw, &operation, attributes.get(), runtime().engine.get(),
                                 nullptr) != dnnl_success) {
    return;
  }
  const PrimitiveDesc desc(raw);
  const char* implementation = "";
  require(dnnl_primitive_desc_query(raw, dnnl_query_impl_info_str, 0,
                                    static_cast<void*>(&implementation)),
          "asking for the implementation");
  if (std::string_view(implementation).starts_with("ref")) return;

  a_ = make_operand(plain_a, *dnnl_primitive_desc_query_md(raw, dnnl_query_src_md, 0));
  b_ = make_operand(plain_b, *dnnl_primitive_desc_query_md(raw, dnnl_query_weights_md, 0));
  if (packed && a_.packed == nullptr && b_.packed == nullptr) return;
  if (key.bias) bias_ = bare_memory(bias);
  dst_ = bare_memory(dst);
  scratchpad_ = scratchpad_of(desc, scratchpad_bytes_);
  primitive_ = make_primitive(desc);
}

Operand Product::make_operand(const dnnl_memory_desc_t& plain, const dnnl_memory_desc_t& wanted) {
  Operand operand;
  operand.plain = bare_memory(plain);
  if (dnnl_memory_desc_equal(&plain, &wanted) != 0) return operand;
  dnnl_primitive_desc_t raw = nullptr;
  const dnnl_engine_t engine = runtime().engine.get();
  const Attributes attributes = user_scratchpad();
  require(
      dnnl_reorder_primitive_desc_create(&raw, &plain, engine, &wanted, engine, attributes.get()),
      "describing a reorder");
  const PrimitiveDesc desc(raw);
  std::size_t scratchpad_bytes = 0;
  scratchpad_of(desc, scratchpad_bytes);
  if (scratchpad_bytes != 0) {
    fail(ExitCode::failure, "oneDNN: a reorder wants {} bytes of scratch; none were expected",
         scratchpad_bytes);
  }
  operand.packed = bare_memory(wanted);
  operand.reorder = make_primitive(desc);
  operand.packed_bytes = dnnl_memory_desc_get_size(&wanted);
  return operand;
}

void Product::load(Operand& operand, void* data, std::byte*& workspace) {
  require(dnnl_memory_set_data_handle(operand.plain.get(), data), "setting an operand");
  if (operand.packed == nullptr) return;
  require(dnnl_memory_set_data_handle(operand.packed.get(), workspace), "setting a packed operand");
  workspace += aligned(operand.packed_bytes);
  const std::array<dnnl_exec_arg_t, 2> moves{
      {{DNNL_ARG_FROM, operand.plain.get()}, {DNNL_ARG_TO, operand.packed.get()}}};
  require(dnnl_primitive_execute(operand.reorder.get(), runtime().stream.get(), 2, moves.data()),
          "reordering an operand");
}

void Product::run(const MatmulArgs& args, KernelContext& context) {
  const std::scoped_lock lock(mutex_);
  std::byte* workspace = context.workspace;
  load(a_, args.a.data, workspace);
  load(b_, args.b.data, workspace);
  require(dnnl_memory_set_data_handle(dst_.get(), args.dst.data), "setting the destination");
  std::array<dnnl_exec_arg_t, 5> arguments{{{DNNL_ARG_SRC, a_.for_primitive()},
                                            {DNNL_ARG_WEIGHTS, b_.for_primitive()},
                                            {DNNL_ARG_DST, dst_.get()}}};
  int count = 3;
  if (bias_ != nullptr) {
    require(dnnl_memory_set_data_handle(bias_.get(), args.bias.data), "setting the bias");
    arguments[static_cast<std::size_t>(count++)] = {DNNL_ARG_BIAS, bias_.get()};
  }
  if (scratchpad_ != nullptr) {
    require(dnnl_memory_set_data_handle(scratchpad_.get(), workspace), "setting the scratchpad");
    arguments[static_cast<std::size_t>(count++)] = {DNNL_ARG_SCRATCHPAD, scratchpad_.get()};
  }
  require(dnnl_primitive_execute(primitive_.get(), runtime().stream.get(), count, arguments.data()),
          "running a matrix product");
  require(dnnl_stream_wait(runtime().stream.get()), "waiting for a matrix product");
}

// Primitives fix the thread count when they are built, so it is part of what they are kept under.
struct PlanKey {
  MatmulKey key;
  int threads = 0;
  bool packed = false;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};
struct PlanKeyHash {
  std::size_t operator()(const PlanKey& plan) const {
    return MatmulKeyHash()(plan.key) * 31 + static_cast<std::size_t>(plan.threads) * 2 +
           static_cast<std::size_t>(plan.packed);
  }
};

Product& product_for(const MatmulArgs& args, bool packed) {
  static std::mutex mutex;
  static std::unordered_map<PlanKey, std::unique_ptr<Product>, PlanKeyHash> products;
  const PlanKey key{MatmulKey::of(args), thread_count(), packed};
  const std::scoped_lock lock(mutex);
  auto& product = products[key];
  if (product == nullptr) product = std::make_unique<Product>(key.key, packed);
  return *product;
}

const char* unsuitable(const MatmulArgs& args) {
  const auto fits = [](DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; };
  if (!fits(args.a.dtype) || !fits(args.dst.dtype)) return "dtype is neither f32 nor bf16";
  if (!args.bias.empty() && args.bias.dtype != args.a.dtype) return "bias dtype differs from a's";
  if (args.m() == 0 || args.n() == 0 || args.k() == 0) return "an empty operand";
  return nullptr;
}

const char* declines(const MatmulArgs& args, bool packed) {
  if (const char* reason = unsuitable(args)) return reason;
  if (!product_for(args, packed).supported()) {
    return packed ? "oneDNN would not pack this shape" : "oneDNN has no optimised code for it";
  }
  return nullptr;
}

}  // namespace

const char* onednn_declines(const MatmulArgs& args) {
  return declines(args, false);
}
std::size_t onednn_workspace(const MatmulArgs& args) {
  return product_for(args, false).workspace();
}
void run_onednn(const MatmulArgs& args, KernelContext& context) {
  product_for(args, false).run(args, context);
}
const char* onednn_packed_declines(const MatmulArgs& args) {
  return declines(args, true);
}
std::size_t onednn_packed_workspace(const MatmulArgs& args) {
  return product_for(args, true).workspace();
}
void run_onednn_packed(const MatmulArgs& args, KernelContext& context) {
  product_for(args, true).run(args, context);
}

}  // namespace belay
