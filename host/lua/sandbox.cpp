#include "host/lua/sandbox.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "host/base/file.hpp"
#include "host/lua/library/libraries.hpp"

namespace galley {
namespace {

/// Instructions between two looks at the clock. One instruction can cost about 50 µs (comparing two strings of LuaLimits::block bytes).
constexpr int kInstructions = 32;
/// Allocations from this size on look at the clock: after them stand copies, and rehashing.
constexpr size_t kLargeBlock = 4096;
/// What may be allocated beyond the limit once it has been passed, for messages on the way out.
constexpr size_t kReserve = 256u << 10;
/// Calls nested this deep when the stack outgrew its limit: endless recursion.
constexpr int kDeep = 1000;

double read_clock(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
double processor_time() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

std::string in_bytes(size_t bytes) {
  if (bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes % (1u << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " bytes";
}

/// A hint for what the parser says: "\nline 7: use \"clip\" { norm = 1.0 }", and the line before it, whose comma may be missing.
std::string source_at(std::string_view text, std::string_view message) {
  const size_t end = message.find(": "), colon = end == message.npos ? end : message.rfind(':', end - 1);
  if (colon == message.npos) return {};
  const int line = std::atoi(std::string(message.substr(colon + 1, end - colon - 1)).c_str());
  std::vector<std::string> lines;
  for (size_t at = 0; at <= text.size() && static_cast<int>(lines.size()) < line;) {
    const size_t stop = std::min(text.find('\n', at), text.size());
    std::string one(text.substr(at, stop - at));
    one.erase(0, one.find_first_not_of(" \t\r"));
    lines.push_back(one.size() > 100 ? one.substr(0, 97) + "..." : one);
    at = stop + 1;
  }
  if (line < 1 || static_cast<int>(lines.size()) < line) return {};
  std::string out = "\nline " + std::to_string(line) + ": " + lines.back();
  size_t before = lines.size() - 1;
  while (before > 0 && lines[before - 1].empty()) --before;
  const std::string last = before > 0 ? lines[before - 1] : "";
  // What the parser expects to end, it tells where the next thing begins.
  if (message.find("expected") != message.npos && !last.empty() && last.find("--") == last.npos && last.back() != ',' && last.back() != '{')
    out += "; a comma may be missing at the end of line " + std::to_string(before) + ": " + last;
  return out;
}

std::string type_with_article(lua_State* L, int index) {
  const char* name = luaL_typename(L, index);
  return lua_type(L, index) == LUA_TNIL ? "nil" : std::string("a ") + name;
}

}  // namespace

/// Runs while Lua does, however often calls are nested.
class Sandbox::Clock {
 public:
  explicit Clock(Sandbox& sandbox) : sandbox_(sandbox) {
    if (sandbox_.depth_++ > 0) return;
    sandbox_.started_ = processor_time();
    sandbox_.look_again_ = 0;
  }
  ~Clock() {
    if (--sandbox_.depth_ == 0) sandbox_.spent_ += processor_time() - sandbox_.started_;
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

 private:
  Sandbox& sandbox_;
};

Result<std::unique_ptr<Sandbox>> Sandbox::create(const LuaLimits& limits, std::vector<std::filesystem::path> roots, Reach reach) {
  std::unique_ptr<Sandbox> sandbox(new Sandbox(limits, std::move(roots), reach));
  lua_State* L = lua_newstate(allocate, sandbox.get());
  if (!L) return run_error("there is no memory for a Lua state");
  *static_cast<ScriptHost**>(lua_getextraspace(L)) = sandbox.get();
  sandbox->L_ = L;
  TRY_STATUS(sandbox->protect(open_libraries, nullptr));
  lua_sethook(L, hook, LUA_MASKCALL | LUA_MASKCOUNT, kInstructions);
  return sandbox;
}

Sandbox::~Sandbox() {
  if (L_) lua_close(L_);
}

double Sandbox::seconds() const { return spent_ + (depth_ > 0 ? processor_time() - started_ : 0); }

bool Sandbox::out_of_time() {
  if (depth_ == 0) return false;
  // A thread's processor time never runs faster than the wall's clock, which is much cheaper to read.
  const double now = read_clock(CLOCK_MONOTONIC);
  if (now < look_again_) return false;
  const double left = limits_.seconds - seconds();
  look_again_ = now + left;
  return left <= 0;
}

void Sandbox::hook(lua_State* L, lua_Debug*) { of(L).check(L); }

void Sandbox::check(lua_State* L) {
  if (exceeded_ == Limit::None && out_of_time()) exceed(Limit::Time);
  if (exceeded_ == Limit::None) return;
  lua_pushlightuserdata(L, this);  // needs no memory; nobody looks at it, because whoever catches it asks exceeded()
  lua_error(L);
}

void Sandbox::exceed(Limit limit, size_t asked) {
  exceeded_ = limit;
  asked_ = asked;
  if (!L_) return;
  lua_Debug frame;
  if (const int line = find_line(L_, &frame)) place_ = file_of(frame) + ":" + std::to_string(line);
  deep_ = lua_getstack(L_, kDeep, &frame) == 1;
}

Error Sandbox::limit_error() const {
  const std::string place = place_.empty() ? "" : place_ + ": ";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", limits_.seconds);
  switch (exceeded_) {
    case Limit::Time:
      return recipe_error(place + "stopped after " + seconds + " s of processor time",
                          "this part of Lua only describes what is to be done, in milliseconds; look for a loop that does not end");
    case Limit::Block:
      if (deep_) return recipe_error(place + "the calls are nested too deeply", "look for a function that calls itself without end");
      return recipe_error(place + "a single string, table or stack asked for " + in_bytes(asked_) + "; the limit is " +
                          in_bytes(limits_.block));
    default: return recipe_error(place + "Lua asked for more than " + in_bytes(limits_.bytes) + " of memory");
  }
}

void* Sandbox::allocate(void* self, void* block, size_t old_size, size_t new_size) {
  Sandbox& sandbox = *static_cast<Sandbox*>(self);
  if (!block) old_size = 0;  // then it is a type
  if (new_size == 0) {
    std::free(block);
    sandbox.bytes_ -= old_size;
    return nullptr;
  }
  if (new_size > old_size) {
    const size_t bytes = sandbox.bytes_ - old_size + new_size;
    if (sandbox.exceeded_ == Limit::None) {
      if (new_size > sandbox.limits_.block) sandbox.exceed(Limit::Block, new_size);
      else if (bytes > sandbox.limits_.bytes) sandbox.exceed(Limit::Bytes, new_size);
      else if (new_size >= kLargeBlock && sandbox.out_of_time()) sandbox.exceed(Limit::Time, new_size);
    }
    if (sandbox.exceeded_ != Limit::None && (new_size > kReserve / 4 || bytes > sandbox.limits_.bytes + kReserve)) return nullptr;
  }
  void* moved = std::realloc(block, new_size);
  // Lua relies on shrinking never to fail.
  if (!moved) return new_size <= old_size ? block : nullptr;
  sandbox.bytes_ = sandbox.bytes_ - old_size + new_size;
  sandbox.peak_ = std::max(sandbox.peak_, sandbox.bytes_);
  return moved;
}

/// The message handler of call(): an error that is no text becomes one.
int Sandbox::report(lua_State* L) {
  if (of(L).exceeded() || lua_type(L, 1) == LUA_TSTRING) return 1;
  std::string file;
  const int line = current_line(L, &file);
  const std::string place = line > 0 ? file + ":" + std::to_string(line) + ": " : std::string();
  const std::string message = place + "error() was called with " + type_with_article(L, 1) + " and not a text";
  lua_pushlstring(L, message.data(), message.size());
  return 1;
}

Status Sandbox::call(int arguments, int results) {
  const int base = lua_gettop(L_) - arguments;
  if (exceeded()) {
    lua_settop(L_, base - 1);
    return limit_error();
  }
  lua_pushcfunction(L_, report);
  lua_insert(L_, base);
  int status = LUA_OK;
  {
    const Clock clock(*this);
    status = lua_pcall(L_, arguments, results, base);
  }
  if (status == LUA_OK && !exceeded()) {
    lua_remove(L_, base);
    return ok();
  }
  Error error = take_error(status);
  lua_settop(L_, base - 1);
  return error;
}

Error Sandbox::take_error(int status) {
  if (exceeded()) return limit_error();
  if (status == LUA_ERRERR) return recipe_error("an error happened while another one was being reported");
  if (lua_type(L_, -1) != LUA_TSTRING) return run_error("there is no memory left for Lua");
  size_t size = 0;
  const char* text = lua_tolstring(L_, -1, &size);
  const std::string_view message(text, size);
  const size_t end = message.find('\n');
  if (end == message.npos) return recipe_error(std::string(message));
  return recipe_error(std::string(message.substr(0, end)), std::string(message.substr(end + 1)));
}

Status Sandbox::protect(lua_CFunction body, void* context, int results) {
  if (!lua_checkstack(L_, 3 + std::max(results, 0))) return run_error("Lua's stack is full");
  lua_pushcfunction(L_, body);
  lua_pushlightuserdata(L_, context);
  return call(1, results);
}

void Sandbox::load(lua_State* L, std::string_view text, const std::string& name) {
  if (text.size() > limits_.source) {
    raise(L, recipe_error(name + " has " + std::to_string(text.size()) + " bytes; Lua texts may have " + in_bytes(limits_.source)));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.starts_with('#')) text.remove_prefix(std::min(text.find('\n'), text.size()));
  const int status = luaL_loadbufferx(L, text.data(), text.size(), ("@" + name).c_str(), "t");
  check(L);
  if (status == LUA_ERRSYNTAX) raise_text(L, lua_tostring(L, -1) + source_at(text, lua_tostring(L, -1)));
  if (status != LUA_OK) lua_error(L);
}

Status Sandbox::run_text(std::string_view text, const std::string& name, int results) {
  struct Context {
    std::string_view text;
    const std::string& name;
    int results;
  } context{text, name, results};
  return protect(
      [](lua_State* L) {
        const auto& c = *static_cast<Context*>(lua_touserdata(L, 1));
        of(L).load(L, c.text, c.name);
        lua_call(L, 0, c.results);
        return lua_gettop(L) - 1;
      },
      &context, results);
}

Status Sandbox::run_file(const std::filesystem::path& path, const std::string& name, int results) {
  LuaSource source = TRY(read_source(path, name));
  sources_.push_back(std::move(source));
  const std::string text = sources_.back().text;  // a copy: requiring a file moves the others
  return run_text(text, name, results);
}

Result<LuaSource> Sandbox::read_source(const std::filesystem::path& path, const std::string& name) const {
  std::error_code code;
  const std::filesystem::path real = std::filesystem::canonical(path, code);
  if (code) return recipe_error(name + ": " + code.message());
  if (!std::filesystem::is_regular_file(real, code)) return recipe_error(name + ": this is not a file");
  Result<File> file = File::open_read(real);
  if (!file) return recipe_error(file.error().cause, file.error().hint);
  Result<std::string> text = read_text(*file, limits_.source);
  if (!text) return recipe_error(text.error().cause, text.error().hint);
  return LuaSource{name, reach_ == Reach::Roots ? TRY(file->real_path()) : real, std::move(text).value()};
}

}  // namespace galley
