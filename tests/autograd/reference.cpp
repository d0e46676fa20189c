// Lines, shapes, products and losses of the naive references; attention is in reference_attention.cpp.
#include "tests/autograd/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace flexformer::naive {
namespace {

using Place = std::array<Index, Shape::max_rank>;

// Position of an element in a row-major array, along axes counted from the last one, and back.
Place place(const Shape& shape, Index flat) {
  Place at{};
  for (int axis = 1; axis <= shape.rank(); ++axis) {
    at[std::size_t(axis - 1)] = flat % shape[-axis];
    flat /= shape[-axis];
  }
  return at;
}

// The element of `shape` that is read for a place in a larger shape it is repeated in.
Index repeated(const Shape& shape, const Place& at) {
  Index flat = 0;
  for (int axis = shape.rank(); axis >= 1; --axis)
    flat = flat * shape[-axis] + (shape[-axis] == 1 ? 0 : at[std::size_t(axis - 1)]);
  return flat;
}

Shape common_shape(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int axis = rank; axis >= 1; --axis) {
    const Index m = axis > a.rank() ? 1 : a[-axis], n = axis > b.rank() ? 1 : b[-axis];
    out.append(m == 1 ? n : m);
  }
  return out;
}

}  // namespace

Array map(const Array& x, const std::function<double(double)>& f) {
  Array y(x.shape);
  std::transform(x.data.begin(), x.data.end(), y.data.begin(), f);
  return y;
}

Array zip(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  Array y(common_shape(a.shape, b.shape));
  for (Index i = 0; i < y.numel(); ++i) {
    const auto at = place(y.shape, i);
    y[i] = f(a[repeated(a.shape, at)], b[repeated(b.shape, at)]);
  }
  return y;
}

Array along(const Array& x, int axis, const Line& f) {
  axis = axis < 0 ? axis + x.shape.rank() : axis;
  const Index outer = x.shape.numel(0, axis), n = x.size(axis), inner = x.shape.numel(axis + 1, x.shape.rank());
  const Index m = Index(f(Numbers(std::size_t(n), 1.0)).size());
  Array y(x.shape.with(axis, m));
  for (Index o = 0; o < outer; ++o)
    for (Index i = 0; i < inner; ++i) {
      Numbers line;
      for (Index j = 0; j < n; ++j) line.push_back(x[(o * n + j) * inner + i]);
      line = f(line);
      for (Index j = 0; j < m; ++j) y[(o * m + j) * inner + i] = line[std::size_t(j)];
    }
  return y;
}

Numbers sum(const Numbers& x) { return {std::accumulate(x.begin(), x.end(), 0.0)}; }
Numbers mean(const Numbers& x) { return {sum(x)[0] / double(x.size())}; }
Numbers variance(const Numbers& x) {
  const double m = mean(x)[0];
  double total = 0;
  for (double value : x) total += (value - m) * (value - m);
  return {total / double(x.size())};
}
Numbers maximum(const Numbers& x) { return {*std::max_element(x.begin(), x.end())}; }
Numbers running_sum(const Numbers& x) {
  Numbers y(x.size());
  std::partial_sum(x.begin(), x.end(), y.begin());
  return y;
}
Numbers logsumexp(const Numbers& x) {
  const double most = maximum(x)[0];
  if (std::isinf(most)) return {most};
  double total = 0;
  for (double value : x) total += std::exp(value - most);
  return {most + std::log(total)};
}
Numbers log_softmax(const Numbers& x) {
  if (x.empty()) return {};
  Numbers y = x;
  const double lse = logsumexp(x)[0];
  for (double& value : y) value = lse == -HUGE_VAL ? -HUGE_VAL : value - lse;
  return y;
}
Numbers softmax(const Numbers& x) {
  Numbers y = log_softmax(x);
  for (double& value : y) value = std::exp(value);
  return y;
}
Numbers l2_normalize(const Numbers& x) {
  const double length = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  Numbers y = x;
  for (double& value : y) value = length == 0 ? 0 : value / length;
  return y;
}
Line normalize(double eps) {
  return [eps](Numbers x) {
    const double m = mean(x)[0], deviation = std::sqrt(variance(x)[0] + eps);
    for (double& value : x) value = (value - m) / deviation;
    return x;
  };
}
Line rms_normalize(double eps) {
  return [eps](Numbers x) {
    const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / double(x.size());
    for (double& value : x) value /= std::sqrt(square + eps);
    return x;
  };
}

