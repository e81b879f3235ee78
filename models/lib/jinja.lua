-- An interpreter for the part of Jinja that chat templates of language models use. It renders a template as transformers does:
-- jinja2's ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True) with the extensions loopcontrols and generation.
--
--   local jinja = require "jinja"
--   local template, message = jinja.parse(text)            -- nil and "line 3: the filter 'groupby' is not supported"
--   local text, spans = template:render(context, now)      -- or nil and why not: the text of raise_exception, or "line 3: …"
--
-- Neither ever raises an error. What is not known here is such an error by its name, never a guess.
--
-- spans: where the blocks `generation` stand in the text, each { begin, end } in bytes from 0 on, in order; transformers calls them
-- generation indices. template.generates says whether the template has such blocks. One in a macro or in a block that is set to a name has
-- no place that is known: then the spans are empty, and the line of the block is the third result.
--
-- now: the time that strftime_now writes, { year, month, day, hour, minute, second } as numbers; nil: there is no such function.
--
-- The context is a table of variables: strings, numbers, booleans, jinja.none or a light userdata for None (which transformers passes for
-- `tools` and `documents` when there are none), tables 1 … n for lists, tables with string keys for dicts. The keys of a dict come in the
-- order of its field __order if it has one (a list of keys, not a key itself), all others after these, sorted. An empty table is a list,
-- { __order = {} } an empty dict.
--
-- Statements    for (with if, else, loop.…, tuple targets), if, set (also of namespaces, and as a block), macro, break, continue,
--               generation
-- Expressions   all of Jinja's, but for several indices, and text % values
-- Filters       capitalize count d default dictsort first indent int items join last length list lower map reject rejectattr replace
--               reverse safe select selectattr string title tojson trim unique upper
-- Tests         == != < <= > >= and their names, boolean callable defined even false float in integer iterable mapping none number
--               odd sequence string true undefined
-- Functions     dict namespace raise_exception range strftime_now; lipsum, cycler and joiner are defined, but calling one is an error
-- Methods       of texts: capitalize endswith find join lower lstrip removeprefix removesuffix replace rstrip split splitlines
--               startswith strip title upper; of dicts: get items keys values; of lists none: what changes a list (append) is an
--               error in transformers too
--
-- Integers have 64 bits, changes of case know ASCII only, and a template is bounded in size, nesting, and how much it does.
local values = require "jinja.values"
local builtins = require "jinja.builtins"
local lexer = require "jinja.lexer"
local expressions = require "jinja.expressions"
local fail, kind_of, truth = values.fail, values.kind, values.truth
local advance, at, skip, expect = lexer.advance, lexer.at, lexer.skip, lexer.expect

local M = { none = values.none }

-- --- Scopes and bodies -----------------------------------------------------------------------------------------------------------
--
-- A statement becomes a function of a scope and the text that is being built. It gives nil, or "break" or "continue" on its way to a loop.

