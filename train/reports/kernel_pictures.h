// The section of a run's report about its attention: what kernels were and became, and who attends to whom in a text.
#pragma once
#include <string>

#include "train/reports/kernel_view.h"

namespace flexformer {

struct KernelReading {
  const Transformer &model, &start;  // of the same shape: trained, and as the seed made it
  std::vector<LayerSight> sights;    // of the model's layers; maps are drawn of the first text of the batch
  std::string text;                  // that first text
  std::string note;                  // what else is to be known, such as another start than the seed's; or ""
};

// HTML that stands by itself.
std::string kernels_html(const KernelReading& reading);

}  // namespace flexformer
