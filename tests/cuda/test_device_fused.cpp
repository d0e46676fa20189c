// Linear attention on tensor cores (cuda/fused_attention*): against the CPU's floats as far as operands in bfloat16
// allow, in memory full of NaN, and to the same bits in every way of working. Empty in a build without CUDA.
#if defined(FLEXFORMER_CUDA)
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "tests/autograd/op_cases.h"
#include "tests/cuda/device_ways.h"

#if defined(FLEXFORMER_EMULATION)
#include "cuda/fused_attention.h"
#endif

namespace flexformer::testing {
namespace {

enum class Hidden { none, some, first, all_of_one };  // keys: none, a third, the first 70, all of the first batch

struct FusedCase {
  const char* name;
  FeatureKind kind;
  Index B, H, Nq, Nk, d, n;
  bool causal, tau;
  Hidden hidden = Hidden::none;
  float floor = 0.01f;
  float angle = 0.5f;   // deviation of a projection
  float growth = 0.0f;  // how much longer the last key is than the first
};

using Floats = std::vector<float>;

Floats scaled_normal(Index n, std::uint64_t stream, float scale) {
  Floats x = normal_numbers(n, stream);
  for (float& value : x) value *= scale;
  return x;
}

// A problem's inputs as rows [B,N,H,d], its outputs and gradients full of a number that a result may be added to.
struct Setup {
  FusedCase c;
  Device device;
  Tensor q, k, v, dout, w1, w2, tau, mask;
  Tensor out, max, den, unfloored, dq, dk, dv, dw1, dw2, dtau;
  bool add;

  Setup(const FusedCase& c, Device device, bool add = false) : c(c), device(device), add(add) {
    const Index queries = c.B * c.Nq * c.H * c.d, keys = c.B * c.Nk * c.H * c.d, matrix = c.H * c.n * c.d;
    Floats rows = scaled_normal(keys, 2, 1);
    for (Index i = 0; i < keys; ++i) rows[std::size_t(i)] *= 1 + c.growth * float(i / (c.H * c.d) % c.Nk) / float(c.Nk);
    const float deviation = c.angle / std::sqrt(float(c.d));
    q = Tensor::from({queries}, scaled_normal(queries, 1, 1), device);
    k = Tensor::from({keys}, rows, device);
    v = Tensor::from({keys}, scaled_normal(keys, 3, 1), device);
    dout = Tensor::from({queries}, scaled_normal(queries, 4, 1), device);
    w1 = Tensor::from({matrix}, scaled_normal(matrix, 5, deviation), device);
    w2 = Tensor::from({matrix}, scaled_normal(matrix, 6, deviation), device);
    tau = Tensor::from({c.H}, Floats(std::size_t(c.H), std::log(2 * std::sqrt(float(c.d)))), device);
    mask = hidden_keys();
    const float before = add ? 0.25f : 7.0f;
    for (Tensor* x : {&out, &dq}) *x = Tensor::full({queries}, before, device);
    for (Tensor* x : {&dk, &dv}) *x = Tensor::full({keys}, before, device);
    for (Tensor* x : {&dw1, &dw2}) *x = Tensor::full({matrix}, before, device);
    for (Tensor* x : {&max, &den, &unfloored}) *x = Tensor::empty({c.B * c.H * c.Nq}, DType::f32, device);
    dtau = Tensor::full({c.H}, before, device);
  }