local function open_frame(p, kind)
  local frame = { parent = p.frame, seen = {}, branches = 0, in_loop = p.frame and p.frame.in_loop, macro = p.frame and p.frame.macro }
  if kind == "loop" then frame.in_loop = true end
  if kind == "macro" then frame.in_loop, frame.macro = false, true end
  if kind == "generation" then frame.in_loop = false end
  p.frames[#p.frames + 1], p.frame = frame, frame
  return frame
end

local function close_frame(p) p.frame = p.frame.parent end

-- Once the whole template is read: the names that each frame hides from its outer scopes (see `load` in expressions.lua).
local function find_hidden(frames)
  for _, frame in ipairs(frames) do
    frame.hidden = {}
    for name, first in pairs(frame.seen) do
      local outer = frame.parent
      while outer and not outer.seen[name] do outer = outer.parent end
      if first == "set" and not outer then frame.hidden[#frame.hidden + 1] = name end
    end
  end
end

local function open_scope(parent, frame)
  local scope = { vars = {}, parent = parent }
  for _, name in ipairs(frame.hidden) do scope.vars[name] = values.undefined("'%s' is undefined", name) end
  return scope
end

local statements = {}  -- how to read each, by its tag

-- Statements up to the tag with one of the names `ends`, which becomes the current token. Without `ends`: up to the end of the template.
local function body(p, ends)
  local parts, run = {}, p.run
  while not (at(p, "end") and not ends) do
    local line = p.token.line
    if at(p, "data") then
      local text = advance(p).value
      parts[#parts + 1] = function(_, out) values.add(out, text) end
    elseif skip(p, "variable_begin") then
      local value = expressions.tuple(p)
      expect(p, "variable_end")
      parts[#parts + 1] = function(scope, out)
        run.line = line
        values.add(out, values.text(value(scope)))
      end
    elseif skip(p, "block_begin") then
      if at(p, "name") and ends and ends[p.token.value] then break end
      local name = expect(p, "name").value
      local parse = statements[name] or fail("the tag '%s' is not supported or not expected", name)
      parts[#parts + 1] = expressions.nested(p, parse, line)
      expect(p, "block_end")
    else
      lexer.unexpected(p, "the end of a block")
    end
  end
  return function(scope, out)
    values.enter(1)
    for _, part in ipairs(parts) do
      values.spend(1)
      local signal = part(scope, out)
      if signal then
        values.leave(1)
        return signal
      end
    end
    values.leave(1)
  end
end

-- The body of a tag, after the rest of it: from the end of the tag to one of `ends`, whose name is given too.
local function block(p, ...)
  local ends = {}
  for _, name in ipairs { ... } do ends[name] = true end
  skip(p, ":")
  expect(p, "block_end")
  local inner = body(p, ends)
  return inner, advance(p).value
end

-- `whole`: the text is that of the whole template.
local function captured(inner, scope, whole)
  local out = values.builder()
  out.whole = whole
  local signal = inner(scope, out)
  return values.built(out), signal
end

-- --- Targets ---------------------------------------------------------------------------------------------------------------------

-- What may stand in front of '=' or `in`: { name }, { name, attribute } or { items }.
local target

local function single_target(p, with_namespace)
  if skip(p, "(") then
    local inner = expressions.nested(p, target, with_namespace)
    expect(p, ")")
    return inner
  end
  local name = expect(p, "name").value
  if expressions.constants[name] ~= nil or name == "loop" then fail("'%s' cannot be set", name) end
  if with_namespace and skip(p, ".") then return { name = name, attribute = expect(p, "name").value } end
  return { name = name }
end

function target(p, with_namespace)
  local items, commas = {}, false
  repeat
    if at(p, "name", "in") or at(p, "=") or at(p, ")") or at(p, "block_end") then break end
    items[#items + 1] = single_target(p, with_namespace)
    local comma = skip(p, ",")
    commas = commas or comma ~= nil
  until not comma
  if commas then return { items = items } end
  return items[1] or lexer.unexpected(p, "a name")
end

-- Notes the names of a target in the current frame.
local function declare(p, where, as)
  for _, item in ipairs(where.items or {}) do declare(p, item, as) end
  if where.attribute then expressions.load(p, where.name)
  elseif where.name and as then p.frame.seen[where.name] = as
  elseif where.name then expressions.store(p, where.name) end
end

local function assign(where, value, scope)
  if where.items then
    local items = values.collect(value)
    if #items ~= #where.items then fail("%d values for %d names", #items, #where.items) end
    for i, item in ipairs(where.items) do assign(item, items[i], scope) end
  elseif where.attribute then
    local space = expressions.find(scope, where.name)
    if kind_of(space) ~= "namespace" then fail("cannot assign attribute on non-namespace object '%s'", where.name) end
    builtins.check_attribute(where.attribute)
    values.put(space, where.attribute, value)
  else
    scope.vars[where.name] = value
  end
end

-- --- Loops -----------------------------------------------------------------------------------------------------------------------

-- The variable `loop`. Items are pulled as late as possible, as the condition of a loop may depend on what its body does.
local function new_loop(pull)
  local ahead, index0, length = {}, -1, nil
  local previous, current, changed
  local function peek()
    if ahead[1] == nil then ahead[1] = pull() end
    return ahead[1]
  end
  local function count()
    while not length do
      local item = pull()
      if item == nil then length = index0 + 1 + #ahead
      else values.push(ahead, item) end
    end
    return length
  end
  local function neighbour(item)
    if item == nil then return values.undefined("there is no such item in the loop") end
    return item
  end
  local attributes = {
    index = function() return index0 + 1 end,
    index0 = function() return index0 end,
    first = function() return index0 == 0 end,
    last = function() return peek() == nil end,
    length = count,
    revindex = function() return count() - index0 end,
    revindex0 = function() return count() - index0 - 1 end,
    depth = function() return 1 end,
    depth0 = function() return 0 end,
    previtem = function() return neighbour(previous) end,
    nextitem = function() return neighbour(peek()) end,
    cycle = function()
      return values.callable("cycle", function(arguments)
        if #arguments == 0 then fail("no items for cycling given") end
        return arguments[index0 % #arguments + 1]
      end)
    end,
    changed = function()
      return values.callable("changed", function(arguments)
        local before = changed
        changed = values.sequence("tuple", arguments)
        return before == nil or not values.equal(before, changed)
      end)
    end,
  }
  local loop = { kind = "loop", get = function(name) return attributes[name] and attributes[name]() end }
  local function step()
    local item = peek()
    if item ~= nil then table.remove(ahead, 1) end
    index0, previous, current = index0 + 1, current, item
    return item
  end
  return loop, step
end

statements["for"] = function(p, line)
  local where = target(p)
  expect(p, "name", "in")
  local iterable = expressions.tuple(p, expressions.condition)
  local test, test_frame
  if skip(p, "name", "if") then
    test_frame = open_frame(p)
    declare(p, where, "parameter")
    test = expressions.expression(p)
    close_frame(p)
  end
  if at(p, "name", "recursive") then fail("recursive loops are not supported") end
  local loop_frame = open_frame(p, "loop")
  declare(p, where, "parameter")
  loop_frame.seen.loop = "parameter"
  local each, last = block(p, "endfor", "else")
  close_frame(p)
  local otherwise, else_frame
  if last == "else" then
    else_frame = open_frame(p)
    otherwise = block(p, "endfor")
    close_frame(p)
  end
  local run = p.run
  return function(scope, out)
    run.line = line
    local source = values.iterate(iterable(scope))
    local function pull()
      for item in source do
        if not test then return item end
        local inner = open_scope(scope, test_frame)
        assign(where, item, inner)
        if truth(test(inner)) then return item end
      end
    end
    local loop, step = new_loop(pull)
    local item, empty = step(), true
    while item ~= nil do
      empty = false
      values.spend(1)
      local inner = open_scope(scope, loop_frame)
      inner.vars.loop = loop
      assign(where, item, inner)
      if each(inner, out) == "break" then break end
      item = step()
    end
    if otherwise and empty then return otherwise(open_scope(scope, else_frame), out) end
  end
end

local function loop_control(signal)
  return function(p)
    if not p.frame.in_loop then fail("'%s' outside of a loop", signal) end
    return function() return signal end
  end
end
statements["break"], statements["continue"] = loop_control("break"), loop_control("continue")

-- --- The other statements --------------------------------------------------------------------------------------------------------

statements["if"] = function(p, line)
  local branches, otherwise, last = {}, nil, nil
  repeat
    local branch = { test = expressions.tuple(p, expressions.condition), line = line }
    p.frame.branches = p.frame.branches + 1
    branch.body, last = block(p, "elif", "else", "endif")
    p.frame.branches = p.frame.branches - 1
    branches[#branches + 1] = branch
    line = p.token.line
  until last ~= "elif"
  if last == "else" then
    p.frame.branches = p.frame.branches + 1
    otherwise = block(p, "endif")
    p.frame.branches = p.frame.branches - 1
  end
  local run = p.run
  return function(scope, out)
    for _, branch in ipairs(branches) do
      run.line = branch.line
      if truth(branch.test(scope)) then return branch.body(scope, out) end
    end
    if otherwise then return otherwise(scope, out) end
  end
end

statements.set = function(p, line)
  local where, run = target(p, true), p.run
  if skip(p, "=") then
    local value = expressions.tuple(p)
    declare(p, where)
    return function(scope)
      run.line = line
      assign(where, value(scope), scope)
    end
  end
  local frame = open_frame(p)
  local text
  local filtered = expressions.filters(p, function() return text end)
  local inner = block(p, "endset")
  close_frame(p)
  declare(p, where)
  return function(scope, _)
    local inside = open_scope(scope, frame)
    local built, signal = captured(inner, inside)
    if signal then return signal end
    run.line, text = line, built
    assign(where, filtered(inside), scope)
  end
end

-- The parameters of a macro in brackets: { name, default }.
local function parameters(p)
  local list = {}
  expect(p, "(")
  while not at(p, ")") do
    if #list > 0 then expect(p, ",") end
    local parameter = single_target(p)
    if parameter.items then fail("a parameter must be a name") end
    local name = parameter.name
    if name == "caller" or name == "kwargs" or name == "varargs" then fail("'%s' in a macro is not supported", name) end
    for _, other in ipairs(list) do
      if other.name == name then fail("the parameter '%s' is there twice", name) end
    end
    p.frame.seen[name] = "parameter"
    if skip(p, "=") then parameter.default = expressions.expression(p)
    elseif #list > 0 and list[#list].default then fail("a parameter without a default after one with a default") end
    parameter.missing = values.undefined("parameter '%s' was not provided", name)
    list[#list + 1] = parameter
  end
  expect(p, ")")
  return list
end

statements.macro = function(p)
  local name = single_target(p).name or fail("a macro needs a name")
  expressions.store(p, name)
  local frame, deepest = open_frame(p, "macro"), p.deepest
  p.deepest = 0
  local list = parameters(p)
  local inner = block(p, "endmacro")
  local levels = p.deepest  -- as many as a call of the macro may need
  p.deepest = math.max(deepest, levels)
  close_frame(p)
  local run = p.run
  return function(scope)
    scope.vars[name] = values.callable(name, function(arguments, named)
      if #arguments > #list then fail("macro '%s' takes not more than %d arguments", name, #list) end
      values.enter(levels)
      local inside, lacking, by_name, line = open_scope(scope, frame), {}, 0, run.line
      for i, parameter in ipairs(list) do
        local value = arguments[i]
        if value == nil and named then
          value = values.get(named, parameter.name)
          if value ~= nil then by_name = by_name + 1 end
        end
        if value == nil then
          value = parameter.missing
          if parameter.default then lacking[#lacking + 1] = parameter end
        end
        inside.vars[parameter.name] = value
      end
      if named and #named.keys > by_name then fail("macro '%s' was given an argument that it does not take", name) end
      for _, parameter in ipairs(lacking) do inside.vars[parameter.name] = parameter.default(inside) end
      local text = captured(inner, inside)
      values.leave(levels)
      run.line = line
      return text
    end)
  end
end

-- Marks what the model says. The text is not changed; where it stands in the whole text is known unless it is part of a value: in a macro, or
-- in a block that is set to a name.
statements.generation = function(p, line)
  local frame = open_frame(p, "generation")
  local inner = block(p, "endgeneration")
  close_frame(p)
  local run = p.run
  run.generates = true
  return function(scope, out)
    local begin = out.size
    local signal = inner(open_scope(scope, frame), out)
    if out.whole then run.spans[#run.spans + 1] = { begin, out.size }
    else run.unplaced = run.unplaced or line end
    return signal
  end
end

-- --- The interface ---------------------------------------------------------------------------------------------------------------

-- A value of a context, made once for many renderings: template:render(context, now, { name = value }) takes it as it is.
function M.value(v)
  values.start()
  return values.protect(function() return values.from_lua(v) end, function() return 0 end)
end

-- A list of such values.
M.list = values.list

-- jinja.bound(steps) bounds what a template may do from now on more narrowly; without steps as it was.
M.bound = values.bound

-- A value of Lua as JSON; nil: it cannot be said.
function M.to_json(v)
  values.start()
  return values.protect(function() return values.json(values.from_lua(v), {}) end, function() return 0 end)
end

function M.parse(text)
  if type(text) ~= "string" then return nil, "a template must be a text" end
  if #text > 64 * 1024 then return nil, "a template of more than 64 KiB is not supported" end
  values.start()
  local read, line, reading = lexer.new(text)
  local run = { line = 1 }  -- where the template is when it runs
  local p = { deepest = 0, frames = {}, run = run }
  function p.next_token()
    reading = true
    local token = read()
    reading = false
    return token
  end
  local whole, message = values.protect(function()
    advance(p)
    open_frame(p)
    local all = body(p)
    find_hidden(p.frames)
    return all
  end, function() return reading and line() or p.token.line end)
  if not whole then return nil, message end

  local template = { generates = run.generates == true }
  function template.render(_, context, now, ...)
    run.line, run.spans, run.unplaced = 1, {}, nil
    values.start()
    local made = { ... }
    local rendered, why = values.protect(function()
      if context ~= nil and type(context) ~= "table" then fail("the context must be a table") end
      local globals = { vars = {} }
      for name, f in pairs(builtins.globals(now)) do globals.vars[name] = f end
      for name, value in pairs(context or {}) do globals.vars[name] = values.from_lua(value) end
      for _, more in ipairs(made) do
        for name, value in pairs(more) do globals.vars[name] = value end
      end
      return (captured(whole, open_scope(globals, p.frames[1]), true))
    end, function() return run.line end)
    if not rendered then return nil, why end
    return rendered, run.unplaced and {} or run.spans, run.unplaced
  end
  return template
end

return M
