// generate: continues a prompt with a trained language model, printing as it goes.
#include <iostream>

#include "train/models/generation.h"
#include "train/models/language_run.h"
#include "train/util/program.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

// Prints text as it comes, but never a part of `stop`: what might be its beginning is held back until it is not.
class Stream {
 public:
  explicit Stream(std::string stop) : stop_(std::move(stop)) {}

  // Returns false once the stop text has appeared.
  bool add(const std::string& piece) {
    held_ += piece;
    const std::size_t found = stop_.empty() ? std::string::npos : held_.find(stop_);
    std::size_t safe = found;
    if (found == std::string::npos) {
      safe = held_.size();
      for (std::size_t tail = std::min(held_.size(), stop_.size()); tail > 0; --tail)
        if (stop_.compare(0, tail, held_, held_.size() - tail, tail) == 0) {
          safe = held_.size() - tail;
          break;
        }
    }
    std::cout << held_.substr(0, safe) << std::flush;
    held_.erase(0, found == std::string::npos ? safe : std::string::npos);
    return found == std::string::npos;
  }
  void finish() { std::cout << std::exchange(held_, "") << std::endl; }

 private:
  std::string stop_, held_;
};

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> ids;
  try {
    ids = tokenizer.encode(prompt);
  } catch (const Error& error) {  // of the char tokenizer alone
    std::string known;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) known += tokenizer.token(id);
    fail("prompt: ", error.what(), "; this model knows ", quote(known, 200));
  }
  if (tokenizer.mostly_unknown(ids))
    std::cerr << "warning: most words of the prompt are unknown to this model, which reads them as <unk>" << std::endl;
  return ids;
}

int generate(Options& options) {
  const Device device = use_machine_options(options);
  const RunFolder folder = RunFolder::for_use(options.text("run"), "train_lm");
  const SavedLanguageModel saved(folder, device);
  const Tokenizer& tokenizer = *saved.tokenizer;
  const SamplingOptions sampling{options.real("temperature"), options.integer("top_k"), options.real("top_p")};
  std::vector<std::int32_t> prompt = encode_prompt(tokenizer, options.text("prompt"));
  if (!prompt.empty()) std::cout << options.text("prompt") << std::flush;
  const bool no_prompt = prompt.empty();
  if (no_prompt) prompt.push_back(tokenizer.start_id());

  Generator generator(*saved.model, sampling, std::uint64_t(options.integer("seed")));
  for (std::int32_t id : prompt) generator.feed(id);
  watch_stop_signals();
  Stream stream(options.text("stop"));
  const Stopwatch watch;
  std::int32_t previous = no_prompt ? -1 : prompt.back();
  Index made = 0;
  while (made < options.integer("tokens") && !stop_signal()) {
    const std::int32_t id = generator.next();
    ++made;
    if (!stream.add(tokenizer.decode_next(previous, id))) break;
    previous = id;
  }
  const double seconds = watch.seconds();
  stream.finish();
  if (options.flag("stats")) {
    const std::string why = why_on_cpu(options);
    std::cerr << text(made, " tokens, ", fixed(double(made) / std::max(seconds, 1e-9), 1), " tokens/s, state ",
                      generator.state_bytes(), " bytes", why.empty() ? "" : ", " + why)
              << std::endl;
  }
  return stop_signal() ? 128 + stop_signal() : 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("generate", "Continues a prompt with a trained language model.");
  options.add_path("run", "", "run folder of train_lm; empty: the newest under runs/");
  options.add_text("prompt", "", "text to continue; empty: start afresh");
  options.add_integer("tokens", 200, {.unit = "tokens", .help = "how many to generate"});
  options.add_real("temperature", 0.8, {.help = "below 1: more probable text; 0: always the most probable token"});
  options.add_integer("top_k", 0, {.help = "draw from the k most probable tokens only; 0: from all"});
  options.add_real(
      "top_p", 1,
      {.max = 1, .above = true, .help = "draw from the most probable tokens that reach this probability together"});
  options.add_text("stop", "", "end before this text");
  options.add_integer("seed", 1, {.max = 9.0e15, .help = "the same seed gives the same text"});
  options.add_flag("stats", false, "print speed and state size at the end, on stderr");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::generate);
}
