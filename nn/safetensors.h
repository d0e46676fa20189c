// The safetensors file format: 8 bytes (little-endian) length of a JSON header, the header, the elements.
//   {"__metadata__": {..strings..}, "NAME": {"dtype": "F32", "shape": [2,3], "data_offsets": [begin, end]}, ...}
// A file's bytes follow from its contents alone. A file that is read may be damaged or hostile: every number in it is
// checked against the file's size before it is used.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nn/module.h"

namespace flexformer {

struct SafetensorsFile {
  NamedTensors tensors;                         // in the order of their elements in the file
  std::map<std::string, std::string> metadata;  // without the checksum
};

// A tensor that a file holds, but that cannot be read here; its type, as "I64", and why.
struct UnreadTensor {
  std::string name, type, reason;
};

// The bytes of a file: tensors f32 or i32, elements in the order given, and a checksum of the elements in the
// metadata. Throws Error for a name that comes twice and for text that is not UTF-8.
std::string write_safetensors(const SafetensorsFile& file);

// Throws Error, starting with `source`, for anything that is not a sound file, and if there is a checksum that does not
// fit the elements. F16, BF16 and F64 elements become f32. A sound tensor of another type, or of too many axes, throws
// Error too, or joins `unread` where that is given.
SafetensorsFile read_safetensors(std::string_view bytes, const std::string& source,
                                 std::vector<UnreadTensor>* unread = nullptr);

struct TensorSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

// The stored tensors of these names, in the order of `needed`. Throws Error, starting with `source` and listing all
// that is missing, too many or of another shape or type on either side.
std::vector<Tensor> match_tensors(const std::vector<TensorSpec>& needed, const NamedTensors& stored,
                                  const std::string& source);

// Copies `stored` into the memory of `targets`, by name. Throws Error as match_tensors() does before anything is
// copied.
void load_tensors(const NamedTensors& targets, const NamedTensors& stored, const std::string& source);

}  // namespace flexformer
