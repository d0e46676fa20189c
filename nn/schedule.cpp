// Learning-rate schedules.
#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace flexformer {

ScheduleKind schedule_from(const std::string& name) {
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "inverse_sqrt") return ScheduleKind::inverse_sqrt;
  if (name == "constant") return ScheduleKind::constant;
  fail("there is no schedule '", name, "'; there are cosine, inverse_sqrt, constant");
}

double Schedule::at(Index t) const {
  check("schedule", min_lr >= 0 && min_lr <= lr, "the smallest rate must be in [0, ", lr, "], got ", min_lr);
  t = std::max<Index>(t, 1);
  if (t <= warmup) return lr * double(t) / double(warmup);
  if (kind == ScheduleKind::constant) return lr;
  if (kind == ScheduleKind::inverse_sqrt)
    return std::max(min_lr, lr * std::sqrt(double(std::max<Index>(warmup, 1)) / double(t)));
  if (t >= steps) return min_lr;
  const double part = double(t - warmup) / double(steps - warmup);
  return min_lr + 0.5 * (lr - min_lr) * (1 + std::cos(std::numbers::pi * part));
}

}  // namespace flexformer
