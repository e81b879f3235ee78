#include "host/plan/target.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <type_traits>

#include "host/plugins/isa.hpp"
#include "tests/plan/little.hpp"

namespace galley {
namespace {

Target base() {
  Target target = little_target();
  target.isa = "x86-64-v3";
  target.threads = 2;
  return target;
}

std::string refusal(const std::string& text) {
  const Result<Target> target = parse_target(text, "t.toml", base());
  if (target.ok()) return "";
  EXPECT_EQ(target.error().exit, Exit::Recipe);
  return target.error().cause + (target.error().hint.empty() ? "" : " | " + target.error().hint);
}

TEST(Target, Overrides) {
  const Result<Target> target =
      parse_target("threads = 8\npeak_flops = 2\nbandwidth = 1.5e11\nmemory_limit = 8_589_934_592\nisa = ''\n", "t.toml", base());
  ASSERT_TRUE(target.ok()) << target.error().cause;
  EXPECT_EQ(target->device, "cpu");
  EXPECT_EQ(target->isa, "");
  EXPECT_EQ(target->threads, 8);
  EXPECT_EQ(target->peak_flops(), 2);
  EXPECT_EQ(target->bandwidth(), 1.5e11);
  EXPECT_EQ(target->memory_limit, int64_t{8} << 30);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(target->memories[i].name, base().memories[i].name);
  EXPECT_EQ(*parse_target("", "t.toml", base()), base());
}

TEST(Target, MemoryClassesAreReplaced) {
  const Result<Target> target = parse_target(
      "queues = ['compute', 'out']\n[[memory]]\nname = 'device'\nalignment = 256\nhost_access = false\n[[memory]]\nname = "
      "'pinned'\ncomputes = false\n",
      "t.toml", base());
  ASSERT_TRUE(target.ok()) << target.error().cause;
  EXPECT_EQ(target->queues, (std::vector{Queue::Compute, Queue::Out}));
  EXPECT_EQ(target->queue_for(Queue::Out), 1u);
  EXPECT_EQ(target->queue_for(Queue::In), 0u);
  EXPECT_EQ(target->host_memory(), 1u);
  EXPECT_EQ(target->memories, (std::vector<MemoryClass>{{"device", 256, false, true}, {"pinned", 64, true, false}}));
}

TEST(Target, Refusals) {
  const std::string options =
      " | options of the target: device, isa, threads, workspace_budget, peak_flops, libraries, bandwidth, "
      "link_bandwidth, memory_limit, "
      "queues, synchronous, "
      "memory, link";
  EXPECT_EQ(refusal("isa = 'a'\nthread = 2\n"), "t.toml:2: unknown option 'thread' of the target; did you mean 'threads'?" + options);
  EXPECT_EQ(refusal("\nthreads = '2'\n"),
            "t.toml:2: 'threads' of the target must be a whole number in [1, 1024], not '2'"
            " | it is a text; an argument of a recipe is one unless its default is a number: arg(\"name\", 2)");
  EXPECT_EQ(refusal("threads = 2.5\n"), "t.toml:1: 'threads' of the target must be a whole number in [1, 1024], not 2.5");
  EXPECT_EQ(refusal("threads = 0\n"), "t.toml:1: 'threads' of the target must be a whole number in [1, 1024], not 0");
  EXPECT_EQ(refusal("memory_limit = -1\n"), "t.toml:1: 'memory_limit' of the target must be a whole number in [0, inf), not -1");
  EXPECT_EQ(refusal("bandwidth = -1.0\n"), "t.toml:1: 'bandwidth' of the target must be a number in (0, 1e+30], not -1");
  EXPECT_EQ(refusal("bandwidth = nan\n"), "t.toml:1: 'bandwidth' of the target must be a number in (0, 1e+30], not nan");
  EXPECT_EQ(refusal("bandwidth = true\n"), "t.toml:1: 'bandwidth' of the target must be a number in (0, 1e+30], not true");
  EXPECT_EQ(refusal("device = ''\n"), "t.toml:1: 'device' of the target must be the name of a device, not ''");
  EXPECT_EQ(refusal("isa = 5\n"), "t.toml:1: 'isa' of the target must be a string, not 5");
  EXPECT_EQ(refusal("threads = 100000\n"), "t.toml:1: 'threads' of the target must be a whole number in [1, 1024], not 100000");
  for (const char* queues : {"['in', 'compute']", "['compute', 'sideways']"})
    EXPECT_EQ(refusal(std::string("queues = ") + queues + "\n").substr(0, 89),
              "t.toml:1: 'queues' of the target must be 'compute', 'in', 'out' and 'exchange', the first")
        << queues;
  EXPECT_EQ(refusal("bandwith = 1\nbandwdth = 1\n"),
            "t.toml:1: unknown option 'bandwith' of the target; did you mean 'bandwidth'?" + options)
      << "the first in the file";
  EXPECT_EQ(refusal("memory = 5\n"), "t.toml:1: 'memory' must be tables, [[memory]]");
  EXPECT_EQ(refusal("[[memory]]\nalignment = 8\n"), "t.toml:1: 'name' of [[memory]] is missing | name = \"spill\"");
  EXPECT_EQ(refusal("[[memory]]\nname = 'a'\nalignment = 48\n"), "t.toml:3: 'alignment' of [[memory]] must be a power of two, not 48");
  EXPECT_EQ(refusal("[[memory]]\nname = 'a'\nhost = true\n"),
            "t.toml:3: unknown option 'host' of [[memory]] | options of [[memory]]: name, alignment, host_access, computes, capacity, "
            "in_bandwidth, out_bandwidth");
  EXPECT_EQ(refusal("[[memory]]\nname = 'a'\ncomputes = 1\n"), "t.toml:3: 'computes' of [[memory]] must be true or false, not 1");
  EXPECT_EQ(refusal("[[memory]]\nname = 'a'\ncomputes = false\n"), "t.toml:1: memory class 0, 'a', does not compute");
  EXPECT_EQ(refusal("[[memory]]\nname = 'a'\n[[memory]]\nname = 'a'\n"), "t.toml:1: two memory classes are called 'a'");
  EXPECT_EQ(refusal("threads = = 2\n").substr(0, 10), "t.toml:1: ");
}

const std::string two_links =
    "[[link]]\nname = 'board'\nranks = 8\nbandwidth = 3e11\nlatency = 5e-6\n[[link]]\nname = 'network'\nbandwidth = 4e10\n";

TEST(Target, Links) {
  const Result<Target> target = parse_target(two_links, "t.toml", base());
  ASSERT_TRUE(target.ok()) << target.error().cause;
  EXPECT_EQ(target->links, (std::vector<Link>{{"board", 8, 3e11, 5e-6}, {"network", 0, 4e10, 0}}));
  for (const int64_t n : {2, 8}) EXPECT_EQ(target->link_for(n)->name, "board") << n;
  for (const int64_t n : {9, 512}) EXPECT_EQ(target->link_for(n)->name, "network") << n;
  EXPECT_EQ(base().link_for(2), nullptr) << "none is known";

  // A text that says nothing of them changes none, unless it is of another machine; and one can say that there are none.
  EXPECT_EQ(parse_target("threads = 3\n", "t.toml", *target)->links, target->links);
  EXPECT_TRUE(parse_target("link = []\n", "t.toml", *target)->links.empty());
  EXPECT_TRUE(parse_target("[[memory]]\nname = 'host'\n", "t.toml", *target)->links.empty());
  const Result<Target> one = parse_target("[[link]]\nname = 'board'\nranks = 4\nbandwidth = 1\n", "t.toml", *target);
  EXPECT_EQ(one->links, (std::vector<Link>{{"board", 4, 1, 0}})) << "those of the text and no others";
  EXPECT_EQ(one->link_for(5), nullptr);
}

TEST(Target, LinkRefusals) {
  const std::string name = "[[link]]\nname = 'a'\n";
  EXPECT_EQ(refusal("link = 5\n"), "t.toml:1: 'link' must be tables, [[link]]");
  EXPECT_EQ(refusal("link = [1]\n"), "t.toml:1: 'link' must be tables, [[link]]");
  EXPECT_EQ(refusal("isa = 'a'\n[[link]]\nbandwidth = 1\n"), "t.toml:2: 'name' of [[link]] is missing | name = \"network\"");
  EXPECT_EQ(refusal(name + "bandwith = 1\n"),
            "t.toml:3: unknown option 'bandwith' of [[link]]; did you mean 'bandwidth'? | options of [[link]]: name, ranks, bandwidth, "
            "latency");
  EXPECT_EQ(refusal(name),
            "t.toml:1: 'bandwidth' of [[link]] is missing | bandwidth = 4.5e10, in bytes a second that one process sends while it receives "
            "as many");
  EXPECT_EQ(refusal(name + "bandwidth = 0\n"), "t.toml:3: 'bandwidth' of [[link]] must be a number in (0, 1e+30], not 0");
  EXPECT_EQ(refusal(name + "bandwidth = 1\nlatency = -1e-6\n"), "t.toml:4: 'latency' of [[link]] must be a number in [0, 60], not -1e-06");
  EXPECT_EQ(refusal(name + "ranks = -2\n"), "t.toml:3: 'ranks' of [[link]] must be a whole number in [0, inf), not -2");
  EXPECT_EQ(refusal(name + "ranks = 1\n"), "t.toml:3: 'ranks' of [[link]] must be 2 or more processes that it joins, or 0 for all, not 1");
  const std::string second = name + "ranks = 4\nbandwidth = 1\n[[link]]\nname = 'b'\nbandwidth = 1\n";
  EXPECT_EQ(refusal(second), "");
  for (const char* ranks : {"3", "4"})
    EXPECT_EQ(refusal(second + "ranks = " + ranks + "\n"),
              std::string("t.toml:8: link 'b' joins ") + ranks +
                  " processes, and 'a' before it 4; the nearest comes first, and each joins more than the one before it");
  EXPECT_EQ(refusal(second + "[[link]]\nname = 'c'\nranks = 9\nbandwidth = 1\n"),
            "t.toml:10: link 'c' comes after 'b', which joins all processes");
  EXPECT_EQ(refusal(name + "ranks = 4\nbandwidth = 1\n" + name + "ranks = 9\nbandwidth = 1\n"), "t.toml:7: two links are called 'a'");
  EXPECT_EQ(refusal("[[link]]\nname = \"a\\nb\"\nbandwidth = 1\n"), "t.toml: a control character in the name 'a\\nb'");
}

TEST(Target, Files) {
  const std::string path = testing::TempDir() + "galley_target_test.toml";
  std::ofstream(path) << "threads = 3\n";
  const Result<Target> target = read_target(path, base());
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->threads, 3);
  std::ofstream(path) << "threads = 3\nx = 1\n";
  EXPECT_EQ(read_target(path, base()).error().cause, path + ":2: unknown option 'x' of the target");
  std::remove(path.c_str());
  const Result<Target> missing = read_target(path, base());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().exit, Exit::Recipe);
  EXPECT_NE(missing.error().cause.find(path), std::string::npos);
}

