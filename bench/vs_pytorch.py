#!/usr/bin/env python3
"""Trains the same GPT-2 in PyTorch and in belay, in turn, and prints the ratio pair by pair.

    bench/vs_pytorch.py --model gpt2-124m --batch 4 --seq 256 --dtype f32 --pairs 5
    bench/vs_pytorch.py --self-test        the tiny model, one pair: does it all still run?

Each measurement is a process of its own with all cores; the order alternates, so that a machine
that slows down or is shared weighs on both sides alike. The ratio is tokens per second of belay
over tokens per second of PyTorch. PyTorch: plain attention, AdamW as it comes or over tensor lists
(--optimizer foreach), clipping at 1.0; bf16 by autocast with fp32 weights. Needs Debian's
python3-torch.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

MODELS = {  # layers, hidden, heads, vocab, positions: the presets of `belay bench train`
    "gpt2-tiny": (2, 64, 4, 512, 128),
    "gpt2-124m": (12, 768, 12, 50257, 1024),
}
SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--belay", default="build/release/belay", help="the binary")
    parser.add_argument("--model", default="gpt2-124m", choices=MODELS)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="measured steps of each process")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--optimizer", default="default", choices=("default", "foreach"),
                        help="PyTorch's AdamW: as it comes, or over tensor lists")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--self-test", action="store_true", help="tiny model, one pair")
    parser.add_argument("--pytorch-side", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.self_test:
        arguments.model, arguments.batch, arguments.seq, arguments.pairs = "gpt2-tiny", 2, 32, 1
    if arguments.batch < 1 or arguments.pairs < 1 or arguments.steps < 1 or arguments.threads < 1:
        parser.error("--batch, --pairs, --steps and --threads must be at least 1")
    positions = MODELS[arguments.model][4]
    if not 1 <= arguments.seq <= positions:
        parser.error(f"--seq {arguments.seq}: {arguments.model} has {positions} positions")
    return arguments


def build_model(torch, layers, hidden, heads, vocab, positions):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def attend(self, x):
            batch, seq, _ = x.shape
            q, k, v = (t.reshape(batch, seq, heads, -1).transpose(1, 2)
                       for t in self.qkv(x).split(hidden, dim=2))
            scores = q @ k.transpose(2, 3) * (hidden // heads) ** -0.5
            hidden_keys = torch.ones(seq, seq, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(hidden_keys, float("-inf")).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(batch, seq, hidden))

        def forward(self, x):
            x = x + self.attend(self.norm1(x))
            inner = nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")
            return x + self.down(inner)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocab, hidden)
            self.positions = nn.Embedding(positions, hidden)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm = nn.LayerNorm(hidden)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            logits = self.norm(self.blocks(x)) @ self.tokens.weight.t()
            return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return Model()


def pytorch_side(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = build_model(torch, *MODELS[arguments.model])
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-4, betas=(0.9, 0.95), eps=1e-8,
        foreach=True if arguments.optimizer == "foreach" else None)
    vocab = MODELS[arguments.model][3]
    tokens = torch.randint(0, vocab, (arguments.batch, arguments.seq + 1))

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.dtype == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss)

    losses = [step()]  # not timed: it allocates
    seconds = []
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    print(json.dumps({
        "tokens_per_s": arguments.batch * arguments.seq / median,
        "step_ms": median * 1e3,
        "loss": losses[-1],
        "parameters": sum(p.numel() for p in model.parameters()),
        "version": torch.__version__,
    }))


def run_side(name, command, arguments):
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["OMP_NUM_THREADS"] = str(arguments.threads)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"vs_pytorch: the {name} side ended with {done.returncode}: {' '.join(command)}")
    try:
        result = json.loads(done.stdout[done.stdout.index("{"):])
        result["tokens_per_s"] = float(result["tokens_per_s"])
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"vs_pytorch: the {name} side printed no JSON with tokens_per_s ({error}): "
                 f"{done.stdout[:200]!r}")
    if not result["tokens_per_s"] > 0:
        sys.exit(f"vs_pytorch: the {name} side reports {result['tokens_per_s']} tokens/s")
    return result


def compare(arguments):
    if not pathlib.Path(arguments.belay).is_file():
        sys.exit(f"vs_pytorch: no binary at {arguments.belay}; build it or pass --belay")
    shape = ["--model", arguments.model, "--batch", str(arguments.batch), "--seq",
             str(arguments.seq), "--dtype", arguments.dtype, "--steps", str(arguments.steps)]
    commands = {
        "belay": [arguments.belay, "bench", "train", *shape, "--no-gemm", "--json"],
        "pytorch": [SYSTEM_PYTHON, __file__, "--pytorch-side", *shape, "--threads",
                    str(arguments.threads), "--optimizer", arguments.optimizer],
    }
    pairs = []
    for index in range(arguments.pairs):
        order = ("belay", "pytorch") if index % 2 == 0 else ("pytorch", "belay")
        pair = {name: run_side(name, commands[name], arguments) for name in order}
        pair["ratio"] = pair["belay"]["tokens_per_s"] / pair["pytorch"]["tokens_per_s"]
        pairs.append(pair)
        print(f"pair {index + 1}: belay {pair['belay']['tokens_per_s']:.1f} tokens/s, pytorch "
              f"{pair['pytorch']['tokens_per_s']:.1f} tokens/s, ratio {pair['ratio']:.2f}",
              file=sys.stderr if arguments.json else sys.stdout, flush=True)
    median = statistics.median(pair["ratio"] for pair in pairs)
    if arguments.json:
        print(json.dumps({
            "model": arguments.model, "batch": arguments.batch, "seq": arguments.seq,
            "dtype": arguments.dtype, "threads": arguments.threads,
            "optimizer": arguments.optimizer, "pairs": pairs,
            "median_ratio": median,
        }))
    else:
        print(f"median ratio {median:.2f} ({arguments.model}, {arguments.batch} x "
              f"{arguments.seq}, {arguments.dtype}, {arguments.threads} threads, "
              f"{arguments.optimizer} optimizer)")


if __name__ == "__main__":
    parsed = parse_arguments()
    if parsed.pytorch_side:
        pytorch_side(parsed)
    else:
        compare(parsed)
