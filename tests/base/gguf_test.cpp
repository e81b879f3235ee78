#include "host/base/gguf.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/base/folder.hpp"

namespace galley::gguf {
namespace {

using tensor_files::Dtype;
using tensor_files::Entry;
using tensor_files::Reader;

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text(const std::string& value) { return raw<uint64_t>(value.size()) + value; }
std::string begin(uint64_t tensors, uint64_t keys, uint32_t version = 3) { return "GGUF" + raw(version) + raw(tensors) + raw(keys); }

enum Kind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64 };
std::string key(const std::string& name, uint32_t type, const std::string& value) { return text(name) + raw(type) + value; }
std::string list(uint32_t type, uint64_t length, const std::string& values) { return raw(type) + raw(length) + values; }

/// A tensor's line; extents as the file has them, the fastest first.
std::string line(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type, uint64_t offset) {
  std::string out = text(name) + raw(static_cast<uint32_t>(extents.size()));
  for (const uint64_t extent : extents) out += raw(extent);
  return out + raw(type) + raw(offset);
}
/// The header, padded, and `data` bytes.
std::string file(const std::string& header, size_t data, size_t alignment = 32) {
  return header + std::string((alignment - header.size() % alignment) % alignment, '\0') + std::string(data, '\1');
}

class Gguf : public testing::Test {
 protected:
  std::filesystem::path put(const std::string& bytes) { return folder_.put("m.gguf", bytes); }
  /// The error without the path in front of it.
  std::string error_of(const std::string& bytes) {
    const std::filesystem::path path = put(bytes);
    const Result<Header> header = read(path);
    if (header.ok()) return "no error";
    EXPECT_EQ(header.error().exit, Exit::Recipe);
    EXPECT_EQ(header.error().cause.substr(0, path.string().size() + 2), path.string() + ": ");
    return header.error().cause.substr(path.string().size() + 2);
  }
  /// Of a file with one key, or one tensor.
  std::string error_of_key(const std::string& one) { return error_of(begin(0, 1) + one); }
  std::string error_of_tensor(const std::string& one, size_t data) { return error_of(file(begin(1, 0) + one, data)); }

