#include "host/base/safetensors.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/folder.hpp"

namespace galley::safetensors {
namespace {

using tensor_files::Entry;
using tensor_files::Reader;

std::string number(uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); }

/// A file with this header, `data` bytes after it.
std::string file(const std::string& header, size_t data) { return number(header.size()) + header + std::string(data, '\1'); }

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

class Broken : public testing::Test {
 protected:
  /// The error without the path in front of it.
  std::string error_of(const std::string& bytes) {
    const std::filesystem::path path = folder_.put("w.safetensors", bytes);
    const Result<Reader> reader = Reader::open(path);
    if (reader.ok()) return "no error";
    EXPECT_EQ(reader.error().exit, Exit::Recipe);
    EXPECT_EQ(reader.error().cause.substr(0, path.string().size() + 1), path.string() + ":");
    return reader.error().cause.substr(path.string().size() + 2);
  }
  std::string error_of_header(const std::string& tensors, size_t data) { return error_of(file("{" + tensors + "}", data)); }

  Folder folder_;
};

TEST_F(Broken, Sizes) {
  EXPECT_EQ(error_of(""), "not a safetensors file: 0 bytes, too few for the size of a header");
  EXPECT_EQ(error_of("1234567"), "not a safetensors file: 7 bytes, too few for the size of a header");
  EXPECT_EQ(error_of(number(0)), "the header's size is given as 0 bytes, too few for a header: not a safetensors file");
  EXPECT_EQ(error_of(number(100) + "{}"), "the header's size is given as 100 bytes, but only 2 follow: the file is truncated");
  EXPECT_EQ(error_of(number(100'000'001) + "{}"),
            "the header's size is given as 100000001 bytes, more than the 100000000 that are allowed: not a safetensors file");
  EXPECT_NE(error_of(number(~0ull) + "{}").find("18446744073709551615 bytes, more than"), std::string::npos);
  EXPECT_NE(error_of("PK\3\4 a zip file of PyTorch").find("not a safetensors file"), std::string::npos);
}

TEST_F(Broken, Json) {
  EXPECT_EQ(error_of(file("[1]", 0)), "the header does not begin with '{': not a safetensors file");
  EXPECT_EQ(error_of(file("{\"a\":}", 0)).substr(0, 30), "header:1:6: syntax error while");
  EXPECT_EQ(error_of_header(tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("a", "U8", "[1]", "[1,2]"), 2),
            "header:1:54: the key \"a\" is there twice");
  EXPECT_EQ(error_of_header("\"__metadata__\":[]", 0), "__metadata__ is not a table of strings");
  EXPECT_EQ(error_of_header("\"__metadata__\":{\"step\":1}", 0), "__metadata__: 'step' is not a string");
}

TEST_F(Broken, Entries) {
  EXPECT_EQ(error_of_header("\"a\":1", 0), "tensor 'a' is integer where {dtype, shape, data_offsets} belongs");
  EXPECT_EQ(error_of_header("\"a\":{\"dtype\":\"U8\",\"shape\":[]}", 0), "tensor 'a' has no 'data_offsets'");
  EXPECT_EQ(error_of_header("\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":1}", 1),
            "tensor 'a' has an unknown key 'x'");
  EXPECT_EQ(error_of_header(tensor("a", "F4", "[1]", "[0,1]"), 1),
            "tensor 'a' has the unknown dtype \"F4\" (known: BOOL, U8, I8, I16, I32, I64, F16, BF16, F32, F64)");
  EXPECT_EQ(error_of_header(tensor("a", "U8", "[-1]", "[0,1]"), 1),
            "tensor 'a' has the shape [-1], which is not a list of integers from 0 on");
  EXPECT_EQ(error_of_header(tensor("a", "U8", "[1.5]", "[0,1]"), 1),
            "tensor 'a' has the shape [1.5], which is not a list of integers from 0 on");
  EXPECT_EQ(error_of_header(tensor("a", "U8", "3", "[0,1]"), 1), "tensor 'a' has the shape 3, which is not a list of integers from 0 on");
  for (const char* offsets : {"[1,0]", "[0]", "[0,1,2]", "[-1,0]", "[0,99999999999999999999]", "{}"}) {
    EXPECT_NE(error_of_header(tensor("a", "U8", "[1]", offsets), 1).find("which are not [begin, end]"), std::string::npos) << offsets;
  }
}

TEST_F(Broken, SizesOfTensors) {
  EXPECT_EQ(error_of_header(tensor("a", "F32", "[2,3]", "[0,20]"), 20),
            "tensor 'a' is F32 (2, 3), which takes 24 bytes, but its data_offsets [0, 20] span 20");
  EXPECT_EQ(error_of_header(tensor("a", "F32", "[2,3]", "[0,24]"), 20),
            "tensor 'a' has the data_offsets [0, 24], beyond the 20 bytes of data in the file");
  // 2^32 · 2^32 · 1 is 0 in 64 bits, which is what [0, 0] spans; 2^61 floats are 2^63 bytes.
  EXPECT_EQ(error_of_header(tensor("a", "U8", "[4294967296,4294967296]", "[0,0]"), 0),
            "tensor 'a' is U8 (4294967296, 4294967296), more bytes than 63 bits count");
  EXPECT_NE(error_of_header(tensor("a", "F32", "[2305843009213693952]", "[0,0]"), 0).find("more bytes than 63 bits"), std::string::npos);
  EXPECT_EQ(error_of_header(tensor("a", "U8", "[4294967296,4294967296,0]", "[0,0]"), 0), "no error");  // empty however large the rest
}

TEST_F(Broken, OverlapsAndHoles) {
  const auto two = [&](const char* first, const char* second, size_t data) {
    return error_of_header(tensor("a", "U8", "[4]", first) + "," + tensor("b", "U8", "[4]", second), data);
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "no error");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "no error");
  EXPECT_EQ(two("[0,4]", "[3,7]", 7), "tensors 'a' and 'b' overlap: one ends at byte 4 of the data, the other begins at 3");
  EXPECT_EQ(two("[0,4]", "[0,4]", 4), "tensors 'a' and 'b' overlap: one ends at byte 4 of the data, the other begins at 0");
  EXPECT_EQ(two("[0,4]", "[5,9]", 9), "bytes 4 to 5 of the data, before tensor 'b', belong to no tensor");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9), "bytes 0 to 1 of the data, before tensor 'a', belong to no tensor");
  EXPECT_EQ(two("[0,4]", "[4,8]", 11), "the last 3 of 11 bytes of data belong to no tensor");
  EXPECT_EQ(error_of_header("", 1), "the last 1 of 1 bytes of data belong to no tensor");
}

