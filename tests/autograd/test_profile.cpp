// The profile: whose kernel was which, and what each counts.
#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/ops.h"
#include "nn/optim.h"
#include "tensor/profile.h"

namespace flexformer::testing {
namespace {

// Profiles `work`, and returns the row of that name, or an empty one.
template <class Work> profile::Row profiled(const char* op, const Work& work) {
  profile::start();
  work();
  profile::stop();
  for (const auto& rows : {profile::ops(), profile::kernels()})
    for (const profile::Row& row : rows)
      if (row.name == op) return row;
  return {};
}

void learn() {
  const Var x(Tensor::full({6, 5}, 1), true), W(Tensor::full({3, 5}, 2), true), b(Tensor::full({3}, 0), true);
  Tape tape;
  tape.backward(sum(gelu(linear(x, W, b))));
}

}  // namespace

TEST_CASE("profile: kernels belong to the op that launched them, forward and backward") {
  struct Expected {
    const char* name;
    Index calls;
    double bytes, operations;
  };
  const Expected rows[] = {
      {"linear", 1, 4.0 * (6 * 5 + 3 * 5 + 3 + 6 * 3), 2.0 * 6 * 5 * 3},
      // dx = dy W, dW = dy^T x, db = the sum of dy's rows
      {"linear backward", 1, 4.0 * (2 * (6 * 3 + 3 * 5 + 6 * 5) + 6 * 3 + 3), 2 * 2.0 * 6 * 5 * 3 + 6 * 3},
      {"gelu", 1, 4.0 * 2 * 6 * 3, 6 * 3},
      {"gelu backward", 1, 4.0 * 3 * 6 * 3, 2 * 6 * 3},
      {"Gemm", 3, 4.0 * 3 * (6 * 5 + 3 * 5 + 6 * 3) + 4 * 3, 3 * 2.0 * 6 * 5 * 3},
      {"other", 1, 4.0 * 2, 1},  // the gradient of the loss itself
  };
  for (const Expected& expected : rows) {
    CAPTURE(expected.name);
    const profile::Row row = profiled(expected.name, learn);
    CHECK_EQ(row.calls, expected.calls);
    CHECK_EQ(row.cost.bytes, expected.bytes);
    CHECK_EQ(row.cost.operations, expected.operations);
    CHECK(row.seconds > 0);
  }
}

TEST_CASE("profile: an Op takes what ends in no record(), and what runs within it") {
  const auto work = [] {
    Tensor y = Tensor::empty({8});
    launch(Device::cpu, FillUniform{.y = y.data(), .n = 8, .low = 0, .high = 1, .key = {}});
    const profile::Op op("outer");
    launch(Device::cpu, FillUniform{.y = y.data(), .n = 8, .low = 0, .high = 1, .key = {}});
    add(Var(y), Var(y));
    const profile::Op inner("inner");
    add(Var(y), Var(y));
  };
  CHECK_EQ(profiled("other", work).cost.operations, 8);
  CHECK_EQ(profiled("outer", work).cost.operations, 16);
  CHECK_EQ(profiled("inner", work).cost.operations, 8);
  CHECK_EQ(profiled("add", work).calls, 0);
}

TEST_CASE("profile: off, nothing is counted; started again, it begins at zero") {
  CHECK_EQ(profiled("linear", learn).calls, 1);
  Index counted = 0;
  for (const profile::Row& row : profile::kernels()) counted += row.calls;
  learn();
  for (const profile::Row& row : profile::kernels()) counted -= row.calls;
  CHECK_EQ(counted, 0);
  CHECK_EQ(profiled("linear", learn).calls, 1);
  CHECK(profile::table().find("linear backward") != std::string::npos);
}

}  // namespace flexformer::testing
