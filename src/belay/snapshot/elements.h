#pragma once
// Elements on their way between our f32 [out, in] parameters and the tensors of a checkpoint.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belay/model/parameter_table.h"
#include "belay/snapshot/safetensors.h"

namespace belay {

// F32, F16 and BF16 are the types of weights; others give nothing.
std::optional<DType> weight_dtype(StoredType type);
StoredType stored_type(DType dtype);  // f32, f16 or bf16

// Little-endian elements at any address -> f32.
void decode_elements(DType dtype, std::span<const std::byte> src, std::span<float> dst);
// f32 -> elements, rounded to nearest even. Returns false when a finite value became infinite.
bool encode_elements(DType dtype, std::span<const float> src, std::span<std::byte> dst);

// Shape that a part has in the checkpoint: [rows], [rows, in] or, transposed, [in, rows].
std::vector<std::uint64_t> part_shape(const Parameter& parameter, const HfPart& part);

// Fills the part's rows of `dst` (the whole parameter) from the tensor's bytes.
void read_part(const Parameter& parameter, const HfPart& part, DType dtype,
               std::span<const std::byte> src, std::span<float> dst);

// Gives the tensor's bytes in pieces of bounded size. Error(data) names the tensor when a value
// does not fit the type.
void write_part(const Parameter& parameter, const HfPart& part, DType dtype,
                std::span<const float> src,
                const std::function<void(std::span<const std::byte>)>& append);

}  // namespace belay
