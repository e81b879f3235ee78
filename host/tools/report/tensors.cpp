#include "host/tools/report/tensors.hpp"

#include <map>

namespace galley {
namespace {

/// What a person calls an instruction: its node, or what it does.
std::string instruction_name(const Instruction& i) { return i.name.empty() ? action_names[i.what.index()] : i.name; }

/// "NAME (recipe.lua:9)" in two; a strategy's name has no space.
std::pair<std::string, std::string> strategy_and_place(const std::string& text) {
  const size_t at = text.find(" (");
  if (at == std::string::npos || !text.ends_with(')')) return {text, ""};
  return {text.substr(0, at), text.substr(at + 2, text.size() - at - 3)};
}

Value moment_json(const Program& program, const Plan& plan, int32_t moment) {
  const size_t s = segment_at(program, plan, moment);
  const int32_t index = moment - plan.segment_begin[s];
  return Value(Table{{"segment", Value(std::string(segment_names[s]))},
                     {"instruction", Value(int64_t{index})},
                     {"name", Value(instruction_name(program.segments[s].code[static_cast<size_t>(index)]))}});
}

Value text_or_nil(std::string text) { return text.empty() ? Value() : Value(std::move(text)); }

}  // namespace

const char* life_name(Life life) {
  return life == Life::Run ? "run" : life == Life::Window ? "window" : life == Life::Segment ? "segment" : "texts";
}

bool has_place(const Program& program, const Plan& plan, size_t t) { return program.tensors[t].bytes > 0 && plan.placements[t].first >= 0; }

size_t segment_at(const Program& program, const Plan& plan, int32_t moment) {
  size_t s = 0;  // the last one that has begun and is not empty
  for (size_t i = 0; i < segment_count; ++i)
    if (plan.segment_begin[i] <= moment && !program.segments[i].code.empty()) s = i;
  return s;
}

Table tensors_json(const Program& program, const Plan& plan, const Target& target) {
  List timeline, tensors;
  for (size_t s = 0; s < segment_count; ++s)
    timeline.push_back(Value(Table{{"segment", Value(std::string(segment_names[s]))},
                                   {"instructions", Value(static_cast<int64_t>(program.segments[s].code.size()))}}));
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    if (!has_place(program, plan, t)) continue;
    const ProgramTensor& x = program.tensors[t];
    const Placement& p = plan.placements[t];
    List shape;
    for (const int64_t e : x.shape) shape.emplace_back(e);
    auto [strategy, place] = strategy_and_place(x.strategy);
    tensors.push_back(Value(Table{{"name", Value(x.name)},
                                  {"bytes", Value(x.bytes)},
                                  {"dtype", Value(dtype_text(x.dtype))},
                                  {"shape", Value(std::move(shape))},
                                  {"owner", Value(std::string(owner_names[static_cast<size_t>(x.owner)]))},
                                  {"memory", Value(target.memories[x.memory].name)},
                                  {"offset", Value(p.offset)},
                                  {"life", Value(std::string(life_name(x.life)))},
                                  {"first", moment_json(program, plan, p.first)},
                                  {"last", moment_json(program, plan, p.last)},
                                  {"strategy", text_or_nil(std::move(strategy))},
                                  {"place", text_or_nil(std::move(place))}}));
  }
  return {{"timeline", Value(std::move(timeline))}, {"tensors", Value(std::move(tensors))}};
}

Table tensor_columns(const Program& program, const Plan& plan) {
  List segments, instructions, strategies, shapes;
  for (size_t s = 0; s < segment_count; ++s) {
    segments.push_back(Value(Table{{"name", Value(std::string(segment_names[s]))},
                                   {"begin", Value(int64_t{plan.segment_begin[s]})},
                                   {"count", Value(static_cast<int64_t>(program.segments[s].code.size()))}}));
    for (const Instruction& i : program.segments[s].code) instructions.emplace_back(instruction_name(i));
  }
  std::map<std::string, int64_t> strategy_index, shape_index;
  std::map<std::string, List> columns;
  for (const char* name : {"name", "bytes", "offset", "memory", "owner", "first", "last", "life", "strategy", "shape"}) columns[name];
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    if (!has_place(program, plan, t)) continue;
    const ProgramTensor& x = program.tensors[t];
    const Placement& p = plan.placements[t];
    int64_t strategy = -1;
    if (!x.strategy.empty()) {
      const auto [at, added] = strategy_index.try_emplace(x.strategy, static_cast<int64_t>(strategies.size()));
      if (added) {
        auto [name, place] = strategy_and_place(x.strategy);
        strategies.push_back(Value(Table{{"name", Value(std::move(name))}, {"place", Value(std::move(place))}}));
      }
      strategy = at->second;
    }
    const auto [shape, added] =
        shape_index.try_emplace(dtype_text(x.dtype) + " " + shape_text(x.shape), static_cast<int64_t>(shapes.size()));
    if (added) shapes.emplace_back(shape->first);
    columns["name"].emplace_back(x.name);
    columns["bytes"].emplace_back(x.bytes);
    columns["offset"].emplace_back(p.offset);
    columns["memory"].emplace_back(int64_t{x.memory});
    columns["owner"].emplace_back(static_cast<int64_t>(x.owner));
    columns["first"].emplace_back(int64_t{p.first});
    columns["last"].emplace_back(int64_t{p.last});
    columns["life"].emplace_back(static_cast<int64_t>(x.life));
    columns["strategy"].emplace_back(strategy);
    columns["shape"].emplace_back(shape->second);
  }
  Table tensors;
  for (auto& [name, column] : columns) tensors[name] = Value(std::move(column));
  return {
      {"segments", Value(std::move(segments))},     {"end", Value(int64_t{plan.end})},    {"instructions", Value(std::move(instructions))},
      {"strategies", Value(std::move(strategies))}, {"shapes", Value(std::move(shapes))}, {"tensors", Value(std::move(tensors))}};
}

}  // namespace galley
