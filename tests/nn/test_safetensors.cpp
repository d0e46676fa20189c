// safetensors: what is written is read back, and damaged or hostile files are refused with a sentence.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "nn/safetensors.h"

using namespace flexformer;

namespace {

std::string file_of(const std::string& header, const std::string& payload) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + payload;
}

// One tensor "a" with the given fields, over eight bytes of elements.
std::string entry_file(const std::string& fields) { return file_of("{\"a\":{" + fields + "}}", std::string(8, 'x')); }

// The message that a file is refused with; "" if it is not.
std::string refusal(const std::string& bytes) {
  try {
    read_safetensors(bytes, "model.safetensors");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void check_refused(const std::string& bytes, const std::string& part) {
  const std::string message = refusal(bytes);
  INFO("message: " << message);
  CHECK(message.starts_with("model.safetensors: "));
  CHECK(message.find(part) != std::string::npos);
}

SafetensorsFile sample() {
  const float inf = std::numeric_limits<float>::infinity();
  const std::int32_t ints[] = {1, -2, 2147483647};
  return {{{"blocks.0.weight", Tensor::from({2, 3}, {1, -0.0f, 3.5f, inf, 1e-42f, -7})},
           {"steps", Tensor::from_ints({3}, ints)},
           {"scalar", Tensor::from({}, {4})},
           {"nothing", Tensor::empty({0, 5})}},
          {{"program", "train \"lm\"\n\xc3\xa9"}}};
}

}  // namespace

TEST_CASE("tensors and metadata come back as they were written") {
  const std::string bytes = write_safetensors(sample());
  const SafetensorsFile file = read_safetensors(bytes, "x");
  CHECK(file.metadata == sample().metadata);
  REQUIRE(file.tensors.size() == 4);
  for (const NamedTensor& expected : sample().tensors) {
    const NamedTensor* found = nullptr;
    for (const NamedTensor& item : file.tensors)
      if (item.name == expected.name) found = &item;
    REQUIRE(found);
    CHECK(found->tensor.shape() == expected.tensor.shape());
    REQUIRE(found->tensor.dtype() == expected.tensor.dtype());
    const std::size_t size = std::size_t(4 * expected.tensor.numel());
    if (expected.tensor.dtype() == DType::i32)
      CHECK(std::memcmp(found->tensor.ints(), expected.tensor.ints(), size) == 0);
    else
      CHECK(std::memcmp(found->tensor.data(), expected.tensor.data(), size) == 0);
  }
  CHECK(write_safetensors(file) == bytes);
}

TEST_CASE("the same contents give the same bytes, with aligned elements") {
  const std::string bytes = write_safetensors(sample());
  CHECK(bytes == write_safetensors(sample()));
  std::uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(bytes.substr(8, 15) == "{\"__metadata__\"");
}

TEST_CASE("a file without tensors is sound") {
  CHECK(read_safetensors(write_safetensors({}), "x").tensors.empty());
  CHECK(read_safetensors(file_of("{}", ""), "x").tensors.empty());
}

TEST_CASE("half-precision elements are widened exactly") {
  // BF16 1.5 and -inf; F16 1, -2, the smallest subnormal 2^-24, 65504, infinity, NaN.
  const std::string bf16("\xc0\x3f\x80\xff", 4), f16("\x00\x3c\x00\xc0\x01\x00\xff\x7b\x00\x7c\x01\x7e", 12);
  const SafetensorsFile file = read_safetensors(file_of(R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[4,16]},
      "b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                                                        bf16 + f16),
                                                "x");
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].name == "b");
  CHECK(file.tensors[0].tensor.to_vector() == std::vector<float>{1.5f, -std::numeric_limits<float>::infinity()});
  const std::vector<float> h = file.tensors[1].tensor.to_vector();
  CHECK(std::vector<float>(h.begin(), h.end() - 1) ==
        std::vector<float>{1, -2, 0x1p-24f, 65504, std::numeric_limits<float>::infinity()});
  CHECK(h[5] != h[5]);
}

TEST_CASE("tensors of types that cannot be read stop a file only where nobody sets them aside") {
  const std::string bytes = file_of(R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},
      "i":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},"m":{"dtype":"BOOL","shape":[2],"data_offsets":[16,18]},
      "n":{"dtype":"NEW","shape":[9],"data_offsets":[18,19]},
      "r":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[19,23]}})",
                                    std::string("\0\0\0\0\0\0\xf8\x3f", 8) + std::string(15, '\1'));
  std::vector<UnreadTensor> unread;
  const SafetensorsFile file = read_safetensors(bytes, "x", &unread);
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].tensor.to_vector() == std::vector<float>{1.5f});
  REQUIRE(unread.size() == 4);
  CHECK(unread[2].name == "n");
  CHECK(unread[2].reason == "it is of type \"NEW\"; F32, BF16, F16, F64 and I32 can be read");
  CHECK(unread[3].reason == "it has 5 axes; at most 4 can be read");
  check_refused(bytes, "tensor 'i' cannot be used: it is of type");
}

