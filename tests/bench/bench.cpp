// bench: how fast the parts are on this machine, as tables and as JSON; or one measurement by name (--case), which is
// how tests/bench/bench_peers.py compares it with others.
#include <charconv>
#include <iostream>
#include <optional>

#include "tensor/parallel.h"
#include "tests/bench/bench_attention.h"
#include "tests/bench/bench_machine.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/bench_products.h"
#include "train/util/program.h"

namespace flexformer::bench {
namespace {

struct Section {
  const char* name;
  Json (*run)(Console&);
};
constexpr Section sections[] = {{"machine", machine}, {"products", products},   {"steps", steps},
                                {"encoder", encoder}, {"attention", attention}, {"decode", decode}};

std::string section_names() {
  std::string names;
  for (const Section& section : sections) names += (names.empty() ? "" : ", ") + std::string(section.name);
  return names;
}

std::vector<std::string> split(std::string_view words, char separator) {
  std::vector<std::string> parts;
  for (std::size_t end = 0; end != words.npos; words.remove_prefix(std::min(words.size(), end + 1))) {
    end = words.find(separator);
    parts.emplace_back(words.substr(0, end));
  }
  return parts;
}

// A whole number of at least 1, else 0.
Index size_from(std::string_view word) {
  Index size = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
  return error == std::errc() && end == word.data() + word.size() && size <= Index(1) << 24 ? std::max<Index>(0, size)
                                                                                            : 0;
}

const AttentionKind* kind_from(const std::string& name) {
  for (const AttentionKind& kind : attention_kinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

std::optional<Product> product_from(const std::string& shape, const std::string& layout, const std::string& batch) {
  const auto sizes = split(shape, 'x');
  if (sizes.size() != 3) return {};
  const Index M = size_from(sizes[0]), N = size_from(sizes[1]), K = size_from(sizes[2]), count = size_from(batch);
  if (M == 0 || N == 0 || K == 0 || count == 0) return {};
  for (const Layout each : {Layout::NN, Layout::NT, Layout::TN})
    if (layout == name_of(each)) return Product{M, N, K, each, count};
  return {};
}

std::optional<Case> find_case(const std::string& name) {
  const auto parts = split(name, ':');
  const auto is = [&](const char* what, std::size_t count) { return parts[0] == what && parts.size() == count; };
  if (is("product", 4)) {
    const auto product = product_from(parts[1], parts[2], parts[3]);
    return product ? std::optional(product_case(*product)) : std::nullopt;
  }
  if (is("step", 3)) {
    const AttentionKind* kind = kind_from(parts[2]);
    for (const LanguageShape& shape : language_shapes)
      if (kind && parts[1] == shape.name) return step_case(shape, *kind);
    if (kind && parts[1] == gpt2_shape.name) return step_case(gpt2_shape, *kind);
  }
  if (is("encoder", 3) || is("decode", 3)) {
    const AttentionKind* kind = kind_from(parts[1]);
    const Index N = size_from(parts[2]);
    if (kind && N > 0) return parts[0] == "encoder" ? encoder_case(*kind, N) : decode_case(*kind, N);
  }
  if (is("attention", 4) && (parts[1] == "full" || parts[1] == "causal")) {
    const AttentionKind* kind = kind_from(parts[2]);
    const Index N = size_from(parts[3]);
    if (kind && N > 0) return attention_case(*kind, small_layer(N), N, parts[1] == "causal");
  }
  if (is("gpt2_attention", 3)) {
    const AttentionKind* kind = kind_from(parts[1]);
    const Index N = size_from(parts[2]);
    if (kind && N > 0) return attention_case(*kind, gpt2_layer, N, true);
  }
  return {};
}

[[noreturn]] void no_such_case(const std::string& name) {
  std::string kinds;
  for (const std::string& kind : attention_kind_names()) kinds += (kinds.empty() ? "" : "|") + kind;
  throw UsageError(text(
      "there is no case '", name, "'; there are product:MxNxK:NN|NT|TN:BATCH, step:small|big|gpt2:KIND, ",
      "encoder:KIND:N, attention:full|causal:KIND:N, gpt2_attention:KIND:N and decode:KIND:CONTEXT, where KIND is ",
      kinds));
}

int run_case(const Options& options) {
  const std::string& name = options.text("case");
  if (options.given("only")) throw UsageError("case and only exclude each other");
  const auto subject = find_case(name);
  if (!subject) no_such_case(name);
  const Measurement m = measure(*subject, int(options.integer("repeats")));
  std::cout << dump_json({{"case", name}, {"seconds", m.seconds}, {"peak_rss_bytes", peak_rss_bytes()}}) << "\n";
  return 0;
}

std::vector<Section> chosen_sections(const Options& options) {
  if (!options.given("only")) return {std::begin(sections), std::end(sections)};
  std::vector<Section> chosen;
  for (const std::string& name : split(options.text("only"), ',')) {
    const auto found = std::ranges::find_if(sections, [&](const Section& s) { return name == s.name; });
    if (found == std::end(sections))
      throw UsageError(text("only: there is no section '", name, "'; there are ", section_names()));
    chosen.push_back(*found);
  }
  return chosen;
}

int run(Options& options) {
  target = use_machine_options(options);
  if (options.given("case")) return run_case(options);
  if (target != Device::cpu) throw UsageError("the tables are of the CPU; on a GPU give case=NAME, one measurement");
  if (options.given("repeats")) throw UsageError("repeats belongs to case; tables choose their own");
  const std::vector<Section> chosen = chosen_sections(options);
  Console console;
  console.say(text("threads: ", threads(), threads() == 1 ? " (CPU time)" : " (wall-clock time)"));
  Json result;
  result["threads"] = threads();
  for (const Section& section : chosen) result[section.name] = section.run(console);
  write_json_atomic(options.text("out"), result);
  console.say(text("\nwritten to ", options.text("out")));
  return 0;
}

}  // namespace
}  // namespace flexformer::bench

int main(int argc, char** argv) {
  using namespace flexformer;
  Options options("bench", "Measures the speed and memory of products, attention and whole models.");
  options.add_path("out", "bench.json", "file for the figures as JSON");
  options.add_text("only", "", "sections, separated by commas: " + bench::section_names() + "; empty: all");
  options.add_text("case", "", "one measurement instead, printed as a line of JSON; a wrong name lists the right ones");
  options.add_integer("repeats", 5, {.min = 1, .max = 1000, .help = "figures of --case, after one call to warm up"});
  add_machine_options(options);
  options.set("threads", std::int64_t(1));
  options.set("device", std::string("cpu"));
  return run_program(options, argc, argv, bench::run);
}
