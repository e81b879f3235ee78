-- Splits a Jinja template into tokens, one at a time, with trim_blocks and lstrip_blocks on, for the interpreter in jinja.lua.
--
-- A token is { type, value, line }. Types: "data" (text between tags), "variable_begin", "variable_end", "block_begin", "block_end",
-- "name", "string", "integer", "float", "end" (of the template), and each operator under its own name.
local values = require "jinja.values"
local fail = values.fail

local M = {}

local operators = {}
for operator in ("+ - / // * % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ;"):gmatch("%S+") do operators[operator] = true end
local closing = { ["("] = ")", ["["] = "]", ["{"] = "}" }
local opening = { [")"] = true, ["]"] = true, ["}"] = true }

-- --- Texts in quotes -------------------------------------------------------------------------------------------------------------

local function encode(code)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 | code >> 6, 0x80 | code & 0x3F) end
  if code >= 0xD800 and code < 0xE000 or code > 0x10FFFF then fail("the character \\u%04x in a text is not supported", code) end
  if code < 0x10000 then return string.char(0xE0 | code >> 12, 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F) end
  return string.char(0xF0 | code >> 18, 0x80 | code >> 12 & 0x3F, 0x80 | code >> 6 & 0x3F, 0x80 | code & 0x3F)
end

local escapes = {
  a = "\a", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", v = "\v", ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = "",
}
local hexadecimal = { x = 2, u = 4, U = 8 }

