-- Expressions of Jinja templates, for the interpreter in jinja.lua: each parsing function takes a parser, reads tokens, and gives a
-- function from a scope to a value.
--
-- A parser is a table: what lexer.lua needs to read tokens, frame, and deepest. A scope is { vars, parent }. A frame is what is known of a
-- scope while its part of the template is being read: { parent, seen, … }, see `load` and `store`.
local values = require "jinja.values"
local methods = require "jinja.methods"
local builtins = require "jinja.builtins"
local lexer = require "jinja.lexer"
local advance, at, skip, expect, look = lexer.advance, lexer.at, lexer.skip, lexer.expect, lexer.look
local fail, kind_of, number = values.fail, values.kind, values.number

local M = {}

-- Runs a parsing function one level deeper. `deepest` is how deep the template has been so far.
function M.nested(p, parse, ...)
  p.deepest = math.max(p.deepest, values.enter(1))
  local result = parse(p, ...)
  values.leave(1)
  return result
end

-- --- Names -----------------------------------------------------------------------------------------------------------------------

-- Jinja decides where names live before it runs a template: one that a scope sets, that nothing of the same scope (outside of branches of
-- `if`) has read before, and that no outer scope mentions, is undefined in there until it is set, even if the context has it. So a frame
-- notes for each name whether it was first read or first set.
function M.load(p, name)
  if name == "self" then fail("'self' is not supported") end
  if p.frame.macro and (name == "caller" or name == "kwargs" or name == "varargs") then fail("'%s' in a macro is not supported", name) end
  p.frame.seen[name] = p.frame.seen[name] or "read"
end

function M.store(p, name)
  p.frame.seen[name] = p.frame.seen[name] or (p.frame.branches > 0 and "read" or "set")
end

-- The value of a name, or nil.
function M.find(scope, name)
  while scope do
    local found = scope.vars[name]
    if found ~= nil then return found end
    scope = scope.parent
  end
end

-- --- Operators -------------------------------------------------------------------------------------------------------------------

-- Integers of Python have no end; those of Lua would wrap.
local function in_range(result, estimate)
  if math.type(result) == "integer" and math.abs(estimate) > 2.0 ^ 62 then fail("integers beyond 64 bits are not supported") end
  return result
end

local function power(x, y)
  if x == 0 and y < 0 then fail("0 cannot be raised to a negative power") end
  if math.type(x) == "float" or math.type(y) == "float" or y < 0 then
    if x < 0 and y ~= math.floor(y) then fail("complex numbers are not supported") end
    return (x + 0.0) ^ y
  end
  local result = 1
  for _ = 1, y do
    values.spend(1)
    result = in_range(result * x, (result + 0.0) * x)
  end
  return result
end

local function divisor(y)
  if y == 0 then fail("division by zero") end
  return y
end

local arithmetic = {
  ["+"] = function(x, y) return in_range(x + y, x + 0.0 + y) end,
  ["-"] = function(x, y) return in_range(x - y, x + 0.0 - y) end,
  ["*"] = function(x, y) return in_range(x * y, (x + 0.0) * y) end,
  ["/"] = function(x, y) return x / divisor(y) end,
  ["//"] = function(x, y)
    if math.type(x) == "integer" and math.type(y) == "integer" then return x // divisor(y) end
    local quotient = (x - x % divisor(y)) / y  -- whole up to rounding; x // y would round down once more
    return quotient == 0 and x / y * 0.0 or math.floor(quotient + 0.5) + 0.0
  end,
  ["%"] = function(x, y) return x % divisor(y) end,
  ["**"] = power,
}

local function joined(a, b)
  if type(a) == "string" then
    local out = values.builder()
    values.add(out, a)
    values.add(out, b)
    return values.built(out)
  end
  local items = {}
  for _, list in ipairs { a, b } do
    for _, item in ipairs(list.items) do values.push(items, item) end
  end
  return values.sequence(a.kind, items)
end

local function repeated(v, times)
  local out = type(v) == "string" and values.builder() or {}
  for _ = 1, times do
    if type(v) == "string" then values.add(out, v) end
    for _, item in ipairs(v.items or {}) do values.push(out, item) end
    values.spend(1)
  end
  return type(v) == "string" and values.built(out) or values.sequence(v.kind, out)
end

local joinable = { string = true, list = true, tuple = true }