  Tensor hidden_keys() const {
    std::vector<std::int32_t> visible(std::size_t(c.B * c.Nk), 1);
    for (Index i = 0; i < c.B * c.Nk; ++i) {
      const Index j = i % c.Nk;
      const bool hide = (c.hidden == Hidden::some && i * i % 3 == 1) || (c.hidden == Hidden::first && j < 70) ||
                        (c.hidden == Hidden::all_of_one && i < c.Nk);
      if (hide) visible[std::size_t(i)] = 0;
    }
    return Tensor::from_ints({c.B * c.Nk}, visible, device);
  }
  const std::int32_t* key_mask() const { return c.hidden == Hidden::none ? nullptr : mask.ints(); }
  HeadsIn in(const Tensor& x, Index N) const { return {x.data(), N * c.H * c.d, c.H * c.d, c.d}; }
  HeadsOut to(Tensor& x, Index N) { return {{x.data(), add}, N * c.H * c.d, c.H * c.d, c.d}; }
  FeatureMap map() const {
    return {c.kind, c.n, w1.data(), c.kind == FeatureKind::trig_n ? w2.data() : nullptr, c.tau ? tau.data() : nullptr};
  }
  LinearAttentionFwd fwd() {
    return {to(out, c.Nq), max.data(),
            den.data(),    unfloored.data(),
            in(q, c.Nq),   in(k, c.Nk),
            in(v, c.Nk),   key_mask(),
            map(),         {c.B, c.H, c.Nq, c.Nk, c.d, c.d},
            c.floor,       c.causal};
  }
  LinearAttentionBwd bwd(const Tensor& output) {
    FeatureMapGrad dmap{{dw1.data(), add}, {}, {}};
    if (c.kind == FeatureKind::trig_n) dmap.dw2 = {dw2.data(), add};
    if (c.tau) dmap.dtau = {dtau.data(), add};
    return {to(dq, c.Nq),     to(dk, c.Nk),     to(dv, c.Nk), dmap,        in(dout, c.Nq),
            in(output, c.Nq), in(q, c.Nq),      in(k, c.Nk),  in(v, c.Nk), max.data(),
            den.data(),       unfloored.data(), key_mask(),   map(),       {c.B, c.H, c.Nq, c.Nk, c.d, c.d},
            c.floor,          c.causal};
  }
};

using Results = std::vector<std::pair<std::string, Floats>>;

Results forward_results(const Setup& s) {
  return {{"out", s.out.to_vector()},
          {"running_max", s.max.to_vector()},
          {"denominator", s.den.to_vector()},
          {"unfloored", s.unfloored.to_vector()}};
}
Results gradient_results(const Setup& s) {
  Results r{{"dq", s.dq.to_vector()}, {"dk", s.dk.to_vector()}, {"dv", s.dv.to_vector()}, {"dw1", s.dw1.to_vector()}};
  if (s.c.kind == FeatureKind::trig_n) r.emplace_back("dw2", s.dw2.to_vector());
  if (s.c.tau) r.emplace_back("dtau", s.dtau.to_vector());
  return r;
}
Results run_forward(Setup& s) {
  launch(s.device, s.fwd());
  return forward_results(s);
}
// Of an output that nothing was added to.
Results run_backward(Setup& s) {
  Setup plain(s.c, s.device);
  launch(s.device, plain.fwd());
  s.max = plain.max, s.den = plain.den, s.unfloored = plain.unfloored;
  launch(s.device, s.bwd(plain.out));
  return gradient_results(s);
}

double norm(const Floats& x) {
  double squares = 0;
  for (const float value : x) squares += std::isfinite(value) ? double(value) * double(value) : 0;
  return std::sqrt(squares);
}
// Within a hundredth; where less than `least` is left of large terms, of that. dtau is a number for each head, the
// difference of many: within a twentieth.
void check_near(const Results& ours, const Results& reference, double least) {
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto& [name, right] = reference[i];
    Floats difference = ours[i].second;
    for (std::size_t j = 0; j < right.size(); ++j)
      difference[j] = difference[j] == right[j] ? 0 : std::fmin(std::fabs(difference[j] - right[j]), 1e30f);
    const double far = norm(difference) / std::fmax(norm(right), least);
    CHECK_MESSAGE(far <= (name == "dtau" ? 5e-2 : 1e-2), name, " is away by ", far);
  }
}
void check_same(const Results& ours, const Results& reference) {
  for (std::size_t i = 0; i < reference.size(); ++i)
    CHECK_MESSAGE(same_bits(ours[i].second, reference[i].second), ours[i].first, " differs");
}

const FusedCase fused_cases[] = {
    {"trig_n causal", FeatureKind::trig_n, 1, 2, 300, 300, 64, 64, true, true},
    {"trig_s causal, blind rows", FeatureKind::trig_s, 2, 1, 130, 130, 32, 32, true, false, Hidden::first},
    {"trig_s causal, masked, weighed", FeatureKind::trig_s, 2, 2, 65, 65, 64, 48, true, true, Hidden::some},
    {"trig_n causal, three segments", FeatureKind::trig_n, 1, 1, 570, 570, 32, 16, true, true},
    {"trig_n causal, 63", FeatureKind::trig_n, 1, 2, 63, 63, 32, 64, true, false},
    {"trig_s causal, 1", FeatureKind::trig_s, 2, 2, 1, 1, 64, 64, true, true},
    {"trig_n full", FeatureKind::trig_n, 2, 1, 65, 300, 64, 32, false, true, Hidden::some},
    {"trig_s full, one batch blind", FeatureKind::trig_s, 2, 2, 130, 63, 32, 64, false, true, Hidden::all_of_one},
    {"trig_n full, 1", FeatureKind::trig_n, 1, 1, 1, 1, 32, 16, false, false},
    {"growing keys", FeatureKind::trig_n, 1, 2, 130, 130, 32, 32, true, true, Hidden::none, 0.01f, 0.3f, 2.5f},
    {"large angles, floored", FeatureKind::trig_s, 1, 2, 130, 130, 64, 64, true, false, Hidden::none, 1.0f, 60.0f},
};

bool is_large(const FusedCase& c) { return c.Nq > 130 || c.Nk > 130; }

}  // namespace