TEST(Target, ComesBackFromItsText) {
  Target target = base();
  target.isa = "sm_90 \"quoted\"";
  target.peaks = {{"bf16", 2}, {"f32", 1.0 / 3}};
  target.memories[0].in_bandwidth = 1e11;
  target.memories[0].out_bandwidth = 7;
  target.libraries = {{"acme", "1.2\"3"}};
  target.links = {{"board \"x\"", 8, 1.0 / 3, 1e-6}, {"network", 0, 4.5e10, 0}};
  target.memory_limit = int64_t{1} << 40;
  const std::string text = target_toml(target);
  const Result<Target> back = parse_target(text, "run.toml", Target());
  ASSERT_TRUE(back.ok()) << back.error().cause << "\n" << text;
  EXPECT_EQ(*back, target);
  EXPECT_EQ(target_toml(*back), text);
  Target other = base();
  other.links = {{"board", 2, 1, 0}};
  EXPECT_EQ(*parse_target(text, "run.toml", other), target);
  target.links.clear();
  EXPECT_EQ(*parse_target(target_toml(target), "run.toml", other), target) << "none are none, whatever the machine has";
}

TEST(Target, OfTheHostBesideADevice) {
  Target target = base();
  EXPECT_TRUE(target.is_processor());
  target.memories[0].host_access = false;
  EXPECT_FALSE(target.is_processor());
  target.device = "cuda";
  target.isa = "sm_90";
  target.threads = 132;
  target.peaks = {{"bf16", 1e15}, {"f32", 6e13}};
  target.libraries = {{"cublaslt", "13.0"}};
  const Target host = target.of_host();
  EXPECT_EQ(host.device, "cpu");
  EXPECT_EQ(host.isa, cpu_isa());
  EXPECT_EQ(host.threads, 132);
  EXPECT_EQ(host.peaks, Target().peaks);
  EXPECT_TRUE(host.libraries.empty());
  EXPECT_EQ(host.memories, target.memories);
}