TEST(Safetensors, EveryDtypeHasItsSize) {
  const std::pair<Dtype, uint64_t> sizes[] = {{Dtype::Bool, 1}, {Dtype::U8, 1},  {Dtype::I8, 1},   {Dtype::I16, 2}, {Dtype::I32, 4},
                                              {Dtype::I64, 8},  {Dtype::F16, 2}, {Dtype::BF16, 2}, {Dtype::F32, 4}, {Dtype::F64, 8}};
  for (const auto& [dtype, size] : sizes) EXPECT_EQ(size_of(dtype), size) << name_of(dtype);
  EXPECT_STREQ(name_of(Dtype::BF16), "BF16");
  EXPECT_STREQ(name_of(Dtype::Bool), "BOOL");
}

TEST(Safetensors, WritesTheBytesOfTheLibrary) {
  const Folder folder;
  // What safetensors 0.5.3 (Python) writes for {"b": int32 (2,), "a": int32 (2,), "h": bfloat16 ()} without metadata.
  const std::string header =
      R"({"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I32","shape":[2],"data_offsets":[8,16]},)"
      R"("h":{"dtype":"BF16","shape":[],"data_offsets":[16,18]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  Result<Writer> writer = Writer::create(folder / "w", {{"h", Dtype::BF16, {}}, {"b", Dtype::I32, {2}}, {"a", Dtype::I32, {2}}}, {});
  ASSERT_TRUE(writer.ok());
  ASSERT_EQ(writer->items()[0].name, "a");
  for (const Item& item : writer->items()) {
    const std::string bytes(*tensor_bytes(item.dtype, item.shape), item.name[0]);
    ASSERT_TRUE(writer->write(item.name, std::as_bytes(std::span(bytes))).ok());
  }
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(*read_text(folder / "w"), number(padded.size()) + padded + "aaaaaaaabbbbbbbbhh");
}

