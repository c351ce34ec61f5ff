"""One file per operator. A tensor is named CASE/OPERAND; expected results are float32 (float64 for
sums that the engine keeps in float64). A case's name ends in the type of its operands."""

import torch
import torch.nn.functional as F

import golden_attention
import tensor_file

F32_THRESHOLD = 1e-5
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


class Cases:
    """Collects the cases of one operator with operands of `dtypes`. `generator` makes them
    independent of each other."""

    def __init__(self, seed, dtypes):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtypes = dtypes
        self.tensors = {}

    def normal(self, *shape, dtype=torch.float32, scale=1.0, shift=0.0):
        return (torch.randn(*shape, generator=self.generator) * scale + shift).to(dtype)

    def integers(self, low, high, *shape):
        return torch.randint(low, high, shape, generator=self.generator, dtype=torch.int32)

    @staticmethod
    def name_of(dtype):
        return NAMES[dtype]

    def keep(self, case, inputs, compute):
        """compute(dtype, **inputs) returns the expected results, working in `dtype`."""
        exact = compute(torch.float64, **inputs)
        if case.endswith("f32"):
            for name, value in compute(torch.float32, **inputs).items():
                check_fair(f"{case}/{name}", value, exact[name])
        for name, value in inputs.items():
            if not isinstance(value, torch.Tensor):
                value = torch.tensor(value, dtype=torch.float64)
            self.tensors[f"{case}/{name}"] = value
        for name, value in exact.items():
            self.tensors[f"{case}/{name}"] = value.to(torch.float32)


def check_fair(name, rounded, exact):
    error = (rounded.double() - exact).norm() / exact.norm().clamp_min(1e-30)
    if exact.norm() > 0 and error > F32_THRESHOLD:
        raise SystemExit(f"{name}: PyTorch's own float32 is off by {error:.2e}; choose other inputs")


def grads(loss, tensors):
    return torch.autograd.grad(loss, tensors)


def leaf(tensor, dtype):
    return tensor.to(dtype).requires_grad_(True)


def matmul(cases):
    shapes = {"odd": (13, 17, 24), "wide": (32, 48, 40)}
    for name, (m, n, k) in shapes.items():
        for trans_a in (False, True):
            for trans_b in (False, True):
                for dtype in cases.dtypes:
                    one_matmul(cases, name, (m, n, k), trans_a, trans_b, dtype)


def one_matmul(cases, name, size, trans_a, trans_b, dtype):
    m, n, k = size
    suffix = cases.name_of(dtype)
    layout = ("t" if trans_a else "n") + ("t" if trans_b else "n")
    inputs = {
        "a": cases.normal(*((k, m) if trans_a else (m, k)), dtype=dtype),
        "b": cases.normal(*((n, k) if trans_b else (k, n)), dtype=dtype),
        "bias": cases.normal(n, dtype=dtype),
        "before": cases.normal(m, n),
    }

    def compute(work, a, b, bias, before):
        a, b = a.to(work), b.to(work)
        product = (a.t() if trans_a else a) @ (b.t() if trans_b else b)
        return {"dst_bias": product + bias.to(work), "dst_accumulated": product + before.to(work)}

    cases.keep(f"{name}_{layout}_{suffix}", inputs, compute)


def norm(cases):
    for kind in ("layer", "rms"):
        for residual in (False, True):
            for dtype in cases.dtypes:
                one_norm(cases, kind, residual, dtype)