TEST_CASE("fused linear attention on the device agrees with the CPU, to the same bits in every way of working") {
  if (!usable()) return;
  for (const FusedCase& c : fused_cases) {
    if (for_races && is_large(c)) continue;
    SUBCASE(c.name) {
      Setup on_cpu(c, Device::cpu);
      const Results forward = run_forward(on_cpu), backward = run_backward(on_cpu);
      const InBf16 bf16;
      const Poisoned poisoned;
      Results first, first_backward;
      for (const Way& way : ways) {
        if (for_races && &way != &ways[1]) continue;
        use(way);
        INFO("the way of working: ", way.name);
        Setup s(c, Device::cuda);
        const Results own = run_forward(s), own_backward = run_backward(s);
        if (!first.empty()) {
          check_same(own, first);
          check_same(own_backward, first_backward);
          continue;
        }
        first = own, first_backward = own_backward;
        check_near(own, forward, 1e-3);
        CHECK_EQ(own[3].second, forward[3].second);  // unfloored
        check_near(own_backward, backward, 0.3 * norm(backward[2].second));
      }
    }
  }
}

TEST_CASE("fused linear attention on the device is for products of bfloat16 alone, and for sizes that fit") {
  if (!usable()) return;
  const auto out = [](const FusedCase& c) {
    Setup s(c, Device::cuda);
    return run_forward(s)[0].second;
  };
  FusedCase c{"", FeatureKind::trig_n, 1, 1, 65, 65, 32, 16, true, true};
  const auto fused = [&] {
    const Floats precise = out(c);
    const InBf16 bf16;
    return !same_bits(out(c), precise);
  };
  CHECK(fused());
  c.n = 24;
  CHECK_FALSE(fused());
  c.n = 16, c.d = 16;
  CHECK_FALSE(fused());
  c.d = 64;
  CHECK(fused());
  c.n = 80;
  CHECK_FALSE(fused());
  c.n = 16, c.kind = FeatureKind::rfa;
  CHECK_FALSE(fused());
}

TEST_CASE("fused linear attention on the device adds to gradients, and leaves alone what nobody wants") {
  if (!usable()) return;
  for (const bool causal : {true, false}) {
    const FusedCase c{"", FeatureKind::trig_n, 2, 1, 65, 65, 32, 32, causal, true, Hidden::some};
    const InBf16 bf16;
    Setup plain(c, Device::cuda), adding(c, Device::cuda, true);
    const auto check_added = [](const Results& added, const Results& own) {
      for (std::size_t i = 0; i < own.size(); ++i)
        for (std::size_t j = 0; j < own[i].second.size(); ++j)
          REQUIRE_EQ(added[i].second[j], doctest::Approx(own[i].second[j] + 0.25f).epsilon(1e-5));
    };
    check_added({run_forward(adding)[0]}, {run_forward(plain)[0]});
    const Results gradients = run_backward(plain);
    check_added(run_backward(adding), gradients);

    for (std::size_t wanted = 0; wanted < gradients.size(); ++wanted) {
      Setup frozen(c, Device::cuda);
      run_forward(frozen);
      LinearAttentionBwd k = frozen.bwd(frozen.out);
      GradOut* all[] = {&k.dq.grad, &k.dk.grad, &k.dv.grad, &k.dmap.dw1, &k.dmap.dw2, &k.dmap.dtau};
      for (std::size_t i = 0; i < gradients.size(); ++i)
        if (i != wanted) all[i]->p = nullptr;
      launch(Device::cuda, k);
      const Results own = gradient_results(frozen);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const bool right = i == wanted ? same_bits(own[i].second, gradients[i].second)
                                       : own[i].second == Floats(own[i].second.size(), 7.0f);
        CHECK_MESSAGE(right, own[i].first, " where ", gradients[wanted].first, " is wanted");
      }
    }
  }
}

TEST_CASE("fused linear attention on the device does not read hidden keys and their values") {
  if (!usable()) return;
  for (const bool causal : {true, false}) {
    const FusedCase c{"", FeatureKind::trig_s, 1, 1, 130, 130, 32, 16, causal, true, Hidden::some};
    const InBf16 bf16;
    Setup clean(c, Device::cuda), dirty(c, Device::cuda);
    Floats k = dirty.k.to_vector(), v = dirty.v.to_vector();
    for (Index j = 0; j < c.Nk; ++j)
      for (Index e = j * c.d; e < (j + 1) * c.d && j * j % 3 == 1; ++e)
        k[std::size_t(e)] = v[std::size_t(e)] = std::nanf("");
    dirty.k = Tensor::from({c.Nk * c.d}, k, Device::cuda), dirty.v = Tensor::from({c.Nk * c.d}, v, Device::cuda);
    check_same(run_forward(dirty), run_forward(clean));
    launch(Device::cuda, dirty.bwd(dirty.out));
    launch(Device::cuda, clean.bwd(clean.out));
    check_same(gradient_results(dirty), gradient_results(clean));
  }
}