TEST(Safetensors, OrdersDtypesAsTheLibraryDoes) {
  const Folder folder;
  std::vector<Item> items;
  for (const auto dtype :
       {Dtype::Bool, Dtype::U8, Dtype::I8, Dtype::I16, Dtype::I32, Dtype::I64, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64}) {
    items.push_back({"of " + std::string(name_of(dtype)), dtype, {1}});
  }
  const Writer writer = Writer::create(folder / "w", items).value();
  std::string order;
  for (const Item& item : writer.items()) order += std::string(name_of(item.dtype)) + " ";
  EXPECT_EQ(order, "I64 F64 F32 I32 BF16 F16 I16 I8 U8 BOOL ");  // safetensors 0.5.3
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  const Folder folder;
  const std::vector<Item> items = {{"x.weight", Dtype::F32, {3, 4}},
                                   {"empty", Dtype::F32, {0, 4}},
                                   {"scalar", Dtype::F64, {}},
                                   {"flags", Dtype::Bool, {5}},
                                   {"\"quoted\" \\ é", Dtype::I16, {2}}};
  Result<Writer> writer = Writer::create(folder / "w.safetensors", items);
  ASSERT_TRUE(writer.ok());
  std::vector<std::vector<std::byte>> data;
  for (const Item& item : writer->items()) {
    std::vector<std::byte>& bytes = data.emplace_back(*tensor_bytes(item.dtype, item.shape));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + data.size());
    for (size_t at = 0; at < bytes.size(); at += 5) {  // pieces that do not divide the tensor
      ASSERT_TRUE(writer->write(item.name, std::span(bytes).subspan(at, std::min<size_t>(5, bytes.size() - at))).ok());
    }
  }
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(std::filesystem::file_size(folder / "w.safetensors"), *Writer::file_bytes(items));

  const Result<Reader> reader = Reader::open(folder / "w.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.error().cause;
  EXPECT_EQ(reader->metadata().at("format"), "pt");
  ASSERT_EQ(reader->entries().size(), items.size());
  for (size_t i = 0; i < data.size(); ++i) {
    const Item& item = writer->items()[i];
    const Entry* entry = reader->find(item.name);
    ASSERT_NE(entry, nullptr) << item.name;
    EXPECT_EQ(entry->dtype, item.dtype);
    EXPECT_EQ(entry->shape, item.shape);
    EXPECT_EQ(entry->offset % size_of(entry->dtype), 0u) << "the data of " << item.name << " is not aligned to its element";
    std::vector<std::byte> bytes(entry->bytes);
    ASSERT_TRUE(reader->read(*entry, bytes).ok());
    EXPECT_EQ(bytes, data[i]);
  }
  EXPECT_EQ(reader->find("x"), nullptr);

  const Entry& weight = *reader->find("x.weight");
  std::array<std::byte, 8> part;
  ASSERT_TRUE(reader->read_bytes(weight, 40, part).ok());
  EXPECT_EQ(part[7], static_cast<std::byte>((47 * 7 + 3) % 256));
  EXPECT_EQ(reader->read_bytes(weight, 41, part).error().cause,
            (folder / "w.safetensors").string() + ": 8 bytes from byte 41 on were asked of tensor 'x.weight', which has 48");
  EXPECT_FALSE(reader->read_bytes(weight, ~0ull, part).ok());
  EXPECT_FALSE(reader->read(weight, part).ok());
}

