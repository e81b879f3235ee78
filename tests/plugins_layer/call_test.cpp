// What comes back from a plugin as an error of the host.
#include "host/plugins/call.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "host/base/ordered.hpp"
#include "host/base/safetensors.hpp"
#include "host/plugins/files_service.hpp"
#include "host/plugins/host_table.hpp"

namespace galley {
namespace {

const Caller lora = {"lora", "lora", {"recipe.lua", 14}}, vendor = {"acme", "acme-lora", {"recipe.lua", 14}}, models = {"models"};

Error error(const Caller& caller, galley_status status, const char* text, Phase phase = Phase::Plan) {
  const Status answer = call_plugin(
      caller, "claim",
      [&](galley_error* e) {
        std::snprintf(e->text, sizeof e->text, "%s", text);
        return status;
      },
      phase);
  EXPECT_FALSE(answer.ok());
  return answer.ok() ? Error{} : answer.error();
}

TEST(Call, StatusBecomesAnError) {
  EXPECT_EQ(error(lora, GALLEY_INVALID, "no such layer").cause, "recipe.lua:14: lora: no such layer");
  EXPECT_EQ(error(lora, GALLEY_INVALID, "no such layer").exit, Exit::Recipe);
  EXPECT_EQ(error(lora, GALLEY_UNSUPPORTED, "not here").exit, Exit::Recipe);
  EXPECT_EQ(error(lora, GALLEY_FAILED, "disk").cause, "recipe.lua:14: plugin 'lora' failed in claim: disk");
  EXPECT_EQ(error(lora, GALLEY_FAILED, "disk").exit, Exit::Plugin);
  EXPECT_EQ(error(vendor, GALLEY_FAILED, "disk").cause, "recipe.lua:14: plugin 'acme' failed in claim of acme-lora: disk");
  EXPECT_EQ(error(models, GALLEY_INVALID, "x is odd").cause, "claim (plugin 'models'): x is odd");
  EXPECT_EQ(error(models, GALLEY_INVALID, "x is odd", Phase::Run).cause, "plugin 'models' failed in claim: x is odd");
  EXPECT_EQ(error(models, GALLEY_INVALID, "x is odd", Phase::Run).exit, Exit::Plugin);
  EXPECT_EQ(error(models, GALLEY_LOST, "rank 1 is gone", Phase::Run).cause, "rank 1 is gone");
  EXPECT_EQ(error(models, GALLEY_LOST, "rank 1 is gone", Phase::Run).exit, Exit::Failed);
}

TEST(Call, TextsAreOneLineAndEnd) {
  EXPECT_EQ(error(lora, GALLEY_INVALID, "two\nlines\n").cause, "recipe.lua:14: lora: two lines");
  EXPECT_EQ(error(lora, 77, "").cause, "recipe.lua:14: plugin 'lora' failed in claim: status 77 without a reason");
  const Status endless = call_plugin(lora, "claim", [](galley_error* e) {
    std::memset(e->text, 'x', sizeof e->text);
    return GALLEY_INVALID;
  });
  EXPECT_EQ(endless.error().cause, "recipe.lua:14: lora: " + std::string(sizeof(galley_error::text), 'x'));
}

TEST(Call, ExceptionsBecomeErrors) {
  const Status known = call_plugin(lora, "create", [](galley_error*) -> galley_status { throw std::runtime_error("bang"); });
  EXPECT_EQ(known.error().cause, "recipe.lua:14: plugin 'lora' let an exception escape in create: bang");
  EXPECT_EQ(known.error().exit, Exit::Plugin);
  const Status unknown = call_plugin(lora, "create", [](galley_error*) -> galley_status { throw 42; });
  EXPECT_EQ(unknown.error().cause, "recipe.lua:14: plugin 'lora' let an exception escape in create: an exception of unknown type");
  EXPECT_TRUE(call_plugin(lora, "create", [](galley_error*) { return GALLEY_OK; }).ok());
}

TEST(HostTable, ParallelDoesEachBlockOnce) {
  const galley_host* host = host_table();
  for (const int threads : {1, 2, 5}) {
    set_compute_threads(threads);
    for (const int64_t blocks : {0, 1, 2, 1000}) {
      std::vector<int> done(static_cast<size_t>(blocks) + 1);
      host->parallel(
          host->context, blocks,
          [](void* context, int64_t block) { ++(*static_cast<std::vector<int>*>(context))[static_cast<size_t>(block)]; }, &done);
      for (int64_t i = 0; i < blocks; ++i)
        ASSERT_EQ(done[static_cast<size_t>(i)], 1) << threads << " threads, block " << i << " of " << blocks;
      EXPECT_EQ(done.back(), 0);
    }
  }
}

TEST(HostTable, ParallelIsParallel) {
  if (usable_threads() < 2) GTEST_SKIP() << "there is one processor";
  set_compute_threads(2);
  // Each of two blocks waits for the other one to begin.
  struct Meeting {
    std::atomic<int> begun = 0;
    std::atomic<int> met = 0;
  } meeting;
  host_table()->parallel(
      nullptr, 2,
      [](void* context, int64_t) {
        auto& m = *static_cast<Meeting*>(context);
        ++m.begun;
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (m.begun < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
        if (m.begun == 2) ++m.met;
      },
      &meeting);
  EXPECT_EQ(meeting.met, 2) << "every kernel runs on one thread";
}

TEST(HostTable, ACallInsideACallRunsWhereItIs) {
  set_compute_threads(2);
  struct Sums {
    int64_t outer[8] = {};
  } sums;
  host_table()->parallel(
      nullptr, 8,
      [](void* context, int64_t block) {
        host_table()->parallel(
            nullptr, 100, [](void* slot, int64_t i) { *static_cast<int64_t*>(slot) += i; }, &static_cast<Sums*>(context)->outer[block]);
      },
      &sums);
  for (const int64_t sum : sums.outer) EXPECT_EQ(sum, 4950);
}

TEST(HostTable, LogsAndHasOneService) {
  EXPECT_EQ(host_table()->service(nullptr, "com.acme.thing/1"), nullptr);
  EXPECT_EQ(host_table()->service(nullptr, nullptr), nullptr);
  EXPECT_EQ(host_table()->service(nullptr, GALLEY_FILES), files_service());
  EXPECT_EQ(host_table()->abi_major, GALLEY_ABI_MAJOR);
  host_table()->log(nullptr, GALLEY_LOG_DEBUG, "a line with {} in it");
  host_table()->log(nullptr, GALLEY_LOG_DEBUG, nullptr);
}

class Files : public testing::Test {
 protected:
  /// The error's text, or what was seen.
  std::string text(const char* path, uint64_t limit = 100) {
    std::string out;
    galley_error error = GALLEY_ERROR_INIT;
    status = files_service()->text(
        nullptr, path, limit,
        [](void* context, const char* text, uint64_t bytes) {
          static_cast<std::string*>(context)->assign(text, bytes);
          return galley_status{GALLEY_OK};
        },
        &out, &error);
    return status == GALLEY_OK ? out : error.text;
  }
  std::string tensors(const char* path) {
    std::string out;
    galley_error error = GALLEY_ERROR_INIT;
    status = files_service()->tensors(
        nullptr, path,
        [](void* context, const galley_file_tensor* t) {
          auto& lines = *static_cast<std::string*>(context);
          lines += std::string(t->name) + " " + t->dtype + " ";
          for (uint32_t i = 0; i < t->rank; ++i) lines += std::to_string(t->extents[i]) + " ";
          lines += std::to_string(t->bytes) + "\n";
          return galley_status{lines.size() > most ? GALLEY_UNSUPPORTED : GALLEY_OK};
        },
        &out, &error);
    return status == GALLEY_OK ? out : error.text;
  }
  galley_status status = GALLEY_OK;
  static inline size_t most = SIZE_MAX;  // of the text: then it has seen enough
};

TEST_F(Files, ShowsWhatIsThere) {
  std::ofstream("files.txt") << "a\nb";
  EXPECT_EQ(text("files.txt"), "a\nb");
  auto writer =
      safetensors::Writer::create("files.safetensors", {{"b", safetensors::Dtype::BF16, {2, 3}}, {"a", safetensors::Dtype::F32, {}}});
  ASSERT_TRUE(writer.ok());
  for (const auto& item : writer->items()) ASSERT_TRUE(writer->write(item.name, std::vector<std::byte>(item.name == "a" ? 4 : 12)).ok());
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(tensors("files.safetensors"), "a F32 4\nb BF16 2 3 12\n");
  // Whoever has seen enough says so, and that is what the call returns.
  most = 1;
  EXPECT_EQ(tensors("files.safetensors"), "");
  EXPECT_EQ(status, GALLEY_UNSUPPORTED);
  most = SIZE_MAX;
}

TEST_F(Files, SaysWhatIsWrong) {
  std::ofstream("long.txt") << std::string(101, 'x');
  EXPECT_NE(text("long.txt").find("long.txt"), std::string::npos);
  EXPECT_NE(status, GALLEY_OK);
  EXPECT_NE(text("absent.txt").find("absent.txt"), std::string::npos);
  EXPECT_NE(status, GALLEY_OK);
  EXPECT_NE(tensors("long.txt").find("long.txt"), std::string::npos);
  EXPECT_EQ(status, GALLEY_INVALID);
  EXPECT_NE(text(nullptr).find("text() was called without a path"), std::string::npos);
  EXPECT_NE(tensors(nullptr).find("tensors() was called without a path"), std::string::npos);
}

}  // namespace
}  // namespace galley
