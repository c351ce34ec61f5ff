"""The gpt2 fixture again as an llm.c checkpoint, and a token file of that program.

Both begin with 256 32-bit integers. The checkpoint holds float32 tensors in the order below, each
with all layers back to back; matrices are [out, in]; the vocabulary is padded with zero rows."""

import struct

import torch

import golden_models
import tensor_file

MODEL_MAGIC, MODEL_VERSION = 20240326, 3
TOKENS_MAGIC, TOKENS_VERSION = 20240520, 1
PADDED_VOCAB = 128
TOKENS = 700

# Name within a layer, and whether GPT-2's [in, out] matrix has to be turned.
LAYER_TENSORS = [
    ("ln_1.weight", False),
    ("ln_1.bias", False),
    ("attn.c_attn.weight", True),
    ("attn.c_attn.bias", False),
    ("attn.c_proj.weight", True),
    ("attn.c_proj.bias", False),
    ("ln_2.weight", False),
    ("ln_2.bias", False),
    ("mlp.c_fc.weight", True),
    ("mlp.c_fc.bias", False),
    ("mlp.c_proj.weight", True),
    ("mlp.c_proj.bias", False),
]


def header(*words):
    return struct.pack("<256i", *words, *([0] * (256 - len(words))))


def write_model(path, config, params):
    vocab, hidden = params["wte.weight"].shape
    padding = torch.zeros(PADDED_VOCAB - vocab, hidden)
    parts = [torch.cat([params["wte.weight"], padding]), params["wpe.weight"]]
    for name, turned in LAYER_TENSORS:
        for layer in range(config["n_layer"]):
            value = params[f"h.{layer}.{name}"]
            parts.append(value.t() if turned else value)
    parts += [params["ln_f.weight"], params["ln_f.bias"]]
    with open(path, "wb") as file:
        file.write(header(MODEL_MAGIC, MODEL_VERSION, config["n_positions"], vocab,
                          config["n_layer"], config["n_head"], hidden, PADDED_VOCAB))
        for part in parts:
            file.write(tensor_file.raw_bytes(part))


def write_tokens(path, vocab):
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, vocab, (TOKENS,), generator=generator).tolist()
    with open(path, "wb") as file:
        file.write(header(TOKENS_MAGIC, TOKENS_VERSION, TOKENS))
        file.write(struct.pack(f"<{TOKENS}H", *ids))
    print(f"llm.c token file: {TOKENS} tokens, first {ids[:4]}, last {ids[-1]}, sum {sum(ids)}")


def write_all(out):
    config, params, _, _ = golden_models.make("gpt2")
    folder = out / "llmc"
    folder.mkdir(exist_ok=True)
    write_model(folder / "gpt2_tiny.bin", config, params)
    write_tokens(folder / "tokens.bin", config["vocab_size"])
