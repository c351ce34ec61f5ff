"""Tiny models of each family in the layout of a Hugging Face directory, with what PyTorch says of
them: logits, loss, the gradient of every parameter, ten steps of AdamW.

FAMILY/config.json, FAMILY/model.safetensors   the model
FAMILY/expected.safetensors                    plain/* and packed/* batches, see expect()

The models are written from their definitions (Radford et al. 2019 for GPT-2; Touvron et al.,
arXiv:2302.13971; Qwen Team, arXiv:2407.10671)."""

import json
import math

import torch
import torch.nn.functional as F

import golden_attention
import golden_ops
import golden_rope
import tensor_file

BATCH, SEQ, STEPS = 2, 20, 10
OPTIMIZER = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
WEIGHT_DECAY, CLIP_NORM = 0.1, 1.0

GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "vocab_size": 97,
    "n_positions": 24,
    "n_embd": 36,
    "n_layer": 2,
    "n_head": 3,
    "n_inner": None,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "bos_token_id": 96,
    "eos_token_id": 96,
    "torch_dtype": "float32",
}

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

# A head wider than hidden / heads, one key head, and scaled rotary positions.
LLAMA3 = {
    **LLAMA,
    "hidden_size": 40,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}

# The newer spelling of the rotary settings and of the dtype.
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "sliding_window": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "bos_token_id": 97,
    "eos_token_id": 98,
    "dtype": "float32",
}


def gpt2_shapes(config):
    hidden = config["n_embd"]
    yield "wte.weight", (config["vocab_size"], hidden)
    yield "wpe.weight", (config["n_positions"], hidden)
    for layer in range(config["n_layer"]):
        prefix = f"h.{layer}"
        for norm in ("ln_1", "ln_2"):
            yield f"{prefix}.{norm}.weight", (hidden,)
            yield f"{prefix}.{norm}.bias", (hidden,)
        for name, rows, columns in (
            ("attn.c_attn", hidden, 3 * hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", hidden, 4 * hidden),
            ("mlp.c_proj", 4 * hidden, hidden),
        ):
            yield f"{prefix}.{name}.weight", (rows, columns)  # Conv1D: [in, out]
            yield f"{prefix}.{name}.bias", (columns,)
    yield "ln_f.weight", (hidden,)
    yield "ln_f.bias", (hidden,)


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def llama_shapes(config):
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    q_width = config["num_attention_heads"] * head_dim(config)
    kv_width = config["num_key_value_heads"] * head_dim(config)
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        for name, width in (("q", q_width), ("k", kv_width), ("v", kv_width)):
            yield f"{prefix}.self_attn.{name}_proj.weight", (width, hidden)
            if config["model_type"] == "qwen2":
                yield f"{prefix}.self_attn.{name}_proj.bias", (width,)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, q_width)
        yield f"{prefix}.mlp.gate_proj.weight", (ffn, hidden)
        yield f"{prefix}.mlp.up_proj.weight", (ffn, hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, ffn)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def initial(shapes, generator):
    """Larger than real initial weights, so that attention and norms are far from uniform."""
    params = {}
    for name, shape in shapes:
        value = torch.randn(*shape, generator=generator)
        if len(shape) == 2:
            embedding = "embed" in name or "wte" in name or "wpe" in name
            value *= 0.3 if embedding else 1.5 / math.sqrt(min(shape))
        elif name.endswith(".bias"):
            value *= 0.2
        else:
            value = 1.0 + 0.2 * value
        params[name] = value.float()
    return params


