"""Causal attention with grouped queries and packed documents, by its definition."""

import torch


def visible(batch, q_len, kv_len, doc_begin):
    """[batch, 1, q_len, kv_len]: which keys each query sees."""
    query = torch.arange(q_len)[:, None] + kv_len - q_len
    key = torch.arange(kv_len)[None, :]
    mask = (key <= query).expand(batch, q_len, kv_len)
    if doc_begin is not None:
        mask = mask & (key[None] >= doc_begin.reshape(batch, q_len, 1))
    return mask[:, None]


def attend(q, k, v, scale, mask):
    """q [batch, heads, q_len, dim]; k, v [batch, kv_heads, kv_len, dim]."""
    groups = q.shape[1] // k.shape[1]
    k = k.repeat_interleave(groups, dim=1)
    v = v.repeat_interleave(groups, dim=1)
    scores = (q @ k.transpose(2, 3)) * scale
    scores = scores.masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v, torch.logsumexp(scores, dim=-1)


def split_heads(rows, batch, heads):
    return rows.reshape(batch, rows.shape[0] // batch, heads, -1).transpose(1, 2)


def join_heads(x):
    batch, _, length, _ = x.shape
    return x.transpose(1, 2).reshape(batch * length, -1)


def doc_begins(batch, length, cuts):
    """First visible key of each query when a new document starts at each of cuts[row]."""
    begins = torch.zeros(batch, length, dtype=torch.int32)
    for row, starts in enumerate(cuts):
        for start in starts:
            begins[row, start:] = start
    return begins.reshape(-1)


# name: batch, q_len, kv_len, heads, kv_heads, head_dim, document starts per row
SHAPES = {
    "multi_head": (2, 24, 24, 4, 4, 8, None),
    "grouped": (2, 21, 21, 6, 2, 16, None),
    "documents": (2, 24, 24, 4, 2, 16, [[5, 6, 17], [11]]),
    "wide_head": (1, 35, 35, 2, 1, 64, [[20]]),
    "decode": (2, 1, 19, 4, 2, 16, None),
    "append": (2, 5, 19, 4, 2, 16, None),
}


def attention(cases):
    for name, shape in SHAPES.items():
        for dtype in cases.dtypes:
            one_attention(cases, name, shape, dtype)


def one_attention(cases, name, shape, dtype):
    batch, q_len, kv_len, heads, kv_heads, dim, cuts = shape
    inputs = {
        "shape": torch.tensor(shape[:6], dtype=torch.int32),
        "q": cases.normal(batch * q_len, heads * dim, dtype=dtype),
        "k": cases.normal(batch * kv_len, kv_heads * dim, dtype=dtype),
        "v": cases.normal(batch * kv_len, kv_heads * dim, dtype=dtype),
        "scale": float(torch.tensor(dim**-0.5, dtype=torch.float32)),
        "d_dst": cases.normal(batch * q_len, heads * dim, dtype=dtype),
    }
    if cuts is not None:
        inputs["doc_begin"] = doc_begins(batch, q_len, cuts)

    def compute(work, shape, q, k, v, scale, d_dst, doc_begin=None):
        q, k, v = (x.to(work).requires_grad_(True) for x in (q, k, v))
        mask = visible(batch, q_len, kv_len, doc_begin)
        y, lse = attend(split_heads(q, batch, heads), split_heads(k, batch, kv_heads),
                        split_heads(v, batch, kv_heads), scale, mask)
        dst = join_heads(y)
        d_q, d_k, d_v = torch.autograd.grad((dst * d_dst.to(work)).sum(), [q, k, v])
        result = {"dst": dst, "lse": lse}
        if q_len == kv_len:
            result.update({"d_q": d_q, "d_k": d_k, "d_v": d_v})
        return result

    cases.keep(f"{name}_{cases.name_of(dtype)}", inputs, compute)
