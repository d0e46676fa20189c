// Rows of the kernels that no op launches: optimiser steps, random fills and decoding steps.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

using Floats = std::vector<float>;

Floats joined(std::initializer_list<Tensor> tensors) {
  Floats all;
  for (const Tensor& tensor : tensors)
    for (float value : tensor.to_vector()) all.push_back(value);
  return all;
}

Tensor numbers(Device device, const StepNumbers& now) {
  return Tensor::from({3}, {now.lr, now.correction1, now.correction2}, device);
}

// p, m and v after three steps with l2 and decoupled decay.
KernelCase adam_case(Index n, float l2, float decay) {
  const Floats start = normal_numbers(n, 20), gradient = normal_numbers(n, 21);
  const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.98f, eps = 1e-6f, clip = 0.5f;
  return {text("AdamStep ", n, " l2 ", l2, " decay ", decay),
          [=](Device device) {
            Tensor p = Tensor::from({n}, start, device), g = Tensor::from({n}, gradient, device),
                   m = Tensor::zeros({n}, DType::f32, device), v = Tensor::zeros({n}, DType::f32, device);
            const Tensor scale = Tensor::full({1}, clip, device);
            for (int t = 1; t <= 3; ++t) {
              const Tensor now = numbers(device, {lr, 1 - std::pow(beta1, float(t)), 1 - std::pow(beta2, float(t))});
              launch(device, AdamStep{.p = p.data(),
                                      .m = m.data(),
                                      .v = v.data(),
                                      .g = g.data(),
                                      .n = n,
                                      .numbers = reinterpret_cast<const StepNumbers*>(now.data()),
                                      .scale = scale.data(),
                                      .beta1 = beta1,
                                      .beta2 = beta2,
                                      .eps = eps,
                                      .l2 = l2,
                                      .decay = decay});
            }
            return joined({p, m, v});
          },
          [=] {
            Numbers p(start.begin(), start.end()), m(p.size()), v(p.size());
            for (int t = 1; t <= 3; ++t)
              for (std::size_t i = 0; i < p.size(); ++i) {
                const double g = double(clip) * double(gradient[i]) + double(l2) * p[i];
                m[i] = double(beta1) * m[i] + (1 - double(beta1)) * g;
                v[i] = double(beta2) * v[i] + (1 - double(beta2)) * g * g;
                const double first = m[i] / (1 - std::pow(double(beta1), t));
                const double second = v[i] / (1 - std::pow(double(beta2), t));
                p[i] = p[i] * (1 - double(lr) * double(decay)) - double(lr) * first / (std::sqrt(second) + double(eps));
              }
            p.insert(p.end(), m.begin(), m.end());
            p.insert(p.end(), v.begin(), v.end());
            return p;
          },
          5e-6};
}

KernelCase sgd_case(Index n, float momentum, bool nesterov, float l2) {
  const Floats start = normal_numbers(n, 22), gradient = normal_numbers(n, 23);
  const float lr = 0.05f, clip = 0.5f;
  return {text("SgdStep ", n, " momentum ", momentum, nesterov ? " nesterov" : "", " l2 ", l2),
          [=](Device device) {
            Tensor p = Tensor::from({n}, start, device), g = Tensor::from({n}, gradient, device),
                   m = Tensor::zeros({n}, DType::f32, device);
            const Tensor scale = Tensor::full({1}, clip, device), now = numbers(device, {lr, 1, 1});
            for (int t = 0; t < 3; ++t)
              launch(device, SgdStep{.p = p.data(),
                                     .m = momentum != 0 ? m.data() : nullptr,
                                     .g = g.data(),
                                     .n = n,
                                     .numbers = reinterpret_cast<const StepNumbers*>(now.data()),
                                     .scale = scale.data(),
                                     .momentum = momentum,
                                     .l2 = l2,
                                     .nesterov = nesterov});
            return joined({p});
          },
          [=] {
            Numbers p(start.begin(), start.end()), m(p.size());
            for (int t = 0; t < 3; ++t)
              for (std::size_t i = 0; i < p.size(); ++i) {
                const double g = double(clip) * double(gradient[i]) + double(l2) * p[i];
                m[i] = double(momentum) * m[i] + g;
                p[i] -= double(lr) * (nesterov ? g + double(momentum) * m[i] : m[i]);
              }
            return p;
          }};
}

