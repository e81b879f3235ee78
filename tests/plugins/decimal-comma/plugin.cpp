// For tests: the locale that the environment asks for, and a comma for streams even where the environment asks for none.
#include <clocale>
#include <locale>
#include <string>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Comma final : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

const bool changed = [] {
  std::setlocale(LC_ALL, "");
  std::locale::global(std::locale(std::locale::classic(), new Comma));
  return true;
}();

class DecimalComma {
 public:
  explicit DecimalComma(const Options&) {}
  void claim(const GraphReader&, const Claims&) const {}
};

const bool registered = add(strategy<DecimalComma>("decimal-comma"));

}  // namespace

GALLEY_PLUGIN("decimal-comma", "1.0.0");
