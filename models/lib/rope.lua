-- RoPE as configurations describe it: Su et al., arXiv:2104.09864, and the ways to stretch it to longer texts, under the names and with the
-- defaults that transformers gives them. The op `rope_table` computes it.
local lib = require "config"
local M = {}

-- What each type reads: numbers that it needs, numbers that it may have, lists.
local positions_key = "original_max_position_embeddings"
local types = {
  default = {}, linear = { needs = { "factor" } }, dynamic = { needs = { "factor" } },
  llama3 = { needs = { "factor", "low_freq_factor", "high_freq_factor", positions_key } },
  yarn = { needs = { "factor", positions_key }, may = { "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim" },
    flags = { "truncate" } },
  longrope = { needs = { positions_key }, may = { "factor", "attention_factor" }, lists = { "short_factor", "long_factor" } },
}
local known_types = "default, linear, dynamic, llama3, yarn, longrope"
local keys = { "rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", positions_key, "attention_factor", "beta_fast",
  "beta_slow", "mscale", "mscale_all_dim", "truncate", "partial_rotary_factor" }

local function positive(v) return type(v) == "number" and v == v and v > 0 and v ~= math.huge end

-- One table of RoPE's parameters with all that is taken from elsewhere filled in. `name`: what messages call it; `d`: defaults { theta,
-- partial, beside }, `beside`: the theta that stands beside the table and has to be the same.
local function parameters(config, given, name, d)
  if type(given) ~= "table" then error(("config: '%s' must be a table, got %s"):format(name, tostring(given)), 0) end
  local out = {}
  local function fail(text, ...) error(("config: '%s': " .. text):format(name, ...), 0) end
  if given.rope_type ~= nil and given.type ~= nil and given.rope_type ~= given.type then
    fail("'rope_type' and 'type' differ: '%s' and '%s'", tostring(given.rope_type), tostring(given.type))
  end
  local kind = given.rope_type
  if kind == nil then kind = given.type end
  if kind == nil then kind = "default" end
  if d.rename and d.rename[kind] then kind = d.rename[kind] end
  local reads = types[kind] or fail("RoPE of type '%s' is not supported (%s)", tostring(kind), known_types)
  local known = { rope_type = true, type = true }
  local function number(key, default, optional)
    known[key] = true
    local v = given[key]
    if v == nil then v = default end
    if v == nil then
      if optional then return end
      fail("RoPE of type '%s' needs '%s'", kind, key)
    end
    if not positive(v) then fail("'%s' must be a positive number, got %s", key, tostring(v)) end
    out[key] = v
  end
  out.rope_type = kind
  if given.type == kind then out.type = kind end
  number("rope_theta", d.theta)
  if given.rope_theta ~= nil and d.beside ~= nil and given.rope_theta ~= d.beside then
    fail("its 'rope_theta' = %s is not the 'rope_theta' = %s beside it", tostring(given.rope_theta), tostring(d.beside))
  end
  if d.partial then
    number("partial_rotary_factor", d.partial)
    if out.partial_rotary_factor > 1 then fail("'partial_rotary_factor' = %s is above 1", out.partial_rotary_factor) end
  elseif given.partial_rotary_factor == 1 then
    known.partial_rotary_factor = true
  end
  for _, key in ipairs(reads.needs or {}) do
    local default
    if key == positions_key then default = config.max_position_embeddings end
    number(key, default)
  end
  -- Phi-3 has it beside the table, where it counts first.
  if d.original and out[positions_key] then out[positions_key] = d.original end
  for _, key in ipairs(reads.may or {}) do number(key, nil, true) end
  for _, key in ipairs(reads.flags or {}) do
    known[key] = true
    if given[key] ~= nil and type(given[key]) ~= "boolean" then fail("'%s' must be true or false, got %s", key, tostring(given[key])) end
    out[key] = given[key]
  end
  for _, key in ipairs(reads.lists or {}) do
    known[key] = true
    local list = given[key]
    if type(list) ~= "table" or #list == 0 then fail("RoPE of type '%s' needs '%s', a list of numbers", kind, key) end
    for i, v in ipairs(list) do
      if not positive(v) then fail("%s[%d] must be a positive number, got %s", key, i, tostring(v)) end
    end
    out[key] = list
  end
  if kind == "llama3" and out.high_freq_factor <= out.low_freq_factor then
    fail("'high_freq_factor' = %s must be larger than 'low_freq_factor' = %s", out.high_freq_factor, out.low_freq_factor)
  end
  for key, value in pairs(given) do
    local nothing = (kind == "default" and key == "factor" and value == 1.0) or
      (key == positions_key and type(value) == "number")   -- a note of whoever trained it, where the type does not read it
    if not known[key] and not nothing then fail("RoPE of type '%s' does not read '%s'", kind, key) end
  end
  return out
end
M.parameters = parameters

