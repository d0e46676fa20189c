// generate: continues prompts with a trained language model, printing as it goes.
#include <deque>
#include <iostream>
#include <sstream>

#include "train/models/generation.h"
#include "train/models/language_run.h"
#include "train/util/files.h"
#include "train/util/program.h"
#include "train/util/text_encoding.h"
#include "train/util/utf8.h"
#include "train/util/whole_characters.h"

namespace flexformer {
namespace {

// Texts that are decoded side by side: products then are as fast as they get, and the states of as many fit.
constexpr std::size_t kTogether = 64;

// Writes text as it comes, in whole characters, but never a part of `stop`: what might be its beginning is held back
// until it is not.
class Stream {
 public:
  Stream(std::ostream& out, std::string stop) : out_(out), stop_(std::move(stop)) {}

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
    show(std::string_view(held_).substr(0, safe));
    held_.erase(0, found == std::string::npos ? safe : std::string::npos);
    return found == std::string::npos;
  }
  // Text that is no part of what may be stopped at.
  void show(std::string_view text) { out_ << characters_.add(text) << std::flush; }
  void finish() {
    show(std::exchange(held_, ""));
    out_ << std::endl;
  }

 private:
  std::ostream& out_;
  std::string stop_, held_;
  WholeCharacters characters_;
};

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt,
                                        const std::string& where) {
  std::vector<std::int32_t> ids;
  try {
    ids = tokenizer.encode(prompt);
  } catch (const Error& error) {  // of the char tokenizer alone
    std::string known;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) known += tokenizer.token(id);
    fail(where, ": ", error.what(), "; this model knows ", quote(known, 200));
  }
  if (tokenizer.mostly_unknown(ids))
    std::cerr << "warning: most words of " << (where == "prompt" ? "the prompt" : where)
              << " are unknown to this model, which reads them as <unk>" << std::endl;
  return ids;
}

// The prompts: that of the command line, or one for each line of the file.
std::vector<std::string> prompts_of(const Options& options) {
  const std::string& path = options.text("prompts");
  if (path.empty()) return {options.text("prompt")};
  if (options.given("prompt")) throw UsageError("prompt and prompts exclude each other; give one of them");
  std::string text = read_text_file(path);
  settle_line_ends(text);
  std::istringstream file(std::move(text));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  if (lines.empty()) fail(path, ": holds no prompt; write one on each line");
  return lines;
}

// What all texts of a run have in common, and their figures.
struct Run {
  const Options& options;
  const Tokenizer& tokenizer;
  Decoder& decoder;
  SamplingOptions sampling;
  Index prompt_tokens = 0, made = 0, state_bytes = 0;
  double prompt_seconds = 0, seconds = 0;
};

class Text {
 public:
  Text(Run& run, const std::string& prompt, const std::string& where, std::ostream* out)
      : stream_(out ? *out : held_, run.options.text("stop")),
        generator_(run.decoder, run.sampling, std::uint64_t(run.options.integer("seed"))) {
    std::vector<std::int32_t> ids = encode_prompt(run.tokenizer, prompt, where);
    if (!ids.empty()) {
      stream_.show(prompt);
      previous_ = ids.back();
    } else {
      ids.push_back(run.tokenizer.start_id());
    }
    generator_.feed(ids);
    run.prompt_tokens += Index(ids.size());
    open_ = run.options.integer("tokens") > 0;
  }

  bool open() const { return open_; }
  Generator& generator() { return generator_; }
  std::string held() const { return held_.str(); }

  void add(Run& run, std::int32_t id) {
    ++run.made;
    open_ = stream_.add(run.tokenizer.decode_next(previous_, id)) && ++made_ < run.options.integer("tokens");
    previous_ = id;
  }
  void finish(Run& run) {
    stream_.finish();
    run.state_bytes += generator_.state_bytes();
  }

 private:
  std::ostringstream held_;  // of a text that is printed when it is whole
  Stream stream_;
  Generator generator_;
  std::int32_t previous_ = -1;
  Index made_ = 0;
  bool open_;
};

