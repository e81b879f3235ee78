// What a manifest says, and one message for everything that can be wrong with one.
#include "host/plugins/manifest.hpp"

#include <gtest/gtest.h>

namespace galley {
namespace {

const std::string head = "id = \"x\"\nversion = \"1\"\nabi = \"0.4\"\n";
const std::string strategy = head + "[[strategy]]\nname = \"s\"\nsummary = \"does\"\nexactness = \"bits\"\n";
const std::string option = strategy + "[[strategy.option]]\nname = \"o\"\ndescription = \"is\"\n";

std::string cause(const std::string& text) {
  const Result<Manifest> manifest = parse_manifest(text, "plugin.toml");
  if (manifest.ok()) return "";
  EXPECT_EQ(manifest.error().exit, Exit::Plugin);
  return manifest.error().cause;
}

TEST(Manifest, SaysWhatAPluginIs) {
  const Result<Manifest> read = parse_manifest(R"toml(
id = "quantize"
version = "2.1.0"
state_version = 3
abi = "0.4"
summary = "Quantization"
kernels = [ { device = "cuda", isa = "sm_80", library = "q-cuda.so" } ]
[library]
plugin = "q.so"
[provides]
ops = ["pack", "unpack"]
kernels = ["linear"]
formats = ["nf4"]
devices = ["fpga"]
[[strategy]]
name = "quantize-nf4"
summary = "Four bits"
source = "Dettmers"
exactness = "approximate"
provides = [{ facet = "storage", value = "nf4", when = { kind = ["nf4", "fp4"], double = true } }]
needs = [{ facet = "window", value = 1 }]
config = ["quantization_config"]
against = { arm = "without", batch = "block", within = 0.5, when = { kind = "nf4" }, unless = ["betas"] }
[[strategy.option]]
name = "kind"
type = "choice"
choices = ["nf4", "fp4", "af4"]
default = "nf4"
description = "Code book."
[[strategy.option]]
name = "double"
type = "boolean"
default = true
description = "Twice."
aliases = ["double_quant", "nested"]
[[strategy.option]]
name = "betas"
type = "numbers"
length = 2
range = "[0, 1)"
default = [0, 0.5]
description = "Two."
[[strategy.option]]
name = "block"
type = "integer"
min = 32
max = 4096
schedule = true
description = "Elements."
)toml",
                                               "/there/plugin.toml");
  ASSERT_TRUE(read.ok()) << read.error().cause;
  const Manifest& m = *read;
  EXPECT_EQ(m.id, "quantize");
  EXPECT_EQ(m.version, "2.1.0");
  EXPECT_EQ(m.state_version, 3);
  EXPECT_EQ(m.abi_major, 0u);
  EXPECT_EQ(m.abi_minor, 4u);
  EXPECT_EQ(m.folder(), "/there");
  EXPECT_EQ(m.library, "q.so");
  ASSERT_EQ(m.kernel_libraries.size(), 1u);
  EXPECT_EQ(m.kernel_libraries[0].isa, "sm_80");
  EXPECT_EQ(m.ops, (std::vector<std::string>{"pack", "unpack"}));
  EXPECT_EQ(m.kernels, std::vector<std::string>{"linear"});
  EXPECT_EQ(m.formats, std::vector<std::string>{"nf4"});
  EXPECT_EQ(m.devices, std::vector<std::string>{"fpga"});