Array reshape(const Array& x, const Shape& shape) { return {shape, x.data}; }

Array permute(const Array& x, const std::vector<int>& order) {
  Shape shape;
  for (int axis : order) shape.append(x.shape[axis]);
  Array y(shape);
  for (Index i = 0; i < y.numel(); ++i) {
    const auto at = place(shape, i);
    Place source{};
    for (int axis = 0; axis < shape.rank(); ++axis)
      source[std::size_t(shape.rank() - 1 - x.shape.normalise("permute", order[std::size_t(axis)]))] =
          at[std::size_t(shape.rank() - 1 - axis)];
    y[i] = x[repeated(x.shape, source)];
  }
  return y;
}

Array slice(const Array& x, int axis, Index start, Index stop, Index step) {
  const Index n = x.size(axis);
  const auto from_end = [n](Index i) { return std::clamp<Index>(i < 0 ? i + n : i, 0, n); };
  return along(x, axis, [=](const Numbers& line) {
    Numbers picked;
    for (Index i = from_end(start); i < from_end(stop); i += step) picked.push_back(line[std::size_t(i)]);
    return picked;
  });
}

Array concat(const Arrays& parts, int axis) {
  axis = axis < 0 ? axis + parts[0].shape.rank() : axis;
  Index n = 0;
  for (const Array& part : parts) n += part.size(axis);
  Array y(parts[0].shape.with(axis, n));
  const Index outer = y.shape.numel(0, axis), inner = y.shape.numel(axis + 1, y.shape.rank());
  Index start = 0;
  for (const Array& part : parts) {
    const Index m = part.size(axis);
    for (Index o = 0; o < outer; ++o)
      for (Index i = 0; i < m * inner; ++i) y[(o * n + start) * inner + i] = part[o * m * inner + i];
    start += m;
  }
  return y;
}

Array expand(const Array& x, const Shape& shape) {
  return zip(Array(shape), x, [](double, double value) { return value; });
}

Array transpose(const Array& x) {
  std::vector<int> order(std::size_t(x.shape.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return permute(x, order);
}

Array matmul(const Array& a, const Array& b) {
  const Index M = a.size(-2), K = a.size(-1), N = b.size(-1);
  Shape a_batches, b_batches;
  for (int axis = 0; axis + 2 < a.shape.rank(); ++axis) a_batches.append(a.size(axis));
  for (int axis = 0; axis + 2 < b.shape.rank(); ++axis) b_batches.append(b.size(axis));
  const Shape batches = common_shape(a_batches, b_batches);
  Shape shape = batches;
  shape.append(M);
  shape.append(N);
  Array y(shape);
  for (Index batch = 0; batch < batches.numel(); ++batch) {
    const auto at = place(batches, batch);
    const double* left = a.data.data() + repeated(a_batches, at) * M * K;
    const double* right = b.data.data() + repeated(b_batches, at) * K * N;
    for (Index i = 0; i < M; ++i)
      for (Index k = 0; k < K; ++k)
        for (Index j = 0; j < N; ++j) y[(batch * M + i) * N + j] += left[i * K + k] * right[k * N + j];
  }
  return y;
}

Array embedding(const Array& table, const std::vector<std::int32_t>& ids, const Shape& ids_shape) {
  const Index C = table.size(1);
  Shape shape = ids_shape;
  shape.append(C);
  Array y(shape);
  for (Index r = 0; r < Index(ids.size()); ++r)
    for (Index c = 0; c < C; ++c) y[r * C + c] = table[ids[std::size_t(r)] * C + c];
  return y;
}

Array cross_entropy(const Array& logits, const std::vector<std::int32_t>& targets, std::int32_t ignore,
                    double smoothing, bool mean) {
  const Array logp = along(logits, -1, log_softmax);
  const Index V = logits.size(-1);
  double total = 0, count = 0;
  for (Index r = 0; r < Index(targets.size()); ++r) {
    const std::int32_t target = targets[std::size_t(r)];
    if (target == ignore) continue;
    ++count;
    total -= (1 - smoothing) * logp[r * V + target];
    for (Index v = 0; v < V; ++v) total -= smoothing / double(V) * logp[r * V + v];
  }
  return Array(Shape{}, mean && count > 0 ? total / count : total);
}

}  // namespace flexformer::naive
