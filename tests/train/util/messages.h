// What tests ask of messages.
#pragma once
#include <exception>
#include <string>

namespace flexformer::tests {

inline bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

// The message of what is thrown, or "no error".
template <class Function> std::string message_of(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace flexformer::tests