def one_norm(cases, kind, residual, dtype, tokens=7, hidden=40):
    suffix = cases.name_of(dtype)
    inputs = {
        "src": cases.normal(tokens, hidden, dtype=dtype, shift=0.5),
        "weight": cases.normal(hidden, scale=0.2, shift=1.0),
        "eps": 1e-5 if kind == "layer" else 1e-6,
        "d_dst": cases.normal(tokens, hidden, dtype=dtype),
        "d_weight_before": cases.normal(hidden),
    }
    if kind == "layer":
        inputs["bias"] = cases.normal(hidden, scale=0.2)
        inputs["d_bias_before"] = cases.normal(hidden)
    if residual:
        inputs["residual"] = cases.normal(tokens, hidden, dtype=dtype, scale=2.0)
        inputs["d_residual"] = cases.normal(tokens, hidden, dtype=dtype)

    def compute(work, src, weight, eps, d_dst, d_weight_before, bias=None, d_bias_before=None,
                residual=None, d_residual=None):
        total = src if residual is None else (src.to(work) + residual.to(work)).to(dtype)
        x, w = leaf(total, work), leaf(weight, work)
        b = None if bias is None else leaf(bias, work)
        mean = x.mean(1) if kind == "layer" else torch.zeros(len(x), dtype=work)
        rstd = torch.rsqrt((x - mean[:, None]).pow(2).mean(1) + eps)
        if kind == "layer":
            y = F.layer_norm(x, (x.shape[1],), w, b, eps)
        else:
            y = x * rstd[:, None] * w
        wrt = [x, w] + ([] if b is None else [b])
        d_x, d_w, *d_b = grads((y * d_dst.to(work)).sum(), wrt)
        result = {"dst": y, "rstd": rstd, "d_weight": d_w + d_weight_before.to(work)}
        result["d_src"] = d_x if d_residual is None else d_x + d_residual.to(work)
        if kind == "layer":
            result["mean"] = mean
            result["d_bias"] = d_b[0] + d_bias_before.to(work)
        if residual is not None:
            result["sum"] = total.to(work)
        return result

    name = f"{kind}_residual_{suffix}" if residual else f"{kind}_{suffix}"
    cases.keep(name, inputs, compute)


ACTIVATIONS = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "silu": F.silu,
}


def activation(cases):
    for kind, function in ACTIVATIONS.items():
        for gated in (False, True):
            for dtype in cases.dtypes:
                one_activation(cases, kind, function, gated, dtype)


def one_activation(cases, kind, function, gated, dtype, tokens=7, ffn=45):
    width = 2 * ffn if gated else ffn
    src = cases.normal(tokens, width, dtype=dtype, scale=2.0)
    src[0, :8] = torch.tensor([0.0, -0.0, 1e-4, -1e-4, 8.0, -8.0, 30.0, -30.0]).to(dtype)
    inputs = {"src": src, "d_dst": cases.normal(tokens, ffn, dtype=dtype)}

    def compute(work, src, d_dst):
        x = leaf(src, work)
        y = function(x[:, :ffn]) * x[:, ffn:] if gated else function(x)
        (d_x,) = grads((y * d_dst.to(work)).sum(), [x])
        return {"dst": y, "d_src": d_x}

    suffix = cases.name_of(dtype)
    cases.keep(f"{kind}_gated_{suffix}" if gated else f"{kind}_{suffix}", inputs, compute)


def cross_entropy(cases):
    for dtype in cases.dtypes:
        for z_loss in (0.0, 1e-2):
            one_cross_entropy(cases, z_loss, dtype)


def one_cross_entropy(cases, z_loss, dtype, rows=12, vocab=83):
    targets = cases.integers(0, vocab, rows)
    targets[torch.tensor([0, 5, 11])] = -1
    counted = int((targets >= 0).sum())
    inputs = {
        "logits": cases.normal(rows, vocab, dtype=dtype, scale=3.0),
        "targets": targets,
        "scale": 1.0 / counted,
        "z_loss": z_loss,
    }

    def compute(work, logits, targets, scale, z_loss):
        x = leaf(logits, work)
        nll = F.cross_entropy(x, targets.long(), ignore_index=-1, reduction="none")
        z = torch.where(targets >= 0, torch.logsumexp(x, 1) ** 2, torch.zeros(rows, dtype=work))
        (d_x,) = grads(scale * (nll + z_loss * z).sum(), [x])
        return {"nll": nll, "d_logits": d_x}

    name = "plain" if z_loss == 0 else "z_loss"
    suffix = cases.name_of(dtype)
    cases.keep(f"{name}_{suffix}", inputs, compute)