local function unescape(s)
  local out, i = {}, 1
  while true do
    local at = s:find("\\", i, true)
    out[#out + 1] = s:sub(i, (at or 0) - 1)
    if not at then return table.concat(out) end
    local c, octal = s:sub(at + 1, at + 1), s:match("^[0-7][0-7]?[0-7]?", at + 1)
    i = at + 2
    if octal then
      out[#out + 1] = encode(tonumber(octal, 8))
      i = at + 1 + #octal
    elseif hexadecimal[c] then
      local digits = s:sub(i, i + hexadecimal[c] - 1)
      if #digits < hexadecimal[c] or digits:find("%X") then fail("truncated \\%s escape in a text", c) end
      out[#out + 1] = encode(tonumber(digits, 16))
      i = i + #digits
    elseif c == "N" then
      fail("\\N in a text is not supported")
    else
      out[#out + 1] = escapes[c] or "\\" .. c
    end
  end
end

-- --- The lexer -------------------------------------------------------------------------------------------------------------------

-- After all white space from byte i on.
local function skip_space(text, i)
  local size = values.space_at(text, i)
  while size do
    i = i + size
    size = values.space_at(text, i)
  end
  return i
end

-- Where a tag that may end at byte i goes on if it does end there, or nil. `mark` is '%', '}' or '#'.
local function tag_end(text, i, mark)
  local sign = text:sub(i, i)
  if sign == "-" or (sign == "+" and mark ~= "}") then
    if text:sub(i + 1, i + 2) ~= mark .. "}" then return nil end
    return sign == "-" and skip_space(text, i + 3) or i + 3
  end
  if text:sub(i, i + 1) ~= mark .. "}" then return nil end
  return (mark ~= "}" and text:sub(i + 2, i + 2) == "\n") and i + 3 or i + 2
end

-- The text in front of a tag, as far as it is kept. `starts_line`: it begins at the beginning of a line.
local function kept(data, sign, mark, starts_line)
  if sign == "-" then return values.strip(data, nil, false, true) end
  if sign == "+" or mark == "{" then return data end
  local line = data:match("^.*\n()") or 1
  if line == 1 and not starts_line then return data end
  return skip_space(data, line) > #data and data:sub(1, line - 1) or data
end

-- Gives a function that gives the next token, and one that gives the line it has come to.
function M.new(text)
  text = text:gsub("\r\n?", "\n"):gsub("\n$", "")
  local at, line, starts_line = 1, 1, true
  local mark         -- of the tag that `at` is in: '%' or '{'; nil: outside of tags
  local begin        -- the token for that tag, when it is due
  local open = {}    -- the closing brackets that are due in it

  local function move(to)
    line = line + select(2, text:sub(at, to - 1):gsub("\n", ""))
    starts_line = text:sub(to - 1, to - 1) == "\n"
    at = to
  end

  local function token(kind, value, to)
    local out = { type = kind, value = value, line = line }
    if to then move(to) end
    return out
  end

  local function comment()
    local first = at
    if at > #text then return end
    repeat
      first = text:find("#}", first, true) or fail("missing end of comment tag")
      local signed = first > at and tag_end(text, first - 1, "#")
      local after = signed or tag_end(text, first, "#")
      if after then return move(after) end
    until false
  end

  -- A token outside of tags; nil: nothing but a comment was there.
  local function outside()
    if at > #text then return token("end") end
    local first = text:find("{[{%%#]", at)
    if not first then return token("data", text:sub(at), #text + 1) end
    mark = text:sub(first + 1, first + 1)
    local sign = text:match("^[+-]", first + 2)
    local data = kept(text:sub(at, first - 1), sign, mark, starts_line)
    local out = data ~= "" and token("data", data)
    move(first + 2 + (sign and 1 or 0))
    if mark == "#" then
      comment()
      mark = nil
    else
      begin = token(mark == "{" and "variable_begin" or "block_begin")
    end
    return out
  end

  local function quoted(quote)
    local last = at + 1
    while true do
      last = text:find("[\\" .. quote .. "]", last) or fail("a text in quotes has no end")
      if text:sub(last, last) == quote then return token("string", unescape(text:sub(at + 1, last - 1)), last + 1) end
      last = last + 2
    end
  end

  local function number()
    local digits = text:match("^%d[%d_]*", at)
    local after_dot = text:sub(at - 1, at - 1) == "."
    local fraction = not after_dot and text:match("^%.%d[%d_]*", at + #digits) or ""
    local exponent = not after_dot and text:match("^[eE][+-]?%d[%d_]*", at + #digits + #fraction) or ""
    local all = digits .. fraction .. exponent
    local plain = all:gsub("_", "")
    if all:find("_%D") or all:find("_$") then fail("malformed number %s", all) end
    if fraction ~= "" or exponent ~= "" then return token("float", tonumber(plain) + 0.0, at + #all) end
    if plain:find("^0+[1-9]") then fail("malformed number %s", all) end
    local value = math.tointeger(tonumber(plain)) or fail("the integer %s is not supported: it is beyond 64 bits", plain)
    return token("integer", value, at + #all)
  end

  local function inside()
    local after = #open == 0 and tag_end(text, at, mark == "{" and "}" or mark)
    if after then
      local out = token(mark == "{" and "variable_end" or "block_end", nil, after)
      mark = nil
      return out
    end
    local c = text:sub(at, at)
    if c == "" then return token("end") end
    if c:find("%d") then return number() end
    local name = text:match("^[A-Za-z_][A-Za-z0-9_]*", at)
    if name then return token("name", name, at + #name) end
    if c == "'" or c == '"' then return quoted(c) end
    local operator = text:sub(at, at + 1)
    if not operators[operator] then operator = c end
    if c:find("[\x80-\xFF]") then fail("a character beyond ASCII outside of quotes is not supported") end
    if not operators[operator] then fail("unexpected character '%s'", c) end
    if closing[operator] then
      open[#open + 1] = closing[operator]
    elseif opening[operator] then
      if table.remove(open) ~= operator then fail("unexpected '%s'", operator) end
    end
    return token(operator, operator, at + #operator)
  end

  local function next_token()
    local out
    repeat
      if begin then
        out, begin = begin, nil
      elseif mark then
        move(skip_space(text, at))
        out = inside()
      else
        out = outside()
      end
    until out
    return out
  end

  return next_token, function() return line end
end

-- --- Reading tokens --------------------------------------------------------------------------------------------------------------

-- A parser is a table with the fields token (the current one), next_token (a function) and ahead (the token after, if it was asked for).

-- Gives the current token and goes on to the next.
function M.advance(p)
  local token = p.token
  p.token, p.ahead = p.ahead or p.next_token(), nil
  return token
end

-- Whether the current token is of this type and, when one is given, has this value.
function M.at(p, kind, value)
  return p.token.type == kind and (value == nil or p.token.value == value)
end

function M.skip(p, kind, value) return M.at(p, kind, value) and M.advance(p) or nil end

-- The token after the current one.
function M.look(p)
  p.ahead = p.ahead or p.next_token()
  return p.ahead
end

local descriptions = {
  variable_begin = "'{{'", variable_end = "'}}'", block_begin = "'{%'", block_end = "'%}'", data = "text between tags", name = "a name",
  ["end"] = "the end of the template",
}

local function describe(kind, value)
  if value ~= nil and kind ~= "data" then return ("'%s'"):format(tostring(value)) end
  return descriptions[kind] or ("'%s'"):format(kind)
end

function M.unexpected(p, wanted)
  fail("%s where %s was expected", describe(p.token.type, p.token.value), wanted)
end

function M.expect(p, kind, value)
  if not M.at(p, kind, value) then M.unexpected(p, describe(kind, value)) end
  return M.advance(p)
end

return M