TEST(Target, View) {
  Target target = base();
  target.links = {{"board", 8, 3e11, 5e-6}, {"network", 0, 4e10, 3e-5}};
  const TargetView made(target);
  const galley_target& view = *made.get();
  EXPECT_EQ(view.size, sizeof(galley_target));
  EXPECT_EQ(view.device, target.device);
  EXPECT_STREQ(view.isa, "x86-64-v3");
  EXPECT_EQ(view.threads, 2);
  EXPECT_EQ(view.workspace_budget, target.workspace_budget);
  ASSERT_EQ(view.n_memories, target.memories.size());
  EXPECT_EQ(view.memories[0]->in_bandwidth, target.memories[0].in_bandwidth);
  ASSERT_EQ(view.n_peaks, 1u);
  EXPECT_STREQ(view.peaks[0]->name, "f32");
  ASSERT_EQ(view.n_links, 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(view.links[i]->size, sizeof(galley_link));
    EXPECT_EQ(view.links[i]->name, target.links[i].name);
    EXPECT_EQ(view.links[i]->ranks, target.links[i].ranks);
    EXPECT_EQ(view.links[i]->bandwidth, target.links[i].bandwidth);
    EXPECT_EQ(view.links[i]->latency, target.links[i].latency);
  }
  EXPECT_TRUE(galley_target_understood(&view));
}