KernelCase squared_norm_case(Index n, float size) {
  Floats x = normal_numbers(n, 24);
  for (float& value : x) value *= size;
  return {text("SquaredNorms ", n, " x", size),
          [=](Device device) {
            const Tensor values = Tensor::from({n}, x, device);
            const SquaredNorms::Array arrays[] = {{values.data(), n}, {values.data(), 0}, {values.data(), n / 2}};
            Tensor sums = Tensor::empty({6}, DType::f32, device);  // 3 doubles
            launch(device, SquaredNorms{.sums = reinterpret_cast<double*>(sums.data()), .arrays = arrays, .count = 3});
            const Tensor on_host = sums.to(Device::cpu);
            Floats norms;  // the squares themselves may be no floats
            for (Index a = 0; a < 3; ++a)
              norms.push_back(float(std::sqrt(reinterpret_cast<const double*>(on_host.data())[a])));
            return norms;
          },
          [=] {
            const auto norm = [&](Index count) {
              double sum = 0;
              for (Index i = 0; i < count; ++i) sum += double(x[std::size_t(i)]) * double(x[std::size_t(i)]);
              return std::sqrt(sum);
            };
            return Numbers{norm(n), 0, norm(n / 2)};
          },
          1e-7};
}

// Gradients of `count` squares 1/4 each, and how a step scales them.
KernelCase clip_case(Index count, double clip, bool finite) {
  return {text("ClipScale ", count, " to ", clip, finite ? "" : " not finite"),
          [=](Device device) {
            Tensor squares = Tensor::empty({2 * count});
            for (Index i = 0; i < count; ++i)
              reinterpret_cast<double*>(squares.data())[i] = finite || i > 0 ? 0.25 : HUGE_VAL;
            squares = squares.to(device);
            Tensor scale = Tensor::zeros({1}, DType::f32, device);
            launch(device, ClipScale{.scale = scale.data(),
                                     .squares = reinterpret_cast<const double*>(squares.data()),
                                     .count = count,
                                     .clip = clip});
            return scale.to_vector();
          },
          [=] {
            const double norm = std::sqrt(0.25 * double(count));
            return Numbers{!finite ? std::nan("") : clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0};
          },
          1e-7};
}

KernelCase fill_case(Index n, bool gaussian) {
  const RandomKey key{42, 1};
  return {text(gaussian ? "FillNormal " : "FillUniform ", n),
          [=](Device device) {
            Tensor y = Tensor::empty({n}, DType::f32, device);
            if (gaussian)
              launch(device, FillNormal{.y = y.data(), .n = n, .scale = 0.5f, .key = key});
            else
              launch(device, FillUniform{.y = y.data(), .n = n, .low = -2, .high = 3, .key = key});
            return y.to_vector();
          },
          [=] {
            Numbers y;
            for (std::uint64_t i = 0; i < std::uint64_t(n); ++i)
              y.push_back(gaussian ? 0.5 * double(normal_at(key, i)) : -2 + 5 * double(uniform_at(key, i)));
            return y;
          }};
}

// y = x W^T + b + r with weights of each format; the reference multiplies with the numbers that are stored.
KernelCase few_rows_case(Index R, Index O, Index I, WeightFormat format, bool bias, bool residual) {
  const Floats x = normal_numbers(R * I, 40), matrix = normal_numbers(O * I, 41), b = normal_numbers(O, 42),
               r = normal_numbers(R * O, 43);
  return {
      text("FewRows ", R, "x", O, "x", I, " format ", int(format), bias ? " bias" : "", residual ? " residual" : ""),
      [=](Device device) {
        const Tensor rows = Tensor::from({R, I}, x, device), added = Tensor::from({O}, b, device),
                     W = Tensor::from({O, I}, matrix, device);
        const Weights weights(W, format);
        Tensor y = Tensor::from({R, O}, r, device);  // where the residual is, too
        launch(device, FewRows{.y = y.data(),
                               .x = rows.data(),
                               .W = weights.in(),
                               .bias = bias ? added.data() : nullptr,
                               .residual = residual ? y.values() : nullptr,
                               .R = R,
                               .O = O,
                               .I = I});
        return y.to_vector();
      },
      [=] {
        const Floats W = Weights(Tensor::from({O, I}, matrix), format).unpacked(0, O).to_vector();
        Numbers y(std::size_t(R * O));
        for (Index at = 0; at < R * O; ++at) {
          double& sum = y[std::size_t(at)];
          if (bias) sum += double(b[std::size_t(at % O)]);
          if (residual) sum += double(r[std::size_t(at)]);
          for (Index i = 0; i < I; ++i)
            sum += double(x[std::size_t(at / O * I + i)]) * double(W[std::size_t(at % O * I + i)]);
        }
        return y;
      }};
}