TEST(Safetensors, ThreadsReadAtOnce) {
  const Folder folder;
  Result<Writer> writer = Writer::create(folder / "w", {{"a", Dtype::I64, {10'000}}});
  std::vector<int64_t> data(10'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int64_t>(i);
  ASSERT_TRUE(writer->write("a", std::as_bytes(std::span(data))).ok());
  ASSERT_TRUE(writer->finish().ok());
  const Reader reader = Reader::open(folder / "w").value();
  std::array<int, 4> wrong{};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = t; i < data.size(); i += wrong.size()) {
        int64_t value = -1;
        const Status status = reader.read_bytes(reader.entries()[0], i * 8, std::as_writable_bytes(std::span(&value, 1)));
        wrong[t] += !status.ok() || value != static_cast<int64_t>(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST(Safetensors, AFileThatShrinksAfterwardsIsAnErrorOfTheRun) {
  const Folder folder;
  const std::filesystem::path path = folder.put("w", file("{" + tensor("a", "U8", "[9]", "[0,9]") + "}", 9));
  const Reader reader = Reader::open(path).value();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::array<std::byte, 9> bytes;
  const Status status = reader.read(reader.entries()[0], bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Failed);
}

TEST(SafetensorsWriter, RefusesWhatIsOutOfTurn) {
  const Folder folder;
  const std::string bytes(8, 'x');
  const auto piece = [&](size_t n) { return std::as_bytes(std::span(bytes)).first(n); };
  const std::string place = "cannot write '" + (folder / "w").string() + "': ";
  EXPECT_EQ(Writer::create(folder / "w", {{"a", Dtype::U8, {1}}, {"a", Dtype::F32, {1}}}).error().cause,
            "tensor 'a' is to be written twice");
  EXPECT_EQ(Writer::create(folder / "w", {{"a", Dtype::U8, {-1}}}).error().cause, "tensor 'a' has the shape (-1), with a negative size");
  Writer writer = Writer::create(folder / "w", {{"b", Dtype::U8, {3}}, {"a", Dtype::U8, {4}}}).value();
  EXPECT_EQ(writer.write("b", piece(1)).error().cause, place + "tensor 'b' comes where 'a' belongs");
  ASSERT_TRUE(writer.write("a", piece(3)).ok());
  EXPECT_EQ(writer.write("a", piece(2)).error().cause, place + "2 bytes of tensor 'a' come where 1 are missing");
  EXPECT_EQ(writer.finish().error().cause, "cannot finish '" + (folder / "w").string() + "': tensor 'a' lacks data after byte 3");
  ASSERT_TRUE(writer.write("a", piece(1)).ok());
  ASSERT_TRUE(writer.write("b", piece(3)).ok());
  EXPECT_EQ(writer.write("b", piece(1)).error().cause, place + "tensor 'b' comes after the last one was complete");
  EXPECT_TRUE(writer.finish().ok());
}

TEST(SafetensorsWriter, AFullDiskIsAnErrorOfTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const Result<Writer> writer = Writer::create("/dev/full", {{"a", Dtype::U8, {1}}});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().exit, Exit::Failed);
  EXPECT_EQ(writer.error().cause, "cannot write '/dev/full': No space left on device");
}

class Shards : public testing::Test {
 protected:
  Shards() {
    folder_.put("model-1.safetensors",
                file("{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("left.over", "U8", "[1]", "[2,3]") + "}", 3));
    folder_.put("model-2.safetensors", file("{" + tensor("b", "F32", "[1]", "[0,4]") + "}", 4));
  }
  std::string error_of(const std::string& weight_map) {
    folder_.put("model.safetensors.index.json", "{\"metadata\":{\"total_size\":6},\"weight_map\":" + weight_map + "}");
    const Result<Reader> reader = Reader::open(folder_.path());
    if (reader.ok()) return "no error";
    EXPECT_EQ(reader.error().exit, Exit::Recipe);
    const std::string place = (folder_ / "model.safetensors.index.json").string() + ": ";
    EXPECT_EQ(reader.error().cause.substr(0, place.size()), place);
    return reader.error().cause.substr(place.size());
  }
  Folder folder_;
};

TEST_F(Shards, AreOneSet) {
  EXPECT_EQ(error_of(R"({"a":"model-1.safetensors","b":"model-2.safetensors"})"), "no error");
  const Reader reader = Reader::open(folder_ / "model.safetensors.index.json").value();
  ASSERT_EQ(reader.entries().size(), 2u);  // what the index does not name is not there
  EXPECT_EQ(reader.files().size(), 2u);
  EXPECT_EQ(reader.files()[reader.find("b")->file].path().filename(), "model-2.safetensors");
  float b = 0;
  ASSERT_TRUE(reader.read(*reader.find("b"), std::as_writable_bytes(std::span(&b, 1))).ok());
  EXPECT_EQ(std::memcmp(&b, "\1\1\1\1", 4), 0);
}

TEST_F(Shards, AreAllThere) {
  EXPECT_EQ(error_of(R"({"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-3.safetensors"})"),
            "1 of 3 shards are missing: model-3.safetensors");
  EXPECT_EQ(error_of(R"({"a":"model-1.safetensors","b":"model-1.safetensors"})"),
            "tensor 'b' is said to lie in 'model-1.safetensors', which does not have it");
  EXPECT_EQ(error_of(R"({"a":"../w"})"), "tensor 'a' is said to lie in \"../w\", which is not the name of a file beside the index");
  EXPECT_EQ(error_of(R"({"a":7})"), "tensor 'a' is said to lie in 7, which is not the name of a file beside the index");
  EXPECT_EQ(error_of("{}"), "'weight_map' names no tensor");
  EXPECT_EQ(error_of("[]"), "has no table 'weight_map' of tensors and their files");
}

TEST_F(Shards, ASingleFileGoesFirst) {
  EXPECT_EQ(error_of(R"({"a":"model-1.safetensors"})"), "no error");
  folder_.put("model.safetensors", file("{" + tensor("single", "U8", "[1]", "[0,1]") + "}", 1));
  const Reader reader = Reader::open(folder_.path()).value();
  EXPECT_NE(reader.find("single"), nullptr);
  EXPECT_EQ(reader.find("a"), nullptr);
}

TEST(Safetensors, AFolderWithoutWeightsSaysSo) {
  const Folder folder;
  EXPECT_EQ(Reader::open(folder.path()).error().cause,
            folder.path().string() + ": neither model.safetensors nor model.safetensors.index.json is there, nor a GGUF file");
  folder.put("pytorch_model.bin", "x");
  EXPECT_NE(Reader::open(folder.path()).error().hint.find("pytorch_model.bin"), std::string::npos);
  EXPECT_EQ(Reader::open(folder / "none.safetensors").error().exit, Exit::Recipe);
}

TEST(Safetensors, ReferenceCasesComeBackByteForByte) {
  const std::filesystem::path cases = reference_cases();
  const Folder folder;
  int files = 0;
  for (const auto& found : std::filesystem::recursive_directory_iterator(cases)) {
    if (found.path().extension() != ".safetensors") continue;
    const Result<Reader> reader = Reader::open(found.path());
    ASSERT_TRUE(reader.ok()) << reader.error().cause;
    std::vector<Item> items;
    for (const Entry& entry : reader->entries()) items.push_back({entry.name, entry.dtype, entry.shape});
    Writer writer = Writer::create(folder / "w", items, reader->metadata()).value();
    for (const Item& item : writer.items()) {
      const Entry& entry = *reader->find(item.name);
      std::vector<std::byte> bytes(entry.bytes);
      ASSERT_TRUE(reader->read(entry, bytes).ok());
      ASSERT_TRUE(writer.write(item.name, bytes).ok());
    }
    ASSERT_TRUE(writer.finish().ok());
    EXPECT_TRUE(*read_text(folder / "w") == *read_text(found.path())) << found.path();
    ++files;
  }
  EXPECT_GT(files, 20);
}

}  // namespace
}  // namespace galley::safetensors
