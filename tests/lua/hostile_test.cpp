// Every way out of the limits that we know of, really tried. Each script must come to its end, with an error where it would otherwise go
// on for ever, at most 0.75 s after its limit, closing the state included; with the default limits that is within two seconds.
#include <ctime>
#include <utility>

#include "tests/lua/helper.hpp"

namespace galley {
namespace {

double processor_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Attempt {
  const char* name;
  const char* script;
  const char* cause;                  // a part of the error that must be there; "": the script ends by itself
  enum { Short, Full } time = Short;  // Full: it needs the whole default time to get where it hurts
};

constexpr const char* kTime = "s of processor time";
constexpr const char* kMemory = "of memory";
constexpr const char* kBlock = "a single string, table or stack asked for";

// Before each script. spin() never ends; survive(f, …) is what somebody who wants to stay alive would do.
const std::string kPrelude = R"(
local function spin() while true do end end
local function survive(f, ...) while true do pcall(f, ...) end end
)";

// One attempt a line.
// clang-format off
const Attempt kAttempts[] = {
    // Loops
    {"while", "while true do end", kTime},
    {"goto", "::again:: goto again", kTime},
    {"integer for", "for i = math.mininteger, math.maxinteger do end", kTime},
    {"float for", "for i = 0.0, 1e300 do end", kTime},
    {"repeat", "repeat until false", kTime},
    {"iterator", "for _ in function() return 1 end do end", kTime},
    {"C iterator", "for _ in rawlen, {1, 2} do end", kTime},
    {"tail calls", "local function f() return f() end f()", kTime},

    // Catching what ends them
    {"pcall loop", "survive(spin)", kTime},
    {"nested pcall", "local function f(n) if n == 0 then spin() end pcall(f, n - 1) return f(n - 1) end survive(f, 100)", kTime},
    {"pcall of pcall", "while true do pcall(pcall, pcall, spin) end", kTime},
    {"error object with __tostring", "error(setmetatable({}, { __tostring = spin }))", "error() was called with a table"},
    {"error object with __name", "error(setmetatable({}, { __name = ('x'):rep(1e5) }))", "error() was called with a table"},
    {"xpcall", "xpcall(spin, spin)", "'xpcall' is not available here"},
    {"close in pcall", "while true do pcall(function() local x <close> = setmetatable({}, { __close = spin }) spin() end) end", kTime},
    {"close all the way down", "local m = {} local function f() local x <close> = setmetatable({}, m) end m.__close = f survive(f)", kTime},
    {"require in pcall", "survive(require, 'nothing')", kTime},

    // What would run where hooks do not reach
    {"__gc", "setmetatable({}, { __gc = spin }) for i = 1, 1e6 do local t = {} end", "a metatable cannot have __gc"},
    {"weak tables",
     "local t = {} for i = 1, 2e3 do t[i] = setmetatable({}, { __mode = 'k' }) t[i][t] = t end while true do local u = {} end", kTime},
    {"__gc added later", "local m = {} setmetatable({}, m) m.__gc = spin for i = 1, 1e5 do local t = {} end return 'done'", ""},
    {"__gc by rawset",
     "local m = {} for i = 1, 100 do setmetatable({}, m) end rawset(m, '__gc', spin) for i = 1, 1e5 do local t = {} end", ""},
    {"__close", "local x <close> = setmetatable({}, { __close = spin })", kTime},
    {"__close added later", "local m = {} local t = setmetatable({}, m) m.__close = spin local x <close> = t", kTime},
    {"coroutine", "coroutine.wrap(spin)()", "'coroutine' is not available here"},
    {"coroutine in pcall", "while true do pcall(function() coroutine.wrap(spin)() end) end", kTime},
    {"__index", "survive(function() return setmetatable({}, { __index = spin }).x end)", kTime},
    {"__eq", "survive(function() local m = { __eq = spin } return setmetatable({}, m) == setmetatable({}, m) end)", kTime},
    {"__concat", "survive(function() return setmetatable({}, { __concat = spin }) .. 'x' end)", kTime},
    {"__call", "survive(setmetatable({}, { __call = spin }))", kTime},
    {"__pairs", "survive(pairs, setmetatable({}, { __pairs = spin }))", kTime},
    {"__index chain", "local a = {} for i = 1, 1900 do a = setmetatable({}, { __index = a }) end while true do local x = a.x end", kTime},
    {"__index circle",
     "local a, b = {}, {} setmetatable(a, { __index = b }) setmetatable(b, { __index = a }) survive(function() return a.x end)", kTime},

    // Long work in one call of C
    {"find that backtracks", "return ('a'):rep(1e5):find(('a*'):rep(50) .. 'b')", kTime},
    {"match that backtracks", "return ('a'):rep(1e5):match(('a-'):rep(50) .. 'b')", kTime},
    {"gsub that backtracks", "return ('a'):rep(1e5):gsub(('a*'):rep(50) .. 'b', '')", kTime},
    {"gmatch that backtracks", "for _ in ('a'):rep(1e5):gmatch(('a*'):rep(50) .. 'b') do end", kTime},
    {"optional parts that backtrack", "return ('a'):rep(60):find('^' .. ('a?'):rep(60) .. ('a'):rep(60) .. 'b')", kTime},
    {"captures that backtrack", "return ('a'):rep(1e5):find('(a*)(a*)(a*)%1%2%3b')", kTime},
    {"balance", "return ('('):rep(5e5):find('%b()')", kTime},
    {"balance in pcall", "survive(string.find, ('('):rep(5e5), '%b()')", kTime},
    {"large set", "return ('a'):rep(5e5):find('[' .. ('b'):rep(4e5) .. ']')", kTime},
    {"frontier of a large set", "return ('a'):rep(5e5):find('%f[' .. ('b'):rep(4e5) .. ']')", kTime},
    {"pattern in pcall", "survive(string.find, ('a'):rep(1e5), ('a*'):rep(50) .. 'b')", kTime},
    {"one plain find", "return ('a'):rep(5e5):find(('a'):rep(2e5) .. 'b' .. ('a'):rep(5e4), 1, true)", ""},
    {"rep of nothing", "return ('').rep('', math.maxinteger, '')", ""},
    {"move", "table.move({}, 1, 1 << 60, 2)", "table.move moves at most 1048576 elements"},
    {"move over all integers", "table.move({}, math.mininteger, math.maxinteger, 2)", "table.move moves at most"},
    {"move from below", "table.move({}, -5, 1 << 20, 2)", "table.move moves at most"},
    {"move in pcall", "survive(table.move, {}, 1, 1 << 20, 2)", kTime},
    {"insert by a lying size", "table.insert(setmetatable({}, { __len = function() return 1 << 53 end }), 1, 0)", "a table with __len"},
    {"remove by a lying size", "table.remove(setmetatable({}, { __len = function() return 1 << 53 end }), 1)", "a table with __len"},
    {"sort by a lying size", "table.sort(setmetatable({}, { __len = function() return 1 << 30 end }))", "a table with __len"},
    {"sort of long texts", "local a, t = ('x'):rep(5e5), {} for i = 1, 1e4 do t[i] = a end while true do table.sort(t) end", kTime},
    {"concat by a lying size",
     "return table.concat(setmetatable({}, { __len = function() return 1 << 53 end }))", "invalid value (nil) at index 1"},
    {"concat of an index", "return table.concat(setmetatable({}, { __index = function() return '' end }), '', 1, 1 << 53)", kTime},
    {"unpack by a lying size", "return table.unpack(setmetatable({}, { __len = function() return 1 << 53 end }))", "too many results"},
    {"pattern too deep", "return ('a'):rep(1000):find(('(a)'):rep(31) .. ('a?'):rep(300))", "pattern too complex"},
    {"gsub callback", "return ('a'):rep(1e5):gsub('.', spin)", kTime},
    {"gsub callback in pcall", "return ('a'):rep(1e5):gsub('.', function() pcall(spin) end)", kTime},
    {"gsub table", "return ('a'):rep(1e5):gsub('.', setmetatable({}, { __index = spin }))", kTime},
    {"gsub that grows", "local s = 'x' while true do s = s:gsub('x', 'xx') end", kBlock},
    {"plain find", "local s = ('a'):rep(2e5) while true do s:find(('a'):rep(1e5) .. 'b', 1, true) end", kTime},
    {"rep", "return ('x'):rep(1e9)", kBlock},
    {"rep, longer than a string", "return ('x'):rep(1e10)", "resulting string too large"},
    {"rep with separator", "return ('').rep('', 1e9, 'x')", kBlock},
    {"rep, overflow", "return ('xy'):rep(math.maxinteger)", "too large"},
    {"rep in pcall", "survive(string.rep, 'x', 1e9)", kBlock},
    {"pack", "return string.pack('s8', ('x'):rep(4e5), ('x'):rep(4e5)):rep(2)", kBlock},
    {"unpack of a format", "return string.unpack('!16 i16', ('x'):rep(10))", "data string too short"},
    {"format, wide", "return ('%99999999d'):format(1)", "invalid conversion"},
    {"format, precise", "return ('%.99999999f'):format(1)", "invalid conversion"},
    {"format, many", "local s = ('x'):rep(1e5) return (('%s'):rep(200)):format(table.unpack({ s, s, s, s, s, s, s, s, s, s, s }))", kBlock},
    {"format in a loop", "while true do ('%99.99f'):format(1e308) end", kTime},
    {"concat", "local t = {} for i = 1, 1e4 do t[i] = ('x'):rep(1e4) end return table.concat(t)", kMemory},
    {"concat with a far end", "return table.concat({}, '', 1, math.maxinteger)", "invalid value (nil) at index 1"},
    {"concat under __index", "return table.concat(setmetatable({}, { __index = function() return '' end }), '', 1, 1 << 60)", kTime},
    {"concat under __len",
     "return table.concat(setmetatable({}, { __len = function() return 1 << 60 end }))", "invalid value (nil) at index 1"},
    {"sort, no order",
     "local t = {} for i = 1, 3e4 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end", kTime},
    {"sort, comparator loops", "table.sort({ 1, 2, 3 }, spin)", kTime},
    {"sort, comparator pcalls", "table.sort({ 1, 2, 3 }, function() pcall(spin) end)", kTime},
    {"sort, C comparator", "local t = {} for i = 1, 3e4 do t[i] = i end while true do table.sort(t, rawequal) end", kTime},
    {"sort of holes", "local t = {} for i = 61, 0, -1 do t[1 << i] = 1 end table.sort(t)", "array too big"},
    {"unpack", "return table.unpack({}, 1, 1e8)", "too many results to unpack"},
    {"unpack in a loop", "local t = {} while true do local n = select('#', table.unpack(t, 1, 9999)) end", kTime},
    {"unpack to the end of numbers", "return table.unpack({}, math.mininteger, math.maxinteger)", "too many results to unpack"},
    {"next in a loop", "local t = {} for i = 1, 1e4 do t['k' .. i] = i end for k in next, t do end", kTime},
    {"pairs in a loop", "local t = {} for i = 1, 1e4 do t['k' .. i] = i end while true do pairs(t) end", kTime},
    {"pairs over long keys",
     "local t, s = {}, ('x'):rep(2e5) for i = 1, 200 do t[s .. i] = i end while true do pairs(t) end", kTime, Attempt::Full},

    // Long work in one instruction
    {"comparing", "local a, b = ('x'):rep(5e5) .. 'a', ('x'):rep(5e5) .. 'b' while true do local c = a < b end", kTime},
    {"equality", "local a, b = ('x'):rep(5e5) .. 'a', ('x'):rep(5e5) .. 'b' while true do local c = a == b end", kTime},
    {"strings as numbers",
     "local a = ('1'):rep(5e5) while true do local c = pcall(function() return a + 1, a + 1, a + 1, a + 1 end) end", kTime},
    {"tonumber", "local a = (' '):rep(5e5) .. '1' while true do tonumber(a) end", kTime},
    {"concatenating", "local a = ('x'):rep(2.5e5) while true do local b = a .. a end", kTime},
    {"doubling", "local a = 'x' while true do a = a .. a end", kBlock},
    {"varargs", "local function f(...) while true do local t = { ... } end end f(table.unpack({}, 1, 9999))", kTime},
    {"rehash, colliding integers", R"(
        local t = {}
        for i = 1, (1 << 13) do t[i * ((1 << 14) - 1)] = 1 end
        for i = (1 << 13) + 1, (1 << 14) - 1 do t[i * ((1 << 14) - 1)] = 1 end
        while true do t[((1 << 14) - 1)] = nil; t[((1 << 14) - 1) << 20] = 1; t[((1 << 14) - 1) << 20] = nil
          t[((1 << 14) - 1)] = 1 end)", kTime, Attempt::Full},
    {"rehash, colliding floats", "local t = {} for i = 1, 1e9 do t[1 + i * 2.0^-50] = 1 end", kBlock},
    {"rehash, many tables", R"(
        local all = {}
        for n = 1, 1e9 do
          local t = {}
          for i = 1, (1 << 13) + 1 do t[i * ((1 << 14) - 1)] = 1 end
          all[n] = t
        end)", kTime, Attempt::Full},
    {"table of integers", "local t = {} for i = 1, 1e9 do t[i] = i end", kBlock},
    {"table of strings", "local t = {} for i = 1, 1e9 do t['k' .. i] = i end", kBlock},
    {"table in pcall", "local t = {} survive(function() for i = 1, 1e9 do t[i] = i end end)", kBlock},

    // Memory
    {"many tables", "local t = {} while true do t = { t } end", kMemory},
    {"many tables in pcall", "local t = {} survive(function() while true do t = { t } end end)", kMemory},
    {"many closures", "local f while true do local g = f f = function() return g end end", kMemory},
    {"many strings", "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(4e5) .. i end", kMemory},
    {"many metatables", "while true do setmetatable({}, {}) end", kTime},
    {"a chain and garbage",
     "local t = {} for i = 1, 4e5 do t = { t } end while true do local s = ('x'):rep(1e5) end", kTime, Attempt::Full},
    {"memory, then time", "local t = {} pcall(function() while true do t = { t } end end) while true do end", kMemory},

    // Depth
    {"recursion", "local function f() return 1 + f() end f()", "the calls are nested too deeply"},
    {"recursion in pcall", "local function f() return 1 + f() end survive(f)", "the calls are nested too deeply"},
    {"recursion through C", "local function f() return pcall(f) end while true do f() end", kTime},
    {"recursion through gsub", "local function f() return (('a'):gsub('a', f)) end while true do pcall(f) end", kTime},
    {"recursion through sort", "local function f() table.sort({ 1, 2 }, f) end while true do pcall(f) end", kTime},
    {"recursion through __index",
     "local t = {} setmetatable(t, { __index = function(_, k) return t[k .. 'x'] end }) while true do pcall(function() return t.x end) "
     "end", kTime},
};
// clang-format on

class Hostile : public testing::TestWithParam<Attempt> {};

TEST_P(Hostile, Ends) {
  const Attempt& attempt = GetParam();
  LuaLimits limits;
  // The time in which a loop runs does not change how it ends; what ends by itself gets all of it.
  if (attempt.time == Attempt::Short && attempt.cause == kTime) limits.seconds = 0.1;
  // Likewise with the bytes; touching all of them can take long.
  if (attempt.cause == kMemory) limits.bytes = 16u << 20;
  const double begin = processor_time();
  std::string cause;
  size_t peak = 0;
  {
    const auto box = sandbox(limits);
    const Status status = box->run_text(kPrelude + attempt.script, "t.lua", 0);
    if (!status) {
      cause = status.error().cause;
      EXPECT_EQ(status.error().exit, Exit::Recipe);
    }
    peak = box->peak_bytes();
  }
  const double seconds = processor_time() - begin;
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
  EXPECT_LT(seconds, limits.seconds + 0.75);
  EXPECT_LT(seconds, 2.0);
  EXPECT_LE(peak, limits.bytes + (256u << 10));
  if (*attempt.cause) {
    EXPECT_NE(cause.find(attempt.cause), std::string::npos) << cause;
    EXPECT_EQ(cause.rfind("t.lua:", 0), 0u) << cause;
  } else {
    EXPECT_EQ(cause, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Sandbox, Hostile, testing::ValuesIn(kAttempts), [](const auto& tested) {
  std::string name;
  for (const char c : std::string(tested.param.name)) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// The parser looks at no clock: LuaLimits::source bounds what it does.
TEST(Parser, IsQuick) {
  const auto repeated = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const auto numbered = [](const std::string& before, const std::string& after, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += before + std::to_string(i) + after;
    return out;
  };
  for (const std::string& text :
       {"return " + repeated("(", 60000), "return " + repeated("{", 60000), repeated("function f() ", 8000),
        "if a then " + repeated("elseif a then ", 9000) + "end", numbered("::a", ":: ", 12000), numbered("goto a", " ", 8000),
        "while a do " + repeated("if a then break end ", 6000) + "end", numbered("x=", ".5 ", 12000)}) {
    const double begin = processor_time();
    (void)sandbox()->run_text(text, "t.lua", 0);
    EXPECT_LT(processor_time() - begin, 1.75) << text.substr(0, 40);
  }
}

TEST(Limits, StayPassed) {
  const auto box = sandbox({.seconds = 0.05});
  EXPECT_NE(run(*box, "while true do end").find("stopped after 0.05 s"), std::string::npos);
  EXPECT_TRUE(box->exceeded());
  EXPECT_NE(run(*box, "return 1").find("stopped after 0.05 s"), std::string::npos);
}

TEST(Limits, SumOverCalls) {
  const auto box = sandbox({.seconds = 0.2});
  int calls = 0;
  while (run(*box, "for i = 1, 1e6 do end return 1") == "1" && calls < 10000) ++calls;
  EXPECT_GT(calls, 1);
  EXPECT_TRUE(box->exceeded());
  EXPECT_LT(box->seconds(), 0.3);
}

TEST(Limits, NameTheInnermostLine) {
  EXPECT_EQ(run(*sandbox({.seconds = 0.05}), "local function f()\n  while true do end\nend\npcall(f)").substr(0, 9), "error: t.");
  EXPECT_NE(run(*sandbox({.seconds = 0.05}), "local function f()\n  while true do end\nend\npcall(f)").find("t.lua:2: stopped"),
            std::string::npos);
  EXPECT_NE(run("local s = 'x'\n\ns = s:rep(1e9)").find("t.lua:3: a single string"), std::string::npos);
}

TEST(Limits, HoldForPathologicalBytes) {
  const auto box = sandbox({.bytes = 2u << 20});
  EXPECT_NE(run(*box, "local t = {} while true do t = { t } end").find("more than 2 MiB of memory"), std::string::npos);
  EXPECT_LE(box->peak_bytes(), (2u << 20) + (256u << 10));
}

}  // namespace
}  // namespace galley