TEST_CASE("a file cut anywhere is refused") {
  const std::string good = write_safetensors(sample());
  std::uint64_t length;
  std::memcpy(&length, good.data(), 8);
  for (const std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(7)})
    check_refused(good.substr(0, size), "too few for a header");
  for (const std::size_t size : {std::size_t(8), std::size_t(9), std::size_t(8 + length - 1)})
    check_refused(good.substr(0, size), text("claims ", length, " bytes of a file of ", size));
  for (const std::size_t size : {8 + length, 8 + length + 1, good.size() / 2 + 8 + length / 2, good.size() - 1})
    check_refused(good.substr(0, size), "but the file has elements 0 to");
  check_refused(good + "x", "its tensors end at");
}

TEST_CASE("a header length that cannot be is refused") {
  std::string bytes = write_safetensors(sample());
  for (const std::uint64_t length :
       {std::uint64_t(0), std::uint64_t(1) << 63, ~std::uint64_t(0), std::uint64_t(bytes.size() - 7)}) {
    std::memcpy(bytes.data(), &length, 8);
    check_refused(bytes, text("its header claims ", length, " bytes"));
  }
}

TEST_CASE("other formats are refused") {
  check_refused("PK\x03\x04 this is a zip file, and not a small one at that", "its header claims");
  check_refused(file_of("not json", ""), "its header is no JSON:");
  check_refused(file_of("[1,2]", ""), "its header is no JSON object");
  check_refused(file_of("{\"a\":1}", ""), "must have dtype, shape and data_offsets");
  check_refused(file_of("{\"__metadata__\":[]}", ""), "__metadata__ is no object");
  check_refused(file_of("{\"__metadata__\":{\"k\":1}}", ""), "metadata 'k' is no string");
}

TEST_CASE("a header that is nested deeper than any real one is refused, not followed down") {
  check_refused(file_of(std::string(100000, '['), ""), "its header is nested deeper than 8 levels");
  std::string objects = "{\"a\":";
  for (int i = 0; i < 17; ++i) objects += objects;
  check_refused(file_of(objects, ""), "nested deeper than 8 levels");
}

TEST_CASE("what a message quotes of a header is one short line") {
  check_refused(file_of(R"({"a\nb\u001b\u00e9":1})", ""), "tensor 'a\\nb\\u001b\\u00e9' must have dtype");
  check_refused(file_of("\xff\x01", ""), "its header is no JSON: ");
  const std::string longest = std::string(100000, 'n');
  CHECK(refusal(file_of("{\"" + longest + "\":1}", "")).size() < 500);
  CHECK(refusal(entry_file("\"dtype\":\"" + longest + "\",\"shape\":[2],\"data_offsets\":[0,8]")).size() < 500);
  const Tensor x = Tensor::zeros({1});
  CHECK_THROWS_WITH_AS(load_tensors({}, {{"z\n", x}}, "f"), doctest::Contains("in the file only: z\\n [1]"), Error);
}

TEST_CASE("a header of very many names is read in no quadratic time, in the order of the file") {
  std::string header = "{";
  for (int i = 30000; i > 0; --i)
    header += text(i < 30000 ? "," : "", "\"t", i, "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}");
  const SafetensorsFile file = read_safetensors(file_of(header + "}", ""), "x");
  REQUIRE(file.tensors.size() == 30000);
  CHECK(file.tensors[0].name == "t30000");
  CHECK(file.tensors[29999].name == "t1");
}