-- RoPE as old ("rope_theta", "rope_scaling") and new ("rope_parameters") configurations say it. Where both are there transformers reads
-- "rope_scaling" alone, and others "rope_parameters". `options`: { theta = 10000, partial = nil, original = nil, rename = { … },
-- own_theta = true where the family has another name for "rope_theta", and that key counts nothing }.
function M.read(config, options)
  local d = { partial = options and options.partial, original = options and options.original, rename = options and options.rename }
  local theta = options and options.theta or 10000.0
  local named = not (options and options.own_theta)
  if named and config.rope_theta ~= nil then
    lib.positive(config, "rope_theta")
    d.beside = config.rope_theta
  end
  d.theta = d.beside or theta
  local function table_of(name)
    local given = config[name]
    if given == nil or (type(given) == "table" and next(given) == nil) then return nil end
    return parameters(config, given, name, d)
  end
  local old, new = table_of("rope_scaling"), table_of("rope_parameters")
  for _, key in ipairs(keys) do
    if old and new and old[key] ~= new[key] then
      error(("config: 'rope_scaling' and 'rope_parameters' differ in '%s': %s and %s"):format(key, tostring(old[key]),
        tostring(new[key])), 0)
    end
  end
  if not old and not new then
    local out = { rope_type = "default", rope_theta = named and lib.positive(config, "rope_theta", theta) or theta }
    if d.partial then
      if d.partial > 1 then error(("config: 'partial_rotary_factor' = %s is above 1"):format(d.partial), 0) end
      out.partial_rotary_factor = d.partial
    end
    return out
  end
  if new then config.rope_parameters = new end
  if old then
    config.rope_scaling = old
    if named then config.rope_theta = old.rope_theta end   -- where older programs look for it
  end
  return old or new
end

-- The elements of a head that turn.
function M.turning(rope, head_dim)
  return math.floor(head_dim * (rope.partial_rotary_factor or 1))
end

-- Attributes of `rope_table` for rows of `g`. `head_dim`: of a whole head; `positions`: max_position_embeddings.
function M.attributes(g, rope, head_dim, positions)
  local kind, dim, theta = rope.rope_type, M.turning(rope, head_dim), rope.rope_theta + 0.0
  if dim % 2 == 1 and dim < head_dim and (kind == "default" or kind == "linear" or kind == "llama3") then
    -- transformers turns one more, by the angles of an odd number: theta^(-2i / dim).
    theta, dim = theta ^ ((dim + 1) / dim), dim + 1
  end
  if dim < 2 or dim % 2 ~= 0 then error(("config: %d elements of a head turn; RoPE turns pairs"):format(dim), 0) end
  local attrs = { positions = g.length, head_dim = dim, theta = theta, type = kind }
  for _, key in ipairs { "factor", "low_freq_factor", "high_freq_factor", "attention_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim" } do
    if rope[key] then attrs[key] = rope[key] + 0.0 end
  end
  if rope[positions_key] then attrs.original_max_position = rope[positions_key] + 0.0 end
  if kind == "yarn" and rope.truncate ~= nil then attrs.truncate = rope.truncate and 1 or 0 end
  if kind == "dynamic" then
    if not positions then error("config: RoPE of type 'dynamic' needs 'max_position_embeddings'", 0) end
    attrs.original_max_position, attrs.seq_len = positions + 0.0, g.length
  end
  if kind == "longrope" then
    local original = rope[positions_key]
    local function numbers(factors)
      if #factors ~= dim // 2 then
        error(("config: RoPE of type 'longrope' has %d factors where %d pairs of a head turn"):format(#factors, dim // 2), 0)
      end
      local out = {}
      for i, v in ipairs(factors) do out[i] = v + 0.0 end
      return out
    end
    attrs.factors, attrs.factor = numbers(rope.short_factor), (rope.factor or positions / original) + 0.0
    -- Rows may hold documents of both kinds: those for the long ones follow the rows of the table for the short ones.
    if g.length > original then
      attrs.long_factors, attrs.positions, attrs.longer_than = numbers(rope.long_factor), 2 * g.length, original
    end
  end
  return attrs
end

-- A function that turns the heads of x: turn(x, name, heads, { cycle, turning }).
function M.turner(g, rope, head_dim, positions, name)
  local ids, attributes = g:input("position_ids"), M.attributes(g, rope, head_dim, positions)
  name = name or "rope table"
  local beyond = attributes.longer_than
  attributes.longer_than = nil
  if beyond then
    ids = g:node("shift_long", name .. " positions", { ids, g:input("last_key") }, { by = g.length, longer_than = beyond })
  end
  local table_ = g:constant { name = name, shape = { attributes.positions, attributes.head_dim }, init = attributes, op = "rope_table" }
  return function(x, node, heads, more)
    local attrs = { heads = heads, head_dim = head_dim }
    for key, value in pairs(more or {}) do attrs[key] = value end
    return g:node("rope", node, { x, ids, table_ }, attrs)
  end
end

return M
