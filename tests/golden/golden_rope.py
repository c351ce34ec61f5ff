"""Rotary position tables for each kind of scaling, and the rotation itself.

A table row is head_dim/2 cosines, then head_dim/2 sines. Sources: Su et al., arXiv:2104.09864;
position interpolation: Chen et al., arXiv:2306.15595; YaRN: Peng et al., arXiv:2309.00071; the
llama3 rule: its model card's parameters low_freq_factor, high_freq_factor, original length."""

import math

import torch

import tensor_file


def plain_frequencies(dim, base):
    return base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def linear(dim, base, scaling, max_positions, length):
    return plain_frequencies(dim, base) / scaling["factor"], 1.0


def dynamic(dim, base, scaling, max_positions, length):
    factor = scaling["factor"]
    if length > max_positions:
        base = base * ((factor * length / max_positions) - (factor - 1)) ** (dim / (dim - 2))
    return plain_frequencies(dim, base), 1.0


def yarn(dim, base, scaling, max_positions, length):
    factor = scaling["factor"]
    trained = scaling.get("original_max_position_embeddings", max_positions)

    def correction(rotations):
        return dim * math.log(trained / (2 * math.pi * rotations)) / (2 * math.log(base))

    low = max(math.floor(correction(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(correction(scaling.get("beta_slow", 1))), dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    inverse = plain_frequencies(dim, base)
    scale = scaling.get("attention_factor", 0.1 * math.log(factor) + 1.0)
    return inverse / factor * ramp + inverse * (1 - ramp), scale


def llama3(dim, base, scaling, max_positions, length):
    factor, low, high = (scaling[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    original = scaling["original_max_position_embeddings"]
    result = []
    for inverse in plain_frequencies(dim, base).tolist():
        wavelength = 2 * math.pi / inverse
        if wavelength < original / high:
            result.append(inverse)
        elif wavelength > original / low:
            result.append(inverse / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            result.append((1 - smooth) * inverse / factor + smooth * inverse)
    return torch.tensor(result, dtype=torch.float64), 1.0


KINDS = {"linear": linear, "dynamic": dynamic, "yarn": yarn, "llama3": llama3}


def table(dim, base, scaling, max_positions, length):
    """[length, dim] float64: cosines | sines."""
    if scaling is None:
        inverse, scale = plain_frequencies(dim, base), 1.0
    else:
        inverse, scale = KINDS[scaling["rope_type"]](dim, base, scaling, max_positions, length)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * inverse[None]
    return torch.cat([angles.cos(), angles.sin()], dim=1) * scale


def rotate(x, cosine, sine):
    """x [..., dim]: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), x1 the first half."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


# The C++ test holds the same settings under the same names.
TABLES = {
    "default": (16, 10000.0, None, 64, 40),
    "linear": (16, 10000.0, {"rope_type": "linear", "factor": 4.0}, 64, 40),
    "dynamic_short": (16, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, 64, 40),
    "dynamic_long": (16, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, 16, 40),
    "yarn": (32, 10000.0, {"rope_type": "yarn", "factor": 4.0}, 64, 40),
    "yarn_original": (
        32,
        1000000.0,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256,
         "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.25},
        1024,
        40,
    ),
    "llama3": (
        32,
        500000.0,
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
        512,
        40,
    ),
}


def write_all(folder):
    tables = {name: table(*settings).float() for name, settings in TABLES.items()}
    tensor_file.save(folder / "rope_tables.safetensors", tables)

    generator = torch.Generator().manual_seed(20)
    tensors = {}
    dim, heads, tokens = 16, 3, 14
    angles = tables["default"]
    positions = (torch.arange(tokens, dtype=torch.int32) * 5) % 40
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
        rows = torch.randn(tokens, heads * dim, generator=generator).to(dtype)
        x = rows.double().reshape(tokens, heads, dim).requires_grad_(True)
        cosine, sine = angles.double()[positions.long()][:, None].chunk(2, dim=-1)
        y = rotate(x, cosine, sine)
        # The same rows serve as the gradient that comes back.
        (backward,) = torch.autograd.grad((y * x.detach()).sum(), [x])
        tensors[f"half_split_{name}/rows"] = rows
        tensors[f"half_split_{name}/positions"] = positions
        tensors[f"half_split_{name}/table"] = angles
        tensors[f"half_split_{name}/dst"] = y.detach().float().reshape(rows.shape)
        tensors[f"half_split_{name}/dst_backward"] = backward.float().reshape(rows.shape)
    tensor_file.save(folder / "rotary.safetensors", tensors)