  const StrategySpec* s = m.strategy("quantize-nf4");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->exactness, Exactness::Approximate);
  ASSERT_EQ(s->provides.size(), 1u);
  EXPECT_TRUE(s->provides[0].holds({{"kind", Value("fp4")}, {"double", Value(true)}}));
  EXPECT_FALSE(s->provides[0].holds({{"kind", Value("af4")}, {"double", Value(true)}}));
  EXPECT_FALSE(s->provides[0].holds({{"kind", Value("fp4")}}));
  ASSERT_EQ(s->needs.size(), 1u);
  EXPECT_TRUE(s->needs[0].holds({}));
  EXPECT_EQ(s->config, std::vector<std::string>{"quantization_config"});
  EXPECT_EQ(s->against.arm, Against::Arm::Without);
  EXPECT_EQ(s->against.batch, "block");
  EXPECT_EQ(s->against.within, 0.5);
  EXPECT_TRUE(s->against.holds({{"kind", Value("nf4")}, {"betas", Value(List{})}}, {}));
  EXPECT_FALSE(s->against.holds({{"kind", Value("af4")}}, {}));
  EXPECT_FALSE(s->against.holds({{"kind", Value("nf4")}}, {{"betas", Value(List{})}}));
  EXPECT_EQ(s->against.text(),
            "the same recipe without it, whose batch is `block` times as large, within 0.5, if `kind` is \"nf4\", unless `betas` is given");
  EXPECT_EQ(s->option("betas")->fallback, Value(List{Value(0.0), Value(0.5)}));
  EXPECT_EQ(s->option("betas")->expects(), "a list of 2 numbers in [0, 1)");
  EXPECT_EQ(s->option("block")->expects(), "a whole number in [32, 4096], or a schedule");
  EXPECT_EQ(s->option("kind")->expects(), "'nf4', 'fp4' or 'af4'");
  EXPECT_EQ(s->option("none"), nullptr);
}

TEST(Manifest, DefaultsAreFew) {
  const Result<Manifest> m = parse_manifest(head, "plugin.toml");
  ASSERT_TRUE(m.ok());
  EXPECT_EQ(m->library, "x.so");
  EXPECT_EQ(m->state_version, 1);
}

TEST(Manifest, RequirementsCompareVersions) {
  const auto meets = [](const std::string& requirement, const std::string& version) {
    const auto made = parse_manifest(head + "requires = [\"" + requirement + "\"]\n", "plugin.toml");
    EXPECT_TRUE(made.ok()) << made.error().cause;
    EXPECT_EQ(made->requirements.at(0).id, "other");
    return made->requirements.at(0).met_by(version);
  };
  EXPECT_TRUE(meets("other", "0.1"));
  EXPECT_TRUE(meets("other >= 1.2", "1.2.0"));
  EXPECT_TRUE(meets("other >= 1.2", "1.10"));
  EXPECT_TRUE(meets("other >= 1.2", "2"));
  EXPECT_TRUE(meets("other >= 1", "1.0.0-rc1"));
  EXPECT_FALSE(meets("other >= 1.2", "1.1.9"));
  EXPECT_FALSE(meets("other >= 1.2", "1"));
  for (const char* wrong : {"other > 1", "other >=1", "other >= ", "other >= x", "other >= 1 ", ">= 1", "Other"})
    EXPECT_EQ(cause(head + "requires = [\"" + wrong + "\"]\n"),
              "plugin.toml:4: 'requires' must be a list like [\"example >= 1.2\"], not '" + std::string(wrong) + "'");
}

TEST(Manifest, WhatIsMissing) {
  EXPECT_EQ(cause(""), "plugin.toml:1: the manifest has no 'id'");
  EXPECT_EQ(cause("id = \"x\"\n"), "plugin.toml:1: the manifest has no 'abi'");
  EXPECT_EQ(cause("id = \"x\"\nabi = \"0.4\"\n"), "plugin.toml:1: the manifest has no 'version'");
  EXPECT_EQ(cause(head + "[[strategy]]\nsummary = \"x\"\n"), "plugin.toml:4: [[strategy]] has no 'name'");
  EXPECT_EQ(cause(head + "[[strategy]]\nname = \"s\"\n"), "plugin.toml:4: strategy 's' has no 'summary'");
  EXPECT_EQ(cause(head + "[[strategy]]\nname = \"s\"\nsummary = \"x\"\n"), "plugin.toml:4: strategy 's' has no 'exactness'");
  EXPECT_EQ(cause(option), "plugin.toml:8: option 'o' of s has no 'type'");
  EXPECT_EQ(cause(strategy + "[[strategy.option]]\nname = \"o\"\n"), "plugin.toml:8: option 'o' of s has no 'description'");
  EXPECT_EQ(cause(option + "type = \"choice\"\n"), "plugin.toml:8: option 'o' of s has no 'choices'");
  EXPECT_EQ(cause(strategy + "provides = [{ facet = \"storage\" }]\n"), "plugin.toml:8: 'provides' of s has no 'value'");
  EXPECT_EQ(cause(head + "[[kernels]]\ndevice = \"cpu\"\n"), "plugin.toml:4: [[kernels]] has no 'library'");
}