struct StepSize {
  Index B, H, N, d, dv;
};

// The last row of causal attention over N tokens, from a cache with room for more, each head of which `share` heads
// read.
KernelCase softmax_step_case(const StepSize& s, Index share) {
  const Index capacity = s.N + 5, rows = s.B * s.H * share, caches = s.B * s.H;
  const Floats q = normal_numbers(rows * s.d, 30);
  const Floats keys = normal_numbers(caches * capacity * s.d, 31),
               values = normal_numbers(caches * capacity * s.dv, 32);
  const float scale = 0.6f;
  return {text("SoftmaxAttentionStep ", s.N, " d", s.d, " shared by ", share),
          [=](Device device) {
            const Tensor query = Tensor::from({rows, s.d}, q, device),
                         k = Tensor::from({caches, capacity, s.d}, keys, device),
                         v = Tensor::from({caches, capacity, s.dv}, values, device);
            Tensor out = Tensor::empty({rows, s.dv}, DType::f32, device);
            launch(device, SoftmaxAttentionStep{.out = out.data(),
                                                .q = query.data(),
                                                .keys = k.data(),
                                                .values = v.data(),
                                                .B = s.B,
                                                .H = s.H * share,
                                                .kv_heads = s.H,
                                                .d = s.d,
                                                .dv = s.dv,
                                                .length = s.N,
                                                .capacity = capacity,
                                                .scale = scale});
            return out.to_vector();
          },
          [=] {
            const auto array = [](const Shape& shape, const Floats& x) {
              return Array(shape, Numbers(x.begin(), x.end()));
            };
            const auto repeated = [&](const Floats& x, Index size) {  // [B,H,capacity,size] -> [B,H,share,N,size]
              const Array all = naive::slice(array({caches, 1, capacity, size}, x), 2, 0, s.N);
              const Array each = naive::concat(Arrays(std::size_t(share), all), 1);
              return Array({s.B, s.H * share, s.N, size}, each.data);
            };
            return naive::softmax_attention(array({s.B, s.H * share, 1, s.d}, q), repeated(keys, s.d),
                                            repeated(values, s.dv), {}, double(scale))
                .data;
          },
          5e-6};
}