  Folder folder_;
};

TEST_F(Gguf, HasKeysAndTensors) {
  std::string keys = key("general.architecture", Text, text("llama")) + key("u8", U8, raw<uint8_t>(200)) + key("i8", I8, raw<int8_t>(-3)) +
                     key("u16", U16, raw<uint16_t>(60000)) + key("i16", I16, raw<int16_t>(-300)) +
                     key("u32", U32, raw<uint32_t>(4000000000u)) + key("i32", I32, raw<int32_t>(-7)) + key("f32", F32, raw(1e-5f)) +
                     key("bool", Bool, raw<uint8_t>(1)) + key("u64", U64, raw<uint64_t>(1ull << 40)) + key("i64", I64, raw<int64_t>(-9)) +
                     key("f64", F64, raw(0.25)) + key("list", Array, list(I32, 2, raw<int32_t>(5) + raw<int32_t>(6))) +
                     key("texts", Array, list(Text, 2, text("a") + text("bc"))) +
                     key("inf", F32, raw(std::numeric_limits<float>::infinity()));
  std::string many, texts;
  for (int i = 0; i < 600; ++i) {
    many += raw<float>(0.5f);
    texts += text("t");
  }
  keys += key("scores", Array, list(F32, 600, many)) + key("tokens", Array, list(Text, 600, texts)) +
          key("long", Text, text(std::string(70000, 'x')));
  const std::string header = begin(3, 18) + keys + line("b", {4, 3}, 0, 64) + line("a", {32, 2}, 8, 128) + line("c", {}, 1, 0);
  for (const uint32_t version : {2u, 3u}) {
    std::string bytes = file(header, 128 + 68);
    std::memcpy(bytes.data() + 4, &version, sizeof version);
    const Result<Header> read_header = read(put(bytes));
    ASSERT_TRUE(read_header.ok()) << read_header.error().cause;
    const Table& m = read_header->metadata;
    EXPECT_EQ(*m.at("general.architecture").as<std::string>(), "llama");
    const std::pair<const char*, int64_t> integers[] = {
        {"u8", 200}, {"i8", -3}, {"u16", 60000}, {"i16", -300}, {"u32", 4000000000}, {"i32", -7}, {"u64", int64_t{1} << 40}, {"i64", -9}};
    for (const auto& [name, number] : integers) EXPECT_EQ(*m.at(name).as<int64_t>(), number) << name;
    EXPECT_EQ(*m.at("f32").as<double>(), 1e-5);  // as it was written, not as F32 holds it
    EXPECT_EQ(*m.at("f64").as<double>(), 0.25);
    EXPECT_TRUE(std::isinf(*m.at("inf").as<double>()));
    EXPECT_TRUE(*m.at("bool").as<bool>());
    EXPECT_EQ(m.at("list").as<List>()->size(), 2u);
    EXPECT_EQ(*(*m.at("texts").as<List>())[1].as<std::string>(), "bc");
    for (const char* counted : {"scores", "tokens"}) EXPECT_EQ(*m.at(counted).field<int64_t>("count"), 600) << counted;
    EXPECT_EQ(*m.at("long").field<int64_t>("count"), 70000);

    const Result<Reader> reader = Reader::open(folder_ / "m.gguf");
    ASSERT_TRUE(reader.ok()) << reader.error().cause;
    ASSERT_EQ(reader->entries().size(), 3u);
    const Entry &a = *reader->find("a"), &b = *reader->find("b"), &c = *reader->find("c");
    EXPECT_EQ(a.dtype, Dtype::Q8_0);
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(a.bytes, 68u);
    EXPECT_EQ(tensor_files::block_shape(a), (std::vector<int64_t>{2, 34}));
    EXPECT_EQ(b.shape, (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(c.bytes, 2u);
    const size_t begin_of_data = file(header, 0).size();
    EXPECT_EQ(b.offset, begin_of_data + 64);
    std::vector<std::byte> data(48);
    EXPECT_TRUE(reader->read(b, data).ok());
    EXPECT_EQ(reader->place_of(b), (folder_ / "m.gguf").string() + ": tensor 'b'");
  }
}

TEST_F(Gguf, RowsInTheOrderOfNeighbours) {
  std::string data;
  for (float row = 0; row < 8; ++row) data += raw(row) + raw(row + 100);
  put(file(begin(1, 0) + line("q", {2, 8}, 0, 0), 0) + data);
  const Reader reader = Reader::open(folder_.path()).value();  // the only one in its folder
  std::vector<float> got(16), part(3);
  ASSERT_TRUE(reader.read(reader.entries()[0], std::as_writable_bytes(std::span(got)), {2, 2, 2}).ok());
  // Of two heads of four rows: file row 2 i + s is row 2 s + i.
  EXPECT_EQ(got, (std::vector<float>{0, 100, 2, 102, 1, 101, 3, 103, 4, 104, 6, 106, 5, 105, 7, 107}));
  ASSERT_TRUE(reader.read_bytes(reader.entries()[0], 3 * sizeof(float), std::as_writable_bytes(std::span(part)), {2, 2, 2}).ok());
  EXPECT_EQ(part, (std::vector<float>{102, 1, 101}));
  EXPECT_FALSE(reader.read(reader.entries()[0], std::as_writable_bytes(std::span(got)), {3, 2, 2}).ok());
}

TEST_F(Gguf, AnyRangeOfATensorThatTheFileHasOtherwise) {
  std::string data;
  for (float i = 0; i < 48; ++i) data += raw(i);
  put(file(begin(1, 0) + line("q", {4, 12}, 0, 0), 0) + data);  // (12, 4)
  const Reader reader = Reader::open(folder_.path()).value();
  const Entry& entry = reader.entries()[0];
  const auto read = [&](size_t offset, size_t count, const tensor_files::FileForm& form) {
    std::vector<float> out(count);
    EXPECT_TRUE(reader.read_bytes(entry, offset * sizeof(float), std::as_writable_bytes(std::span(out)), form).ok());
    return out;
  };
  // Rows (2 heads, 3 kinds, 2) that the file has as (3, 2, 2); each third number's place of a matrix (4, 12); all of them twice, less one.
  const tensor_files::FileForm by_kind = {1, 2, 3}, turned = {.turned = true}, added = {.added = 1, .scale = 0.5};
  std::vector<float> wanted[3];
  for (int head = 0; head < 2; ++head)
    for (int kind = 0; kind < 3; ++kind)
      for (int i = 0; i < 8; ++i) wanted[0].push_back(static_cast<float>((kind * 2 + head) * 8 + i));
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 12; ++column) wanted[1].push_back(static_cast<float>(4 * column + row));
  for (int i = 0; i < 48; ++i) wanted[2].push_back(static_cast<float>(2 * i - 1));
  const tensor_files::FileForm forms[] = {by_kind, turned, added};
  for (size_t k = 0; k < 3; ++k)
    for (size_t from = 0; from < 48; ++from)
      for (size_t count = 1; from + count <= 48; ++count)
        ASSERT_EQ(read(from, count, forms[k]), (std::vector<float>(wanted[k].begin() + static_cast<ptrdiff_t>(from),
                                                                   wanted[k].begin() + static_cast<ptrdiff_t>(from + count))))
            << k << ": " << count << " from " << from;
  // What was put in order and is read through the inverse is what the file had.
  std::string again;
  for (const float x : wanted[0]) again += raw(x);
  put(file(begin(1, 0) + line("q", {4, 12}, 0, 0), 0) + again);
  const Reader other = Reader::open(folder_.path()).value();
  std::vector<float> back(48);
  ASSERT_TRUE(other.read(other.entries()[0], std::as_writable_bytes(std::span(back)), by_kind.inverse()).ok());
  for (int i = 0; i < 48; ++i) EXPECT_EQ(back[static_cast<size_t>(i)], static_cast<float>(i));
}

TEST_F(Gguf, SaysWhichTensorCannotBeReadOtherwise) {
  put(file(begin(2, 0) + line("q", {32, 2}, 8, 0) + line("v", {4}, 1, 96), 0) + std::string(104, '\0'));
  const Reader reader = Reader::open(folder_.path()).value();
  std::vector<std::byte> blocks(68), half(8);
  EXPECT_EQ(reader.read(*reader.find("q"), blocks, {.turned = true}).error().cause,
            reader.place_of(*reader.find("q")) + " is Q8_0 (2, 32), and its rows cannot be the model's columns");
  EXPECT_EQ(reader.read(*reader.find("q"), blocks, {1, 3, 1}).error().cause,
            reader.place_of(*reader.find("q")) + " is Q8_0 (2, 32), and its rows are not 3 equal parts");
  EXPECT_EQ(reader.read(*reader.find("v"), half, {.added = 1}).error().cause,
            reader.place_of(*reader.find("v")) + " is in F16, and can only be read in F32: its numbers are not the model's");
}

TEST_F(Gguf, SaysWhatIsWrongWithABeginning) {
  EXPECT_EQ(error_of(""), "not a GGUF file: it does not begin with 'GGUF'");
  EXPECT_EQ(error_of("GGML"), "not a GGUF file: it does not begin with 'GGUF'");
  EXPECT_EQ(error_of("GGUF\3"), "the version takes 4 bytes from byte 4 on, and 1 are left in the file");
  EXPECT_EQ(error_of("GGUF" + raw(1u)), "the file has version 1 of GGUF; 2 and 3 are read");
  EXPECT_EQ(error_of("GGUF" + raw(4u)), "the file has version 4 of GGUF; 2 and 3 are read");
  EXPECT_EQ(error_of("GGUF" + raw(0x03000000u)), "the file is big-endian, and little-endian ones are read");
  EXPECT_EQ(error_of(begin(0, ~0ull)), "the file is said to have 18446744073709551615 keys; at most 4096 are read");
  EXPECT_EQ(error_of(begin(~0ull, 0)), "the file is said to have 18446744073709551615 tensors; at most 1048576 are read");
  EXPECT_EQ(error_of(begin(0, 3)), "key 1 of 3: the name of a key takes 8 bytes from byte 24 on, and 0 are left in the file");
  EXPECT_EQ(error_of(begin(3, 0)), "tensor 1 of 3: its name takes 8 bytes from byte 24 on, and 0 are left in the file");
  EXPECT_EQ(Reader::open(folder_ / "none.gguf").error().exit, Exit::Recipe);
}

TEST_F(Gguf, SaysWhatIsWrongWithAKey) {
  EXPECT_EQ(error_of_key(raw<uint64_t>(~0ull) + "x"),
            "key 1 of 1: the name of a key takes 18446744073709551615 bytes from byte 32 on, and 1 are left in the file");
  EXPECT_EQ(error_of_key(text("a")), "key 'a': its type takes 4 bytes from byte 33 on, and 0 are left in the file");
  EXPECT_EQ(error_of_key(key("a", 13, "")), "key 'a' is of type 13, which GGUF does not have");
  EXPECT_EQ(error_of_key(key("a", U64, raw<uint64_t>(~0ull))), "key 'a' is 18446744073709551615, more than 63 bits hold");
  EXPECT_EQ(error_of_key(key("a", Bool, raw<uint8_t>(2))), "key 'a' is a boolean with the value 2");
  EXPECT_EQ(error_of_key(key("a", Text, raw<uint64_t>(5) + "abc")),
            "key 'a': its text takes 5 bytes from byte 45 on, and 3 are left in the file");
  EXPECT_EQ(error_of_key(key("a", Array, list(Array, 1, ""))), "key 'a' is an array of arrays, which is not read");
  EXPECT_EQ(error_of_key(key("a", Array, list(U32, ~0ull, "1234"))),
            "key 'a' is an array of 18446744073709551615 entries of type U32, and 4 bytes are left in the file");
  EXPECT_EQ(error_of_key(key("a", Array, list(Text, 1ull << 61, "1234"))),
            "key 'a' is an array of 2305843009213693952 entries of type string, and 4 bytes are left in the file");
  EXPECT_EQ(error_of_key(key("a", Array, list(99, 1, "1234"))), "key 'a' is of type 99, which GGUF does not have");
  EXPECT_EQ(error_of_key(key("a", U32, "12")), "key 'a': it takes 4 bytes from byte 37 on, and 2 are left in the file");
  EXPECT_EQ(error_of(begin(0, 2) + key("a", U8, "1") + key("a", U8, "1")), "key 'a' is there twice");
  for (const uint32_t wrong : {0u, 3u, 1u << 21})
    EXPECT_EQ(error_of_key(key("general.alignment", U32, raw(wrong))),
              "key 'general.alignment' has to be a power of two up to 1048576, and is " + std::to_string(wrong));
  EXPECT_EQ(error_of_key(key("general.alignment", Text, text("32"))), "key 'general.alignment' has to be a power of two up to 1048576");
  EXPECT_EQ(error_of_key(key("split.count", U16, raw<uint16_t>(3))), "the file is one of 3 parts of a model ('split.count')");
}

TEST_F(Gguf, SaysWhatIsWrongWithATensor) {
  EXPECT_EQ(error_of_tensor(raw<uint64_t>(2000) + std::string(2000, 'n'), 8),
            "tensor 1 of 1: its name is said to have 2000 bytes, and at most 1024 are read");
  EXPECT_EQ(error_of_tensor(text("a") + raw(5u) + std::string(60, '\1'), 8), "tensor 'a' has 5 dimensions; at most 4 are read");
  EXPECT_EQ(error_of_tensor(line("a", {0}, 0, 0), 8), "tensor 'a' has a dimension of 0");
  EXPECT_EQ(error_of_tensor(line("a", {1ull << 63}, 0, 0), 8), "tensor 'a' has a dimension of 9223372036854775808");
  EXPECT_EQ(error_of_tensor(line("a", {1ull << 40, 1ull << 40}, 0, 0), 8),
            "tensor 'a' is F32 (1099511627776, 1099511627776), more bytes than 63 bits count");
  EXPECT_EQ(error_of_tensor(line("a", {256, 1ull << 62}, 12, 0), 8),
            "tensor 'a' is Q4_K (4611686018427387904, 256), more bytes than 63 bits count");
  EXPECT_EQ(error_of_tensor(line("a", {128}, 12, 0), 8), "tensor 'a' is Q4_K (128), and its rows are no whole blocks of 256 numbers");
  EXPECT_EQ(error_of_tensor(line("a", {}, 8, 0), 8), "tensor 'a' is Q8_0 (), which is no whole block");
  EXPECT_EQ(error_of_tensor(line("a", {256}, 10, 0), 8), "tensor 'a' is of type Q2_K, which is not read");
  EXPECT_EQ(error_of_tensor(line("a", {256}, 77, 0), 8), "tensor 'a' is of type 77, which is not read");
  EXPECT_EQ(error_of_tensor(line("a", {2}, 0, 4), 16),
            "tensor 'a' begins at byte 4 of the data, which is no multiple of the alignment, 32");
  EXPECT_EQ(error_of_tensor(line("a", {4}, 0, 32), 40), "tensor 'a' is F32 (4), 16 bytes from byte 32 of the data on, and the file has 40");
  EXPECT_EQ(error_of_tensor(line("a", {4}, 0, 1ull << 63), 40),
            "tensor 'a' is F32 (4), 16 bytes from byte 9223372036854775808 of the data on, and the file has 40");
  EXPECT_EQ(error_of(file(begin(2, 0) + line("a", {4}, 0, 0) + line("a", {4}, 0, 32), 64)), "tensor 'a' is there twice");
  EXPECT_EQ(error_of(file(begin(2, 0) + line("a", {12}, 0, 0) + line("b", {4}, 0, 32), 64)),
            "tensors 'a' and 'b' overlap: one ends at byte 48 of the data, the other begins at 32");
  // Nothing of the data is there, not even padding.
  EXPECT_EQ(error_of(begin(1, 0) + line("a", {4}, 0, 0)), "tensor 'a' is F32 (4), 16 bytes from byte 0 of the data on, and the file has 0");
}

TEST_F(Gguf, EveryCutIsAnError) {
  const std::string whole =
      file(begin(1, 2) + key("k", Array, list(Text, 2, text("a") + text("b"))) + key("n", F64, raw(1.0)) + line("a", {32}, 2, 0), 18);
  EXPECT_EQ(error_of(whole), "no error");
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(error_of(whole.substr(0, n)), "no error") << n;
}

TEST_F(Gguf, SeveralInAFolderAreNotOne) {
  folder_.put("m.gguf", file(begin(0, 0), 0));
  EXPECT_EQ(Reader::file_of(folder_.path()), folder_ / "m.gguf");
  folder_.put("a.gguf", file(begin(0, 0), 0));
  EXPECT_EQ(Reader::file_of(folder_.path()), "");
  const Result<Reader> reader = Reader::open(folder_.path());
  EXPECT_EQ(reader.error().cause, folder_.path().string() + ": 2 GGUF files are there, a.gguf and others");
}

TEST(Blocks, AScaleThatIsNoNumberIsFound) {
  for (const auto& [dtype, at] :
       {std::pair(Dtype::Q8_0, 0), std::pair(Dtype::Q4_1, 2), std::pair(Dtype::Q4_K, 2), std::pair(Dtype::Q6_K, 208)}) {
    const size_t block = tensor_files::size_of(dtype);
    std::vector<std::byte> bytes(3 * block, std::byte{0x11});
    EXPECT_EQ(tensor_files::first_broken_block(dtype, bytes), -1);
    bytes[2 * block + static_cast<size_t>(at) + 1] = std::byte{0xFC};
    EXPECT_EQ(tensor_files::first_broken_block(dtype, bytes), 2);
  }
}

}  // namespace
}  // namespace galley::gguf
