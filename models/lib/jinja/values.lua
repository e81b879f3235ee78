-- Python's values as Jinja templates see them, for the interpreter in jinja.lua. A Lua string, integer, float or boolean is one as it is;
-- everything else is a table with a field `kind`:
--
--   none                                      undefined (message)                       markup (text): what the filter safe gives
--   list, tuple, range (items: 1 … n)         dict (keys: in their order; map)          view (items, name): what d.items() gives
--   iterator (pull): gives each item once     function (name, call)                     namespace (map), loop (get)
--
-- Values are never changed once they are made, but for namespaces and what an iterator has given, so no value can hold itself.
-- Texts are UTF-8, and their length and indices count characters as in Python.
local M = {}

-- A template is text from a stranger: what it builds and how long it takes is bounded. A line of data has at most 16 MiB.
local most_steps = 2000000
local limits = { text = 32 * 1024 * 1024, items = 1000000, steps = most_steps, nesting = 128 }

-- --- Errors ----------------------------------------------------------------------------------------------------------------------

local failure = {}

function M.fail(message, ...)
  error({ mark = failure, message = select("#", ...) > 0 and message:format(...) or message }, 0)
end
local fail = M.fail

-- An error whose message is the template's own: raise_exception.
function M.raise(message) error({ mark = failure, message = message, verbatim = true }, 0) end

-- What f returns; or nil and a message, after the line that `line` tells.
function M.protect(f, line)
  local ok, result = pcall(f)
  if ok then return result end
  if type(result) ~= "table" or result.mark ~= failure then result = { message = "the interpreter failed: " .. tostring(result) } end
  if result.verbatim then return nil, result.message end
  return nil, ("line %d: %s"):format(line(), result.message:sub(1, 500))
end

-- --- Limits ----------------------------------------------------------------------------------------------------------------------

local steps, nesting = 0, 0

function M.start() steps, nesting = 0, 0 end

-- How many steps a template may take from now on; nil: as many as any may.
function M.bound(most) limits.steps = most or most_steps end

function M.spend(n)
  steps = steps + n
  if steps > limits.steps then fail("the template takes more than %d steps", limits.steps) end
end
local spend = M.spend

function M.enter(levels)
  nesting = nesting + levels
  if nesting > limits.nesting then fail("nested more than %d deep", limits.nesting) end
  return nesting
end

function M.leave(levels) nesting = nesting - levels end

-- Calls f one level deeper.
function M.deeper(f, ...)
  M.enter(1)
  local result = f(...)
  M.leave(1)
  return result
end
local deeper = M.deeper