TEST(Target, PeaksAndLibraries) {
  const Result<Target> target =
      parse_target("peak_flops = { f32 = 1e12, bf16 = 4e12 }\nlibraries = { cublaslt = '13.0' }\nlink_bandwidth = 3e9\n", "t.toml", base());
  ASSERT_TRUE(target.ok()) << target.error().cause;
  EXPECT_EQ(target->peak_flops("bf16"), 4e12);
  EXPECT_EQ(target->peak_flops("f16"), 1e12) << "of an arithmetic that is not listed: F32's";
  EXPECT_EQ(target->products(), "bf16 4");
  EXPECT_EQ(target->libraries, (std::vector<LibraryVersion>{{"cublaslt", "13.0"}}));
  for (size_t i = 1; i < target->memories.size(); ++i) EXPECT_EQ(target->memories[i].out_bandwidth, 3e9);
  EXPECT_EQ(parse_target("peak_flops = { f32 = 0 }\n", "t.toml", base()).error().cause,
            "t.toml:1: 'f32' of 'peak_flops' must be a number in (0, 1e+30], not 0");
  EXPECT_EQ(parse_target("libraries = { a = 1 }\n", "t.toml", base()).error().cause,
            "t.toml:1: 'a' of 'libraries' must be a string, not 1");
  EXPECT_EQ(refusal("peak_flops = {}\n"),
            "t.toml:1: 'peak_flops' of the target must be a number, or a table of numbers: { f32 = 1e12, bf16 = 2e12 }, not a table");
  EXPECT_EQ(refusal("libraries = '13.0'\n"),
            "t.toml:1: 'libraries' of the target must be a table of versions: { cublaslt = \"13.0\" }, not '13.0'");
}

galley_status describe_box(void*, galley_target* out, galley_error*) {
  static const galley_peak peak = {sizeof(galley_peak), 1, "f32", 3e12, 0};
  static const galley_peak* const peaks[] = {&peak};
  out->isa = "box-1";
  out->threads = 7;
  out->peaks = peaks;
  out->n_peaks = 1;
  return GALLEY_OK;
}
galley_status describe_a_stranger(void*, galley_target* out, galley_error*) {
  static const galley_target_memory memory = {sizeof(galley_target_memory), 1, "attic", 1, 1, 1, 0};
  static const galley_target_memory* const memories[] = {&memory};
  out->memories = memories;
  out->n_memories = 1;
  return GALLEY_OK;
}
void give(galley_target* out, const galley_peak* const* list) { out->peaks = list, out->n_peaks = 1; }
void give(galley_target* out, const galley_target_memory* const* list) { out->memories = list, out->n_memories = 1; }
void give(galley_target* out, const galley_library* const* list) { out->libraries = list, out->n_libraries = 1; }
void give(galley_target* out, const galley_link* const* list) { out->links = list, out->n_links = 1; }
template <const auto& given>
galley_status describe_one(void*, galley_target* out, galley_error*) {
  static constexpr const std::remove_reference_t<decltype(given)>* list[] = {&given};
  give(out, list);
  return GALLEY_OK;
}
constexpr galley_peak cut_peak = {8, 1, "f32", 3e12, 0}, nameless_peak = {sizeof(galley_peak), 1, nullptr, 3e12, 0};
constexpr galley_target_memory cut_memory = {8, 1, "fast", 1, 1, 1, 0};
constexpr galley_library cut_library = {8, 1, "acme", "1.0", 0}, nameless_library = {sizeof(galley_library), 1, nullptr, "1.0", 0},
                         library_of_no_version = {sizeof(galley_library), 1, "acme", nullptr, 0};
constexpr galley_link cut_link = {8, 1, "wire", 0, 1, 0, 0}, whole_link = {sizeof(galley_link), 1, "wire", 4, 2e9, 1e-5, 0},
                      nameless_link = {sizeof(galley_link), 1, nullptr, 0, 1, 0, 0},
                      link_of_one = {sizeof(galley_link), 1, "wire", 1, 1, 0, 0}, still_link = {sizeof(galley_link), 1, "wire", 0, 0, 0, 0},
                      hasty_link = {sizeof(galley_link), 1, "wire", 0, 1, -1, 0};