// Continues texts side by side until each has its tokens or its stop text.
void continue_all(Run& run, std::deque<Text>& texts) {
  for (;;) {
    std::vector<Text*> open;
    std::vector<Generator*> generators;
    for (Text& text : texts)
      if (text.open()) {
        open.push_back(&text);
        generators.push_back(&text.generator());
      }
    if (open.empty() || stop_signal()) break;
    const std::vector<std::int32_t> ids = Generator::next(generators);
    for (std::size_t i = 0; i < ids.size(); ++i) open[i]->add(run, ids[i]);
  }
  for (Text& text : texts) text.finish(run);
}

WeightFormat weights_of(const Options& options) {
  const std::string& name = options.text("weights");
  return weight_format_from(name != "auto" ? name : options.text("precision"));
}

int generate(Options& options) {
  const Device device = use_machine_options(options);
  const std::vector<std::string> prompts = prompts_of(options);
  const RunFolder folder = RunFolder::for_use(options.text("run"), "train_lm");
  SavedLanguageModel saved(folder, device);
  const WeightFormat format = weights_of(options);
  Decoder decoder(*saved.model, format);
  saved.model.reset();  // what the decoder does not share with it
  memory::trim(device);
  Run run{options,
          *saved.tokenizer,
          decoder,
          {options.real("temperature"), options.integer("top_k"), options.real("top_p")}};
  watch_stop_signals();
  const bool numbered = options.given("prompts");
  for (std::size_t first = 0; first < prompts.size() && !stop_signal(); first += kTogether) {
    std::deque<Text> texts;
    const Stopwatch reading;
    for (std::size_t i = first; i < std::min(prompts.size(), first + kTogether) && !stop_signal(); ++i)
      texts.emplace_back(run, prompts[i], numbered ? text(options.text("prompts"), ":", i + 1) : "prompt",
                         numbered ? nullptr : &std::cout);
    run.prompt_seconds += reading.seconds();
    const Stopwatch writing;
    continue_all(run, texts);
    run.seconds += writing.seconds();
    for (std::size_t i = 0; numbered && i < texts.size(); ++i)
      std::cout << "=== prompt " << first + i + 1 << "\n" << texts[i].held() << std::flush;
  }
  if (options.flag("stats")) {
    const std::string why = why_on_cpu(options);
    constexpr const char* names[] = {"f32", "bf16", "int8"};
    std::cerr << text(run.made, " tokens, ", fixed(double(run.made) / std::max(run.seconds, 1e-9), 1),
                      " tokens/s, state ", run.state_bytes, " bytes, weights ", decoder.weight_bytes(), " bytes (",
                      names[int(format)], "), prompt ", run.prompt_tokens, " tokens, ",
                      fixed(double(run.prompt_tokens) / std::max(run.prompt_seconds, 1e-9), 1), " tokens/s",
                      why.empty() ? "" : ", " + why)
              << std::endl;
  }
  return stop_signal() ? 128 + stop_signal() : 0;
}

}  // namespace
}  // namespace flexformer

int main(int argc, char** argv) {
  flexformer::Options options("generate", "Continues prompts with a trained language model.");
  options.add_path("run", "", "run folder of train_lm; empty: the newest under runs/");
  options.add_text("prompt", "", "text to continue; empty: start afresh");
  options.add_path("prompts", "",
                   "file with a prompt on each line, continued side by side; each text, behind a line '=== prompt N', "
                   "is the one that prompt=LINE gives with the same options and seed");
  options.add_integer("tokens", 200, {.unit = "tokens", .help = "how many to generate (for each prompt)"});
  options.add_real("temperature", 0.8, {.help = "below 1: more probable text; 0: always the most probable token"});
  options.add_integer("top_k", 0, {.help = "draw from the k most probable tokens only; 0: from all"});
  options.add_real(
      "top_p", 1,
      {.max = 1, .above = true, .help = "draw from the most probable tokens that reach this probability together"});
  options.add_text("stop", "", "end before this text");
  options.add_integer("seed", 1, {.max = 9.0e15, .help = "the same seed gives the same text"});
  options.add_choice("weights", "auto", {"auto", "f32", "bf16", "int8"},
                     "how weights are kept: fewer bits are read faster; auto: as precision says. 'train_lm --eval "
                     "--weights=int8' shows what it costs");
  options.add_flag("stats", false, "print speeds and the sizes of states and weights at the end, on stderr");
  flexformer::add_machine_options(options);
  return flexformer::run_program(options, argc, argv, flexformer::generate);
}
