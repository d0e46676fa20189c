// Every value takes the same road, wherever it comes from: text or JSON -> Value of the key's type -> limits.
#include "train/util/config.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "train/util/files.h"
#include "train/util/utf8.h"

namespace flexformer {
namespace {

constexpr const char* command_line = "command line";

template <class... Parts> [[noreturn]] void usage_error(const Parts&... parts) { throw UsageError(text(parts...)); }

// A whole number or a real that takes up all of `word`; from_chars knows no locale.
template <class Number> std::optional<Number> parse_number(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) return {};
  return number;
}

template <class Number> std::string number_text(Number number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

std::string limit_text(const Key& key, double limit) {
  return key.type == KeyType::integer ? number_text(static_cast<std::int64_t>(limit)) : number_text(limit);
}

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : between) + word;
  return joined;
}

std::string range_text(const Key& key) {
  const Limits& limits = key.limits;
  return (limits.above ? "above " : "from ") + limit_text(key, limits.min) + (limits.below ? " to below " : " to ") +
         limit_text(key, limits.max);
}

std::string expectation(const Key& key) {
  const std::string unit = key.limits.unit.empty() ? "" : " (" + key.limits.unit + ")";
  switch (key.type) {
    case KeyType::boolean:
      return "true or false";
    case KeyType::integer:
      return "a whole number " + range_text(key) + unit;
    case KeyType::real:
      return "a number " + range_text(key) + unit;
    case KeyType::text:
      return "text in quotes";
    case KeyType::choice:
      return "one of " + join(key.choices, ", ");
  }
  return {};
}

[[noreturn]] void reject_value(const Key& key, const std::string& shown, const std::string& source) {
  const std::string hint = key.type == KeyType::choice ? "; the nearest is " + nearest(shown, key.choices) : "";
  usage_error(source, ": ", key.name, " = ", quote(shown), " is not allowed; it takes ", expectation(key), hint);
}

std::optional<Value> from_text(const Key& key, const std::string& word) {
  if (key.type == KeyType::text || key.type == KeyType::choice) return word;
  if (key.type == KeyType::boolean)
    return word == "true" || word == "false" ? std::optional<Value>(word == "true") : std::nullopt;
  if (key.type == KeyType::integer) {
    const auto number = parse_number<std::int64_t>(word);
    return number ? std::optional<Value>(*number) : std::nullopt;
  }
  const auto number = parse_number<double>(word);
  return number ? std::optional<Value>(*number) : std::nullopt;
}

std::optional<Value> from_json(const Key& key, const Json& json) {
  if (key.type == KeyType::boolean && json.is_boolean()) return json.get<bool>();
  if (key.type == KeyType::real && json.is_number()) return json.get<double>();
  // An unsigned number beyond 2^63 would wrap to a negative one; no key allows so much.
  const bool too_large = json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX;
  if (key.type == KeyType::integer && json.is_number_integer() && !too_large) return json.get<std::int64_t>();
  const bool is_word = key.type == KeyType::text || key.type == KeyType::choice;
  if (is_word && json.is_string()) return json.get<std::string>();
  return {};
}

bool within_limits(const Key& key, const Value& value) {
  if (value.index() != key.default_value.index()) return false;
  if (key.type == KeyType::choice)
    return std::ranges::find(key.choices, std::get<std::string>(value)) != key.choices.end();
  if (key.type != KeyType::integer && key.type != KeyType::real) return true;
  const Limits& limits = key.limits;
  const double number =
      key.type == KeyType::integer ? static_cast<double>(std::get<std::int64_t>(value)) : std::get<double>(value);
  const bool enough = limits.above ? number > limits.min : number >= limits.min;  // false for NaN
  const bool not_too_much = limits.below ? number < limits.max : number <= limits.max;
  return enough && not_too_much && std::isfinite(number);
}

// "--key=value" -> {key, value}. One dash is no option of ours: it stays in the name, which is then unknown.
std::pair<std::string, std::optional<std::string>> split_option(const std::string& word) {
  const std::size_t start = word.starts_with("--") ? 2 : 0;
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {word.substr(start), std::nullopt};
  return {word.substr(start, equals - start), word.substr(equals + 1)};
}

