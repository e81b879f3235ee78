-- Attributes, items, slices and methods of values, for the interpreter in jinja.lua.
local values = require "jinja.values"
local fail, none, kind_of, type_name = values.fail, values.none, values.kind, values.type_name

local M = {}

-- --- Arguments -------------------------------------------------------------------------------------------------------------------

-- Makes a function that is called with a table of arguments (and a dict of named ones) from one with parameters. "name first second?"
-- has one that must be given and one that may be missing (nil); '_' stands for a parameter that cannot be named. With "name *" the
-- function gets the two tables as they are.
function M.define(signature, f)
  local words = {}
  for word in signature:gmatch("%S+") do words[#words + 1] = word end
  local name = table.remove(words, 1)
  if words[1] == "*" then return name, f end
  local least = 0
  for i, word in ipairs(words) do
    if word:sub(-1) == "?" then words[i] = word:sub(1, -2) else least = i end
  end
  return name, function(self, arguments, named)
    if #arguments > #words then fail("%s takes at most %d arguments here", name, #words) end
    local given = table.move(arguments, 1, #arguments, 1, {})
    for _, key in ipairs(named and named.keys or {}) do
      local at
      for i, word in ipairs(words) do
        if word == key and word ~= "_" and given[i] == nil then at = i end
      end
      if not at then fail("%s does not take the argument '%s' here", name, key) end
      given[at] = values.get(named, key)
    end
    for i = 1, least do
      if given[i] == nil then fail("%s needs %d arguments", name, least) end
    end
    return f(self, table.unpack(given, 1, #words))
  end
end

-- nil for a missing argument and for None.
function M.given(v)
  if v ~= none then return v end
end

function M.string(v, what)
  if type(v) ~= "string" then fail("%s must be a text, not '%s'", what, type_name(v)) end
  return v
end
local text = M.string

-- --- Methods of texts ------------------------------------------------------------------------------------------------------------

local function table_of(definitions)
  local out = {}
  for signature, f in pairs(definitions) do
    local name, call = M.define(signature, f)
    out[name] = call
  end
  return out
end
M.table_of = table_of

function M.capitalize(s)
  local first, rest = s:match("^(.)(.*)$")
  return first and first:upper() .. rest:lower() or s
end

-- str.replace, `most` times; negative: all.
function M.replace(s, old, new, most)
  if old == "" then fail("replacing an empty text is not supported") end
  local out, start = values.builder(), 1
  while most ~= 0 do
    local first, last = s:find(old, start, true)
    if not first then break end
    values.add(out, s:sub(start, first - 1))
    values.add(out, new)
    start, most = last + 1, most - 1
  end
  values.add(out, s:sub(start))
  return values.built(out)
end

function M.join(separator, items)
  local out = values.builder()
  for i, item in ipairs(items) do
    if i > 1 then values.add(out, separator) end
    values.add(out, item)
  end
  return values.built(out)
end

-- str.split without a separator: the words.
local function split_words(s, most)
  local out, i = {}, 1
  while true do
    local space = values.space_at(s, i)
    while space do
      i = i + space
      space = values.space_at(s, i)
    end
    if i > #s then return out end
    if #out == most then
      values.push(out, s:sub(i))
      return out
    end
    local start = i
    while i <= #s and not values.space_at(s, i) do i = i + 1 end
    values.push(out, s:sub(start, i - 1))
  end
end

local function split(s, separator, most)
  if separator == "" then fail("split by an empty text") end
  local out, start = {}, 1
  while #out ~= most do
    local first, last = s:find(separator, start, true)
    if not first then break end
    values.push(out, s:sub(start, first - 1))
    start = last + 1
  end
  values.push(out, s:sub(start))
  return out
end

local function stripping(left, right)
  return function(s, characters)
    characters = M.given(characters)
    return values.strip(s, characters and text(characters, "what to strip"), left, right)
  end
end

-- startswith and endswith take one text or a tuple of them.
local function matching(matches)
  return function(s, affix)
    local affixes = kind_of(affix) == "tuple" and affix.items or { affix }
    for _, a in ipairs(affixes) do
      if matches(s, text(a, "what a text starts or ends with")) then return true end
    end
    return false
  end
end

local function starts(s, prefix) return s:sub(1, #prefix) == prefix end
local function ends(s, suffix) return suffix == "" or s:sub(-#suffix) == suffix end

local methods = {
  string = table_of {
    ["strip _?"] = stripping(true, true), ["lstrip _?"] = stripping(true, false), ["rstrip _?"] = stripping(false, true),
    ["startswith _"] = matching(starts), ["endswith _"] = matching(ends),
    upper = function(s) return s:upper() end,
    lower = function(s) return s:lower() end,
    capitalize = M.capitalize,
    title = function(s)  -- a word is a run of letters: "it's" becomes "It'S"
      return (s:gsub("[A-Za-z\x80-\xFF]+", M.capitalize))
    end,
    ["replace _ _ _?"] = function(s, old, new, count)
      return M.replace(s, text(old, "what to replace"), text(new, "the replacement"), count and values.integer(count, "the count") or -1)
    end,
    ["removeprefix _"] = function(s, prefix) return starts(s, text(prefix, "the prefix")) and s:sub(#prefix + 1) or s end,
    ["removesuffix _"] = function(s, suffix) return ends(s, text(suffix, "the suffix")) and s:sub(1, #s - #suffix) or s end,
    ["split sep? maxsplit?"] = function(s, separator, most)
      separator, most = M.given(separator), most and values.integer(most, "maxsplit") or -1
      return values.list(separator and split(s, text(separator, "the separator"), most) or split_words(s, most))
    end,
    splitlines = function(s) return values.list(values.split_lines(s)) end,
    ["find _"] = function(s, other)
      local at = s:find(text(other, "what to find"), 1, true)
      return at and values.text_length(s:sub(1, at - 1)) or -1
    end,
    ["join _"] = function(s, items)
      items = values.collect(items)
      for _, item in ipairs(items) do text(item, "what join joins") end
      return M.join(s, items)
    end,
  },
  dict = table_of {
    keys = function(dict) return { kind = "view", name = "dict_keys", items = dict.keys } end,
    values = function(dict)
      local items = {}
      for i, key in ipairs(dict.keys) do items[i] = values.get(dict, key) end
      return { kind = "view", name = "dict_values", items = items }
    end,
    items = function(dict)
      local items = {}
      for i, key in ipairs(dict.keys) do items[i] = values.tuple(key, values.get(dict, key)) end
      return { kind = "view", name = "dict_items", items = items }
    end,
    ["get _ _?"] = function(dict, key, default)
      local found = values.get(dict, key)
      if found == nil then found = default end
      if found == nil then return none end
      return found
    end,
  },
}

local function words(s)
  local set = {}
  for word in s:gmatch("%S+") do set[word] = true end
  return set
end

-- What Python's types have and this interpreter does not.
local missing = {
  string = words [[casefold center count encode expandtabs format format_map index isalnum isalpha isascii isdecimal isdigit isidentifier
    islower isnumeric isprintable isspace istitle isupper ljust maketrans partition rfind rindex rjust rpartition rsplit swapcase translate
    zfill]],
  dict = words "copy fromkeys",
  list = words "copy count index",
  tuple = words "count index",
  range = words "count index start step stop",
  view = words "isdisjoint mapping",
  integer = words "as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes",
  float = words "as_integer_ratio conjugate fromhex hex imag is_integer real",
  ["function"] = words "arguments call caller catch_kwargs catch_varargs explicit_caller name",
  iterator = words "close gi_code gi_frame send throw",
}
missing.boolean = missing.integer

-- What would change a value: a template may not. Python's own sandbox gives an undefined value for them, which fails once it is called.
local unsafe = {
  dict = words "clear pop popitem setdefault update", list = words "append clear extend insert pop remove reverse sort",
}

-- --- Attributes and items --------------------------------------------------------------------------------------------------------

-- What Python's getattr finds, or nil.
local function attribute(v, name)
  local kind = kind_of(v)
  if kind == "undefined" then fail(v.message) end
  if kind == "loop" then return v.get(name) end
  if kind == "namespace" then return values.get(v, name) end
  if kind == "markup" then fail("'%s' of a text from the filter safe is not supported", name) end
  local method = methods[kind] and methods[kind][name]
  if method then
    return values.callable(name, function(arguments, named) return method(v, arguments, named) end)
  end
  if unsafe[kind] and unsafe[kind][name] then
    return values.undefined("access to attribute '%s' of '%s' object is unsafe.", name, type_name(v))
  end
  if missing[kind] and missing[kind][name] or name:sub(1, 2) == "__" and name ~= "__" then
    fail("'%s' of a '%s' is not supported", name, type_name(v))
  end
end

local indexed = { list = true, tuple = true, range = true }

local function subscript(v, key)
  local kind = kind_of(v)
  if kind == "undefined" then fail(v.message) end
  if kind == "markup" then fail("[…] of a text from the filter safe is not supported") end
  if kind == "dict" then
    local k = kind_of(key)
    if k == "string" or k == "none" or values.number(key) then return values.get(v, key) end
    return nil
  end
  local index = values.number(key)
  if math.type(index) ~= "integer" or (kind ~= "string" and not indexed[kind]) then return nil end
  local n = kind == "string" and values.text_length(v) or #v.items
  if index < 0 then index = index + n end
  if index < 0 or index >= n then return nil end
  if kind ~= "string" then return v.items[index + 1] end
  return n == #v and v:sub(index + 1, index + 1) or values.characters(v)[index + 1]
end

local function no_attribute(v, key)
  if type(key) ~= "string" then return values.undefined("'%s' has no such element", type_name(v)) end
  return values.undefined("'%s' has no attribute '%s'", kind_of(v) == "dict" and "dict object" or type_name(v), key)
end

-- v.name: attributes come before keys, so {'items': 1}.items is the method.
function M.attribute(v, name)
  local found = attribute(v, name)
  if found == nil then found = subscript(v, name) end
  if found == nil then return no_attribute(v, name) end
  return found
end

-- v[key]: and here keys come before attributes.
function M.item(v, key)
  local found = subscript(v, key)
  if found == nil and type(key) == "string" then found = attribute(v, key) end
  if found == nil then return no_attribute(v, key) end
  return found
end

-- v[start:stop:step], with nil or None for what is not given.
function M.slice(v, start, stop, step)
  local kind = kind_of(v)
  if kind == "undefined" then fail(v.message) end
  if kind ~= "string" and not indexed[kind] then fail("'%s' object cannot be sliced", type_name(v)) end
  local function bound(x) return M.given(x) ~= nil and values.integer(x, "what a slice is cut by") or nil end
  start, stop, step = bound(start), bound(stop), bound(step) or 1
  if step == 0 then fail("slice step cannot be zero") end
  local n = kind == "string" and values.text_length(v) or #v.items
  local low, high = step > 0 and 0 or -1, step > 0 and n or n - 1
  local function place(x, default)
    if not x then return default end
    if x < 0 then x = x + n end
    return math.max(low, math.min(high, x))
  end
  local first, last = place(start, step > 0 and low or high), place(stop, step > 0 and high or low)
  if kind == "string" and n == #v and step == 1 then return v:sub(first + 1, last) end
  local items, out = kind == "string" and values.characters(v) or v.items, {}
  for i = first, last - (step > 0 and 1 or -1), step do values.push(out, items[i + 1]) end
  if kind == "string" then return table.concat(out) end
  return values.sequence(kind, out)
end

return M