// The kernels' own form for activations in bfloat16 is out of reach of a test that no CUDA compiler sees.
#if defined(FLEXFORMER_EMULATION)
namespace {

// A tensor's numbers as bfloat16 in device memory.
struct Halves {
  Index n;
  Tensor memory;
  explicit Halves(const Tensor& x) : n(x.numel()) {
    const Floats values = x.to_vector();
    Floats pairs(std::size_t((n + 1) / 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const cuda::bf16 half = __float2bfloat16(values[i]);
      std::memcpy(reinterpret_cast<char*>(pairs.data()) + 2 * i, &half, sizeof half);
    }
    memory = Tensor::from({Index(pairs.size())}, pairs, Device::cuda);
  }
  cuda::bf16* data() { return reinterpret_cast<cuda::bf16*>(memory.data()); }
  Floats to_vector() const {
    const Floats pairs = memory.to_vector();
    Floats values;
    for (Index i = 0; i < n; ++i) {
      cuda::bf16 half;
      std::memcpy(&half, reinterpret_cast<const char*>(pairs.data()) + 2 * i, sizeof half);
      values.push_back(__bfloat162float(half));
    }
    return values;
  }
  template <class T> cuda::Heads<T> heads(const FusedCase& c, Index N, bool add = false) {
    return {data(), N * c.H * c.d, c.H * c.d, c.d, add};
  }
};

}  // namespace

TEST_CASE("fused linear attention on the device agrees with the CPU for activations in bfloat16, too") {
  for (const FusedCase& c : fused_cases) {
    if (is_large(c)) continue;
    SUBCASE(c.name) {
      using Bf16 = cuda::bf16;
      Setup on_cpu(c, Device::cpu), s(c, Device::cuda);
      Halves q(s.q), k(s.k), v(s.v), dout(s.dout), out(s.out), dq(s.dq), dk(s.dk), dv(s.dv);
      on_cpu.q = Tensor::from({q.n}, q.to_vector()), on_cpu.k = Tensor::from({k.n}, k.to_vector());
      on_cpu.v = Tensor::from({v.n}, v.to_vector()), on_cpu.dout = Tensor::from({dout.n}, dout.to_vector());
      const Results forward = run_forward(on_cpu);
      launch(Device::cpu, on_cpu.bwd(on_cpu.out));
      const Results backward = gradient_results(on_cpu);

      const LinearAttentionFwd fwd = s.fwd();
      run_fused(cuda::FusedFwd<Bf16>{out.heads<Bf16>(c, c.Nq), fwd.running_max, fwd.denominator, fwd.unfloored,
                                     q.heads<const Bf16>(c, c.Nq), k.heads<const Bf16>(c, c.Nk),
                                     v.heads<const Bf16>(c, c.Nk), fwd.key_mask, fwd.map, fwd.size, fwd.floor,
                                     fwd.causal});
      Results own = forward_results(s);
      own[0].second = out.to_vector();
      check_near(own, forward, 1e-3);

      const LinearAttentionBwd bwd = s.bwd(s.out);
      run_fused(cuda::FusedBwd<Bf16>{dq.heads<Bf16>(c, c.Nq), dk.heads<Bf16>(c, c.Nk), dv.heads<Bf16>(c, c.Nk),
                                     bwd.dmap, dout.heads<const Bf16>(c, c.Nq), out.heads<const Bf16>(c, c.Nq),
                                     q.heads<const Bf16>(c, c.Nq), k.heads<const Bf16>(c, c.Nk),
                                     v.heads<const Bf16>(c, c.Nk), bwd.running_max, bwd.denominator, bwd.unfloored,
                                     bwd.key_mask, bwd.map, bwd.size, bwd.floor, bwd.causal});
      Results own_backward = gradient_results(s);
      own_backward[0].second = dq.to_vector(), own_backward[1].second = dk.to_vector();
      own_backward[2].second = dv.to_vector();
      // Where one heavy key decides, dtau hangs on digits that an output in bfloat16 does not have.
      check_near(own_backward, c.growth > 0 ? Results(backward.begin(), backward.end() - 1) : backward,
                 0.3 * norm(backward[2].second));
    }
  }
}
#endif

}  // namespace flexformer::testing
#endif
