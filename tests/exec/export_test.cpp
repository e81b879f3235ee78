#include "host/exec/export.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>

#include "host/base/file.hpp"
#include "host/base/safetensors.hpp"
#include "tests/exec/small.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;
using small::Builder;
using small::Running;
using Floats = std::vector<float>;

// Two files; one tensor is made while exporting and its memory used again, so that neither order nor time is the file's.
Builder model() {
  Builder b;
  const TensorId w = b.tensor("w", {2, 3}), half = b.tensor("half", {4}, Life::Run, 0, GALLEY_BF16),
                 merged = b.tensor("merged", {2, 3}, Life::Segment);
  const TensorId rest = b.tensor("rest", {5}, Life::Run, 1);
  b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(w)}, 1);
  b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(merged)}, 9);
  b.copy(SegmentKind::Load, w, half, 0, 0).inputs[0].shape = {2};
  Operand plain = b.write(rest);
  plain.shape = {5};
  b.kernel(SegmentKind::Load, small::count_up, {}, {plain}, 100);
  b.write_file("model/model.safetensors", "z", rest);
  b.kernel(SegmentKind::Export, small::add, {b.read(w), b.read(w)}, {b.write(merged)});
  b.write_file("model/model.safetensors", "a", merged);
  b.kernel(SegmentKind::Export, small::fill, {}, {b.write(merged)}, 0);
  b.write_file("model/model.safetensors", "half", half);
  b.write_file("adapter/adapter.safetensors", "w", w);
  b.program.documents = {{"model/config.json", "{}\n"}};
  return b;
}

Floats entry(const fs::path& file, const std::string& name) {
  auto reader = tensor_files::Reader::open(file);
  EXPECT_TRUE(reader.ok());
  const tensor_files::Entry* found = reader->find(name);
  if (!found) return {};
  Floats out(found->bytes / 4);
  EXPECT_TRUE(reader->read(*found, std::as_writable_bytes(std::span(out))).ok());
  return out;
}