TEST(Manifest, WhatIsUnknown) {
  EXPECT_EQ(cause(head + "sumary = \"x\"\n"), "plugin.toml:4: unknown key 'sumary' in the manifest; did you mean 'summary'?");
  EXPECT_EQ(cause(strategy + "sourc = \"x\"\n"), "plugin.toml:8: unknown key 'sourc' in strategy 's'; did you mean 'source'?");
  EXPECT_EQ(cause(option + "type = \"number\"\nrang = \"(0, 1)\"\n"),
            "plugin.toml:12: unknown key 'rang' in option 'o' of s; did you mean 'range'?");
  EXPECT_EQ(cause(option + "type = \"nomber\"\n"), "plugin.toml:11: unknown type 'nomber' of option 'o' of s; did you mean 'number'?");
  EXPECT_EQ(cause(strategy + "provides = [{ facet = \"storge\", value = 1 }]\n"),
            "plugin.toml:8: unknown facet 'storge' in 'provides' of s; did you mean 'storage'?");
  EXPECT_EQ(cause(head + "[library]\nplugins = \"x.so\"\n"), "plugin.toml:5: unknown key 'plugins' in [library]; did you mean 'plugin'?");
}

TEST(Manifest, WhatIsWrong) {
  EXPECT_EQ(cause("id = \"X\"\nversion = \"1\"\nabi = \"0.4\"\n"),
            "plugin.toml:1: 'id' must be lower-case letters, digits, '.', '_' and '-', not 'X'");
  EXPECT_EQ(cause("id = 5\n"), "plugin.toml:1: 'id' must be a string that is not empty");
  EXPECT_EQ(cause("id = \"x\"\nversion = \"1\"\nabi = \"1\"\n"), "plugin.toml:3: 'abi' must be a version like \"0.3\", not '1'");
  EXPECT_EQ(cause(head + "[library]\nplugin = \"../x.so\"\n"),
            "plugin.toml:5: 'plugin' must be the name of a file in the plugin's folder, not '../x.so'");
  EXPECT_EQ(cause(head + "library = \"x.so\"\n"), "plugin.toml:4: 'library' must be a table: [library]");
  EXPECT_EQ(cause(head + "strategy = { name = \"s\" }\n"), "plugin.toml:4: 'strategy' must be a list of tables: [[strategy]]");
  EXPECT_EQ(cause(head + "[provides]\nops = \"x\"\n"), "plugin.toml:5: 'ops' must be a list of strings");
  EXPECT_EQ(cause(head + "state_version = \"x\"\n"), "plugin.toml:4: 'state_version' must be a whole number");
  EXPECT_EQ(cause(strategy + "[[strategy]]\nname = \"s\"\nsummary = \"x\"\nexactness = \"bits\"\n"),
            "plugin.toml:8: two strategies are called 's'");
  EXPECT_EQ(cause(option + "type = \"string\"\n[[strategy.option]]\nname = \"o\"\ntype = \"path\"\ndescription = \"x\"\n"),
            "plugin.toml:12: two options of s are called 'o'");
  EXPECT_EQ(cause(head + "[[strategy]]\nname = \"s\"\nsummary = \"x\"\nexactness = \"exact\"\n"),
            "plugin.toml:7: 'exactness' must be 'bits', 'rounding' or 'approximate', not 'exact'");
  EXPECT_EQ(cause(option + "type = \"string\"\nrange = \"[0, 1]\"\n"),
            "plugin.toml:12: 'range' means nothing for option 'o' of s, which is of type string");
  EXPECT_EQ(cause(option + "type = \"number\"\nrange = \"[1, 0]\"\n"),
            "plugin.toml:12: 'range': '[1, 0]' is not an interval like \"[0, 1)\" or \"(0, inf)\"");
  EXPECT_EQ(cause(option + "type = \"number\"\nrange = \"0..1\"\n"),
            "plugin.toml:12: 'range': '0..1' is not an interval like \"[0, 1)\" or \"(0, inf)\"");
  EXPECT_EQ(cause(option + "type = \"number\"\nrange = \"[0, 1]\"\nmin = 0\n"),
            "plugin.toml:12: 'range' stands beside neither 'min' nor 'max'");
  EXPECT_EQ(cause(option + "type = \"number\"\nmin = \"0\"\n"), "plugin.toml:12: 'min' must be a number");
  EXPECT_EQ(cause(option + "type = \"number\"\ndefault = \"x\"\n"),
            "plugin.toml:12: the default of option 'o' of s must be a number, not 'x'");
  EXPECT_EQ(cause(option + "type = \"number\"\nmax = 1\ndefault = 2\n"),
            "plugin.toml:13: the default of option 'o' of s must be a number in (-inf, 1], not 2");
  EXPECT_EQ(cause(option + "type = \"number\"\nrequired = true\ndefault = 2\n"),
            "plugin.toml:13: option 'o' of s is required and so has no default");
  EXPECT_EQ(cause(option + "type = \"number\"\nschedule = 1\n"), "plugin.toml:12: 'schedule' must be true or false");
  EXPECT_EQ(cause(strategy + "needs = [{ facet = \"storage\", value = 1, when = { o = 1 } }]\n"),
            "plugin.toml:8: 'when' names 'o', which is no option of s");
  EXPECT_EQ(cause(strategy + "needs = [{ facet = \"storage\", value = 0.5 }]\n"),
            "plugin.toml:8: the value of a facet is a string, a whole number or a boolean");
  EXPECT_EQ(cause(option + "type = \"boolean\"\n[[strategy]]\nname = \"t\"\nsummary = \"x\"\nexactness = \"bits\"\nneeds = [1]\n"),
            "plugin.toml:16: 'needs' must be a list of tables: [[needs]]");
}