galley_status describe_two_links(void*, galley_target* out, galley_error*) {
  static constexpr const galley_link* links[] = {&whole_link, &whole_link};
  out->links = links;
  out->n_links = 2;
  return GALLEY_OK;
}
galley_status describe_nothing(void*, galley_target*, galley_error* error) {
  std::snprintf(error->text, sizeof(error->text), "the box is shut");
  return GALLEY_FAILED;
}
galley_status describe_throws(void*, galley_target*, galley_error*) { throw 42; }

TEST(Target, OfADevice) {
  const galley_memory_class fast = {sizeof(galley_memory_class), 1, "fast", 128, GALLEY_MEMORY_COMPUTES},
                            slow = {sizeof(galley_memory_class), 1, "slow", 64, GALLEY_MEMORY_HOST_ACCESS};
  const galley_memory_class* memories[] = {&fast, &slow};
  galley_device device = {};
  device.size = sizeof(galley_device);
  device.kind = "box";
  device.memories = memories;
  device.n_memories = 2;
  const galley_queue_info compute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0},
                          in = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
  const galley_queue_info* queues[] = {&compute, &in};
  device.queues = queues;
  device.n_queues = 2;
  device.describe = describe_box;
  const Result<Target> target = describe_target(device);
  ASSERT_TRUE(target.ok()) << target.error().cause;
  EXPECT_EQ(target->device, "box");
  EXPECT_EQ(target->isa, "box-1");
  EXPECT_EQ(target->threads, 7);
  EXPECT_EQ(target->peak_flops(), 3e12);
  EXPECT_EQ(target->bandwidth(), MemoryClass().in_bandwidth) << "left alone";
  EXPECT_EQ(target->memories, (std::vector<MemoryClass>{{"fast", 128, false, true}, {"slow", 64, true, false}}));

  device.describe = describe_nothing;
  EXPECT_EQ(describe_target(device).error().cause, "plugin 'box' failed in describe of device 'box': the box is shut");
  EXPECT_EQ(describe_target(device).error().exit, Exit::Plugin);
  device.describe = describe_throws;
  EXPECT_EQ(describe_target(device).error().exit, Exit::Plugin);
  device.describe = describe_a_stranger;
  EXPECT_EQ(describe_target(device).error().cause, "device 'box' describes this machine with the memory 'attic', which it does not have");
  const auto said = [&](galley_status (*describe)(void*, galley_target*, galley_error*)) {
    device.describe = describe;
    const Result<Target> made = describe_target(device);
    return made.ok() ? "" : made.error().cause.substr(made.error().cause.find("with ") + 5);
  };
  EXPECT_EQ(said(describe_one<cut_peak>), "a peak that has 8 bytes; the least that this version reads is 32");
  EXPECT_EQ(said(describe_one<nameless_peak>), "a peak that has no name");
  EXPECT_EQ(said(describe_one<cut_memory>), "a memory that has 8 bytes; the least that this version reads is 48");
  EXPECT_EQ(said(describe_one<cut_library>), "a library that has 8 bytes; the least that this version reads is 32");
  EXPECT_EQ(said(describe_one<nameless_library>), "a library without name or version");
  EXPECT_EQ(said(describe_one<library_of_no_version>), "a library without name or version");

  EXPECT_EQ(said(describe_one<cut_link>), "a link that has 8 bytes; the least that this version reads is 48");
  EXPECT_EQ(said(describe_one<nameless_link>), "link 0 has no name");
  EXPECT_EQ(said(describe_one<link_of_one>), "link 'wire' joins 1 processes");
  EXPECT_EQ(said(describe_one<still_link>), "link 'wire' has a bandwidth that is not positive");
  EXPECT_EQ(said(describe_one<hasty_link>), "link 'wire' has a latency that is negative");
  EXPECT_EQ(said(describe_two_links), "two links are called 'wire'");
  device.describe = describe_one<whole_link>;
  EXPECT_EQ(describe_target(device)->links, (std::vector<Link>{{"wire", 4, 2e9, 1e-5}}));

  device.describe = describe_box;
  device.n_queues = 0;
  EXPECT_EQ(describe_target(device).error().cause, "device 'box' describes this machine with no queue");
  device.n_memories = 0;
  EXPECT_EQ(describe_target(device).error().cause, "device 'box' describes this machine with no memory class");
}

}  // namespace
}  // namespace galley