def gpt2_logits(p, config, batch):
    heads, eps = config["n_head"], config["layer_norm_epsilon"]
    hidden = config["n_embd"]
    mask = golden_attention.visible(BATCH, SEQ, SEQ, batch["doc_begin"])

    def norm(x, name):
        return F.layer_norm(x, (hidden,), p[f"{name}.weight"], p[f"{name}.bias"], eps)

    def conv(x, name):
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    x = p["wte.weight"][batch["tokens"].long()] + p["wpe.weight"][batch["positions"].long()]
    for layer in range(config["n_layer"]):
        h = f"h.{layer}"
        qkv = conv(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn")
        q, k, v = (golden_attention.split_heads(t, BATCH, heads) for t in qkv.split(hidden, 1))
        y, _ = golden_attention.attend(q, k, v, (hidden // heads) ** -0.5, mask)
        x = x + conv(golden_attention.join_heads(y), f"{h}.attn.c_proj")
        y = F.gelu(conv(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), approximate="tanh")
        x = x + conv(y, f"{h}.mlp.c_proj")
    return norm(x, "ln_f") @ p["wte.weight"].t()


def llama_logits(p, config, batch):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim, eps = head_dim(config), config["rms_norm_eps"]
    mask = golden_attention.visible(BATCH, SEQ, SEQ, batch["doc_begin"])
    rope = config.get("rope_parameters") or config
    angles = golden_rope.table(dim, rope["rope_theta"], config.get("rope_scaling"),
                               config["max_position_embeddings"], SEQ)
    work = p["model.norm.weight"].dtype
    angles = angles.to(master(work))[batch["positions"].long()]
    cosine, sine = angles.reshape(BATCH, 1, SEQ, dim).chunk(2, dim=-1)

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + eps) * p[f"{name}.weight"]

    def linear(x, name):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    x = p["model.embed_tokens.weight"][batch["tokens"].long()]
    for layer in range(config["num_hidden_layers"]):
        h = f"model.layers.{layer}"
        y = norm(x, f"{h}.input_layernorm")
        q = golden_attention.split_heads(linear(y, f"{h}.self_attn.q_proj"), BATCH, heads)
        k = golden_attention.split_heads(linear(y, f"{h}.self_attn.k_proj"), BATCH, kv_heads)
        v = golden_attention.split_heads(linear(y, f"{h}.self_attn.v_proj"), BATCH, kv_heads)
        q, k = (golden_rope.rotate(t, cosine, sine).to(work) for t in (q, k))
        y, _ = golden_attention.attend(q, k, v, dim**-0.5, mask)
        x = x + linear(golden_attention.join_heads(y), f"{h}.self_attn.o_proj")
        y = norm(x, f"{h}.post_attention_layernorm")
        y = F.silu(linear(y, f"{h}.mlp.gate_proj")) * linear(y, f"{h}.mlp.up_proj")
        x = x + linear(y, f"{h}.mlp.down_proj")
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return linear(norm(x, "model.norm"), head)


def batches(vocab, generator):
    tokens = torch.randint(0, vocab, (BATCH * SEQ + 1,), generator=generator, dtype=torch.int32)
    ignored = torch.tensor([3, 4, SEQ + 9])
    targets = tokens[1:].clone()
    targets[ignored] = -1
    positions = torch.arange(SEQ, dtype=torch.int32).repeat(BATCH)
    plain = {"tokens": tokens[:-1].clone(), "targets": targets, "positions": positions,
             "doc_begin": None}

    begins = golden_attention.doc_begins(BATCH, SEQ, [[7, 8, 15], [10]])
    packed_targets = tokens[1:].clone()
    last = torch.ones(BATCH * SEQ, dtype=torch.bool)  # no label crosses a document's end
    last[:-1] = begins[1:] != begins[:-1]
    last[SEQ - 1 :: SEQ] = True
    packed_targets[last] = -1
    packed = {"tokens": plain["tokens"], "targets": packed_targets,
              "positions": positions - begins, "doc_begin": begins}
    return {"plain": plain, "packed": packed}


def mean_loss(logits, batch):
    return F.cross_entropy(logits, batch["targets"].long(), ignore_index=-1)


def one_batch(forward, params, config, batch, work):
    leaves = {name: value.to(master(work)).requires_grad_(True) for name, value in params.items()}
    logits = run_forward(forward, leaves, config, batch, work)
    loss = mean_loss(logits, batch)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    result = {"logits": logits.detach(), "loss": loss.detach()}
    result.update({f"grad.{name}": g for name, g in zip(leaves, gradients)})
    result["grad_norm"] = torch.sqrt(sum(g.pow(2).sum() for g in gradients))
    return result


def master(work):
    """bfloat16 models keep their weights and gradients in float32, as the engine does."""
    return torch.float32 if work == torch.bfloat16 else work


def run_forward(forward, leaves, config, batch, work):
    logits = forward({name: value.to(work) for name, value in leaves.items()}, config, batch)
    return logits.to(master(work))


def adamw_losses(forward, params, config, batch, work):
    """The loss before each step and after the last. Only matrices and embeddings decay."""
    leaves = {name: torch.nn.Parameter(value.to(master(work), copy=True))
              for name, value in params.items()}
    groups = [
        {"params": [p for p in leaves.values() if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in leaves.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, **OPTIMIZER)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(run_forward(forward, leaves, config, batch, work), batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(leaves.values(), CLIP_NORM))
        optimizer.step()
        losses.append(loss.detach())
    losses.append(mean_loss(run_forward(forward, leaves, config, batch, work), batch).detach())
    return {"losses": torch.stack(losses), "norms": torch.stack(norms)}


def expect(forward, params, config, generator):
    """CASE/{tokens,targets,positions,doc_begin,logits,loss,grad.NAME,grad_norm,losses,norms};
    losses holds STEPS + 1 values: before each step and after the last."""
    tensors = {}
    for case, batch in batches(config["vocab_size"], generator).items():
        values = {}
        for work in (torch.float64, torch.float32, torch.bfloat16):
            values[work] = {
                **one_batch(forward, params, config, batch, work),
                **adamw_losses(forward, params, config, batch, work),
            }
        for name, exact in values[torch.float64].items():
            golden_ops.check_fair(f"{config['model_type']}/{case}/{name}",
                                  values[torch.float32][name], exact)
            tensors[f"{case}/{name}"] = exact.reshape(exact.shape or (1,)).float()
        for name, value in batch.items():
            if value is not None:
                tensors[f"{case}/{name}"] = value
        report(config, case, values)
    return tensors


def report(config, case, values):
    """What rounding costs PyTorch itself: the ground for the tolerances of the tests."""
    exact, low = values[torch.float64], values[torch.bfloat16]

    def off(other, names):
        difference = torch.cat([(other[n].double() - exact[n]).flatten() for n in names])
        return float(difference.norm() / torch.cat([exact[n].flatten() for n in names]).norm())

    def drift(name):
        return float((low[name].double() / exact[name] - 1).abs().max())

    gradients = [name for name in exact if name.startswith("grad.")]
    worst = max(gradients, key=lambda name: off(low, [name]))
    print(f"{config['model_type']} {case}: loss {exact['losses'][0]:.4f} to "
          f"{exact['losses'][-1]:.4f}\n"
          f"  float32: gradients {max(off(values[torch.float32], [n]) for n in gradients):.1e}\n"
          f"  bfloat16: logits {off(low, ['logits']):.1e}, gradients {off(low, gradients):.1e} "
          f"together, {off(low, [worst]):.1e} worst ({worst}); over {STEPS} steps losses "
          f"{drift('losses'):.1e}, norms {drift('norms'):.1e}")


FAMILIES = {
    "gpt2": (GPT2, gpt2_shapes, gpt2_logits),
    "llama": (LLAMA, llama_shapes, llama_logits),
    "llama3": (LLAMA3, llama_shapes, llama_logits),
    "qwen2": (QWEN2, llama_shapes, llama_logits),
}


def make(family):
    config, shapes, forward = FAMILIES[family]
    generator = torch.Generator().manual_seed(100 + list(FAMILIES).index(family))
    return config, initial(shapes(config), generator), forward, generator


def write_all(out):
    for family in FAMILIES:
        config, params, forward, generator = make(family)
        folder = out / family
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        tensor_file.save(folder / "model.safetensors", params)
        expected = expect(forward, params, config, generator)
        tensor_file.save(folder / "expected.safetensors", expected)
