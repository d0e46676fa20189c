// JSON in and out, strictly in and safely out: errors name file, line and column; what is written is always valid JSON,
// also for numbers that are not finite and for bytes that are not UTF-8.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace flexformer {

using Json = nlohmann::ordered_json;  // keeps the order of keys

// Parses JSON; // and /* */ comments and a byte order mark are skipped. Throws Error "source:line:column: reason" for
// anything else that strict JSON forbids, a key given twice, and numbers too large for a double.
// first_line: of the text in the file that it was cut out of.
Json parse_json(std::string_view text, const std::string& source, std::int64_t first_line = 1);
Json read_json(const std::filesystem::path& path);

// indent < 0: one line. Non-finite numbers become the strings of json_number(); stray bytes become U+FFFD.
std::string dump_json(const Json& json, int indent = -1);
void write_json_atomic(const std::filesystem::path& path, const Json& json);

// A number, or "nan", "inf", "-inf" (JSON has no such numbers, and null could not be read back).
Json json_number(double value);
// The inverse. Throws Error "source: ..." if `json` is neither.
double number_from_json(const Json& json, const std::string& source);

// Any bytes: a string where they are UTF-8, else an array of byte values. So tokens and labels survive a round trip.
Json json_bytes(std::string_view bytes);
std::string bytes_from_json(const Json& json, const std::string& source);

// object[key], as the type T. Throws Error "source: ..." if `object` is no object, lacks the key, or holds another
// type.
const Json& json_member(const Json& object, const char* key, const std::string& source);
template <class T> T json_get(const Json& object, const char* key, const std::string& source);

}  // namespace flexformer
