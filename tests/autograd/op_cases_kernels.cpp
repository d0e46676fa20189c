// Rows of the kernels that no op launches: optimiser steps and random fills.
#include <cmath>

#include "tests/autograd/op_cases.h"

namespace flexformer::testing {
namespace {

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
    add_decoding_cases(cases);
    return cases;
  }();
  return all;
}

}  // namespace flexformer::testing
