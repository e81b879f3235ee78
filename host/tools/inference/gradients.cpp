#include "host/tools/inference/gradients.hpp"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "host/base/safetensors.hpp"
#include "host/exec/convert.hpp"

namespace galley {
namespace {

Result<WindowBuffer> filled(Session& session, int64_t number) {
  WindowBuffer window = {session.layout(), session.bytes_of(session.study().program.window), -1, 0, 0, 0};
  TRY_STATUS(session.source().fill(number, window));
  return window;
}

double mean(double sum, const WindowBuffer& window) { return window.valid_tokens ? sum / static_cast<double>(window.valid_tokens) : 0.0; }

/// Leaves the gradients of a window in their tensors and returns its mean loss.
Result<double> run_gradients(Session& session, int64_t number) {
  Executor& executor = session.executor();
  const WindowBuffer window = TRY(filled(session, number));
  TRY_STATUS(executor.begin_step({1, window.valid_tokens}));
  TRY_STATUS(session.study().program.each_micro_batch(window.micro_batches, [&](int64_t m, const MicroPlace& place) -> Status {
    TRY_STATUS(session.feed(window, m));
    return executor.run_micro(place);
  }));
  TRY_STATUS(executor.run_update());
  TRY_STATUS(executor.read_back());
  return mean(executor.scalar(GALLEY_SCALAR_LOSS), window);
}

}  // namespace

Result<double> first_loss(Session& session) {
  Executor& executor = session.executor();
  const WindowBuffer window = TRY(filled(session, 0));
  double loss = 0;
  for (int64_t m = 0; m < window.micro_batches; ++m) {
    executor.tell({1, window.valid_tokens});
    TRY_STATUS(session.feed(window, m));
    TRY_STATUS(executor.run(SegmentKind::Eval));
    TRY_STATUS(executor.read_back());
    loss += executor.scalar(GALLEY_SCALAR_LOSS);
  }
  return mean(loss, window);
}

Status write_gradients(Session& session, NewFile& file, int64_t window) {
  const Program& program = session.study().program;
  const double loss = TRY(run_gradients(session, window));
  std::map<std::string, TensorId> tensors;
  for (const Trained& t : program.trained) tensors["grad." + t.name] = t.gradient;
  if (program.logits != no_tensor) tensors["logits"] = program.logits;
  std::vector<safetensors::Item> items = {{"loss", safetensors::Dtype::F64, {1}}};
  for (const auto& [name, id] : tensors) {
    Shape shape = program.tensors[static_cast<size_t>(id)].shape;
    if (name == "logits") shape = program.logits_shape;
    items.push_back({name, safetensors::Dtype::F32, shape});
  }
  const auto scale = static_cast<float>(session.executor().scalar(GALLEY_SCALAR_LOSS_SCALE));
  std::vector<float> numbers;
  std::string not_finite = std::isfinite(loss) ? "" : "the loss is " + std::to_string(loss);
  auto writer = TRY(safetensors::Writer::create(TRY(file.file().duplicate()), std::move(items)));
  const std::vector<safetensors::Item> order(writer.items().begin(), writer.items().end());
  for (const safetensors::Item& item : order) {
    if (item.name == "loss") {
      TRY_STATUS(writer.write(item.name, std::as_bytes(std::span(&loss, 1))));
      continue;
    }
    TRY_STATUS(session.executor().machine().show(tensors.at(item.name), [&](std::span<const std::byte> piece) {
      const uint32_t dtype = program.tensors[static_cast<size_t>(tensors.at(item.name))].dtype;
      const auto count = static_cast<int64_t>(piece.size()) / galley_dtype_bytes(dtype);
      const float divisor = item.name == "logits" ? 1 : scale;
      if (dtype != GALLEY_F32 || divisor != 1) {
        numbers.resize(static_cast<size_t>(count));
        convert(numbers.data(), GALLEY_F32, piece.data(), dtype, count);
        for (float& x : numbers) x /= divisor;
        piece = std::as_bytes(std::span(numbers));
      }
      if (not_finite.empty() && first_not_finite(piece.data(), GALLEY_F32, count) >= 0) not_finite = item.name + " is not finite";
      return writer.write(item.name, piece);
    }));
  }
  TRY_STATUS(writer.finish());
  TRY_STATUS(file.finish());
  // The file shows where it went wrong, and a program that goes by the exit code does not take it for right.
  if (!not_finite.empty()) return run_error(file.file().path().string() + " is written, but " + not_finite);
  return ok();
}

}  // namespace galley
