-- What GGUF files say of RoPE: types of scaling as keys, and divisors of the frequencies as vectors.
local gguf = require "gguf"
local fail, M = gguf.fail, {}

-- Keys that are read here.
M.keys = {}
for _, key in ipairs { "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.finetuned",
  "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
  "rope.scaling.yarn_ext_factor", "attention.value_length" } do M.keys[key] = true end

-- Llama 3's RoPE: what the file divides the frequencies by, as numbers of a tensor. Its parameters are those of all models of the kind,
-- but for the factor, which is that of the lowest frequency.
M.divisors = "rope_freqs.weight"
local function divisors_of(rope, theta, head_dim)
  local low, high, out = rope.low_freq_factor, rope.high_freq_factor, {}
  for i = 1, head_dim // 2 do
    local turns = rope.original_max_position_embeddings * theta ^ (-2 * (i - 1) / head_dim) / (2 * math.pi)
    local share = math.min(math.max((turns - low) / (high - low), 0), 1)
    out[i] = 1 / ((1 - share) / rope.factor + share)
  end
  return out
end
local function llama3(divisors, theta, head_dim, original)
  local out = { rope_type = "llama3", factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
    original_max_position_embeddings = original or 8192 }
  for _, x in ipairs(divisors) do out.factor = math.max(out.factor, x) end
  if out.factor == 1 then return nil end
  for i, expected in ipairs(divisors_of(out, theta, head_dim)) do
    if not divisors[i] or math.abs(divisors[i] - expected) > 1e-4 * expected then
      fail("tensor '%s' is not of Llama 3's RoPE: number %d is %s, not %s", M.divisors, i, divisors[i], expected)
    end
  end
  return out
end

-- LongRoPE's divisors, for texts up to the original length and for longer ones.
M.short, M.long = "rope_factors_short.weight", "rope_factors_long.weight"
local function longrope(file, turning)
  local out = { rope_type = "longrope", attention_factor = file.get("rope.scaling.attn_factor") or 1.0,
    original_max_position_embeddings = file.get("rope.scaling.original_context_length") }
  if not out.original_max_position_embeddings then fail("there is no key '%srope.scaling.original_context_length'", file.prefix) end
  for key, name in pairs { short_factor = M.short, long_factor = M.long } do
    out[key] = file.short[name]
    if not out[key] or #out[key] ~= (turning or 0) // 2 then
      fail("there is no tensor '%s', a vector in F32 of a number for each pair of a head", name)
    end
  end
  return out
end

-- Checks that heads have one size, and returns it; nil where keys make no sense, which the family says.
function M.head_dim(config, file)
  local function whole(x) return math.type(x) == "integer" and x > 0 end
  local head_dim = config.head_dim
  if not head_dim and whole(config.hidden_size) and whole(config.num_attention_heads) then
    head_dim = config.hidden_size // config.num_attention_heads
  end
  for _, key in ipairs { "attention.value_length", "attention.key_length" } do
    local size = file.get(key)
    if head_dim and size and size ~= head_dim then
      fail("key '%s' = %s is not the size of a head, %s", file.prefix .. key, size, head_dim)
    end
  end
  return head_dim
end

-- The elements of a head that turn; `all`: it has to be each of them.
function M.turning(head_dim, file, all)
  local size = file.get("rope.dimension_count") or head_dim
  if head_dim and size ~= head_dim and (all or math.type(size) ~= "integer" or size > head_dim) then
    fail("key '%srope.dimension_count' = %s is not the size of a head, %s", file.prefix, size, head_dim)
  end
  return size
end

-- The configuration's partial_rotary_factor: transformers multiplies the size of a head by it, and rounds down.
function M.part(turning, head_dim)
  local part = head_dim and turning / head_dim
  if part and math.floor(head_dim * part) < turning then part = (turning + 0.5) / head_dim end
  return part
end

-- What the attention is multiplied by in YaRN, where nothing is said of it.
local function yarn_factor(factor) return 0.1 * math.log(factor) + 1 end