TEST(Manifest, WhatStrategiesAreHeldAgainst) {
  const auto against = [](const std::string& text) {
    const auto made = parse_manifest(strategy + "against = " + text + "\n", "plugin.toml");
    EXPECT_TRUE(made.ok()) << made.error().cause;
    return made.ok() ? made->strategies.at(0).against.text() : "";
  };
  EXPECT_EQ(against("\"without\""), "the same recipe without it");
  EXPECT_EQ(against("\"gradients\""), "the loss and the gradients of the same recipe without it");
  EXPECT_EQ(against("{ arm = \"start\" }"), "the loss of the model without it, before the first update");
  EXPECT_EQ(against("{ instead = \"adamw\" }"), "the same recipe with adamw");
  const auto wrong = [](const std::string& text) { return cause(strategy + "against = " + text + "\n"); };
  EXPECT_EQ(wrong("\"with\""), "plugin.toml:8: 'against' of s must be 'without', 'gradients' or 'start', not 'with'");
  EXPECT_EQ(wrong("5"), "plugin.toml:8: 'against' of s must be 'without', 'gradients' or 'start', or a table");
  EXPECT_EQ(wrong("{ }"), "plugin.toml:8: 'against' of s has either an 'arm' or an 'instead'");
  EXPECT_EQ(wrong("{ arm = \"start\", instead = \"adamw\" }"), "plugin.toml:8: 'against' of s has either an 'arm' or an 'instead'");
  EXPECT_EQ(wrong("{ arm = \"start\", whithin = 1 }"), "plugin.toml:8: unknown key 'whithin' in 'against' of s; did you mean 'within'?");
  EXPECT_EQ(wrong("{ arm = \"start\", within = 1 }"), "plugin.toml:8: 'within' is of strategies that are 'approximate'");
  EXPECT_EQ(wrong("{ arm = \"start\", within = { size = 1 } }"), "plugin.toml:8: unknown key 'size' in 'within' of s");
  const auto coarse = parse_manifest(head + "[[strategy]]\nname = \"s\"\nsummary = \"does\"\nexactness = \"approximate\"\n" +
                                         "against = { arm = \"without\", within = { loss = 0.1, gradients = 0.5 } }\n",
                                     "plugin.toml");
  ASSERT_TRUE(coarse.ok()) << coarse.error().cause;
  EXPECT_EQ(coarse->strategies.at(0).against.text(), "the same recipe without it, losses within 0.1, gradients within 0.5");
  EXPECT_EQ(wrong("{ arm = \"start\", within = 0 }"), "plugin.toml:8: 'within' must be a number above 0");
  EXPECT_EQ(wrong("{ arm = \"without\", batch = \"o\" }"), "plugin.toml:8: 'batch' names 'o', which is no integer option of s");
  EXPECT_EQ(wrong("{ arm = \"without\", unless = [\"o\"] }"), "plugin.toml:8: 'unless' names 'o', which is no option of s");
  EXPECT_EQ(wrong("{ arm = \"without\", when = { o = 1 } }"), "plugin.toml:8: 'when' names 'o', which is no option of s");
}

