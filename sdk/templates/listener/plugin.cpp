// A listener as a Galley plugin: it writes what happens in a run as rows "step,name,value" of a file, which any table program reads.
//
// A strategy that only listens claims nothing and adds nothing to the graph: the run's numbers are the same without it. `listen` makes a
// listener for the run, which is told of each step. An exception becomes a warning of the run, which goes on without the listener.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <galley/cpp/strategy.hpp>

namespace {

using namespace galley::sdk;

class Rows final : public Listener {
 public:
  Rows(const galley_started_event& run, const std::string& name) : path_(std::string(run.directory) + "/" + name) {
    const int file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file >= 0) file_.reset(::fdopen(file, "a+"));
    check(file_ != nullptr, "cannot be opened");
    // A resumed run goes on after the state that was saved last. Rows of later steps go: those steps are done again.
    const long kept = run.steps_done > 0 ? end_of(run.steps_done) : 0;
    check(::ftruncate(file, kept) == 0 && std::fseek(file_.get(), 0, SEEK_END) == 0, "cannot be cut");
    if (kept == 0) std::fputs("step,name,value\n", file_.get());
    flush();
  }

  void step(const galley_step_event& e) override {
    add(e.step, "loss", e.loss);
    add(e.step, "grad_norm", e.grad_norm);
    add(e.step, "lr", e.lr);
    add(e.step, "tokens", static_cast<double>(e.tokens));
    add(e.step, "seconds", e.seconds);
    for (const Metric& metric : metrics(e)) add(e.step, metric.name, metric.value);
    flush();
  }
  void validated(const galley_validated_event& e) override {
    add(e.step, "validation_loss", e.loss);
    for (const Metric& metric : metrics(e)) add(e.step, ("validation_" + std::string(metric.name)).c_str(), metric.value);
    flush();
  }
  void saving() override { check(::fsync(::fileno(file_.get())) == 0, "cannot be written to the disk"); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  // Where the rows of steps up to this one end. A killed process may have left more, and half a row.
  long end_of(int64_t step) {
    char line[4096];
    long end = 0;
    std::rewind(file_.get());
    while (std::fgets(line, sizeof line, file_.get()) && std::strchr(line, '\n') && std::strtoll(line, nullptr, 10) <= step)
      end = std::ftell(file_.get());
    return end;
  }
  void add(int64_t step, const char* name, double value) {
    std::fprintf(file_.get(), "%lld,%s,%.17g\n", static_cast<long long>(step), name, value);
  }
  void flush() { check(std::fflush(file_.get()) == 0, "cannot be written"); }
  void check(bool holds, const char* what) const {
    if (!holds) throw Failure(GALLEY_FAILED, path_ + " " + what + ": " + std::strerror(errno));
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

class Csv {
 public:
  explicit Csv(const Options& options) : name_(options.string("file")) {
    if (name_.empty() || name_[0] == '.' || name_.find('/') != std::string::npos)
      invalid("file = '" + name_ + "' is not a name without a path", "the file lies in the run's directory");
  }
  std::unique_ptr<Listener> listen(const galley_started_event& run) const { return std::make_unique<Rows>(run, name_); }

 private:
  std::string name_;
};

const bool added = add(strategy<Csv>("csv"));

}  // namespace

GALLEY_PLUGIN("csv", "1.0.0");
