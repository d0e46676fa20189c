// How the attention ops fit together: packed and separate inputs, shared and frozen variables, decoding, rotary
// positions, and what the ops refuse.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "tests/autograd/attention_problem.h"

namespace flexformer::testing {

using naive::Array;

TEST_CASE("trig_n with w1 = w2 is trig_s") {
  const Problem s = problem(Kind::trig_s, 2, 2, 70, 8, 8, true, false);
  Problem n = s;
  n.kind = Kind::trig_n;
  n.inputs.insert(n.inputs.begin() + 4, s.inputs[3]);
  const Tensor dout = random_normal({2, 2, 70, 8}, 1, 9);
  const Answer of_s = solve(s, dout), of_n = solve(n, dout);
  CHECK(error(of_n.out, array_of(of_s.out), 1) <= 1e-6);
  for (std::size_t i : {0, 1, 2}) CHECK(error(of_n.gradients[i], array_of(of_s.gradients[i]), 1) <= 1e-5);
  Array halves = array_of(of_s.gradients[3]);
  for (double& x : halves.data) x /= 2;
  CHECK(error(of_n.gradients[3], halves, 1) <= 1e-5);
  CHECK(error(of_n.gradients[4], halves, 1) <= 1e-5);

  std::vector<Var> x;  // one variable in both places gets the sum
  for (const Tensor& input : s.inputs) x.emplace_back(input, true);
  Tape tape;
  FeatureMapVars map{FeatureKind::trig_n, x[3], x[3], x[4]};
  tape.backward(linear_attention(x[0], x[1], x[2], map, s.attention_mask(), s.floor), dout);
  CHECK(error(x[3].grad(), array_of(of_s.gradients[3]), 1) <= 1e-5);
}

TEST_CASE("packed attention equals separate attention to the bit") {
  const Index B = 2, H = 3, T = 70, d = 5, C = H * d;
  for (Kind kind : all_kinds) {
    CAPTURE(int(kind));
    const Problem p = problem(kind, B, H, T, d, d, true, true);
    const Tensor dout = random_normal({B, H, T, d}, 1, 9);
    const Answer separate = solve(p, dout);
    Tensor qkv = Tensor::empty({B, T, 3 * C}), dpacked = Tensor::empty({B, T, C});
    const auto each = [&](auto&& visit) {  // visit(index in [B,H,T,d], index in [B,T,C], index in [B,T,3C] of q)
      for (Index b = 0; b < B; ++b)
        for (Index h = 0; h < H; ++h)
          for (Index t = 0; t < T; ++t)
            for (Index c = 0; c < d; ++c)
              visit(((b * H + h) * T + t) * d + c, (b * T + t) * C + h * d + c, (b * T + t) * 3 * C + h * d + c);
    };
    each([&](Index from, Index to, Index first) {
      dpacked.data()[to] = dout.data()[from];
      for (Index part = 0; part < 3; ++part) qkv.data()[first + part * C] = p.inputs[std::size_t(part)].data()[from];
    });
    std::vector<Var> x{Var(qkv, true), {}, {}};
    for (std::size_t i = 3; i < p.inputs.size(); ++i) x.emplace_back(p.inputs[i], true);
    Tape tape;
    const Var out = kind == Kind::softmax ? softmax_self_attention(x[0], H, p.attention_mask())
                                          : linear_self_attention(x[0], H, p.map(x), p.attention_mask(), p.floor);
    tape.backward(out, dpacked);
    Index wrong = 0;
    each([&](Index from, Index to, Index first) {
      wrong += out.value().data()[to] != separate.out.data()[from];
      for (Index part = 0; part < 3; ++part)
        wrong += x[0].grad().data()[first + part * C] != separate.gradients[std::size_t(part)].data()[from];
    });
    CHECK(wrong == 0);
    for (std::size_t i = 3; i < x.size(); ++i) CHECK(same_bits(x[i].grad(), separate.gradients[i]));
  }
}

TEST_CASE("one variable as query, key and value gets the sum of three gradients") {
  for (Kind kind : {Kind::softmax, Kind::elu1, Kind::hedgehog, Kind::polaformer}) {
    Problem p = problem(kind, 1, 2, 70, 8, 8, true, false);
    p.inputs[1] = p.inputs[2] = p.inputs[0];
    const Tensor dout = random_normal({1, 2, 70, 8}, 1, 9);
    const Answer apart = solve(p, dout);
    const Var x(p.inputs[0], true);
    Tape tape;
    std::vector<Var> inputs{x, x, x};
    for (std::size_t i = 3; i < p.inputs.size(); ++i) inputs.emplace_back(p.inputs[i]);
    tape.backward(p.attend(inputs), dout);
    Array sum = array_of(apart.gradients[0]);
    for (std::size_t i : {1, 2}) {
      const Array other = array_of(apart.gradients[i]);
      for (Index c = 0; c < sum.numel(); ++c) sum[c] += other[c];
    }
    CHECK(error(x.grad(), sum, 1) <= 1e-6);
  }
}

TEST_CASE("gradients are added to what is there, and frozen inputs get none") {
  for (Kind kind : all_kinds)
    for (bool causal : {false, true}) {
      CAPTURE(int(kind));
      const Problem p = problem(kind, 1, 2, 70, 8, 8, causal, false);
      const Tensor dout = random_normal({1, 2, 70, 8}, 1, 9);
      const Answer once = solve(p, dout);
      for (std::size_t frozen = 0; frozen < p.inputs.size(); ++frozen) {
        CAPTURE(frozen);
        std::vector<Var> x;
        for (std::size_t i = 0; i < p.inputs.size(); ++i) x.emplace_back(p.inputs[i], i != frozen);
        for (int pass = 0; pass < 2; ++pass) {
          Tape tape;
          tape.backward(p.attend(x), dout);
        }
        for (std::size_t i = 0; i < x.size(); ++i) {
          CHECK(x[i].has_grad() == (i != frozen));
          if (i == frozen) continue;
          Array twice = array_of(once.gradients[i]);
          for (double& g : twice.data) g *= 2;
          CHECK(error(x[i].grad(), twice, 1) <= 1e-6);
        }
      }
    }
}

TEST_CASE("decoding token by token equals the parallel form") {
  const Index B = 2, H = 2, N = 70, d = 8, dv = 5;
  for (Kind kind : all_kinds) {
    CAPTURE(int(kind));
    const Problem p = problem(kind, B, H, N, d, dv, true, false);
    const Tensor parallel = solve(p, Tensor::zeros({B, H, N, dv})).out;
    const FeatureMap map = p.kernel_map();
    const Index M = kind == Kind::softmax ? 0 : feature_count(map.kind, map.n, d);
    Tensor state = Tensor::zeros({B, H, M, dv + 1}), weight_sum = Tensor::zeros({B, H});
    Tensor max = Tensor::full({B, H}, -HUGE_VALF), decoded = Tensor::empty(parallel.shape());
    const auto token = [&](const Tensor& x, Index t) {
      Tensor y = Tensor::empty({B, H, x.size(3)});
      for (Index head = 0; head < B * H; ++head)
        std::copy_n(x.data() + (head * N + t) * x.size(3), x.size(3), y.data() + head * x.size(3));
      return y;
    };
    for (Index t = 0; t < N; ++t) {
      const Tensor q = token(p.inputs[0], t), k = token(p.inputs[1], t), v = token(p.inputs[2], t);
      Tensor out = Tensor::empty({B, H, dv});
      if (kind == Kind::softmax)
        launch(Device::cpu, SoftmaxAttentionStep{.out = out.data(),
                                                 .q = q.data(),
                                                 .keys = p.inputs[1].data(),
                                                 .values = p.inputs[2].data(),
                                                 .B = B,
                                                 .H = H,
                                                 .kv_heads = H,
                                                 .d = d,
                                                 .dv = dv,
                                                 .length = t + 1,
                                                 .capacity = N,
                                                 .scale = 1 / std::sqrt(float(d))});
      else
        launch(Device::cpu, LinearAttentionStep{.out = out.data(),
                                                .state = state.data(),
                                                .weight_sum = weight_sum.data(),
                                                .max = max.data(),
                                                .q = q.data(),
                                                .k = k.data(),
                                                .v = v.data(),
                                                .map = map,
                                                .B = B,
                                                .H = H,
                                                .d = d,
                                                .dv = dv,
                                                .floor = p.floor,
                                                .position = t});
      for (Index head = 0; head < B * H; ++head)
        std::copy_n(out.data() + head * dv, dv, decoded.data() + (head * N + t) * dv);
    }
    CHECK(error(decoded, array_of(parallel), 1) <= 1e-6);
  }
}

TEST_CASE("turning positions leaves scores a function of their distance, and turns back exactly") {
  const Tensor x = random_normal({2, 9, 24}, 1, 1);
  const auto turned = [&](Index position) { return rope(Var(x), 2, position).value(); };
  const auto score = [](const Tensor& y, Index i, Index j) {  // of batch 1, head 1: q_i . k_j
    double total = 0;
    for (Index c = 0; c < 4; ++c)
      total += double(y.data()[(9 + i) * 24 + 4 + c]) * double(y.data()[(9 + j) * 24 + 12 + c]);
    return total;
  };
  CHECK(score(turned(0), 7, 3) == doctest::Approx(score(turned(50000), 7, 3)).epsilon(1e-5));
  CHECK(same_bits(turned(0), turned(0)));
  for (Index i = 0; i < 2 * 9; ++i)
    for (Index c = 16; c < 24; ++c) CHECK(turned(5).data()[i * 24 + c] == x.data()[i * 24 + c]);
  const Var leaf(x, true);
  Tape tape;
  const Var y = rope(leaf, 2, 12345);
  tape.backward(y, y.value().clone());
  CHECK(error(leaf.grad(), array_of(x), 1) <= 1e-6);
}

TEST_CASE("attention says what is wrong with its inputs") {
  const auto ones = [](const Shape& shape) { return Var(Tensor::full(shape, 1)); };
  const Var q = ones({2, 2, 4, 6}), w = ones({2, 3, 6}), qkv = ones({2, 4, 36});
  const AttentionMask open, causal{true, {}};
  const FeatureMapVars elu{FeatureKind::elu1, {}, {}, {}};
  const auto linear = [&](const FeatureMapVars& map) { linear_attention(q, q, q, map, open, 0); };
  const auto masked = [&](const Tensor& mask) { softmax_attention(q, q, q, {false, mask}); };
  const std::pair<const char*, std::function<void()>> rows[] = {
      {"must be [B,H,N,d]", [&] { softmax_attention(qkv, q, q, open); }},
      {"sizes differ: q [2,2,4,6], k [2,2,4,5]",
       [&] {
         softmax_attention(q, ones({2, 2, 4, 5}), q, open);
       }},
      {"sizes differ",
       [&] {
         softmax_attention(q, q, ones({2, 2, 5, 6}), open);
       }},
      {"heads are empty",
       [&] {
         softmax_attention(q, q, ones({2, 2, 4, 0}), open);
       }},
      {"as many queries as keys, got 4 and 5",
       [&] {
         linear_attention(q, ones({2, 2, 5, 6}), ones({2, 2, 5, 6}), elu, causal, 0);
       }},
      {"key_mask must be i32, got f32",
       [&] {
         masked(Tensor::full({2, 4}, 1));
       }},
      {"key_mask [2,5] for 2 sequences of 4 keys",
       [&] {
         masked(Tensor::from_ints({2, 5}, std::vector<int>(10, 1)));
       }},
      {"must be [B,T,3C], got [2,4,35]",
       [&] {
         softmax_self_attention(ones({2, 4, 35}), 1, open);
       }},
      {"12 channels cannot be cut into 5 heads", [&] { linear_self_attention(qkv, 5, elu, open, 0); }},
      {"cut into 0 heads", [&] { rope(qkv, 0); }},
      {"heads of 3 channels", [&] { rope(qkv, 4); }},
      {"position -1", [&] { rope(qkv, 2, -1); }},
      {"this feature map has both w1 and w2",
       [&] {
         linear({FeatureKind::trig_n, w, {}, {}});
       }},
      {"this feature map has neither w1 nor w2",
       [&] {
         linear({FeatureKind::elu1, w, {}, {}});
       }},
      {"w1 must be [2,n,6], got [2,3,5]",
       [&] {
         linear({FeatureKind::trig_s, ones({2, 3, 5}), {}, {}});
       }},
      {"w2 [2,4,6] must have the shape of w1",
       [&] {
         linear({FeatureKind::trig_n, w, ones({2, 4, 6}), {}});
       }},
      {"tau must be [2], got [3]",
       [&] {
         linear({FeatureKind::elu1, {}, {}, ones({3})});
       }},
      {"floor 1 is not in [0, 1)", [&] { linear_attention(q, q, q, elu, open, 1); }},
      {"x must be [B,H,N,d], got [2,4,36]", [&] { feature_map(qkv, elu); }},
  };
  for (const auto& [message, call] : rows) {
    CAPTURE(message);
    try {
      call();
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK_MESSAGE(std::string(error.what()).find(message) != std::string::npos, error.what());
    }
  }
}

}  // namespace flexformer::testing
