// Options of a program. Each key is declared once, with type, default, limits and meaning; the command line, the JSON
// config, --help, --print-config and a run's config.json all follow from that one declaration.
//
//   Options options("train_lm", "trains a language model on a text file");
//   options.add_integer("train.steps", 1000, {.min = 0, .unit = "steps", .help = "optimiser steps"});
//   options.parse(argc, argv);
//   options.integer("train.steps");
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/error.h"
#include "train/util/json_file.h"

namespace flexformer {

inline constexpr const char* program_version = "0.1.0";
inline constexpr std::int64_t config_format_version = 1;

// A mistake in the command line or the configuration: programs leave with status 2.
struct UsageError : Error {
  using Error::Error;
};

enum class KeyType { boolean, integer, real, text, choice };
using Value = std::variant<bool, std::int64_t, double, std::string>;  // choice and text are both strings

// What a key allows, and what --help says about it. min and max are allowed themselves unless `above`/`below` is set;
// the defaults refuse negative numbers and sizes no machine has.
struct Limits {
  double min = 0;
  double max = 1e9;
  bool above = false;  // must be greater than min
  bool below = false;  // must be less than max
  std::string unit = {};
  std::string help = {};
};

struct Key {
  std::string name;  // "section.name", or "name"
  KeyType type;
  Value default_value;
  Limits limits;
  std::vector<std::string> choices;  // of a choice

  Value value;
  bool given = false;  // set by the user, in a file or on the command line
  bool path = false;   // a text that names a file or folder
};

enum class Request { run, help, version, print_config };

class Options {
 public:
  Options(std::string program, std::string summary) : program_(std::move(program)), summary_(std::move(summary)) {}

  // Declarations, in the order of --help. Declaring a key twice is a std::logic_error.
  void add_flag(const std::string& name, bool default_value, const std::string& help);
  void add_integer(const std::string& name, std::int64_t default_value, const Limits& limits);
  void add_real(const std::string& name, double default_value, const Limits& limits);
  void add_text(const std::string& name, const std::string& default_value, const std::string& help);
  // A text that names a file or folder: a `~` at its beginning, which a shell leaves alone behind --key=, stands for the
  // user's home, `~name` for that of another.
  void add_path(const std::string& name, const std::string& default_value, const std::string& help);
  void add_choice(const std::string& name, const std::string& default_value, std::vector<std::string> choices,
                  const std::string& help);
  // Without this, an argument that is no option is an error. `name` is shown in the usage line.
  void allow_positional(const std::string& name) { positional_name_ = name; }

  // Reads --key=value, --key value, --flag, --config=FILE, --help (-h), --version, --print-config.
  //  - The command line wins over the files, in whatever order they stand. Of two equal keys on the command line the
  //    last wins, and of several --config files the last that has the key (so a script can append an override).
  //  - `--flag true|false` takes the next argument; before anything else, a bare --flag means true. A next argument
  //    that starts with "--" is never taken for a value: write --prompt=--x.
  //  - --help wins over every other argument, wrong ones included.
  // Throws UsageError: unknown key, wrong type, outside the limits, missing value, a config file that is not usable.
  Request parse(int argc, const char* const* argv);
  Request parse(const std::vector<std::string>& arguments);
  // Sets keys from a config object: nested sections, dotted keys, or both. "format_version" and "program" may
  // stand at the top, as in the config.json of a run.
  void load_config(const Json& config, const std::string& source);

  // Values. An undeclared key or another type is a std::logic_error: a mistake in the program.
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;  // of text and choice keys
  const Value& value(std::string_view name) const { return key(name).value; }
  bool given(std::string_view name) const { return key(name).given; }
  bool has(std::string_view name) const;
  const std::vector<Key>& keys() const { return keys_; }
  const std::vector<std::string>& positional() const { return positional_; }

  // Lets a program settle a value itself (what "0 = all" came to, a stored value on resume). Same checks as for users;
  // given() stays as it was.
  void set(std::string_view name, const Value& value);

  // Every key with its value, nested by section, with "format_version" first.
  Json effective() const;
  // The inverse: defaults first, then `config`; afterwards given() is false for every key. A key that the file lacks
  // keeps its default, so the default of a key added later must mean the old behaviour.
  void load_effective(const Json& config, const std::string& source);

  const std::string& program() const { return program_; }
  std::string help() const;
  std::string version() const;

 private:
  Key& declare(const std::string& name, KeyType type, Value default_value, const Limits& limits);
  const Key& key(std::string_view name) const;
  const Key& key(std::string_view name, KeyType type) const;
  Key* find(std::string_view name);
  bool is_section(std::string_view name) const;
  [[noreturn]] void reject_unknown(const std::string& name, const std::string& shown, const std::string& source) const;
  void load_section(const Json& section, const std::string& prefix, const std::string& source,
                    std::vector<std::string>& seen);
  void load_config_file(const std::string& path);

  std::string program_, summary_, positional_name_;
  std::vector<Key> keys_;
  std::vector<std::string> positional_;
};

// "0.5", "true", "softmax": a value as the command line would spell it.
std::string to_text(const Value& value);

// The candidate nearest to `word` by edit distance, ignoring case; the first of equals. Of dotted names the last part
// alone may match too, so that "layers" and "train.layers" both lead to "model.layers". "" if there are no candidates.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace flexformer
