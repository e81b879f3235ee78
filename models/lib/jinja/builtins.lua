-- Filters, tests and global functions, for the interpreter in jinja.lua. Each is called with the value, a table of arguments and a dict of
-- named ones (nil: none).
local values = require "jinja.values"
local methods = require "jinja.methods"
local time = require "jinja.time"
local fail, kind_of, type_name, text_of = values.fail, values.kind, values.type_name, values.text
local given = methods.given

local M = {}

-- --- Helpers ---------------------------------------------------------------------------------------------------------------------

-- The iterator of a generator function: `begin` runs when the first item is asked for, and gives the function that gives the items.
local function generator(begin)
  local pull
  return values.iterator(function()
    pull = pull or begin()
    return values.deeper(pull)
  end)
end

-- What attribute="a.b.0" reads.
local function attribute_reader(attribute, default)
  local keys = { attribute }
  if type(attribute) == "string" then
    keys = {}
    for part in (attribute .. "."):gmatch("([^.]*)%.") do
      keys[#keys + 1] = part:find("^%d+$") and math.tointeger(tonumber(part)) or part
    end
  end
  return function(v)
    for _, key in ipairs(keys) do
      v = methods.item(v, key)
      if default ~= nil and kind_of(v) == "undefined" then v = default end
    end
    return v
  end
end

local function same(v) return v end

local function rest(arguments, from) return table.move(arguments, from, #arguments, 1, {}) end

-- select, reject, selectattr and rejectattr: items for which a test (or their truth) has the given outcome.
local function selecting(outcome, by_attribute)
  return function(v, arguments, named)
    return generator(function()
      if not values.truth(v) then return function() end end
      local read, at = same, 1
      if by_attribute then
        if arguments[1] == nil then fail("the name of an attribute is missing") end
        read, at = attribute_reader(given(arguments[1])), 2
      end
      local name, test = arguments[at], values.truth
      if name ~= nil then
        local found = M.tests[name] or fail("the test '%s' is not supported", text_of(name))
        local others = rest(arguments, at + 1)
        test = function(item) return values.truth(found(item, others, named)) end
      end
      local pull = values.iterate(v)
      return function()
        for item in pull do
          if test(read(item)) == outcome then return item end
        end
      end
    end)
  end
end

local function to_integer(v, default)
  local kind = kind_of(v)
  if kind == "undefined" then fail(v.message) end
  local x = values.number(v)
  if kind == "string" then
    local s = values.strip(v, nil, true, true)
    local sign, body = s:match("^([+-]?)(.*)$")
    local plain = body:gsub("(%d)_%f[%d]", "%1")
    -- What follows takes time that is quadratic in the digits.
    if #plain > 4300 then fail("a number of %d characters is not supported", #plain) end
    if not plain:find("^%d*%.?%d*$") and not plain:find("^%d*%.?%d*[eE][+-]?%d+$") then return default end
    x = tonumber(plain)
    if plain:find("^%d+$") and math.type(x) ~= "integer" then fail("the integer %s is not supported: it is beyond 64 bits", plain) end
    if x and sign == "-" then x = -x end
  end
  if not x or x ~= x or x == math.huge or x == -math.huge then return default end
  if math.type(x) == "integer" then return x end
  local whole = x < 0 and math.ceil(x) or math.floor(x)
  return math.tointeger(whole) or fail("the integer of %s is not supported: it is beyond 64 bits", text_of(x))
end

local function indent_text(indent)
  indent = given(indent)
  if indent == nil or type(indent) == "string" then return indent end
  local width = values.integer(indent, "indent")
  if width > 100 then fail("an indent of more than 100 is not supported") end
  return (" "):rep(width)
end

-- Pairs in the order of their keys; equal ones stay as they were, backwards too.
local function stable_sort(entries, backwards)
  for i, entry in ipairs(entries) do entry.place = i end
  table.sort(entries, function(a, b)
    local x, y = a, b
    if backwards then x, y = b, a end
    if values.less(x.key, y.key) then return true end
    return not values.less(y.key, x.key) and a.place < b.place
  end)
  local out = {}
  for i, entry in ipairs(entries) do out[i] = entry.pair end
  return out
end

-- --- Filters ---------------------------------------------------------------------------------------------------------------------

local function length(v)
  local n = type(v) == "string" and values.text_length(v) or type(v) == "table" and values.length(v)
  return n or fail("object of type '%s' has no len()", type_name(v))
end

local function default(v, other, boolean)
  if kind_of(v) == "undefined" or (boolean ~= nil and values.truth(boolean) and not values.truth(v)) then
    if other == nil then return "" end
    return other
  end
  return v
end

local function nth_or_undefined(items, i)
  if items[i] == nil then return values.undefined("the sequence was empty") end
  return items[i]
end

M.filters = methods.table_of {
  upper = function(v) return text_of(v):upper() end,
  lower = function(v) return text_of(v):lower() end,
  capitalize = function(v) return methods.capitalize(text_of(v)) end,
  title = function(v)  -- unlike the method, a word ends at white space, '-' and opening brackets only
    return (text_of(v):gsub("[^%-\t-\r\x1C- ({%[<]+", methods.capitalize))
  end,
  ["trim chars?"] = function(v, chars)
    return values.strip(text_of(v), given(chars) and methods.string(chars, "what to trim"), true, true)
  end,
  string = text_of,
  safe = function(v) return { kind = "markup", text = text_of(v) } end,
  ["replace old new count?"] = function(v, old, new, count)
    count = given(count)
    return methods.replace(text_of(v), text_of(old), text_of(new), count and values.integer(count, "count") or -1)
  end,
  ["indent width? first? blank?"] = function(v, width, first, blank)
    if type(v) ~= "string" then fail("indent takes a text, not '%s'", type_name(v)) end
    local space = indent_text(width == nil and 4 or width) or fail("indent takes a width, not None")
    first, blank = first ~= nil and values.truth(first), blank ~= nil and values.truth(blank)
    local lines = values.split_lines(v .. "\n")
    for i, line in ipairs(lines) do
      if i == 1 and first or i > 1 and (blank or line ~= "") then lines[i] = space .. line end
    end
    return methods.join("\n", lines)
  end,
  ["tojson ensure_ascii? indent? separators? sort_keys?"] = function(v, ascii, indent, separators, sort_keys)
    if ascii ~= nil and values.truth(ascii) then fail("tojson with ensure_ascii is not supported") end
    local options = { indent = indent_text(indent), sort_keys = sort_keys ~= nil and values.truth(sort_keys) }
    if given(separators) then
      local both = values.collect(separators)
      if #both ~= 2 then fail("separators must be two texts") end
      options.item_separator, options.key_separator = methods.string(both[1], "a separator"), methods.string(both[2], "a separator")
    end
    return values.json(v, options)
  end,
  ["int default? base?"] = function(v, other, base)
    if base ~= nil and base ~= 10 then fail("int with another base than 10 is not supported") end
    if other == nil then other = 0 end
    return to_integer(v, other)
  end,

  length = length, count = length,
  ["default default_value? boolean?"] = default, ["d default_value? boolean?"] = default,
  list = function(v) return values.list(values.collect(v)) end,
  first = function(v)
    local item = values.iterate(v)()
    return nth_or_undefined({ item }, 1)
  end,
  last = function(v)
    if kind_of(v) == "iterator" then fail("'generator' object is not reversible") end
    local items = values.collect(v)
    return nth_or_undefined(items, #items)
  end,
  ["join d? attribute?"] = function(v, separator, attribute)
    local read, items = given(attribute) ~= nil and attribute_reader(attribute) or same, values.collect(v)
    for i, item in ipairs(items) do items[i] = text_of(read(item)) end
    return methods.join(separator == nil and "" or text_of(separator), items)
  end,
  reverse = function(v)
    local items, reversed = values.collect(v), {}
    for i, item in ipairs(items) do reversed[#items + 1 - i] = item end
    if type(v) == "string" then return table.concat(reversed) end
    if kind_of(v) == "iterator" then return values.list(reversed) end
    return values.iterator(values.iterate(values.list(reversed)))
  end,
  items = function(v)
    return generator(function()
      if kind_of(v) == "undefined" then return function() end end
      if kind_of(v) ~= "dict" then fail("can only get item pairs from a mapping") end
      return values.iterate(methods.attribute(v, "items").call({}))
    end)
  end,
  ["dictsort case_sensitive? by? reverse?"] = function(v, case_sensitive, by, reverse)
    if kind_of(v) ~= "dict" then fail("dictsort takes a dict, not '%s'", type_name(v)) end
    if by ~= nil and by ~= "key" and by ~= "value" then fail('dictsort sorts by "key" or "value"') end
    local at = by == "value" and 2 or 1
    local pairs_of, folded = methods.attribute(v, "items").call({}).items, {}
    for i, pair in ipairs(pairs_of) do
      local key = pair.items[at]
      if type(key) == "string" and not (case_sensitive and values.truth(case_sensitive)) then key = key:lower() end
      folded[i] = { key = key, pair = pair }
    end
    return values.list(stable_sort(folded, reverse ~= nil and values.truth(reverse)))
  end,
  ["unique case_sensitive? attribute?"] = function(v, case_sensitive, attribute)
    return generator(function()
      local read, seen = given(attribute) ~= nil and attribute_reader(attribute) or same, values.dict()
      local pull = values.iterate(v)
      return function()
        for item in pull do
          local key = read(item)
          if type(key) == "string" and not (case_sensitive and values.truth(case_sensitive)) then key = key:lower() end
          if values.get(seen, key) == nil then
            values.put(seen, key, true)
            return item
          end
        end
      end
    end)
  end,
  ["map *"] = function(v, arguments, named)
    return generator(function()
      if not values.truth(v) then return function() end end
      local name, change = arguments[1], nil
      if name == nil then
        local attribute, other = named and values.get(named, "attribute"), named and values.get(named, "default")
        if attribute == nil or #named.keys > (other == nil and 1 or 2) then
          fail("map takes the name of a filter, or attribute and default")
        end
        change = attribute_reader(given(attribute), given(other))
      else
        local filter = M.filters[name] or fail("the filter '%s' is not supported", text_of(name))
        local others = rest(arguments, 2)
        change = function(item) return filter(item, others, named) end
      end
      local pull = values.iterate(v)
      return function()
        local item = pull()
        if item ~= nil then return change(item) end
      end
    end)
  end,
  ["select *"] = selecting(true, false), ["reject *"] = selecting(false, false),
  ["selectattr *"] = selecting(true, true), ["rejectattr *"] = selecting(false, true),
}

-- --- Tests -----------------------------------------------------------------------------------------------------------------------

local function kind_test(...)
  local kinds = {}
  for _, kind in ipairs { ... } do kinds[kind] = true end
  return function(v) return kinds[kind_of(v)] == true end
end

local function remainder(v)
  local n = values.number(v) or values.refuse("%", v, 2)
  return n % 2
end

local definitions = {
  defined = function(v) return kind_of(v) ~= "undefined" end,
  undefined = kind_test("undefined"), none = kind_test("none"), boolean = kind_test("boolean"), mapping = kind_test("dict"),
  string = kind_test("string", "markup"), integer = kind_test("integer"), float = kind_test("float"),
  number = kind_test("integer", "float", "boolean"), callable = kind_test("function", "undefined"),
  sequence = kind_test("string", "markup", "list", "tuple", "range", "dict", "undefined"),
  iterable = kind_test("string", "markup", "list", "tuple", "range", "dict", "undefined", "view", "iterator", "loop"),
  ["true"] = function(v) return v == true end,
  ["false"] = function(v) return v == false end,
  odd = function(v) return remainder(v) == 1 end,
  even = function(v) return remainder(v) == 0 end,
  ["in _"] = function(v, container) return values.contains(container, v) end,
}
for names, f in pairs {
  ["== eq equalto"] = values.equal, ["!= ne"] = function(a, b) return not values.equal(a, b) end,
  ["< lt lessthan"] = values.less, ["> gt greaterthan"] = values.greater, ["<= le"] = values.less_equal, [">= ge"] = values.greater_equal,
} do
  for name in names:gmatch("%S+") do definitions[name .. " _"] = f end
end
M.tests = methods.table_of(definitions)

-- --- Global functions ------------------------------------------------------------------------------------------------------------

local function fill(dict, from, named)
  if from ~= nil and kind_of(from) == "dict" then
    for _, key in ipairs(from.keys) do values.put(dict, key, values.get(from, key)) end
  elseif from ~= nil then
    for item in values.iterate(from) do
      local pair = values.collect(item)
      if #pair ~= 2 then fail("a dict is made from pairs") end
      values.put(dict, pair[1], pair[2])
    end
  end
  for _, key in ipairs(named and named.keys or {}) do values.put(dict, key, values.get(named, key)) end
  return dict
end

function M.check_attribute(name)
  if type(name) == "string" and name:sub(1, 1) == "_" then fail("a namespace cannot have the attribute '%s'", name) end
end

local functions = {
  ["raise_exception message"] = function(_, message) values.raise(text_of(message)) end,
  ["range _ _? _?"] = function(_, start, stop, step)
    if stop == nil then start, stop = 0, start end
    start, stop, step = values.integer(start, "range"), values.integer(stop, "range"), values.integer(step == nil and 1 or step, "range")
    if step == 0 then fail("range() arg 3 must not be zero") end
    local items = {}
    for i = start, stop - (step > 0 and 1 or -1), step do values.push(items, i) end
    return values.sequence("range", items)
  end,
  ["dict *"] = function(_, arguments, named)
    if #arguments > 1 then fail("dict takes at most 1 argument") end
    return fill(values.dict(), arguments[1], named)
  end,
  ["namespace *"] = function(_, arguments, named)
    if #arguments > 1 then fail("namespace takes at most 1 argument") end
    local space = fill(values.dict(), arguments[1], named)
    for _, name in ipairs(space.keys) do M.check_attribute(name) end
    space.kind = "namespace"
    return space
  end,
}
for _, name in ipairs { "lipsum", "cycler", "joiner" } do
  functions[name .. " *"] = function() fail("%s() is not supported", name) end
end

local globals = {}
for name, f in pairs(methods.table_of(functions)) do
  globals[name] = values.callable(name, function(arguments, named) return f(nil, arguments, named) end)
end

-- The global functions, by name. `now`: the time that strftime_now writes (see time.lua); nil: there is no such function.
function M.globals(now)
  local function strftime_now(arguments, named)
    local format = arguments[1]
    if named and #arguments == 0 then format = values.get(named, "format") end
    if format == nil or #arguments + (named and #named.keys or 0) ~= 1 then fail("strftime_now takes a format") end
    return time.format(methods.string(format, "the format of strftime_now"), now)
  end
  globals.strftime_now = now and values.callable("strftime_now", strftime_now)
  return globals
end

return M
