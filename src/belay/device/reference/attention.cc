// Reference: attention by its definition, one query at a time, and rotary embedding.

#include <cmath>
#include <vector>

#include "belay/base/parallel.h"
#include "belay/device/key_rows.h"
#include "belay/device/reference/element.h"
#include "belay/device/reference/kernels.h"

namespace belay {
namespace {

// Softmax probabilities of one query over its visible keys [begin, begin + p.size()).
struct Query {
  std::int64_t begin;
  std::vector<double> p;
  double lse;
};

// key_row(j): the row of k that holds key j.
template <class KeyRow>
Query attend(const AttentionShape& shape, const Rows& q, const Rows& k, const Tensor& doc_begin,
             std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t kv_len,
             Inside inside, const KeyRow& key_row) {
  const std::int64_t row = batch * shape.q_len + i;
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
  Query query{doc_begin.empty() ? 0 : doc_begin.as<std::int32_t>()[row], {}, 0};
  const std::int64_t last = kv_len - shape.q_len + i;
  double largest = -INFINITY;
  for (std::int64_t j = query.begin; j <= last; ++j) {
    double score = 0;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      score += load(q, row, head * shape.head_dim + d) *
               load(k, key_row(j), kv_head * shape.head_dim + d);
    }
    query.p.push_back(kept_inside(score, q.dtype, inside) * static_cast<double>(shape.scale));
    largest = std::max(largest, query.p.back());
  }
  double sum = 0;
  for (const double score : query.p) sum += std::exp(score - largest);
  query.lse = largest + std::log(sum);
  for (double& score : query.p) score = std::exp(score - query.lse);
  return query;
}

}  // namespace

void run_reference(const AttentionForwardArgs& args, KernelContext&) {
  const AttentionShape& s = args.shape;
  parallel_for(s.batch * s.heads, [&](std::int64_t piece) {
    const std::int64_t batch = piece / s.heads;
    const std::int64_t head = piece % s.heads;
    const std::int64_t kv_head = head / (s.heads / s.kv_heads);
    const KeyRows keys(args, batch);
    const auto key_row = [&](std::int64_t key) { return keys.row(key); };
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const Query query = attend(s, args.q, args.k, args.doc_begin, batch, head, i, keys.count(),
                                 args.inside, key_row);
      if (!args.lse.empty()) store(args.lse, piece * s.q_len + i, query.lse);
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        double sum = 0;
        for (std::size_t j = 0; j < query.p.size(); ++j) {
          const std::int64_t key = query.begin + static_cast<std::int64_t>(j);
          sum += query.p[j] * load(args.v, keys.row(key), kv_head * s.head_dim + d);
        }
        store(args.dst, (batch * s.q_len + i) * s.heads * s.head_dim + head * s.head_dim + d, sum);
      }
    }
  });
}

// d_v = P^T d_dst;  d_s = P * (d_dst V^T - rowsum(d_dst * dst));  d_q = scale d_s K;
// d_k = scale d_s^T Q   (Dao et al., section B.2). Summed in double over the heads of a group.
void run_reference(const AttentionBackwardArgs& args, KernelContext&) {
  const AttentionShape& s = args.shape;
  const std::int64_t group = s.heads / s.kv_heads;
  const std::int64_t dim = s.head_dim;
  parallel_for(s.batch * s.kv_heads, [&](std::int64_t piece) {
    const std::int64_t batch = piece / s.kv_heads;
    const std::int64_t kv_head = piece % s.kv_heads;
    const auto key_row = [&](std::int64_t key) { return batch * s.kv_len + key; };
    std::vector<double> d_k(static_cast<std::size_t>(s.kv_len * dim));
    std::vector<double> d_v(static_cast<std::size_t>(s.kv_len * dim));
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        const std::int64_t row = batch * s.q_len + i;
        const Query query = attend(s, args.q, args.k, args.doc_begin, batch, head, i, s.kv_len,
                                   args.inside, key_row);
        const auto d_out = [&](std::int64_t d) {
          return load(args.d_dst, row * s.heads * dim + head * dim + d);
        };
        double delta = 0;  // = rowsum(d_dst * dst), from the exact probabilities
        std::vector<double> d_p(query.p.size());
        for (std::size_t j = 0; j < query.p.size(); ++j) {
          const std::int64_t key = batch * s.kv_len + query.begin + static_cast<std::int64_t>(j);
          for (std::int64_t d = 0; d < dim; ++d) {
            d_p[j] += d_out(d) * load(args.v, key, kv_head * dim + d);
          }
          delta += query.p[j] * d_p[j];
        }
        std::vector<double> d_q(static_cast<std::size_t>(dim));
        for (std::size_t j = 0; j < query.p.size(); ++j) {
          const std::int64_t in_row = query.begin + static_cast<std::int64_t>(j);
          const std::int64_t key = batch * s.kv_len + in_row;
          const double d_s = query.p[j] * (d_p[j] - delta) * static_cast<double>(s.scale);
          for (std::int64_t d = 0; d < dim; ++d) {
            const auto at = static_cast<std::size_t>(in_row * dim + d);
            d_q[static_cast<std::size_t>(d)] += d_s * load(args.k, key, kv_head * dim + d);
            d_k[at] += d_s * load(args.q, row, head * dim + d);
            d_v[at] += query.p[j] * d_out(d);
          }
        }
        for (std::int64_t d = 0; d < dim; ++d) {
          store(args.d_q, row, head * dim + d, d_q[static_cast<std::size_t>(d)]);
        }
      }
    }
    for (std::int64_t j = 0; j < s.kv_len; ++j) {
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto at = static_cast<std::size_t>(j * dim + d);
        store(args.d_k, batch * s.kv_len + j, kv_head * dim + d, d_k[at]);
        store(args.d_v, batch * s.kv_len + j, kv_head * dim + d, d_v[at]);
      }
    }
  });
}

void run_reference(const RotaryArgs& args, KernelContext&) {
  const std::int64_t half = args.head_dim / 2;
  parallel_for(args.rows.rows, [&](std::int64_t row) {
    const std::int64_t position = args.positions.as<std::int32_t>()[row];
    for (std::int64_t head = 0; head < args.rows.width / args.head_dim; ++head) {
      for (std::int64_t d = 0; d < half; ++d) {
        const std::int64_t first = head * args.head_dim + d;
        const double cosine = load(args.table, position * args.head_dim + d);
        double sine = load(args.table, position * args.head_dim + half + d);
        if (args.backward) sine = -sine;
        const double x1 = load(args.rows, row, first);
        const double x2 = load(args.rows, row, first + half);
        store(args.rows, row, first, x1 * cosine - x2 * sine);
        store(args.rows, row, first + half, x2 * cosine + x1 * sine);
      }
    }
  });
}

void run_reference(const ScatterRowsArgs& args, KernelContext&) {
  const auto* index = args.index.as<std::int32_t>();
  for (std::int64_t row = 0; row < args.src.rows; ++row) {
    for (std::int64_t column = 0; column < args.src.width; ++column) {
      store(args.dst, index[row], column, load(args.src, row, column));
    }
  }
}

}  // namespace belay
