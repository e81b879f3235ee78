// Optimizers as other libraries compute them: tests/fixtures/optimizers.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "host/base/tensor_files.hpp"

namespace galley::test {

inline std::vector<double> optimizer_fixture(const std::string& file, const std::string& name) {
  const char* source = std::getenv("GALLEY_SOURCE");
  const std::filesystem::path folder = source ? source : ".";
  const auto reader = tensor_files::Reader::open(folder / "tests/fixtures/optimizers" / (file + ".safetensors"));
  EXPECT_TRUE(reader.ok()) << reader.error().cause;
  const tensor_files::Entry* entry = reader->find(name);
  EXPECT_TRUE(entry) << name;
  std::vector<float> values(entry->bytes / sizeof(float));
  EXPECT_TRUE(reader->read(*entry, std::as_writable_bytes(std::span(values))).ok());
  return {values.begin(), values.end()};
}

}  // namespace galley::test
