// Rows of the kernels that decode: products with weights of any format, steps of attention, the state of a prompt.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

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

void add_decoding_cases(KernelCases& cases) {
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
}

}  // namespace flexformer::testing