TEST(Manifest, WhatFormatsPromise) {
  const std::string begin = "id = \"p\"\nversion = \"1.0.0\"\nabi = \"0.4\"\n[provides]\nformats = [\"q\"]\n[[promise]]\n";
  const auto made = parse_manifest(
      begin + "format = \"q\"\nblock = \"size\"\nwithin = 0.2\nlargest = 0\ngroup = 8\nof_group = 0.1\nwhen = { double = [1] }\n",
      "plugin.toml");
  ASSERT_TRUE(made.ok()) << made.error().cause;
  const FormatPromise& promise = made->promises.at(0);
  EXPECT_EQ(promise.format, "q");
  EXPECT_EQ(promise.block_of, "size");
  EXPECT_EQ(promise.within, 0.2);
  EXPECT_EQ(promise.largest, 0);
  EXPECT_EQ(promise.group, 8);
  EXPECT_EQ(promise.of_group, 0.1);
  EXPECT_EQ(promise.when.at("double"), List{Value(int64_t{1})});
  const auto rows = parse_manifest(begin + "format = \"q\"\nblock = \"row\"\nwithin = 0.2\n", "plugin.toml");
  ASSERT_TRUE(rows.ok()) << rows.error().cause;
  EXPECT_EQ(rows->promises.at(0).block, 0);
  EXPECT_EQ(rows->promises.at(0).block_of, "");
  EXPECT_EQ(rows->promises.at(0).largest, 0.2);
  EXPECT_EQ(cause(begin + "format = \"r\"\nblock = 64\nwithin = 0.2\n"),
            "plugin.toml:7: 'format' names 'r', which is not among the formats that [provides] lists");
  EXPECT_EQ(cause(begin + "format = \"q\"\nblock = 0\nwithin = 0.2\n"),
            "plugin.toml:8: 'block' must be a number of at least 1, \"row\", or an attribute's name");
  EXPECT_EQ(cause(begin + "format = \"q\"\nblock = 64\n"), "plugin.toml:6: [[promise]] without 'within'");
  EXPECT_EQ(cause(begin + "format = \"q\"\nblock = 64\nwithin = -1\n"), "plugin.toml:9: 'within' must be a number of at least 0");
}

TEST(Manifest, WhatIsNoToml) {
  const std::string message = cause(head + "[[strategy]\n");
  EXPECT_EQ(message.substr(0, 14), "plugin.toml:4:") << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(Manifest, OfALaterAbi) {
  const std::string later = "id = \"x\"\nversion = \"1\"\nabi = \"1.7\"\nnovelty = 1\n";
  const Result<Manifest> readable = parse_manifest(later, "plugin.toml");
  ASSERT_TRUE(readable.ok());
  EXPECT_EQ(abi_problem(readable->abi_major, readable->abi_minor),
            "needs ABI 1.7, this Galley has 0.4: drafts do not mix, build it again with this version's SDK");
  // What cannot be read of it is explained by the number, not by the key.
  EXPECT_EQ(cause(later + "strategy = 7\n"),
            "plugin.toml:3: the plugin needs ABI 1.7, this Galley has 0.4: drafts do not mix, build it again with this version's SDK");
  EXPECT_EQ(cause("id = \"x\"\nversion = \"1\"\nabi = \"2.0\"\nlibrary = 7\n"),
            "plugin.toml:3: the plugin needs ABI 2.0, this Galley has 0.4: drafts do not mix, build it again with this version's SDK");
}

}  // namespace
}  // namespace galley
