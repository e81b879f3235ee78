-- Layers that families share. layers.new(g, options) gives their makers:
--   options.std       of the normal numbers that weights begin with in a new model
--   options.prefix    before the names of parameters and nodes: "transformer."
--   options.bare      true: files may have the parameters without the prefix, too
--   options.aliases   function(name) → other names that a parameter without the prefix may have in a file
local M = {}

function M.new(g, options)
  local L = {}
  local prefix, std = options.prefix or "", options.std

  -- `more`: { decay = false, embedding = true, aliases = {…}, hint = "…", fresh = true, whole = true }; whole: the name has its prefix.
  function L.parameter(name, shape, init, more)
    more = more or {}
    local aliases = {}
    if not more.whole and prefix ~= "" and options.bare then aliases[1] = name end
    for _, alias in ipairs(options.aliases and options.aliases(name) or {}) do aliases[#aliases + 1] = alias end
    for _, alias in ipairs(more.aliases or {}) do aliases[#aliases + 1] = alias end
    return g:parameter { name = (more.whole and "" or prefix) .. name, shape = shape, init = init, aliases = aliases, hint = more.hint,
      decay = more.decay ~= false, embedding = more.embedding, fresh = more.fresh }
  end

  function L.at(name) return prefix .. name end   -- of a node
  local function at(name, more) return (more and more.whole and "" or prefix) .. name end
  local function number(name, n, value, more)
    return L.parameter(name, { n }, { "fill", value = value }, { decay = false, whole = more and more.whole, fresh = more and more.fresh })
  end

  function L.weight(name, n_out, n_in, more)
    return L.parameter(name .. ".weight", { n_out, n_in }, { "random_normal", std = more and more.std or std },
      { whole = more and more.whole, fresh = more and more.fresh, aliases = more and more.aliases, hint = more and more.hint })
  end

  -- `more`: { bias = true, std = …, whole = …, fresh = … }
  function L.linear(x, name, n_in, n_out, more)
    local w = L.weight(name, n_out, n_in, more)
    local b = more and more.bias and number(name .. ".bias", n_out, 0.0, more)
    return g:node("linear", at(name, more), { x, w, b or nil }, { transposed = 0 })
  end

  -- `more.padding`: a row that learns nothing from where it is looked up.
  function L.embedding(ids, name, n, columns, more)
    more = more or {}
    local table_ = L.parameter(name .. ".weight", { n, columns }, { "random_normal", std = more.std or std },
      { embedding = true, whole = more.whole, aliases = more.aliases, hint = more.hint })
    return g:node("embedding", at(name, more), { ids, table_ }, { padding = more.padding }), table_
  end

  function L.layer_norm(x, name, n, eps, more)
    local w, b = number(name .. ".weight", n, 1.0, more), number(name .. ".bias", n, 0.0, more)
    return g:node("layer_norm", at(name, more), { x, w, b }, { eps = eps })
  end

  -- `more`: { group = of a head, offset = 1 where the weight is what it differs from 1 by }
  function L.rms_norm(x, name, n, eps, more)
    local offset = more and more.offset
    local attrs = { eps = eps, group = more and more.group }
    if offset then attrs.offset = offset + 0.0 end
    return g:node("rms_norm", at(name, more), { x, number(name .. ".weight", n, offset and 0.0 or 1.0, more) }, attrs)
  end

  function L.add(a, b, name) return g:node("add", prefix .. name, { a, b }) end

  function L.dropout(x, p, name, length)
    if p == 0 then return x end
    return g:node("dropout", prefix .. name, { x, g:scalar("random") }, { p = p, length = length })
  end

  -- Attention; operands: { q, k, v, first, last, slopes, bias }, false or nil where there is none. A packed q stands alone.
  function L.attention(name, o, attrs)
    local random = (attrs.dropout or 0) > 0 and g:scalar("random")
    return g:node("attention", prefix .. name, { o.q, o.k or false, o.v or false, o.first or false, o.last or false, o.slopes or false,
      o.bias or false, random }, attrs)
  end

  return L
end

return M