-- The scaling of a file, as config.json has it; nil: none. `theta`: of the configuration; `turning`: elements of a head.
function M.read(file, theta, turning)
  local scaling, factor = file.get("rope.scaling.type") or "none", file.get("rope.scaling.factor")
  local original, attention = file.get("rope.scaling.original_context_length"), file.get("rope.scaling.attn_factor")
  local out
  if file.shapes[M.short] or scaling == "longrope" then return longrope(file, turning) end
  if scaling == "linear" and factor then out = { rope_type = "linear", factor = factor }
  elseif scaling == "yarn" then
    out = { rope_type = "yarn", factor = factor, original_max_position_embeddings = original or file.get("context_length") }
    if type(factor) ~= "number" or factor < 1 then fail("RoPE of type 'yarn' needs '%srope.scaling.factor', from 1 on", file.prefix) end
    for key, taken in pairs { yarn_beta_fast = 32, yarn_beta_slow = 1, yarn_ext_factor = 1 } do
      local said = file.get("rope.scaling." .. key)
      if said and said ~= taken then fail("'%srope.scaling.%s' = %s is not supported (%s)", file.prefix, key, said, taken) end
    end
    if attention and attention ~= 1 then out.attention_factor = attention * yarn_factor(factor) end
  elseif scaling ~= "none" and scaling ~= "linear" then
    fail("RoPE of type '%s' ('%srope.scaling.type') is not supported (none, linear, yarn, longrope)", scaling, file.prefix)
  end
  if attention and attention ~= 1 and scaling ~= "yarn" then
    fail("'%srope.scaling.attn_factor' = %s is not supported where RoPE is not of type 'yarn'", file.prefix, attention)
  end
  if file.shapes[M.divisors] then
    if not file.short[M.divisors] or not turning then fail("tensor '%s' is not a short vector in F32", M.divisors) end
    if out then fail("both '%srope.scaling.type' and tensor '%s' change RoPE", file.prefix, M.divisors) end
    out = llama3(file.short[M.divisors], theta or 10000.0, turning, original)
  end
  return out
end

-- Puts the keys of a table of RoPE's parameters. `turning`: elements of a head; file.positions: of the model, for LongRoPE.
function M.write(rope, theta, file, turning)
  file.put("rope.dimension_count", turning)
  local kind = rope.rope_type or rope.type or "default"
  if kind == "linear" or kind == "yarn" then
    file.put("rope.scaling.type", kind)
    file.put("rope.scaling.factor", rope.factor + 0.0)
  end
  if kind == "yarn" then
    local fast, slow, factor = rope.beta_fast or 32, rope.beta_slow or 1, rope.factor
    if fast ~= 32 or slow ~= 1 or rope.truncate == false or factor < 1 then
      fail("RoPE of type 'yarn' with 'beta_fast' = %s, 'beta_slow' = %s, 'truncate' = %s, 'factor' = %s is not written (32, 1, true, " ..
        "from 1 on)", fast, slow, tostring(rope.truncate ~= false), factor)
    end
    file.put("rope.scaling.original_context_length", rope.original_max_position_embeddings)
    local function of(mscale) return factor > 1 and 0.1 * mscale * math.log(factor) + 1 or 1.0 end
    local attention = rope.attention_factor
    if not attention and rope.mscale and rope.mscale_all_dim then attention = of(rope.mscale) / of(rope.mscale_all_dim) end
    if attention then file.put("rope.scaling.attn_factor", attention / yarn_factor(factor)) end
  elseif kind == "llama3" then
    if rope.low_freq_factor ~= 1 or rope.high_freq_factor ~= 4 then
      fail("RoPE of type 'llama3' with 'low_freq_factor' = %s and 'high_freq_factor' = %s is not written (1, 4)", rope.low_freq_factor,
        rope.high_freq_factor)
    end
    file.put("rope.scaling.original_context_length", rope.original_max_position_embeddings)
    file.tensors[M.divisors] = divisors_of(rope, theta + 0.0, turning)
  elseif kind == "longrope" then
    local original = rope.original_max_position_embeddings
    local factor = rope.factor or file.positions / original
    file.put("rope.scaling.type", kind)
    file.put("rope.scaling.original_context_length", original)
    local usual = factor > 1 and math.sqrt(1 + math.log(factor) / math.log(original)) or 1.0
    file.put("rope.scaling.attn_factor", rope.attention_factor or usual)
    file.tensors[M.short], file.tensors[M.long] = rope.short_factor, rope.long_factor
    file.note("llama.cpp takes LongRoPE's factors by the length of its context, not by that of the text: in one of up to %d tokens both " ..
      "compute the same", original)
  elseif kind ~= "default" and kind ~= "linear" then
    fail("RoPE of type '%s' is not written (default, linear, yarn, llama3, longrope)", kind)
  end
end

return M
