"""Writes safetensors files: header length, JSON header, then the tensors back to back."""

import json
import math

import torch

# Wide element types come first, as the reference writer of the format orders them.
DTYPES = [
    (torch.int64, "I64"),
    (torch.float64, "F64"),
    (torch.float32, "F32"),
    (torch.int32, "I32"),
    (torch.bfloat16, "BF16"),
    (torch.float16, "F16"),
]
NAMES = dict(DTYPES)
RANK = {dtype: rank for rank, (dtype, _) in enumerate(DTYPES)}


def raw_bytes(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:  # numpy has no such type; the bits are what is stored
        tensor = tensor.view(torch.int16)
    return tensor.numpy().tobytes()


def save(path, tensors):
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    ordered = sorted(tensors.items(), key=lambda item: (RANK[item[1].dtype], item[0]))
    for name, tensor in ordered:
        size = tensor.element_size() * math.prod(tensor.shape)
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, tensor in ordered:
            file.write(raw_bytes(tensor))
