#!/usr/bin/env python3
"""Times belay's fused operators and PyTorch's operators on the same shapes, in turn.

    bench/ops_vs_pytorch.py --pairs 3
    bench/ops_vs_pytorch.py --op attention_forward --dtype bf16 --pairs 5
    bench/ops_vs_pytorch.py --self-test    one operator, one pair: does it all still run?

The rows are those of `belay bench ops`, whose shape names are parsed here; what PyTorch has no
operator for is left out. Each measurement is a process of its own with all cores; the order
alternates, so that a machine that slows down or is shared weighs on both sides alike. Both sides
take the best of several calls on operands that are in no cache. The ratio is PyTorch's time over
belay's. Backward operators are timed alone: the forward pass is not part of it. Needs Debian's
python3-torch, of /usr/bin/python3.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to
OPS = ("norm_forward", "norm_backward", "activation_forward", "activation_backward",
       "cross_entropy", "adamw", "attention_forward", "attention_backward", "head")
RING_BYTES = 256 << 20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--belay", default="build/release/belay", help="the binary")
    parser.add_argument("--op", default="all", choices=("all",) + OPS)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--self-test", action="store_true", help="norm_forward, one pair")
    parser.add_argument("--pytorch-side", help=argparse.SUPPRESS)  # rows to time, as JSON
    arguments = parser.parse_args()
    if arguments.self_test:
        arguments.op, arguments.pairs = "norm_forward", 1
    if arguments.pairs < 1 or arguments.threads < 1:
        parser.error("--pairs and --threads must be at least 1")
    return arguments


# Each builder takes (torch, sizes, kind, dtype) and returns (run, bytes of operands).


def sizes_of(shape):
    """'4x1024 12x64' -> [4, 1024, 12, 64]; '4096x768 layer+residual' -> [4096, 768]"""
    sizes = []
    for word in shape.split():
        if word.replace("x", "").isdigit():
            sizes += [int(part) for part in word.split("x")]
    return sizes


def tensor_bytes(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def normalise(torch, x, residual, weight, bias, layer):
    total = x + residual
    if layer:
        return total, torch.nn.functional.layer_norm(total, weight.shape, weight, bias)
    rate = (total.float().pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return total, (total * rate).to(x.dtype) * weight


def norm(torch, sizes, kind, dtype, backward):
    rows, hidden = sizes
    x, residual = torch.randn(rows, hidden, dtype=dtype), torch.randn(rows, hidden, dtype=dtype)
    weight, bias = torch.randn(hidden, dtype=dtype), torch.randn(hidden, dtype=dtype)
    layer = kind.startswith("layer")
    if not backward:
        def forward():
            with torch.no_grad():
                normalise(torch, x, residual, weight, bias, layer)
        return forward, tensor_bytes(x, residual, x, x)
    leaves = [x, weight, bias] if layer else [x, weight]
    for leaf in leaves:
        leaf.requires_grad_()
    total, out = normalise(torch, x, residual, weight, bias, layer)
    d_total, d_out = torch.randn_like(x), torch.randn_like(x)
    return gradients(torch, [out, total], leaves, [d_out, d_total]), tensor_bytes(x, x, x, x)


def gradients(torch, outputs, leaves, d_outputs):
    return lambda: torch.autograd.grad(outputs, leaves, d_outputs, retain_graph=True)


def activate(torch, src, kind, ffn):
    functional = torch.nn.functional
    if kind.startswith("swiglu"):
        return functional.silu(src[:, :ffn]) * src[:, ffn:]
    if kind.startswith("geglu"):
        return functional.gelu(src[:, :ffn], approximate="tanh") * src[:, ffn:]
    return functional.gelu(src, approximate="tanh" if "tanh" in kind else "none")


def activation(torch, sizes, kind, dtype, backward):
    rows, ffn = sizes
    gated = kind.startswith(("swiglu", "geglu"))
    src = torch.randn(rows, ffn * (2 if gated else 1), dtype=dtype)
    if not backward:
        def forward():
            with torch.no_grad():
                activate(torch, src, kind, ffn)
        return forward, tensor_bytes(src) * 2
    src.requires_grad_()
    out = activate(torch, src, kind, ffn)
    return gradients(torch, [out], [src], [torch.randn_like(out)]), tensor_bytes(src) * 2


def cross_entropy(torch, sizes, _kind, dtype):
    rows, vocab = sizes
    logits = torch.randn(rows, vocab, dtype=dtype).requires_grad_()
    targets = torch.randint(0, vocab, (rows,))

    def run():
        loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
        torch.autograd.grad(loss, logits)
    return run, tensor_bytes(logits) * 2


def adamw(torch, sizes, _kind, _dtype):
    weights = torch.randn(sizes[0]).requires_grad_()
    weights.grad = torch.randn(sizes[0])
    optimizer = torch.optim.AdamW([weights], lr=1e-4, weight_decay=0.1)
    return optimizer.step, tensor_bytes(weights) * 4


def attend(torch, qkv, sizes):
    batch, seq, heads, dim = sizes
    q, k, v = (t.reshape(batch, seq, heads, dim).transpose(1, 2)
               for t in qkv.split(heads * dim, dim=2))
    scores = q @ k.transpose(2, 3) * dim ** -0.5
    hidden_keys = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden_keys, float("-inf")).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(batch, seq, heads * dim)


def attention(torch, sizes, _kind, dtype, backward):
    batch, seq, heads, dim = sizes
    qkv = torch.randn(batch, seq, 3 * heads * dim, dtype=dtype)
    size = batch * heads * seq * seq * qkv.element_size()
    if not backward:
        def forward():
            with torch.no_grad():
                attend(torch, qkv, sizes)
        return forward, size
    qkv.requires_grad_()
    out = attend(torch, qkv, sizes)
    return gradients(torch, [out], [qkv], [torch.randn_like(out)]), size


def head(torch, sizes, _kind, dtype):
    rows, vocab, hidden = sizes[:3]
    x = torch.randn(rows, hidden, dtype=dtype).requires_grad_()
    weight = (0.1 * torch.randn(vocab, hidden, dtype=dtype)).requires_grad_()
    targets = torch.randint(0, vocab, (rows,))

    def run():
        logits = (x @ weight.t()).float()
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        torch.autograd.grad(loss, [x, weight])
    return run, tensor_bytes(x, weight)


def builder_of(op):
    direction = op.endswith("_backward")
    for family, build in (("norm_", norm), ("activation_", activation), ("attention_", attention)):
        if op.startswith(family):
            return lambda *args: build(*args, direction)
    return {"cross_entropy": cross_entropy, "adamw": adamw, "head": head}[op]


def best_seconds(runs):
    """As belay times its own: one round to warm up, then at least 12 calls and 0.3 s; long calls
    stop after 1.5 s."""
    for run in runs:
        run()
    best, begin, calls = float("inf"), time.perf_counter(), 0
    while True:
        start = time.perf_counter()
        runs[calls % len(runs)]()
        now = time.perf_counter()
        best, calls = min(best, now - start), calls + 1
        if now - begin >= (0.3 if calls >= 12 else 1.5) and calls >= 3:
            return best


def pytorch_side(arguments):
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float32
    times = {}
    for op, shape in json.loads(arguments.pytorch_side):
        kind = " ".join(word for word in shape.split() if not word.replace("x", "").isdigit())
        build = builder_of(op)
        run, size = build(torch, sizes_of(shape), kind, dtype)
        sets = max(1, min(8, RING_BYTES // size))
        runs = [run] + [build(torch, sizes_of(shape), kind, dtype)[0] for _ in range(sets - 1)]
        times[f"{op}|{shape}"] = best_seconds(runs) * 1e6
    print(json.dumps({"version": torch.__version__, "times": times}))


def run_side(name, command, arguments):
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment["OMP_NUM_THREADS"] = str(arguments.threads)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"ops_vs_pytorch: the {name} side ended with {done.returncode}: "
                 f"{' '.join(command)}")
    try:
        return json.loads(done.stdout[done.stdout.index("{"):])
    except ValueError as error:
        sys.exit(f"ops_vs_pytorch: the {name} side printed no JSON ({error}): "
                 f"{done.stdout[:200]!r}")


def belay_times(arguments, ops):
    times = {}
    for op in ops:
        result = run_side("belay", [arguments.belay, "bench", "ops", "--op", op, "--dtype",
                                    arguments.dtype, "--json"], arguments)
        for row in result["ops"]:
            if row["dtype"] == arguments.dtype:
                times[f"{op}|{row['shape']}"] = (row["time_us"], row["plain_us"])
    return times


def compare(arguments):
    if not pathlib.Path(arguments.belay).is_file():
        sys.exit(f"ops_vs_pytorch: no binary at {arguments.belay}; build it or pass --belay")
    ops = OPS if arguments.op == "all" else (arguments.op,)
    rows = {}
    for index in range(arguments.pairs):
        # The first pair asks belay first: it says which shapes there are.
        if index % 2 == 0:
            ours = belay_times(arguments, ops)
        wanted = json.dumps([key.split("|") for key in (ours if index % 2 == 0 else rows)])
        theirs = run_side("pytorch", [SYSTEM_PYTHON, __file__, "--pytorch-side", wanted, "--dtype",
                                      arguments.dtype, "--threads", str(arguments.threads)],
                          arguments)["times"]
        if index % 2 == 1:
            ours = belay_times(arguments, ops)
        for key, (time_us, plain_us) in ours.items():
            rows.setdefault(key, []).append({"time_us": time_us, "plain_us": plain_us,
                                             "pytorch_us": theirs[key],
                                             "ratio": theirs[key] / time_us})
    table = []
    for key, pairs in rows.items():
        op, shape = key.split("|")
        table.append({"op": op, "shape": shape, "dtype": arguments.dtype, "pairs": pairs,
                      "median_ratio": statistics.median(pair["ratio"] for pair in pairs)})
    if arguments.json:
        print(json.dumps({"threads": arguments.threads, "ops": table}))
        return
    print(f"{'op':20} {'shape':32} {'belay us':>9} {'plain us':>9} {'pytorch us':>10}  ratios")
    for row in table:
        best = {name: min(pair[name] for pair in row["pairs"])
                for name in ("time_us", "plain_us", "pytorch_us")}
        ratios = ", ".join(f"{pair['ratio']:.2f}" for pair in row["pairs"])
        print(f"{row['op']:20} {row['shape']:32} {best['time_us']:9.0f} {best['plain_us']:9.0f} "
              f"{best['pytorch_us']:10.0f}  {ratios}; median {row['median_ratio']:.2f}")


if __name__ == "__main__":
    parsed = parse_arguments()
    if parsed.pytorch_side:
        pytorch_side(parsed)
    else:
        compare(parsed)
