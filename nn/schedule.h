// Learning rate as a function of the step alone: a resumed run has the same rates as an unbroken one.
#pragma once
#include <string>

#include "tensor/shape.h"

namespace flexformer {

enum class ScheduleKind { cosine, inverse_sqrt, constant };
ScheduleKind schedule_from(const std::string& name);  // throws Error for any other name

// For t = 1, 2 ..., base = lr, W = warmup, T = steps:
//   t <= W         lr t / W
//   cosine         min_lr + (lr - min_lr)/2 (1 + cos(pi (t-W)/(T-W))), min_lr from T on
//   inverse_sqrt   max(min_lr, lr sqrt(W/t)), with W = 1 where there is no warm-up
//   constant       lr
// Always within [0, lr], whatever t is; a warm-up longer than the run is cut off by the run's end.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3, min_lr = 0;
  Index warmup = 0, steps = 1000;

  // The rate of step t. Throws Error unless 0 <= min_lr <= lr.
  double at(Index t) const;
};

}  // namespace flexformer