// "~/runs" -> "/home/me/runs". A name that is no user's stays as it is: files may be called so.
std::string expand_home(const std::string& path) {
  if (!path.starts_with("~")) return path;
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string user = path.substr(1, end - 1);
  const char* home = user.empty() ? std::getenv("HOME") : nullptr;
  if (const passwd* entry = home ? nullptr : user.empty() ? getpwuid(getuid()) : getpwnam(user.c_str()))
    home = entry->pw_dir;
  return home ? home + path.substr(end) : path;
}

void assign(Key& key, const std::optional<Value>& value, const std::string& shown, const std::string& source) {
  if (!value || !within_limits(key, *value)) reject_value(key, shown, source);
  key.value = key.path ? expand_home(std::get<std::string>(*value)) : *value;
  key.given = true;
}

}  // namespace

std::string to_text(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return number_text(*whole);
  if (const auto* real = std::get_if<double>(&value)) return number_text(*real);
  return std::get<std::string>(value);
}

Key& Options::declare(const std::string& name, KeyType type, Value default_value, const Limits& limits) {
  if (find(name)) throw std::logic_error("option " + name + " is declared twice");
  keys_.push_back({name, type, default_value, limits, {}, default_value});
  return keys_.back();
}

void Options::add_flag(const std::string& name, bool default_value, const std::string& help) {
  declare(name, KeyType::boolean, default_value, {.help = help});
}

void Options::add_integer(const std::string& name, std::int64_t default_value, const Limits& limits) {
  declare(name, KeyType::integer, default_value, limits);
}

void Options::add_real(const std::string& name, double default_value, const Limits& limits) {
  declare(name, KeyType::real, default_value, limits);
}

void Options::add_text(const std::string& name, const std::string& default_value, const std::string& help) {
  declare(name, KeyType::text, default_value, {.help = help});
}

void Options::add_path(const std::string& name, const std::string& default_value, const std::string& help) {
  declare(name, KeyType::text, default_value, {.help = help}).path = true;
}

void Options::add_choice(const std::string& name, const std::string& default_value, std::vector<std::string> choices,
                         const std::string& help) {
  declare(name, KeyType::choice, default_value, {.help = help}).choices = std::move(choices);
}

Key* Options::find(std::string_view name) {
  const auto found = std::ranges::find(keys_, name, &Key::name);
  return found == keys_.end() ? nullptr : &*found;
}

bool Options::has(std::string_view name) const { return std::ranges::find(keys_, name, &Key::name) != keys_.end(); }

const Key& Options::key(std::string_view name) const {
  const auto found = std::ranges::find(keys_, name, &Key::name);
  if (found == keys_.end()) throw std::logic_error("option " + std::string(name) + " is not declared");
  return *found;
}

const Key& Options::key(std::string_view name, KeyType type) const {
  const Key& found = key(name);
  const bool both_words = type == KeyType::text && found.type == KeyType::choice;
  if (found.type != type && !both_words) throw std::logic_error("option " + found.name + " has another type");
  return found;
}

bool Options::flag(std::string_view name) const { return std::get<bool>(key(name, KeyType::boolean).value); }

std::int64_t Options::integer(std::string_view name) const {
  return std::get<std::int64_t>(key(name, KeyType::integer).value);
}

double Options::real(std::string_view name) const { return std::get<double>(key(name, KeyType::real).value); }

const std::string& Options::text(std::string_view name) const {
  return std::get<std::string>(key(name, KeyType::text).value);
}

void Options::set(std::string_view name, const Value& value) {
  Key& found = const_cast<Key&>(key(name));
  const bool given = found.given;
  assign(found, value, to_text(value), program_);
  found.given = given;
}

bool Options::is_section(std::string_view name) const {
  return std::ranges::any_of(keys_, [&](const Key& key) { return key.name.starts_with(std::string(name) + "."); });
}

void Options::reject_unknown(const std::string& name, const std::string& shown, const std::string& source) const {
  std::vector<std::string> names;
  for (const Key& key : keys_) names.push_back(key.name);
  const std::string value = shown.empty() ? "" : " (value " + quote(shown) + ")";
  usage_error(source, ": unknown key ", quote(name), value, "; the nearest key is ", nearest(name, names),
              "; --help lists all keys");
}