TEST(Export, WritesFilesAndDocuments) {
  std::string first;
  for (const bool lazy : {false, true}) {
    const fs::path run = small::scratch();
    Running r(model(), lazy, lazy ? Poison::Yes : Poison::No);
    ASSERT_TRUE(r.executor->load().ok());
    for (int again = 0; again < 2; ++again) {  // over what an earlier export left
      std::ofstream(run / "model.safetensors.tmp") << "";
      const Status status = r.executor->export_model(run);
      ASSERT_TRUE(status.ok()) << status.error().cause;
    }
    EXPECT_EQ(entry(run / "model/model.safetensors", "a"), (Floats{2, 4, 6, 8, 10, 12}));
    EXPECT_EQ(entry(run / "model/model.safetensors", "z"), (Floats{100, 101, 102, 103, 104}));
    EXPECT_EQ(entry(run / "adapter/adapter.safetensors", "w"), (Floats{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(*read_text(run / "model/config.json"), "{}\n");
    EXPECT_EQ(std::distance(fs::directory_iterator(run / "model"), fs::directory_iterator()), 2);
    const std::string bytes = *read_text(run / "model/model.safetensors");
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

TEST(Export, ADiskThatIsFullLeavesWhatWasThere) {
  const fs::path run = small::scratch();
  Running r(model());
  ASSERT_TRUE(r.executor->load().ok());
  ASSERT_TRUE(r.executor->export_model(run).ok());
  const std::string before = *read_text(run / "model/model.safetensors");
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit, tight;
  ::getrlimit(RLIMIT_FSIZE, &limit);
  tight = limit;
  tight.rlim_cur = before.size() - 8;
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const Status status = r.executor->export_model(run);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Failed);
  EXPECT_EQ(*read_text(run / "model/model.safetensors"), before);
  EXPECT_FALSE(fs::exists(run / "model/model.safetensors.tmp"));
  EXPECT_FALSE(fs::exists(run / "adapter/adapter.safetensors.tmp"));
}

// Every file below the run directory and what is in it.
std::map<std::string, std::string> contents(const fs::path& run) {
  std::map<std::string, std::string> out;
  for (const auto& found : fs::recursive_directory_iterator(run))
    if (found.is_regular_file()) out[fs::relative(found.path(), run)] = *read_text(found.path());
  return out;
}

/// Runs `work` in a process that is killed after it, so that what it returns is not tidied up.
template <class Work>
void killed(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto kept = work();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// In the dtype of the file, whatever the operand has; in pieces that are larger than the buffer in which they are converted.
TEST(Export, RoundsOnceToTheFilesDtype) {
  constexpr int64_t many = 40'000;
  for (const bool lazy : {false, true}) {
    Builder b;
    const TensorId w = b.tensor("w", {many}), large = b.tensor("large", {3}, Life::Run, lazy ? 1 : 0);
    b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(w)}, 1);
    b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(large)},
             65'519);  // the largest number that rounds to one of F16, and two that do not
    b.write_file("model/model.safetensors", "w", w).dtype = GALLEY_BF16;
    b.write_file("model/model.safetensors", "large", large).dtype = GALLEY_BF16;
    const fs::path run = small::scratch();
    Running r(b, lazy);
    ASSERT_TRUE(r.executor->load().ok());
    ASSERT_TRUE(r.executor->export_model(run).ok());
    auto reader = tensor_files::Reader::open(run / "model/model.safetensors");
    ASSERT_TRUE(reader.ok());
    const tensor_files::Entry* found = reader->find("w");
    ASSERT_TRUE(found && found->dtype == safetensors::Dtype::BF16);
    std::vector<uint16_t> saved(many);
    ASSERT_TRUE(reader->read(*found, std::as_writable_bytes(std::span(saved))).ok());
    EXPECT_EQ(saved[0], 0x3F80);         // 1
    EXPECT_EQ(saved[256], 0x4380);       // 257 lies between 256 and 258: to even
    EXPECT_EQ(saved[258], 0x4382);       // 259: to 260
    EXPECT_EQ(saved[many - 1], 0x471C);  // 40,000 becomes 39,936

    std::get<Write>(b.program.segment(SegmentKind::Export).code[1].what).dtype = GALLEY_F16;
    const fs::path other = small::scratch();
    Running again(b, lazy);
    ASSERT_TRUE(again.executor->load().ok());
    const Status status = again.executor->export_model(other);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().cause, "model/model.safetensors: tensor 'large', element 1: 65520 does not fit F16");
    EXPECT_TRUE(fs::is_empty(other / "model"));
  }
}

TEST(Export, AKilledOneLeavesWhatWasThere) {
  const fs::path run = small::scratch();
  Running r(model());
  ASSERT_TRUE(r.executor->load().ok());
  ASSERT_TRUE(r.executor->export_model(run).ok());
  const auto before = contents(run);
  ASSERT_EQ(before.size(), 3u);
  const Program& program = r.executor->program();
  const Instruction* written = nullptr;
  for (const Instruction& code : program.segment(SegmentKind::Export).code)
    if (code.write()) written = &code;

  killed([&] { return Exporter::create(program, r.executor->machine(), run); });
  killed([&] {
    auto exporter = Exporter::create(program, r.executor->machine(), run);
    if (exporter.ok()) (void)exporter->write(*written);
    return exporter;
  });
  auto after = contents(run);
  EXPECT_EQ(std::erase_if(after, [](const auto& file) { return file.first.find(".tmp-") != std::string::npos; }), 2u);
  EXPECT_EQ(after, before);
  ASSERT_TRUE(r.executor->export_model(run).ok());
  EXPECT_EQ(contents(run), before) << "the next one does not overwrite what the killed one left";
}

TEST(Export, OneThatIsGivenUpRemovesWhatItWrote) {
  const fs::path run = small::scratch();
  Running r(model());
  ASSERT_TRUE(r.executor->load().ok());
  {
    auto exporter = Exporter::create(r.executor->program(), r.executor->machine(), run);
    ASSERT_TRUE(exporter.ok());
    EXPECT_EQ(contents(run).size(), 2u);
    const Status status = exporter->finish();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().cause.find("was not written"), std::string::npos);
  }
  EXPECT_TRUE(contents(run).empty());
}

TEST(Export, TensorsComeBehindWhatDescribesThem) {
  const fs::path run = small::scratch();
  Running r(model());
  ASSERT_TRUE(r.executor->load().ok());
  fs::create_directories(run / "model/config.json");  // cannot be replaced by a file
  const Status status = r.executor->export_model(run);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Failed);
  EXPECT_NE(status.error().cause.find("model/config.json"), std::string::npos);
  EXPECT_TRUE(contents(run).empty()) << "tensors without their configuration";
}

TEST(Export, AFolderThatCannotBeMadeIsAnErrorOfTheRun) {
  const fs::path run = small::scratch();
  Running r(model());
  ASSERT_TRUE(r.executor->load().ok());
  std::ofstream(run / "model") << "a file";
  const Status status = r.executor->export_model(run);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Failed);
  EXPECT_NE(status.error().cause.find((run / "model").string()), std::string::npos);
  EXPECT_EQ(contents(run), (std::map<std::string, std::string>{{"model", "a file"}}));
}

TEST(Export, AWriteElsewhereIsAMistake) {
  Builder b;
  const TensorId x = b.tensor("x", {1});
  b.write_file("f", "x", x);
  b.program.segment(SegmentKind::Eval) = b.program.segment(SegmentKind::Export);
  b.program.segment(SegmentKind::Export).code.clear();
  Running r(b);
  EXPECT_FALSE(r.executor->run(SegmentKind::Eval).ok());
}

}  // namespace
}  // namespace galley