// N tokens one after another give what causal attention gives for all of them.
KernelCase linear_step_case(const StepSize& s, FeatureKind kind, bool weighted, float floor) {
  const int sets = weight_sets(kind);
  const Index n = sets == 0 ? 0 : kind == FeatureKind::polaformer ? 1 : 5;
  const Index M = feature_count(kind, n, s.d), rows = s.B * s.H;
  Floats q = normal_numbers(s.N * rows * s.d, 33), k = normal_numbers(s.N * rows * s.d, 34);
  for (float& x : q) x *= 0.4f;
  for (float& x : k) x *= 0.4f;
  const Floats v = normal_numbers(s.N * rows * s.dv, 35), w1 = normal_numbers(s.H * n * s.d, 36),
               w2 = normal_numbers(s.H * n * s.d, 37), tau(std::size_t(s.H), -1.0f);
  return {text("LinearAttentionStep ", int(kind), weighted ? " tau" : "", " ", s.N, " floor ", floor),
          [=](Device device) {
            const Tensor queries = Tensor::from({s.N, rows, s.d}, q, device),
                         keys = Tensor::from({s.N, rows, s.d}, k, device),
                         values = Tensor::from({s.N, rows, s.dv}, v, device),
                         frequencies1 = Tensor::from({s.H, n, s.d}, w1, device),
                         frequencies2 = Tensor::from({s.H, n, s.d}, w2, device),
                         taus = Tensor::from({s.H}, tau, device);
            Tensor out = Tensor::empty({s.N, rows, s.dv}, DType::f32, device),
                   state = Tensor::zeros({rows, M, s.dv + 1}, DType::f32, device);
            Tensor sum = Tensor::zeros({rows}, DType::f32, device), most = Tensor::full({rows}, -HUGE_VALF, device);
            for (Index t = 0; t < s.N; ++t)
              launch(device, LinearAttentionStep{.out = out.data() + t * rows * s.dv,
                                                 .state = state.data(),
                                                 .weight_sum = sum.data(),
                                                 .max = most.data(),
                                                 .q = queries.data() + t * rows * s.d,
                                                 .k = keys.data() + t * rows * s.d,
                                                 .v = values.data() + t * rows * s.dv,
                                                 .map = {.kind = kind,
                                                         .n = n,
                                                         .w1 = sets >= 1 ? frequencies1.data() : nullptr,
                                                         .w2 = sets >= 2 ? frequencies2.data() : nullptr,
                                                         .tau = weighted ? taus.data() : nullptr,
                                                         .max_length = s.N + 1},
                                                 .B = s.B,
                                                 .H = s.H,
                                                 .d = s.d,
                                                 .dv = s.dv,
                                                 .floor = floor,
                                                 .position = t});
            return out.to_vector();
          },
          [=] {
            const auto time_first = [&](const Floats& x, Index size) {  // [N,B,H,size] -> [B,H,N,size]
              return naive::permute(Array({s.N, s.B, s.H, size}, Numbers(x.begin(), x.end())), {1, 2, 0, 3});
            };
            const auto array = [](const Shape& shape, const Floats& x) {
              return Array(shape, Numbers(x.begin(), x.end()));
            };
            naive::Map map{.kind = kind, .max_length = s.N + 1};
            if (sets >= 1) map.w1 = array({s.H, n, s.d}, w1);
            if (sets >= 2) map.w2 = array({s.H, n, s.d}, w2);
            if (weighted) map.tau = array({s.H}, tau);
            const Array out = naive::linear_attention(time_first(q, s.d), time_first(k, s.d), time_first(v, s.dv), map,
                                                      {.causal = true, .keys = {}}, double(floor));
            return naive::permute(out, {2, 0, 1, 3}).data;
          },
          2e-5};
}

// The state, weight sum and maximum that N tokens leave, at once and one after another.
KernelCase linear_state_case(const StepSize& s, FeatureKind kind, bool weighted) {
  const int sets = weight_sets(kind);
  const Index n = sets == 0 ? 0 : kind == FeatureKind::polaformer ? 1 : 5, rows = s.B * s.H;
  const Index M = feature_count(kind, n, s.d);
  Floats k = normal_numbers(rows * s.N * s.d, 34);
  for (float& x : k) x *= 0.4f;
  const Floats v = normal_numbers(rows * s.N * s.dv, 35), w1 = normal_numbers(s.H * n * s.d, 36),
               w2 = normal_numbers(s.H * n * s.d, 37), tau(std::size_t(s.H), -1.0f);
  const auto result = [=](Device device, bool at_once) {
    const Tensor keys = Tensor::from({rows, s.N, s.d}, k, device), values = Tensor::from({rows, s.N, s.dv}, v, device),
                 frequencies1 = Tensor::from({s.H, n, s.d}, w1, device),
                 frequencies2 = Tensor::from({s.H, n, s.d}, w2, device), taus = Tensor::from({s.H}, tau, device);
    Tensor state = Tensor::zeros({rows, M, s.dv + 1}, DType::f32, device),
           out = Tensor::empty({rows, s.dv}, DType::f32, device);
    Tensor sum = Tensor::zeros({rows}, DType::f32, device), most = Tensor::full({rows}, -HUGE_VALF, device);
    const FeatureMap map{.kind = kind,
                         .n = n,
                         .w1 = sets >= 1 ? frequencies1.data() : nullptr,
                         .w2 = sets >= 2 ? frequencies2.data() : nullptr,
                         .tau = weighted ? taus.data() : nullptr,
                         .max_length = s.N + 1};
    if (at_once)
      launch(device, LinearAttentionState{.state = state.data(),
                                          .weight_sum = sum.data(),
                                          .max = most.data(),
                                          .k = {keys.data(), s.H * s.N * s.d, s.d, s.N * s.d},
                                          .v = {values.data(), s.H * s.N * s.dv, s.dv, s.N * s.dv},
                                          .map = map,
                                          .B = s.B,
                                          .H = s.H,
                                          .N = s.N,
                                          .d = s.d,
                                          .dv = s.dv});
    else
      for (Index t = 0; t < s.N; ++t) {
        const auto token = [&](const Floats& x, Index width) {
          Floats row;
          for (Index head = 0; head < rows; ++head)
            row.insert(row.end(), x.begin() + (head * s.N + t) * width, x.begin() + (head * s.N + t + 1) * width);
          return Tensor::from({rows, width}, row, device);
        };
        const Tensor key = token(k, s.d), value = token(v, s.dv);
        launch(device, LinearAttentionStep{.out = out.data(),
                                           .state = state.data(),
                                           .weight_sum = sum.data(),
                                           .max = most.data(),
                                           .q = key.data(),
                                           .k = key.data(),
                                           .v = value.data(),
                                           .map = map,
                                           .B = s.B,
                                           .H = s.H,
                                           .d = s.d,
                                           .dv = s.dv,
                                           .floor = 0.1f,
                                           .position = t});
      }
    return joined({state, sum, most});
  };
  return {text("LinearAttentionState ", int(kind), weighted ? " tau " : " ", s.N),
          [=](Device device) { return result(device, true); },
          [=] {
            const Floats stepped = result(Device::cpu, false);
            return Numbers(stepped.begin(), stepped.end());
          },
          1e-5};
}

}  // namespace