TEST_CASE("shapes and ranges that do not fit the file are refused before anything is allocated") {
  const std::string f32 = "\"dtype\":\"F32\",", two = "\"shape\":[2],";
  CHECK(refusal(entry_file(f32 + two + "\"data_offsets\":[0,8]")).empty());
  check_refused(entry_file(f32 + "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]"),
                "does not fill its 8 bytes");
  check_refused(entry_file(f32 + "\"shape\":[4611686018427387905],\"data_offsets\":[0,8]"),
                "does not fill its 8 bytes");
  check_refused(entry_file(f32 + "\"shape\":[0,9223372036854775808],\"data_offsets\":[0,0]"),
                "does not fill its 0 bytes");
  check_refused(entry_file(f32 + "\"shape\":[3],\"data_offsets\":[0,8]"), "shape [3] does not fill its 8 bytes");
  check_refused(entry_file(f32 + "\"shape\":[2,1,1,1,1],\"data_offsets\":[0,8]"), "has 5 axes; at most 4");
  check_refused(entry_file(f32 + "\"shape\":[-2],\"data_offsets\":[0,8]"), "shape of 'a' are [-2]");
  check_refused(entry_file(f32 + "\"shape\":[2.0],\"data_offsets\":[0,8]"), "not all whole numbers");
  check_refused(entry_file(f32 + "\"shape\":2,\"data_offsets\":[0,8]"), "shape of 'a' is no list");
  check_refused(entry_file(f32 + two + "\"data_offsets\":[-8,0]"), "data_offsets of 'a' are [-8,0]");
  check_refused(entry_file(f32 + two + "\"data_offsets\":[8,0]"), "elements 0 to 8");
  check_refused(entry_file(f32 + two + "\"data_offsets\":[8,16]"), "elements 0 to 8");
  check_refused(entry_file(f32 + two + "\"data_offsets\":[0,18446744073709551615]"), "elements 0 to 8");
  check_refused(entry_file(f32 + two + "\"data_offsets\":[0,8,8]"), "elements 0 to 8");
  check_refused(entry_file(f32 + "\"shape\":[1],\"data_offsets\":[4,8]"), "begins at 4, but the one before ends at 0");
  check_refused(entry_file(f32 + "\"shape\":[1],\"data_offsets\":[0,4]"), "its tensors end at 4, its elements at 8");
}

TEST_CASE("types that cannot be read are named") {
  check_refused(entry_file("\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]"),
                "tensor 'a' cannot be used: it is of type \"I64\"");
  check_refused(entry_file("\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,8]"),
                "of type \"Q4\"; F32, BF16, F16, F64 and I32 can");
  check_refused(entry_file("\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,8]"), "the type of tensor 'a' is 7");
  check_refused(entry_file("\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,8]"), "does not fill its 8 bytes");
}

TEST_CASE("overlapping tensors and repeated names are refused") {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string overlap = R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]})";
  check_refused(file_of("{" + a + "," + overlap + "}", std::string(12, 'x')),
                "'b' begins at 4, but the one before ends at 8");
  check_refused(file_of("{" + a + "," + a + "}", std::string(8, 'x')), "the name 'a' comes twice");
  check_refused(entry_file(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"), "'dtype' comes twice");
}

TEST_CASE("one flipped bit among the elements is noticed") {
  std::string bytes = write_safetensors(sample());
  bytes[bytes.size() - 5] ^= 4;
  check_refused(bytes, "as when it was written");
}

TEST_CASE("what cannot be written is refused") {
  const Tensor x = Tensor::zeros({1});
  CHECK_THROWS_WITH_AS(write_safetensors({{{"a", x}, {"a", x}}, {}}), doctest::Contains("two tensors called 'a'"),
                       Error);
  CHECK_THROWS_WITH_AS(write_safetensors({{{"__metadata__", x}}, {}}), doctest::Contains("called '__metadata__'"),
                       Error);
  CHECK_THROWS_WITH_AS(write_safetensors({{{"\xff", x}}, {}}), doctest::Contains("is not UTF-8"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors({{{"h", Tensor::empty({2}, DType::bf16)}}, {}}),
                       doctest::Contains("'h' is bf16; only f32 and i32 can be written"), Error);
}

TEST_CASE("loading fits by name and copies into the targets' memory") {
  Tensor a = Tensor::zeros({2}), b = Tensor::zeros({1, 1});
  load_tensors({{"a", a}, {"b", b}}, {{"b", Tensor::full({1, 1}, 3)}, {"a", Tensor::from({2}, {1, 2})}}, "f");
  CHECK(a.to_vector() == std::vector<float>{1, 2});
  CHECK(b.item() == 3);
}

TEST_CASE("loading lists everything that does not fit and changes nothing") {
  Tensor a = Tensor::zeros({2}), b = Tensor::zeros({3}), c = Tensor::zeros({1});
  const NamedTensors targets = {{"a", a}, {"b", b}, {"c", c}};
  const NamedTensors stored = {{"a", Tensor::full({2}, 1)}, {"b", Tensor::full({4}, 1)}, {"z", Tensor::full({5}, 1)}};
  CHECK_THROWS_WITH_AS(load_tensors(targets, stored, "best.safetensors"),
                       "best.safetensors does not fit this model; missing in the file: c; of another shape or type: b "
                       "(file f32 [4], needed f32 [3]); in the file only: z [5]",
                       Error);
  CHECK(a.to_vector() == std::vector<float>{0, 0});
  CHECK_THROWS_WITH_AS(load_tensors({{"a", a}}, {{"a", Tensor::zeros({2}, DType::i32)}}, "f"),
                       doctest::Contains("a (file i32 [2], needed f32 [2])"), Error);
  NamedTensors many;
  for (int i = 0; i < 20; ++i) many.push_back({text("p", i), c});
  CHECK_THROWS_WITH_AS(load_tensors(many, {}, "f"), doctest::Contains("p7 and 12 more"), Error);
}