Request Options::parse(int argc, const char* const* argv) {
  return parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

Request Options::parse(const std::vector<std::string>& arguments) {
  if (std::ranges::any_of(arguments, [](const std::string& word) { return word == "--help" || word == "-h"; }))
    return Request::help;
  Request request = Request::run;
  std::vector<std::pair<Key*, std::string>> assignments;
  std::vector<std::string> config_files;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    if (*word == "--version") return Request::version;
    if (*word == "--print-config") {
      request = Request::print_config;
      continue;
    }
    if (!word->starts_with("-") || *word == "-") {
      if (positional_name_.empty())
        usage_error(command_line, ": ", quote(*word), " is no option; options are written --key=value");
      positional_.push_back(*word);
      continue;
    }
    auto [name, value] = split_option(*word);
    Key* const key = find(name);
    if (!key && name != "config") reject_unknown(name, value.value_or(""), command_line);
    const bool has_next = std::next(word) != arguments.end() && !std::next(word)->starts_with("--");
    if (!value && key && key->type == KeyType::boolean) {
      const bool takes_next = has_next && (*std::next(word) == "true" || *std::next(word) == "false");
      value = takes_next ? *++word : "true";
    } else if (!value && has_next) {
      value = *++word;
    }
    if (!value)
      usage_error(command_line, ": --", name, " needs a value: --", name, "=", key ? expectation(*key) : "FILE");
    if (key) assignments.emplace_back(key, *value);
    if (!key) config_files.push_back(*value);
  }
  for (const std::string& path : config_files) load_config_file(expand_home(path));
  for (const auto& [key, value] : assignments) assign(*key, from_text(*key, value), value, command_line);
  return request;
}

void Options::load_config_file(const std::string& path) {
  try {
    load_config(read_json(path), path);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    usage_error("--config: ", error.what());
  }
}

void Options::load_config(const Json& config, const std::string& source) {
  if (!config.is_object())
    usage_error(source, ": a config is an object {\"key\": value, ...}, this is ", config.is_null() ? "null" : "an ",
                config.is_null() ? "" : config.type_name());
  std::vector<std::string> seen;
  load_section(config, "", source, seen);
}

void Options::load_section(const Json& section, const std::string& prefix, const std::string& source,
                           std::vector<std::string>& seen) {
  for (const auto& [part, json] : section.items()) {
    const std::string name = prefix + part;
    const auto shown = [&json = json] { return dump_json(json); };
    if (name == "format_version") {
      if (json != config_format_version)
        usage_error(source, ": format_version ", quote(shown()), " is not known; this program reads ",
                    config_format_version);
    } else if (name == "program") {
      if (json != program_) usage_error(source, ": this is a config of ", quote(shown()), ", not of ", program_);
    } else if (Key* const key = find(name)) {
      if (std::ranges::find(seen, name) != seen.end()) usage_error(source, ": ", name, " is given twice");
      seen.push_back(name);
      const std::optional<Value> value = from_json(*key, json);
      assign(*key, value, value && json.is_string() ? json.get<std::string>() : shown(), source);
    } else if (json.is_object() && (is_section(name) || !json.empty())) {
      load_section(json, name + ".", source, seen);
    } else if (is_section(name)) {
      usage_error(source, ": ", name, " is a section, it needs an object {...} of keys, not ", quote(shown()));
    } else {
      reject_unknown(name, shown(), source);
    }
  }
}

Json Options::effective() const {
  Json config;
  config["format_version"] = config_format_version;
  for (const Key& key : keys_) {
    Json* node = &config;
    std::size_t start = 0;
    for (std::size_t dot; (dot = key.name.find('.', start)) != std::string::npos; start = dot + 1)
      node = &(*node)[key.name.substr(start, dot - start)];
    std::visit([&](const auto& value) { (*node)[key.name.substr(start)] = value; }, key.value);
  }
  return config;
}

void Options::load_effective(const Json& config, const std::string& source) {
  for (Key& key : keys_) key.value = key.default_value;
  json_member(config, "format_version", source);
  load_config(config, source);
  for (Key& key : keys_) key.given = false;
}

}  // namespace flexformer
