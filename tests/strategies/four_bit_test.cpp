// Weights in 4 bit: the bytes of bitsandbytes (tests/fixtures/four-bit), how many there are, and which weights get them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "host/base/tensor_files.hpp"
#include "host/passes/place/components.hpp"
#include "plugins/quantize-nf4/four_bit_codes.hpp"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

namespace dynamic8 = sdk::dynamic8;

template <class T>
std::vector<T> fixture(const std::string& file, const std::string& name) {
  const char* source = std::getenv("GALLEY_SOURCE");
  const auto reader = tensor_files::Reader::open(fs::path(source ? source : ".") / "tests/fixtures/four-bit" / (file + ".safetensors"));
  EXPECT_TRUE(reader.ok()) << reader.error().cause;
  const tensor_files::Entry* entry = reader->find(name);
  EXPECT_TRUE(entry) << file << ": " << name;
  std::vector<T> values(static_cast<size_t>(entry->bytes) / sizeof(T));
  EXPECT_TRUE(reader->read(*entry, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

/// A matrix in the format.
struct FourBit {
  FourBit(const std::vector<float>& x, const four_bit::Options& how)
      : options(how),
        n(static_cast<int64_t>(x.size())),
        codes(static_cast<size_t>((n + 1) / 2)),
        absmax(static_cast<size_t>(options.blocks(n))),
        absmax_codes(absmax.size()),
        nested(static_cast<size_t>(options.nested(n))) {
    for (size_t b = 0; b < absmax.size(); ++b) {
      const int64_t at = static_cast<int64_t>(b) * options.block;
      absmax[b] = four_bit::encode(x.data() + at, std::min(options.block, n - at), options.block, options.type, codes.data() + at / 2);
    }
    const auto blocks = static_cast<int64_t>(absmax.size());
    offset = four_bit::offset_of(absmax.data(), blocks);
    for (int64_t at = 0; at < blocks; at += four_bit::kNested)
      nested[static_cast<size_t>(at / four_bit::kNested)] =
          four_bit::encode_nested(absmax.data() + at, std::min(four_bit::kNested, blocks - at), offset, absmax_codes.data() + at);
  }
  template <class T>
  std::vector<T> back(int64_t at, int64_t count) const {
    four_bit::Coded from;
    from.codes = codes.data();
    from.absmax = options.doubled ? static_cast<const void*>(absmax_codes.data()) : absmax.data();
    from.nested_absmax = nested.data();
    from.nested_offset = &offset;
    from.block = options.block;
    from.type = options.type;
    from.doubled = options.doubled;
    std::vector<T> out(static_cast<size_t>(count));
    four_bit::decode(from, at, count, out.data());
    return out;
  }

  four_bit::Options options;
  int64_t n;
  std::vector<uint8_t> codes;
  std::vector<float> absmax;
  std::vector<uint8_t> absmax_codes;
  std::vector<float> nested;
  float offset = 0;
};

four_bit::Options options_of(four_bit::Type type, bool doubled, int64_t block = 64) {
  four_bit::Options out;
  out.type = type;
  out.block = block;
  out.doubled = doubled;
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(FourBit, HasTheBytesOfBitsandbytes) {
  for (const auto& [type, name] : {std::pair(four_bit::kNf4, "nf4"), std::pair(four_bit::kFp4, "fp4")})
    for (const bool doubled : {false, true})
      for (const char* shape : {"96x128", "33x52"}) {
        const std::string file = std::string(name) + (doubled ? "-double-" : "-") + shape;
        SCOPED_TRACE(file);
        const auto code = fixture<float>(file, "code");
        for (int k = 0; k < 16; ++k) EXPECT_EQ(four_bit::value(k, type), code[static_cast<size_t>(k)]) << k;
        const FourBit ours(fixture<float>(file, "W"), options_of(type, doubled));
        EXPECT_EQ(ours.codes, fixture<uint8_t>(file, "packed"));
        if (doubled) {
          EXPECT_EQ(ours.absmax_codes, fixture<uint8_t>(file, "absmax"));
          EXPECT_TRUE(same_bits(ours.nested, fixture<float>(file, "absmax2")));
          EXPECT_TRUE(same_bits({ours.offset}, fixture<float>(file, "offset")));
          const auto book = fixture<float>(file, "code2");
          EXPECT_TRUE(same_bits(std::vector<float>(dynamic8::book(true), dynamic8::book(true) + 256), book));
        } else {
          EXPECT_TRUE(same_bits(ours.absmax, fixture<float>(file, "absmax")));
        }
        // Of FP4's two zeros, its kernels give some a sign and some none.
        const auto back = ours.back<float>(0, ours.n), theirs = fixture<float>(file, "back");
        EXPECT_EQ(back, theirs);
        EXPECT_TRUE(type == four_bit::kFp4 || same_bits(back, theirs));
      }
}

TEST(FourBit, HasTheseCodes) {
  // A block of zeros, halves between two entries (the lower one), and the code of 0 after an odd count.
  const FourBit zeros(std::vector<float>(64), options_of(four_bit::kNf4, false));
  EXPECT_EQ(zeros.codes, std::vector<uint8_t>(32, 0x77));
  EXPECT_EQ(zeros.absmax, std::vector<float>{0});
  EXPECT_EQ(zeros.back<float>(0, 64), std::vector<float>(64));
  for (const four_bit::Type type : {four_bit::kNf4, four_bit::kFp4})
    for (int rank = 0; rank < 15; ++rank) {
      const float half = four_bit::detail::bound(rank, type);
      EXPECT_EQ(four_bit::code(half, type), four_bit::detail::code_of_rank(rank, type));
      EXPECT_EQ(four_bit::code(std::nextafter(half, 2.0f), type), four_bit::detail::code_of_rank(rank + 1, type));
      EXPECT_EQ(four_bit::detail::rank_of_code(four_bit::detail::code_of_rank(rank, type), type), rank);
    }
  EXPECT_EQ(FourBit({1, 2, 3}, options_of(four_bit::kNf4, false)).codes, (std::vector<uint8_t>{190, 247}));
  EXPECT_EQ(FourBit({1, 2, 3}, options_of(four_bit::kFp4, false)).codes, (std::vector<uint8_t>{66, 48}));
}

TEST(FourBit, DecodesAnyPartInAnyDtype) {
  std::mt19937_64 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> x(3001);
  for (float& v : x) v = normal(random);
  for (const bool doubled : {false, true})
    for (const int64_t block : {32, 64, 256}) {
      const FourBit coded(x, options_of(doubled ? four_bit::kFp4 : four_bit::kNf4, doubled, block));
      const auto all = coded.back<float>(0, coded.n);
      for (int i = 0; i < 300; ++i) {
        const auto at = static_cast<int64_t>(random() % x.size()),
                   n = static_cast<int64_t>(random() % (x.size() - static_cast<size_t>(at)));
        const std::vector<float> expected(all.begin() + at, all.begin() + at + n);
        EXPECT_TRUE(same_bits(coded.back<float>(at, n), expected)) << at << ", " << n;
        const auto bf16 = coded.back<sdk::Bf16>(at, n);
        const auto f16 = coded.back<sdk::F16>(at, n);
        for (size_t k = 0; k < expected.size(); ++k) {
          sdk::Bf16 b;
          sdk::F16 h;
          sdk::from_float(expected[k], b);
          sdk::from_float(expected[k], h);
          ASSERT_EQ(bf16[k].bits, b.bits);
          ASSERT_EQ(f16[k].bits, h.bits);
        }
      }
    }
}

/// Bits that the format's components take for each number.
double bits_a_number(Shape shape, bool doubled, int64_t block) {
  GraphTensor t;
  t.name = "w";
  t.shape = std::move(shape);
  t.storage.format = four_bit::kName;
  t.storage.attrs.set("double", int64_t{doubled});
  t.storage.attrs.set("block", block);
  const auto components = components_of(plugins(), t, t.shape);
  EXPECT_TRUE(components.ok()) << components.error().cause;
  int64_t bytes = 0;
  for (const Component& c : *components) bytes += elements(c.shape) * galley_dtype_bytes(c.dtype);
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(t.count());
}

TEST(FourBit, TakesTheBitsThatTheLiteratureSays) {
  EXPECT_EQ(bits_a_number({4096, 4096}, false, 64), 4.5);
  EXPECT_EQ(bits_a_number({4096, 4096}, true, 64), 4 + 8.0 / 64 + 32.0 / (64 * 256) + 32.0 / (4096.0 * 4096));
  EXPECT_NEAR(bits_a_number({4096, 11008}, true, 64), 4.127, 5e-4);
  EXPECT_NEAR(bits_a_number({4096, 11008}, false, 64) - bits_a_number({4096, 11008}, true, 64), 0.373, 5e-4);
  EXPECT_EQ(bits_a_number({4096, 4096}, false, 4096), 4 + 32.0 / 4096);
}

TEST(FourBit, SaysWhatItDoesNotKnow) {
  GraphTensor t;
  t.name = "w";
  t.shape = {64, 64};
  t.storage.format = four_bit::kName;
  const auto with = [&](const char* name, auto value) {
    GraphTensor other = t;
    other.storage.attrs.set(name, value);
    const auto made = components_of(plugins(), other, other.shape);
    return made.ok() ? std::string() : made.error().cause;
  };
  EXPECT_EQ(with("type", "nf4"), "");
  EXPECT_NE(with("type", "int4").find("nf4 or fp4"), std::string::npos);
  EXPECT_NE(with("block", int64_t{48}).find("32, 64, 128"), std::string::npos);
  EXPECT_NE(with("blocks", int64_t{64}).find("no option 'blocks'"), std::string::npos);
}

}  // namespace
}  // namespace galley::test