-- Appends to the items of a list that is being made.
function M.push(items, item)
  spend(1)
  if #items == limits.items then fail("a list has more than %d items", limits.items) end
  items[#items + 1] = item
end
local push = M.push

-- A text that grows piece by piece.
function M.builder() return { n = 0, size = 0, chunks = {} } end

function M.add(out, text)
  out.size = out.size + #text
  if out.size > limits.text then fail("a text has more than %d bytes", limits.text) end
  spend(1)
  if out.n == 256 then out.chunks[#out.chunks + 1], out.n = table.concat(out, "", 1, 256), 0 end
  out.n = out.n + 1
  out[out.n] = text
end
local add = M.add

function M.built(out) return table.concat(out.chunks) .. table.concat(out, "", 1, out.n) end

-- --- Making values ---------------------------------------------------------------------------------------------------------------

M.none = { kind = "none" }

function M.undefined(message, ...) return { kind = "undefined", message = message:format(...) } end

function M.sequence(kind, items) return { kind = kind, items = items } end

function M.list(items) return M.sequence("list", items) end
function M.tuple(...) return { kind = "tuple", items = { ... } } end
function M.dict() return { kind = "dict", keys = {}, map = {} } end

-- `pull` gives the next item, and nil after the last.
function M.iterator(pull) return { kind = "iterator", pull = pull } end

function M.callable(name, call) return { kind = "function", name = name, call = call } end

function M.kind(v)
  local kind = type(v)
  if kind == "table" then return v.kind end
  return kind == "number" and math.type(v) or kind
end
local kind_of = M.kind

local type_names = { string = "str", integer = "int", boolean = "bool", none = "NoneType", undefined = "Undefined", iterator = "generator" }

function M.type_name(v) return type_names[kind_of(v)] or kind_of(v) end
local type_name = M.type_name

-- Python takes true for 1 and false for 0 wherever a number is due.
function M.number(v)
  if type(v) == "number" then return v end
  if type(v) == "boolean" then return v and 1 or 0 end
end
local number = M.number

function M.integer(v, what)
  local n = number(v)
  if math.type(n) ~= "integer" then fail("%s must be an integer, not '%s'", what, type_name(v)) end
  return n
end

-- What a key is filed under: 1, 1.0 and true are the same key.
local function filed(key)
  local kind = kind_of(key)
  if kind == "string" or kind == "none" then return key end
  return number(key) or fail("'%s' as the key of a dict is not supported", type_name(key))
end

function M.put(dict, key, value)
  local k = filed(key)
  if dict.map[k] == nil then
    if #dict.keys == limits.items then fail("a dict has more than %d keys", limits.items) end
    dict.keys[#dict.keys + 1] = key
  end
  dict.map[k] = value
end

function M.get(dict, key)
  local kind = kind_of(key)
  if kind == "undefined" then return nil end
  return dict.map[filed(key)]
end

-- --- Values from Lua -------------------------------------------------------------------------------------------------------------

local function text_keys(v, known)
  local keys = {}
  for key in pairs(v) do
    if type(key) ~= "string" then fail("the context has a dict with a %s as key", type(key)) end
    if key ~= "__order" and not known[key] then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

function M.from_lua(v)
  local kind = type(v)
  if kind == "userdata" then return M.none end
  if kind == "string" or kind == "number" or kind == "boolean" or v == M.none then return v end
  if kind ~= "table" then fail("the context holds a %s", kind) end
  local order, known, items = v.__order, {}, {}
  if not order and (v[1] ~= nil or next(v) == nil) then
    for i = 1, #v do push(items, deeper(M.from_lua, v[i])) end
    return M.list(items)
  end
  local dict = M.dict()
  local function put(key) M.put(dict, key, deeper(M.from_lua, v[key])) end
  for _, key in ipairs(order or {}) do
    known[key] = true
    if v[key] ~= nil then put(key) end
  end
  for _, key in ipairs(text_keys(v, known)) do put(key) end
  return dict
end

-- --- Characters ------------------------------------------------------------------------------------------------------------------

local character = "[^\x80-\xBF][\x80-\xBF]*"

function M.characters(s)
  local out = {}
  for c in s:gmatch(character) do push(out, c) end
  return out
end

local function set_of(s)
  local set = {}
  for c in s:gmatch(character) do set[c] = true end
  return set
end

-- str.isspace
local spaces = set_of("\t\n\v\f\r\x1C\x1D\x1E\x1F \u{85}\u{A0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\u{2004}\u{2005}\u{2006}\u{2007}" ..
                      "\u{2008}\u{2009}\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}")
-- where str.splitlines splits
local line_ends = set_of("\n\v\f\r\x1C\x1D\x1E\u{85}\u{2028}\u{2029}")

-- How many bytes of white space begin at byte i, at most one character; nil: none.
function M.space_at(s, i)
  local c = s:match("^" .. character, i)
  return spaces[c] and #c
end

-- Without characters of the text `chars` (white space when nil) at its ends.
function M.strip(s, chars, left, right)
  local set = chars and set_of(chars) or spaces
  local first, last = 1, #s
  while left and first <= last do
    local c = s:match("^" .. character, first)
    if not set[c] then break end
    first = first + #c
  end
  while right and first <= last do
    local start = last
    while start > first and s:find("^[\x80-\xBF]", start) do start = start - 1 end
    if not set[s:sub(start, last)] then break end
    last = start - 1
  end
  return s:sub(first, last)
end

function M.split_lines(s)
  local out, start, i = {}, 1, 1
  while i <= #s do
    spend(1)
    local c = s:match("^" .. character, i) or s:sub(i, i)
    local after = i + #c
    if line_ends[c] then
      push(out, s:sub(start, i - 1))
      if c == "\r" and s:sub(after, after) == "\n" then after = after + 1 end
      start = after
    end
    i = after
  end
  if start <= #s then push(out, s:sub(start)) end
  return out
end

function M.length(v)
  if v.items or v.kind == "dict" then return #(v.items or v.keys) end
  if v.kind == "undefined" then return 0 end
end

function M.text_length(s)
  local continuations = select(2, s:gsub("[\x80-\xBF]", ""))
  return #s - continuations
end

-- --- Truth, iteration, comparison ------------------------------------------------------------------------------------------------

function M.truth(v)
  if type(v) == "table" then
    if v.kind == "none" or v.kind == "undefined" then return false end
    if v.kind == "markup" then return v.text ~= "" end
    return M.length(v) ~= 0
  end
  return v ~= false and v ~= 0 and v ~= ""
end

-- A function that gives the items one by one, and nil after the last.
function M.iterate(v)
  local kind = kind_of(v)
  if kind == "iterator" then return v.pull end
  if kind == "undefined" then return function() end end
  local items = kind == "string" and M.characters(v) or kind == "dict" and v.keys or type(v) == "table" and v.items
  if not items then fail("'%s' object is not iterable", type_name(v)) end
  local i = 0
  return function()
    spend(1)
    i = i + 1
    return items[i]
  end
end

-- The items of anything that can be iterated, as a Lua table.
function M.collect(v)
  local out = {}
  for item in M.iterate(v) do push(out, item) end
  return out
end

function M.equal(a, b)
  local x, y = number(a), number(b)
  if x or y then return x == y end
  if type(a) == "table" and a.kind == "markup" then a = a.text end
  if type(b) == "table" and b.kind == "markup" then b = b.text end
  if a == b then return true end
  local kind = kind_of(a)
  if kind ~= kind_of(b) then return false end
  if kind == "undefined" then return true end
  local m, n = a.items, b.items
  if kind == "dict" then m, n = a.keys, b.keys end
  if not m or not n or #m ~= #n then return false end
  spend(#m)
  for i, item in ipairs(m) do
    if kind ~= "dict" then
      if not deeper(M.equal, item, n[i]) then return false end
    else
      local other = M.get(b, item)
      if other == nil or not deeper(M.equal, M.get(a, item), other) then return false end
    end
  end
  return true
end

local function refuse(symbol, a, b)
  for _, v in ipairs { a, b } do
    if kind_of(v) == "undefined" then fail(v.message) end
  end
  fail("'%s' is not supported between '%s' and '%s'", symbol, type_name(a), type_name(b))
end
M.refuse = refuse

local function less(a, b, symbol)
  local x, y = number(a), number(b)
  if x and y then return x < y end
  if type(a) == "string" and type(b) == "string" then return a < b end
  local kind = kind_of(a)
  if kind ~= kind_of(b) or (kind ~= "list" and kind ~= "tuple") then refuse(symbol, a, b) end
  for i, item in ipairs(a.items) do
    if b.items[i] == nil then return false end
    if not M.equal(item, b.items[i]) then return deeper(less, item, b.items[i], symbol) end
  end
  return #a.items < #b.items
end

function M.less(a, b) return less(a, b, "<") end
function M.greater(a, b) return less(b, a, ">") end
function M.less_equal(a, b) return not less(b, a, "<=") end
function M.greater_equal(a, b) return not less(a, b, ">=") end

-- item in container
function M.contains(container, item)
  local kind = kind_of(container)
  if kind == "string" then
    if kind_of(item) == "markup" then item = item.text end
    if type(item) ~= "string" then fail("'in <string>' requires string as left operand, not %s", type_name(item)) end
    return container:find(item, 1, true) ~= nil
  end
  if kind == "dict" then return M.get(container, item) ~= nil end
  for other in M.iterate(container) do
    if M.equal(other, item) then return true end
  end
  return false
end

-- --- Texts of values -------------------------------------------------------------------------------------------------------------

-- The shortest digits that give the number back, in Python's layout.
local function float_text(x, infinite, not_a_number)
  if x ~= x then return not_a_number end
  if x == math.huge then return infinite end
  if x == -math.huge then return "-" .. infinite end
  local text
  for precision = 0, 16 do
    text = ("%." .. precision .. "e"):format(x)
    if tonumber(text) == x then break end
  end
  local sign, first, rest, exponent = text:match("^(-?)(%d)%.?(%d*)e(.+)$")
  local digits, e = first .. rest, math.tointeger(tonumber(exponent))
  if e < -4 or e >= 16 then
    return ("%s%s%se%s%02d"):format(sign, first, rest == "" and "" or "." .. rest, e < 0 and "-" or "+", math.abs(e))
  end
  if e < 0 then return sign .. "0." .. ("0"):rep(-e - 1) .. digits end
  digits = digits .. ("0"):rep(e + 1 - #digits)
  local fraction = digits:sub(e + 2)
  return sign .. digits:sub(1, e + 1) .. "." .. (fraction == "" and "0" or fraction)
end

-- What str.isprintable refuses beyond ASCII, as far as texts for people hold it: white space, formatting, private use.
local hidden = {
  { 0x80, 0xA0 }, { 0xAD, 0xAD }, { 0x600, 0x605 }, { 0x1680, 0x1680 }, { 0x180E, 0x180E }, { 0x2000, 0x200F }, { 0x2028, 0x202F },
  { 0x205F, 0x206F }, { 0x3000, 0x3000 }, { 0xD800, 0xF8FF }, { 0xFEFF, 0xFEFF }, { 0xFFF0, 0xFFFB }, { 0xE0000, 0xE00FF },
  { 0xF0000, 0x10FFFF },
}

local function code_point(c)
  local lead, code = c:byte(), 0
  if lead < 0x80 then return lead end
  code = lead < 0xE0 and lead & 0x1F or lead < 0xF0 and lead & 0x0F or lead & 0x07
  for i = 2, #c do code = code << 6 | c:byte(i) & 0x3F end
  return code
end

local named_escapes = { ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function quoted(s)
  local quote = s:find("'", 1, true) and not s:find('"', 1, true) and '"' or "'"
  local body = s:gsub("[\0-\x1F\\'\x7F]", function(c)
    if c == "'" then return quote == "'" and "\\'" or c end
    return named_escapes[c] or ("\\x%02x"):format(c:byte())
  end)
  body = body:gsub("[\xC2-\xF4][\x80-\xBF]+", function(c)
    local code = code_point(c)
    for _, range in ipairs(hidden) do
      if code >= range[1] and code <= range[2] then
        return (code < 0x100 and "\\x%02x" or code < 0x10000 and "\\u%04x" or "\\U%08x"):format(code)
      end
    end
  end)
  return quote .. body .. quote
end

local brackets = { list = { "[", "]" }, tuple = { "(", ")" }, view = { "([", "])" } }

local function repr(out, v)
  local kind = kind_of(v)
  if kind == "string" then return add(out, quoted(v)) end
  if kind == "undefined" then return add(out, "Undefined") end
  if kind == "markup" then fail("the text of a list that holds a text from the filter safe is not supported") end
  if kind == "dict" then
    add(out, "{")
    for i, key in ipairs(v.keys) do
      if i > 1 then add(out, ", ") end
      repr(out, key)
      add(out, ": ")
      deeper(repr, out, M.get(v, key))
    end
    return add(out, "}")
  end
  local bracket = brackets[kind]
  if not bracket then return add(out, M.text(v)) end
  add(out, (v.name or "") .. bracket[1])
  for i, item in ipairs(v.items) do
    if i > 1 then add(out, ", ") end
    deeper(repr, out, item)
  end
  add(out, (kind == "tuple" and #v.items == 1 and "," or "") .. bracket[2])
end

-- str(v), which is what {{ v }} prints.
function M.text(v)
  local kind = kind_of(v)
  if kind == "string" then return v end
  if kind == "integer" then return ("%d"):format(v) end
  if kind == "float" then return float_text(v, "inf", "nan") end
  if kind == "boolean" then return v and "True" or "False" end
  if kind == "none" then return "None" end
  if kind == "undefined" then return "" end
  if kind == "markup" then return v.text end
  if kind ~= "dict" and not brackets[kind] then fail("the text of a %s is not supported", type_name(v)) end
  local out = M.builder()
  repr(out, v)
  return M.built(out)
end

local json_escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f" }

local function json_string(s)
  return '"' .. s:gsub('[\0-\x1F"\\]', function(c) return json_escapes[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function json_key(key)
  if type(key) == "string" then return json_string(key) end
  if type(key) == "boolean" or key == M.none or type(key) == "number" then return '"' .. M.json(key, {}) .. '"' end
end

local function json(out, v, options, depth)
  local kind = kind_of(v)
  if kind == "string" then return add(out, json_string(v)) end
  if kind == "markup" then return add(out, json_string(v.text)) end
  if kind == "integer" then return add(out, ("%d"):format(v)) end
  if kind == "float" then return add(out, float_text(v, "Infinity", "NaN")) end
  if kind == "boolean" then return add(out, v and "true" or "false") end
  if kind == "none" then return add(out, "null") end
  local entries = kind == "dict" and v.keys or (kind == "list" or kind == "tuple") and v.items
  if not entries then fail("an object of type '%s' is not JSON serializable", type_name(v)) end
  local open, close = "[", "]"
  if kind == "dict" then
    open, close = "{", "}"
    if options.sort_keys then
      entries = table.move(entries, 1, #entries, 1, {})
      table.sort(entries, M.less)
    end
  end
  if #entries == 0 then return add(out, open .. close) end
  local break_at = options.indent and function(level) return "\n" .. options.indent:rep(level) end or function() return "" end
  add(out, open .. break_at(depth))
  for i, entry in ipairs(entries) do
    if i > 1 then add(out, (options.item_separator or options.indent and "," or ", ") .. break_at(depth)) end
    if kind == "dict" then add(out, json_key(entry) .. (options.key_separator or ": ")) end
    deeper(json, out, kind == "dict" and M.get(v, entry) or entry, options, depth + 1)
  end
  add(out, break_at(depth - 1) .. close)
end

-- json.dumps(v, ensure_ascii=False); options: indent (a text), sort_keys, item_separator, key_separator.
function M.json(v, options)
  local out = M.builder()
  json(out, v, options, 1)
  return M.built(out)
end

return M