const KernelCases& kernel_cases() {
  static const KernelCases all = [] {
    KernelCases cases;
    for (Index n : {0, 1, 63, 50001}) {
      cases.push_back(adam_case(n, 0, 0.1f));
      cases.push_back(adam_case(n, 0.1f, 0));
      cases.push_back(sgd_case(n, 0, false, 0));
      cases.push_back(sgd_case(n, 0.9f, false, 0.01f));
      cases.push_back(sgd_case(n, 0.9f, true, 0.01f));
      cases.push_back(squared_norm_case(n, 1));
      cases.push_back(squared_norm_case(n, 1e20f));
      for (const double clip : {0.0, 1.0, 1e9}) {
        cases.push_back(clip_case(n, clip, true));
        if (n > 0) cases.push_back(clip_case(n, clip, false));
      }
      cases.push_back(fill_case(n, true));
      cases.push_back(fill_case(n, false));
    }
    for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
      cases.push_back(few_rows_case(1, 1, 1, format, true, false));
      cases.push_back(few_rows_case(1, 63, 65, format, false, true));
      cases.push_back(few_rows_case(5, 130, 33, format, true, true));
      cases.push_back(few_rows_case(9, 64, 64, format, false, false));
      cases.push_back(few_rows_case(0, 64, 64, format, false, false));
      cases.push_back(few_rows_case(2, 700, 512, format, true, true));  // several pieces
    }
    for (const StepSize& s : {StepSize{1, 1, 1, 1, 1}, {2, 3, 17, 8, 5}, {1, 2, 130, 33, 16}}) {
      cases.push_back(softmax_step_case(s, 1));
      cases.push_back(softmax_step_case(s, 3));
      cases.push_back(linear_step_case(s, FeatureKind::elu1, false, 0));
      cases.push_back(linear_step_case(s, FeatureKind::trig_s, true, 0.2f));
      cases.push_back(linear_step_case(s, FeatureKind::trig_n, true, 0.2f));
      cases.push_back(linear_step_case(s, FeatureKind::trig_n, false, 0.01f));
      for (FeatureKind kind : {FeatureKind::rfa, FeatureKind::performer, FeatureKind::hedgehog, FeatureKind::cosformer,
                               FeatureKind::polaformer}) {
        cases.push_back(linear_step_case(s, kind, false, 1e-20f));
        cases.push_back(linear_state_case(s, kind, false));
      }
      cases.push_back(linear_state_case(s, FeatureKind::elu1, false));
      cases.push_back(linear_state_case(s, FeatureKind::trig_n, true));
    }
    return cases;
  }();
  return all;
}

}  // namespace flexformer::testing