local function operator(symbol)
  local compute = arithmetic[symbol]
  return function(a, b)
    local x, y = number(a), number(b)
    if x and y then return compute(x, y) end
    local kind, other = kind_of(a), kind_of(b)
    if symbol == "+" and kind == other and joinable[kind] then return joined(a, b) end
    if symbol == "*" and joinable[kind] and math.type(y) == "integer" then return repeated(a, y) end
    if symbol == "*" and joinable[other] and math.type(x) == "integer" then return repeated(b, x) end
    if symbol == "%" and kind == "string" then fail("formatting a text with % is not supported") end
    values.refuse(symbol, a, b)
  end
end

-- A level of binary operators that are taken from left to right.
local function left_to_right(operand, symbols)
  local functions = {}
  for symbol in symbols:gmatch("%S+") do functions[symbol] = operator(symbol) end
  return function(p)
    local first, others = operand(p), {}
    while functions[p.token.type] do others[#others + 1] = { compute = functions[advance(p).type], value = operand(p) } end
    if #others == 0 then return first end
    return function(scope)
      local value = first(scope)
      for _, other in ipairs(others) do value = other.compute(value, other.value(scope)) end
      return value
    end
  end
end

-- --- Calls, filters, tests -------------------------------------------------------------------------------------------------------

-- The arguments in brackets, if there are any: a function from a scope to a table and a dict (nil: none).
local function arguments(p)
  local given, named, seen, items, entries = {}, {}, {}, nil, nil
  if skip(p, "(") then
    while not at(p, ")") do
      if skip(p, "**") then
        if entries then fail("'**' in a call is there twice") end
        entries = M.expression(p)
      elseif entries then
        fail("an argument after '**'")
      elseif at(p, "*") then
        advance(p)
        if items then fail("'*' in a call is there twice") end
        items = M.expression(p)
      elseif at(p, "name") and look(p).type == "=" then
        local name = advance(p).value
        advance(p)
        if seen[name] then fail("the argument '%s' is given twice", name) end
        seen[name] = true
        named[#named + 1] = { name = name, value = M.expression(p) }
      elseif #named > 0 or items then
        fail("an argument without a name after one with a name, or after '*'")
      else
        given[#given + 1] = M.expression(p)
      end
      if not skip(p, ",") then break end
    end
    expect(p, ")")
  end
  return function(scope)
    local list, dict = {}, (#named > 0 or entries) and values.dict() or nil
    for i, argument in ipairs(given) do list[i] = argument(scope) end
    if items then
      for item in values.iterate(items(scope)) do values.push(list, item) end
    end
    for _, argument in ipairs(named) do values.put(dict, argument.name, argument.value(scope)) end
    if entries then
      local from = entries(scope)
      if kind_of(from) ~= "dict" then fail("what is after '**' must be a dict, not '%s'", values.type_name(from)) end
      for _, key in ipairs(from.keys) do
        if type(key) ~= "string" then fail("the names of arguments must be texts") end
        if values.get(dict, key) ~= nil then fail("the argument '%s' is given twice", key) end
        values.put(dict, key, values.get(from, key))
      end
    end
    return list, dict
  end
end

-- What follows an operand becomes a function of its value and the scope.

local function call(p)
  local read = arguments(p)
  return function(f, scope)
    local list, dict = read(scope)
    if kind_of(f) == "undefined" then fail(f.message) end
    if kind_of(f) ~= "function" then fail("'%s' object is not callable", values.type_name(f)) end
    return f.call(list, dict)
  end
end

local function dotted_name(p)
  local name = expect(p, "name").value
  while skip(p, ".") do name = name .. "." .. expect(p, "name").value end
  return name
end

local function filter(p)
  expect(p, "|")
  local name = dotted_name(p)
  local f = builtins.filters[name] or fail("the filter '%s' is not supported", name)
  local read = arguments(p)
  return function(v, scope)
    if kind_of(v) == "markup" and name ~= "safe" and name ~= "tojson" then
      fail("%s of a text from the filter safe is not supported", name)
    end
    return f(v, read(scope))
  end
end

local argument_begins = { name = true, string = true, integer = true, float = true, ["["] = true, ["{"] = true }
local no_argument = { ["else"] = true, ["or"] = true, ["and"] = true }

local function test(p)
  expect(p, "name", "is")
  local negated = skip(p, "name", "not") ~= nil
  local name = dotted_name(p)
  local f = builtins.tests[name] or fail("the test '%s' is not supported", name)
  local read
  if argument_begins[p.token.type] and not (at(p, "name") and no_argument[p.token.value]) then
    if at(p, "name", "is") then fail("tests cannot be chained with 'is'") end
    local argument = M.postfix(p, M.primary(p))
    read = function(scope) return { argument(scope) } end
  else
    read = arguments(p)
  end
  return function(v, scope) return values.truth(f(v, read(scope))) ~= negated end
end

-- --- Operands --------------------------------------------------------------------------------------------------------------------

local constants = { ["true"] = true, True = true, ["false"] = false, False = false, none = values.none, None = values.none }
M.constants = constants

local function constant(value)
  return function() return value end
end

-- Expressions up to the closing bracket, separated by commas.
local function items(p, close)
  local out = {}
  while not at(p, close) do
    out[#out + 1] = M.expression(p)
    if not skip(p, ",") then break end
  end
  expect(p, close)
  return out
end

local function sequence(kind, parts)
  return function(scope)
    local out = {}
    for _, part in ipairs(parts) do values.push(out, part(scope)) end
    return values.sequence(kind, out)
  end
end

local function dict(p)
  local keys, parts = {}, {}
  while not at(p, "}") do
    keys[#keys + 1] = M.expression(p)
    expect(p, ":")
    parts[#parts + 1] = M.expression(p)
    if not skip(p, ",") then break end
  end
  expect(p, "}")
  return function(scope)
    local out = values.dict()
    for i, key in ipairs(keys) do values.put(out, key(scope), parts[i](scope)) end
    return out
  end
end

local function name(p)
  local word = advance(p).value
  if constants[word] ~= nil then return constant(constants[word]) end
  M.load(p, word)
  local missing = values.undefined("'%s' is undefined", word)
  return function(scope)
    local found = M.find(scope, word)
    if found == nil then return missing end
    return found
  end
end

local function primary(p)
  local kind = p.token.type
  if kind == "name" then return name(p) end
  if kind == "string" then
    local text = advance(p).value
    while at(p, "string") do text = text .. advance(p).value end
    return constant(text)
  end
  if kind == "integer" or kind == "float" then return constant(advance(p).value) end
  if skip(p, "(") then
    if skip(p, ")") then return sequence("tuple", {}) end
    local inner = M.tuple(p)
    expect(p, ")")
    return inner
  end
  if skip(p, "[") then return sequence("list", items(p, "]")) end
  if skip(p, "{") then return dict(p) end
  lexer.unexpected(p, "an expression")
end

function M.primary(p) return M.nested(p, primary) end

-- What is between square brackets.
local function subscript(p)
  expect(p, "[")
  local parts, is_slice = {}, false
  for i = 1, 3 do
    if not at(p, ":") and not at(p, "]") then parts[i] = M.expression(p) end
    if i == 3 or not skip(p, ":") then break end
    is_slice = true
  end
  if at(p, ",") then fail("several indices are not supported") end
  expect(p, "]")
  if not is_slice then
    local key = parts[1] or fail("an empty index is not supported")
    return function(v, scope) return methods.item(v, key(scope)) end
  end
  local function part(i, scope)
    if parts[i] then return parts[i](scope) end
  end
  return function(v, scope) return methods.slice(v, part(1, scope), part(2, scope), part(3, scope)) end
end

local function attribute(p)
  expect(p, ".")
  if at(p, "integer") then
    local index = advance(p).value
    return function(v) return methods.item(v, index) end
  end
  local key = expect(p, "name").value
  return function(v) return methods.attribute(v, key) end
end

-- An operand with all of what follows it; `readers` tells what may.
local function suffixed(p, operand, readers)
  local changes = {}
  local read = readers[p.token.type == "name" and p.token.value or p.token.type]
  while read do
    changes[#changes + 1] = read(p)
    read = readers[p.token.type == "name" and p.token.value or p.token.type]
  end
  if #changes == 0 then return operand end
  return function(scope)
    local value = operand(scope)
    for _, change in ipairs(changes) do value = change(value, scope) end
    return value
  end
end

local suffixes = { ["."] = attribute, ["["] = subscript, ["("] = call }
local filters_and_tests = { ["|"] = filter, is = test, ["("] = call }

function M.postfix(p, operand) return suffixed(p, operand, suffixes) end
function M.filters(p, operand) return suffixed(p, operand, { ["|"] = filter }) end

local function signed(p, with_filters)
  local value
  if at(p, "-") or at(p, "+") then
    local minus = advance(p).type == "-"
    local operand = M.nested(p, signed, false)
    value = function(scope)
      local v = operand(scope)
      local x = number(v) or kind_of(v) == "undefined" and fail(v.message) or fail("bad operand for a sign: '%s'", values.type_name(v))
      return minus and -x or x
    end
  else
    value = M.primary(p)
  end
  value = M.postfix(p, value)
  return with_filters and suffixed(p, value, filters_and_tests) or value
end

local function unary(p) return signed(p, true) end

local factor = left_to_right(left_to_right(unary, "**"), "* / // %")

local function concatenation(p)
  local parts = { factor(p) }
  while skip(p, "~") do parts[#parts + 1] = factor(p) end
  if #parts == 1 then return parts[1] end
  return function(scope)
    local out = values.builder()
    for _, part in ipairs(parts) do values.add(out, values.text(part(scope))) end
    return values.built(out)
  end
end

local sum = left_to_right(concatenation, "+ -")

local comparisons = {
  ["=="] = values.equal, ["!="] = function(a, b) return not values.equal(a, b) end,
  ["<"] = values.less, [">"] = values.greater, ["<="] = values.less_equal, [">="] = values.greater_equal,
  ["in"] = function(a, b) return values.contains(b, a) end,
  ["not in"] = function(a, b) return not values.contains(b, a) end,
}

local function comparison_symbol(p)
  if at(p, "name", "not") and look(p).type == "name" and look(p).value == "in" then
    advance(p)
    advance(p)
    return "not in"
  end
  if at(p, "name", "in") or comparisons[p.token.type] then return advance(p).value end
end

local function comparison(p)
  local first, others = sum(p), {}
  local symbol = comparison_symbol(p)
  while symbol do
    others[#others + 1] = { compare = comparisons[symbol], value = sum(p) }
    symbol = comparison_symbol(p)
  end
  if #others == 0 then return first end
  return function(scope)
    local left = first(scope)
    for _, other in ipairs(others) do
      local right = other.value(scope)
      if not other.compare(left, right) then return false end
      left = right
    end
    return true
  end
end

local function negation(p)
  if not skip(p, "name", "not") then return comparison(p) end
  local operand = M.nested(p, negation)
  return function(scope) return not values.truth(operand(scope)) end
end

-- `and` and `or` give the operand that decides.
local function deciding(operand, word, decides)
  return function(p)
    local parts = { operand(p) }
    while skip(p, "name", word) do parts[#parts + 1] = operand(p) end
    if #parts == 1 then return parts[1] end
    return function(scope)
      local value
      for _, part in ipairs(parts) do
        value = part(scope)
        if values.truth(value) == decides then break end
      end
      return value
    end
  end
end

-- An expression without `if`.
M.condition = deciding(deciding(negation, "and", false), "or", true)

function M.expression(p)
  local value, choices = M.condition(p), {}
  while skip(p, "name", "if") do
    local choice = { condition = M.condition(p) }
    if skip(p, "name", "else") then choice.otherwise = M.nested(p, M.expression) end
    choice.missing = values.undefined("the inline if-expression on line %d was false and has no else", p.token.line)
    table.insert(choices, 1, choice)  -- the last one is asked first
  end
  if #choices == 0 then return value end
  return function(scope)
    for _, choice in ipairs(choices) do
      if not values.truth(choice.condition(scope)) then
        if choice.otherwise then return choice.otherwise(scope) end
        return choice.missing
      end
    end
    return value(scope)
  end
end

local tuple_ends = { variable_end = true, block_end = true, [")"] = true }

-- One expression, or several with commas between them. `parse` reads one: M.expression unless it is given.
function M.tuple(p, parse)
  parse = parse or M.expression
  local parts, commas = {}, false
  repeat
    if tuple_ends[p.token.type] then break end
    parts[#parts + 1] = parse(p)
    local comma = skip(p, ",")
    commas = commas or comma ~= nil
  until not comma
  if commas then return sequence("tuple", parts) end
  return parts[1] or lexer.unexpected(p, "an expression")
end

return M
