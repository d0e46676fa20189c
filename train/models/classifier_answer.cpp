#include "train/models/classifier_answer.h"

#include <algorithm>
#include <cmath>

#include "train/util/log.h"
#include "train/util/utf8.h"

namespace flexformer {

std::vector<double> answer_of(const std::vector<float>& outputs, const LabelMap& labels) {
  std::vector<double> values(outputs.begin(), outputs.end());
  if (labels.is_regression())
    for (std::size_t k = 0; k < values.size(); ++k) {
      const LabelMap::Value& unit = labels.value(std::int64_t(k));
      values[k] = unit.mean + unit.deviation * values[k];
    }
  if (labels.kind() == LabelMap::tags)
    for (double& value : values) value = 1 / (1 + std::exp(-value));
  if (!labels.has_classes()) return values;
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
  return values;
}

std::string answer_line(const std::vector<double>& values, const LabelMap& labels, bool json) {
  const auto best = std::ranges::max_element(values) - values.begin();
  Json all = Json::object(), given = Json::array();
  std::string names, numbers;
  for (std::int64_t k = 0; k < labels.size(); ++k) {
    const std::string name = printable(labels.name(k)), number = fixed(values[std::size_t(k)], 4);
    all[name] = values[std::size_t(k)];
    if (labels.kind() == LabelMap::tags && values[std::size_t(k)] < 0.5) continue;
    given.push_back(name);
    names += (names.empty() ? "" : ",") + name;
    numbers += (numbers.empty() ? "" : ",") + number;
  }
  Json line = {{"task", labels.task()}};
  switch (labels.kind()) {
    case LabelMap::number:
      line["value"] = values[0];
      return json ? dump_json(line) : fixed(values[0], 4);
    case LabelMap::values:
      line["values"] = all;
      return json ? dump_json(line) : numbers;
    case LabelMap::tags:
      line["labels"] = given;
      line["all"] = all;
      return json            ? dump_json(line)
             : names.empty() ? "(none)\t" + fixed(values[std::size_t(best)], 4)
                             : names + "\t" + numbers;
    default:
      break;
  }
  line["label"] = printable(labels.name(best));
  line["probability"] = values[std::size_t(best)];
  line["all"] = all;
  return json ? dump_json(line) : labels.name(best) + "\t" + fixed(values[std::size_t(best)], 4);
}

}  // namespace flexformer
