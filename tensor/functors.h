// Scalar mathematics, written once for host and device: each functor has f, the function, and df, its derivative. T is
// float on a CUDA device and a vector of floats on the CPU (simd.h); `a` is the functor's constant, where it has one.
#pragma once
#include <cmath>

#include "tensor/host_device.h"
#if !defined(__CUDACC__)
#include "tensor/simd.h"
#endif

namespace flexformer {

enum class Unary : int {
  exp,
  log,
  sqrt,
  rsqrt,
  sin,
  cos,
  tanh,
  sigmoid,
  relu,
  elu,
  gelu_tanh,
  gelu_erf,
  silu,
  softplus,
  square,
  abs,
  scale,  // a x
  shift,  // x + a
  power,  // x^a, a constant
};
enum class Binary : int { add, sub, mul, div, maximum, minimum };

namespace functors {

using std::abs, std::cos, std::erf, std::exp, std::log, std::log1p, std::pow, std::sin, std::sqrt, std::tanh;
#if defined(__CUDACC__)
template <class T> HD T select(bool mask, T a, T b) { return mask ? a : b; }
#else
using flexformer::abs, flexformer::cos, flexformer::erf, flexformer::exp, flexformer::log, flexformer::log1p,
    flexformer::pow, flexformer::select, flexformer::sin, flexformer::sqrt, flexformer::tanh;
#endif

struct Exp {
  template <class T> HD static T f(T x, float) { return exp(x); }
  template <class T> HD static T df(T x, float) { return exp(x); }
};
struct Log {
  template <class T> HD static T f(T x, float) { return log(x); }
  template <class T> HD static T df(T x, float) { return 1.0f / x; }
};
struct Sqrt {  // the derivative at 0 is infinite
  template <class T> HD static T f(T x, float) { return sqrt(x); }
  template <class T> HD static T df(T x, float) { return 0.5f / sqrt(x); }
};
struct Rsqrt {
  template <class T> HD static T f(T x, float) { return 1.0f / sqrt(x); }
  template <class T> HD static T df(T x, float) { return -0.5f / (x * sqrt(x)); }
};
struct Sin {
  template <class T> HD static T f(T x, float) { return sin(x); }
  template <class T> HD static T df(T x, float) { return cos(x); }
};
struct Cos {
  template <class T> HD static T f(T x, float) { return cos(x); }
  template <class T> HD static T df(T x, float) { return -sin(x); }
};
struct Tanh {
  template <class T> HD static T f(T x, float) { return tanh(x); }
  template <class T> HD static T df(T x, float) {
    const T t = tanh(x);
    return 1.0f - t * t;
  }
};
struct Sigmoid {
  template <class T> HD static T f(T x, float) { return 1.0f / (1.0f + exp(-x)); }
  template <class T> HD static T df(T x, float) {
    const T s = f(x, 0.0f);
    return s * (1.0f - s);
  }
};
struct Relu {  // the derivative at 0 is 0; a NaN stays one
  template <class T> HD static T f(T x, float) { return select(x < 0.0f, T{}, x); }
  template <class T> HD static T df(T x, float) { return select(x > 0.0f, T{} + 1.0f, T{}); }
};
struct Elu {  // alpha = 1
  template <class T> HD static T f(T x, float) { return select(x > 0.0f, x, exp(x) - 1.0f); }
  template <class T> HD static T df(T x, float) { return select(x > 0.0f, T{} + 1.0f, exp(x)); }
};
struct GeluTanh {  // x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): math.md 7
  template <class T> HD static T gate(T x) { return 1.0f / (1.0f + exp(x * (x * x * -0.0713548163f - 1.595769122f))); }
  template <class T> HD static T f(T x, float) { return x * gate(x); }
  template <class T> HD static T df(T x, float) { return slope(x, gate(x)); }
  // The derivative where the gate is known.
  template <class T> HD static T slope(T x, T s) {
    return s + x * s * (1.0f - s) * (x * x * 0.2140644488f + 1.595769122f);
  }
};
struct GeluErf {  // x Phi(x)
  template <class T> HD static T f(T x, float) { return 0.5f * x * (1.0f + erf(0.7071067812f * x)); }
  template <class T> HD static T df(T x, float) {
    return 0.5f * (1.0f + erf(0.7071067812f * x)) + x * (0.3989422804f * exp(-0.5f * x * x));
  }
};
struct Silu {
  template <class T> HD static T f(T x, float) { return x * Sigmoid::f(x, 0.0f); }
  template <class T> HD static T df(T x, float) {
    const T s = Sigmoid::f(x, 0.0f);
    return s * (1.0f + x * (1.0f - s));
  }
};
struct Softplus {  // log(1 + e^x) = max(x, 0) + log1p(e^-|x|)
  template <class T> HD static T f(T x, float) { return Relu::f(x, 0.0f) + log1p(exp(-abs(x))); }
  template <class T> HD static T df(T x, float) { return Sigmoid::f(x, 0.0f); }
};
struct Square {
  template <class T> HD static T f(T x, float) { return x * x; }
  template <class T> HD static T df(T x, float) { return x + x; }
};
struct Abs {  // the derivative at 0 is 0
  template <class T> HD static T f(T x, float) { return abs(x); }
  template <class T> HD static T df(T x, float) {
    return select(x > 0.0f, T{} + 1.0f, select(x < 0.0f, T{} - 1.0f, T{}));
  }
};
struct Scale {
  template <class T> HD static T f(T x, float a) { return a * x; }
  template <class T> HD static T df(T, float a) { return T{} + a; }
};
struct Shift {
  template <class T> HD static T f(T x, float a) { return x + a; }
  template <class T> HD static T df(T, float) { return T{} + 1.0f; }
};
struct Power {  // a constant exponent: no logarithm, so x may be negative where a is whole
  template <class T> HD static T f(T x, float a) { return pow(x, a); }
  template <class T> HD static T df(T x, float a) { return a == 0.0f ? T{} : a * pow(x, a - 1.0f); }
};

// Binary functors: f, and the derivatives to both arguments.
struct Add {
  template <class T> HD static T f(T a, T b) { return a + b; }
  template <class T> HD static T da(T, T) { return T{} + 1.0f; }
  template <class T> HD static T db(T, T) { return T{} + 1.0f; }
};
struct Sub {
  template <class T> HD static T f(T a, T b) { return a - b; }
  template <class T> HD static T da(T, T) { return T{} + 1.0f; }
  template <class T> HD static T db(T, T) { return T{} - 1.0f; }
};
struct Mul {
  template <class T> HD static T f(T a, T b) { return a * b; }
  template <class T> HD static T da(T, T b) { return b; }
  template <class T> HD static T db(T a, T) { return a; }
};
struct Div {
  template <class T> HD static T f(T a, T b) { return a / b; }
  template <class T> HD static T da(T, T b) { return 1.0f / b; }
  template <class T> HD static T db(T a, T b) { return -(a / b) / b; }  // b * b may be no float
};
struct Maximum {  // at a tie the gradient goes to the first argument; a NaN on either side stays
  template <class T> HD static T f(T a, T b) { return select((a >= b) | (a != a), a, b); }
  template <class T> HD static T da(T a, T b) { return select(a >= b, T{} + 1.0f, T{}); }
  template <class T> HD static T db(T a, T b) { return select(a >= b, T{}, T{} + 1.0f); }
};
struct Minimum {  // at a tie the gradient goes to the first argument; a NaN on either side stays
  template <class T> HD static T f(T a, T b) { return select((a <= b) | (a != a), a, b); }
  template <class T> HD static T da(T a, T b) { return select(a <= b, T{} + 1.0f, T{}); }
  template <class T> HD static T db(T a, T b) { return select(a <= b, T{}, T{} + 1.0f); }
};

}  // namespace functors

// Calls g with the functor of an op: the switch from a name to code, shared by both backends.
template <class G> void with_functor(Unary op, G&& g) {
  using namespace functors;
  switch (op) {
    case Unary::exp:
      return g(Exp{});
    case Unary::log:
      return g(Log{});
    case Unary::sqrt:
      return g(Sqrt{});
    case Unary::rsqrt:
      return g(Rsqrt{});
    case Unary::sin:
      return g(Sin{});
    case Unary::cos:
      return g(Cos{});
    case Unary::tanh:
      return g(Tanh{});
    case Unary::sigmoid:
      return g(Sigmoid{});
    case Unary::relu:
      return g(Relu{});
    case Unary::elu:
      return g(Elu{});
    case Unary::gelu_tanh:
      return g(GeluTanh{});
    case Unary::gelu_erf:
      return g(GeluErf{});
    case Unary::silu:
      return g(Silu{});
    case Unary::softplus:
      return g(Softplus{});
    case Unary::square:
      return g(Square{});
    case Unary::abs:
      return g(Abs{});
    case Unary::scale:
      return g(Scale{});
    case Unary::shift:
      return g(Shift{});
    case Unary::power:
      return g(Power{});
  }
}
template <class G> void with_functor(Binary op, G&& g) {
  using namespace functors;
  switch (op) {
    case Binary::add:
      return g(Add{});
    case Binary::sub:
      return g(Sub{});
    case Binary::mul:
      return g(Mul{});
    case Binary::div:
      return g(Div{});
    case Binary::maximum:
      return g(Maximum{});
    case Binary::minimum:
      return g(Minimum{});
  }
}

}  // namespace flexformer
