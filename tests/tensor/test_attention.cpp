// Facts about attention that the op table does not hold: every tile edge against gradients derived by hand, masks, huge
// keys, causality to the bit, threads and memory.
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/parallel.h"
#include "tests/autograd/attention_problem.h"

namespace flexformer::testing {
namespace {

using naive::Arrays;

// Values and all gradients against the definition.
void check_problem(const Problem& p, double value_limit = 2e-5, double gradient_limit = 1e-4) {
  const Tensor dout = random_normal(p.inputs[0].shape().with(3, p.inputs[2].size(3)), 1, 9);
  const double least = norm(array_of(dout));
  const Answer ours = solve(p, dout);
  const Arrays exact = exact_answer(p, dout);
  CHECK(error(ours.out, exact[0], least) <= value_limit);
  for (std::size_t i = 0; i < ours.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK(error(ours.gradients[i], exact[i + 1], least) <= gradient_limit);
  }
}

struct Poison {
  Poison() { memory::set_poison(true); }
  ~Poison() { memory::set_poison(false); }
};

}  // namespace

TEST_CASE("attention equals its definition at lengths and head sizes that do not fill a tile") {
  const Poison poison;
  const std::pair<Index, Index> sizes[] = {{1, 1},  {2, 3},  {3, 8},  {15, 33}, {16, 1},  {17, 64},  {31, 3},  {32, 8},
                                           {33, 1}, {63, 8}, {64, 3}, {65, 33}, {127, 8}, {129, 64}, {1000, 8}};
  for (const auto& [N, d] : sizes)
    for (Kind kind : all_kinds)
      for (bool causal : {false, true}) {
        const Index B = N < 100 ? 2 : 1, dv = N % 2 ? d + 2 : d;
        CAPTURE(N);
        CAPTURE(d);
        CAPTURE(int(kind));
        CAPTURE(causal);
        // With a single channel polaformer's output depends on signs alone: all its gradient is rounding, times p / x.
        check_problem(problem(kind, B, B, N, d, dv, causal, (N + d + int(kind)) % 3 == 0), 2e-5,
                      kind == Kind::polaformer && d == 1 ? 4e-4 : 1e-4);
      }
}

TEST_CASE("rows on the floor have the definition's values and gradients") {
  const Poison poison;
  for (Kind kind : {Kind::trig_s, Kind::trig_n})
    for (bool causal : {false, true})
      for (Index N : {5, 64, 150}) {
        Problem p = problem(kind, 1, 2, N, 8, 5, causal, N == 150);
        for (std::size_t i : {0, 1}) p.inputs[i] = random_normal({1, 2, N, 8}, 0.7f, i + 1);
        for (Index i = 0; i < 2 * N * 8; ++i)  // ever larger keys: the unit of the state changes with every chunk
          p.inputs[1].data()[i] *= 0.4f + 1.2f * float(i / 8 % N) / float(N);
        for (float floor : {0.3f, 0.9f}) {  // some rows, and almost all
          CAPTURE(int(kind));
          CAPTURE(causal);
          CAPTURE(N);
          CAPTURE(floor);
          p.floor = floor;
          check_problem(p);
        }
      }
}

TEST_CASE("queries that see no key give 0 and no gradient, and change nothing for others") {
  const Poison poison;
  for (Kind kind : all_kinds)
    for (bool causal : {false, true}) {
      CAPTURE(int(kind));
      CAPTURE(causal);
      Problem p = problem(kind, 2, 2, 70, 5, 4, causal, false);
      p.mask.keys.assign(140, 1);
      for (std::size_t j = 70; j < 140; ++j)
        p.mask.keys[j] = causal && j >= 137;  // all of the second sequence, or most
      check_problem(p);
      const Tensor dout = random_normal({2, 2, 70, 4}, 1, 9);
      const Answer both = solve(p, dout);
      const Index blind = causal ? 67 : 70;
      for (Index h = 0; h < 2; ++h)
        for (Index i = 0; i < blind; ++i) {
          CHECK(both.out.data()[((2 + h) * 70 + i) * 4 + 1] == 0.0f);
          CHECK(both.gradients[0].data()[((2 + h) * 70 + i) * 5 + 1] == 0.0f);
        }
      Problem alone = p;  // the first sequence by itself
      alone.mask.keys.resize(70);
      for (std::size_t i = 0; i < 3; ++i) {
        const std::vector<float> values = p.inputs[i].to_vector();
        alone.inputs[i] = Tensor::from(p.inputs[i].shape().with(0, 1), std::span(values).first(values.size() / 2));
      }
      const std::vector<float> half = dout.to_vector();
      const Answer one = solve(alone, Tensor::from({1, 2, 70, 4}, std::span(half).first(half.size() / 2)));
      CHECK(same_bits(one.out.data(), both.out.data(), one.out.numel()));
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(std::memcmp(one.gradients[i].data(), both.gradients[i].data(),
                          std::size_t(one.gradients[i].numel()) * 4) == 0);
    }
}

TEST_CASE("log-weights far beyond the range of exp stay finite and right") {
  for (Kind kind : {Kind::elu1, Kind::trig_s, Kind::trig_n})
    for (bool causal : {false, true})
      for (float tau : {-7.0f, -2.0f, 20.0f}) {  // |k|^2 e^-tau up to 1e5
        CAPTURE(int(kind));
        CAPTURE(causal);
        CAPTURE(tau);
        Problem p = problem(kind, 1, 2, 100, 8, 8, causal, false);
        for (Index i = 0; i < 2; ++i)  // neighbours, so that denominators stay away from 0
          p.inputs[std::size_t(i)] = random_normal({1, 2, 100, 8}, 0.2f, std::uint64_t(1 + i), 3.3f);
        p.inputs.back() = Tensor::full({2}, tau);
        // With one decisive key, the gradient of its log-weight is 0 up to rounding, times 2 |k| e^-tau: 1e4 in places.
        check_problem(p, 2e-5, tau < -5 ? HUGE_VAL : 1e-3);
      }
}

TEST_CASE("performer keeps its digits where its features are no floats") {
  for (bool causal : {false, true}) {
    Problem p = problem(Kind::performer, 1, 2, 100, 8, 8, causal, false);
    p.floor = 0;
    for (std::size_t i : {0, 1}) p.inputs[i] = random_normal({1, 2, 100, 8}, 2, i + 1, 8);  // e^(-|x'|^2/2) = e^-96
    check_problem(p, 1e-4, 1e-3);  // exponents of 100 are known to 1e-5
    for (Index i = 0; i < 1600; ++i) p.inputs[1].data()[i] *= 1e4f;
    const Answer answer = solve(p, random_normal({1, 2, 100, 8}, 1, 9));
    for (float x : answer.out.to_vector()) REQUIRE(std::isfinite(x));
    for (const Tensor& gradient : answer.gradients)
      for (float x : gradient.to_vector()) REQUIRE(std::isfinite(x));
  }
}

TEST_CASE("queries and keys without a common channel give 0 and no gradient; a zero vector has features too") {
  for (Kind kind : {Kind::cosformer, Kind::polaformer, Kind::rfa})
    for (bool causal : {false, true}) {
      CAPTURE(int(kind));
      Problem p = problem(kind, 1, 1, 70, 2, 2, causal, false);
      for (Index i = 0; i < 70; ++i) {
        const bool zero = kind == Kind::rfa;
        p.inputs[0].data()[2 * i] = zero ? 0.0f : 1.0f;
        p.inputs[1].data()[2 * i + 1] = zero ? 0.0f : 1.0f;
        p.inputs[0].data()[2 * i + 1] = p.inputs[1].data()[2 * i] = 0;
      }
      const Answer answer = solve(p, random_normal({1, 1, 70, 2}, 1, 9));
      for (float x : answer.out.to_vector()) REQUIRE((kind == Kind::rfa ? std::isfinite(x) : x == 0));
      for (std::size_t input : {0, 1})
        for (float x : answer.gradients[input].to_vector()) REQUIRE(x == 0);
    }
}

TEST_CASE("huge hidden keys change nothing, for every kind") {
  for (Kind kind : all_kinds)
    for (bool causal : {false, true}) {
      CAPTURE(int(kind));
      Problem p = problem(kind, 1, 1, 90, 5, 4, causal, true), huge = p;
      huge.inputs[1] = p.inputs[1].clone();
      for (Index i = 0; i < 90 * 5; ++i)
        if (!p.mask.keys[std::size_t(i / 5)]) huge.inputs[1].data()[i] = i % 2 ? 1e15f : -1e15f;
      const Tensor dout = random_normal({1, 1, 90, 4}, 1, 9);
      const Answer before = solve(p, dout), after = solve(huge, dout);
      CHECK(same_bits(before.out, after.out));
      for (std::size_t i = 0; i < before.gradients.size(); ++i)
        CHECK(before.gradients[i].to_vector() == after.gradients[i].to_vector());  // but for the sign of zeros
    }
}

TEST_CASE("extreme temperatures and huge hidden keys leave everything finite") {
  for (bool causal : {false, true})
    for (float tau : {-20.0f, 20.0f}) {
      Problem p = problem(Kind::trig_n, 1, 1, 90, 8, 8, causal, true);
      for (Index j = 0; j < 90; ++j)
        if (!p.mask.keys[std::size_t(j)]) p.inputs[1].data()[j * 8] = 1e15f;
      p.inputs.back() = Tensor::full({1}, tau);
      const Answer answer = solve(p, random_normal({1, 1, 90, 8}, 1, 9));
      for (const Tensor& gradient : answer.gradients)
        for (float x : gradient.to_vector()) REQUIRE(std::isfinite(x));
      for (float x : answer.out.to_vector()) REQUIRE(std::isfinite(x));
    }
}

TEST_CASE("a late huge key leaves the rows before it bit-equal") {
  for (Kind kind : all_kinds) {
    Problem p = problem(kind, 1, 2, 130, 8, 8, true, false);
    const Tensor dout = random_normal({1, 2, 130, 8}, 1, 9);
    const Answer before = solve(p, dout);
    for (Index changed : {1, 64, 77, 129}) {
      CAPTURE(int(kind));
      CAPTURE(changed);
      Problem other = p;
      other.inputs[1] = p.inputs[1].clone();
      other.inputs[2] = p.inputs[2].clone();
      for (Index h = 0; h < 2; ++h)
        for (Index i = (h * 130 + changed) * 8; i < (h * 130 + 130) * 8; ++i) {
          other.inputs[1].data()[i] = 15.0f;
          other.inputs[2].data()[i] = -3.0f;
        }
      const Answer after = solve(other, dout);
      for (Index h = 0; h < 2; ++h)
        CHECK(std::memcmp(before.out.data() + h * 130 * 8, after.out.data() + h * 130 * 8, std::size_t(changed) * 32) ==
              0);
    }
  }
}

TEST_CASE("no gradient flows from a row to later tokens") {
  for (Kind kind : all_kinds) {
    CAPTURE(int(kind));
    const Problem p = problem(kind, 1, 1, 130, 8, 8, true, false);
    Tensor dout = Tensor::zeros({1, 1, 130, 8});
    for (Index c = 0; c < 8; ++c) dout.data()[70 * 8 + c] = 1;
    const Answer answer = solve(p, dout);
    for (std::size_t input : {1, 2})
      for (Index i = 71 * 8; i < 130 * 8; ++i) REQUIRE(answer.gradients[input].data()[i] == 0.0f);
    CHECK(answer.gradients[1].data()[70 * 8] != 0.0f);
  }
}

TEST_CASE("results do not depend on the number of threads") {
  const int before = threads();
  for (Kind kind : all_kinds)
    for (const auto& [B, H] : {std::pair<Index, Index>{2, 3}, {1, 1}})
      for (bool causal : {false, true}) {
        const Problem p = problem(kind, B, H, 200, 8, 8, causal, true);
        const Tensor dout = random_normal({B, H, 200, 8}, 1, 9);
        set_threads(1);
        const Answer one = solve(p, dout);
        for (int count : {2, 3}) {
          CAPTURE(int(kind));
          CAPTURE(count);
          set_threads(count);
          const Answer many = solve(p, dout);
          CHECK(same_bits(one.out, many.out));
          for (std::size_t i = 0; i < one.gradients.size(); ++i) CHECK(same_bits(one.gradients[i], many.gradients[i]));
        }
      }
  set_threads(before);
}

TEST_CASE("memory grows linearly with the length") {
  const auto peak = [](Kind kind, Index N, bool causal) {
    const Problem p = problem(kind, 1, 2, N, 4, 4, causal, false);
    const Tensor dout = Tensor::full({1, 2, N, 4}, 1);
    const Index before = memory::stats(Device::cpu).live_bytes;
    memory::reset_peak(Device::cpu);
    solve(p, dout);
    return double(memory::stats(Device::cpu).peak_bytes - before);
  };
  for (bool causal : {false, true}) {
    CHECK(peak(Kind::trig_n, 16384, causal) < 2.1 * peak(Kind::trig_n, 8192, causal));
    CHECK(peak(Kind::trig_n, 16384, causal) < 16384 * 4096.0);
    CHECK(peak(Kind::softmax, 4096, causal) < 2.1 * peak(Kind::softmax, 2048, causal));
  }
}

}  // namespace flexformer::testing