def embedding(cases, tokens=18, vocab=29, hidden=24, seq=10):
    for dtype in cases.dtypes:
        suffix = cases.name_of(dtype)
        inputs = {
            "tokens": cases.integers(0, vocab, tokens),
            "positions": torch.arange(tokens, dtype=torch.int32) % seq,
            "table": cases.normal(vocab, hidden, dtype=dtype),
            "positions_table": cases.normal(seq, hidden, dtype=dtype),
            "d_dst": cases.normal(tokens, hidden, dtype=dtype),
            "d_table_before": cases.normal(vocab, hidden),
            "d_positions_table_before": cases.normal(seq, hidden),
        }

        def compute(work, tokens, positions, table, positions_table, d_dst, d_table_before,
                    d_positions_table_before):
            wte, wpe = leaf(table, work), leaf(positions_table, work)
            plain = F.embedding(tokens.long(), wte)
            y = plain + F.embedding(positions.long(), wpe)
            d_wte, d_wpe = grads((y * d_dst.to(work)).sum(), [wte, wpe])
            return {
                "dst": y,
                "dst_plain": plain,
                "d_table": d_wte + d_table_before.to(work),
                "d_positions_table": d_wpe + d_positions_table_before.to(work),
            }

        cases.keep(f"learned_positions_{suffix}", inputs, compute)


def adamw(cases, steps=6, n=77):
    if torch.float32 not in cases.dtypes:
        return  # the state is float32
    for name, decay, max_norm in (("plain", 0.0, 0.0), ("decay", 0.1, 0.0), ("clip", 0.1, 1.0)):
        inputs = {
            "weights_before": cases.normal(n),
            "gradients": cases.normal(steps, n, scale=0.5),
            "lr": 3e-3,
            "beta1": 0.9,
            "beta2": 0.95,
            "eps": 1e-8,
            "weight_decay": decay,
            "max_norm": max_norm,
        }

        def compute(work, weights_before, gradients, lr, beta1, beta2, eps, weight_decay,
                    max_norm):
            weight = torch.nn.Parameter(weights_before.to(work, copy=True))
            optimizer = torch.optim.AdamW([weight], lr=lr, betas=(beta1, beta2), eps=eps,
                                          weight_decay=weight_decay)
            history, scales = [], []
            for gradient in gradients.to(work):
                norm_ = gradient.norm()
                scale = min(1.0, max_norm / float(norm_)) if max_norm > 0 else 1.0
                weight.grad = gradient * scale
                optimizer.step()
                history.append(weight.detach().clone())
                scales.append(scale)
            state = optimizer.state[weight]
            return {
                "weights": torch.stack(history),
                "m": state["exp_avg"],
                "v": state["exp_avg_sq"],
                "grad_scale": torch.tensor(scales, dtype=work),
            }

        cases.keep(f"{name}_f32", inputs, compute)


def reductions(cases, rows=21, columns=35):
    for dtype in cases.dtypes:
        suffix = cases.name_of(dtype)
        inputs = {
            "src": cases.normal(rows, columns, dtype=dtype),
            "other": cases.normal(rows, columns, dtype=dtype),
            "before": cases.normal(columns),
        }

        def compute(work, src, other, before):
            x = src.to(work)
            return {
                "column_sum": before.to(work) + x.sum(0),
                "sum": x.sum()[None],
                "sum_of_squares": x.pow(2).sum()[None],
                "add": x + other.to(work),
            }

        cases.keep(f"plain_{suffix}", inputs, compute)


def write_all(folder):
    writers = {
        "matmul": matmul,
        "norm": norm,
        "attention": golden_attention.attention,
        "activation": activation,
        "cross_entropy": cross_entropy,
        "embedding": embedding,
        "adamw": adamw,
        "elementwise": reductions,
    }
    for seed, (name, writer) in enumerate(writers.items(), start=1):
        tensor_file.save(folder / f"{name}.safetensors", all_cases(seed, writer))


def all_cases(seed, writer):
    tensors = {}
    for offset, dtypes in ((0, (torch.float32, torch.bfloat16)), (100, (torch.float16,))):
        cases = Cases(seed + offset, dtypes)
        writer(cases)
        tensors.update(cases.tensors)
    return tensors
