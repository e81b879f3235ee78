-- Which of Galley's chat templates says the same as a model's own, which is in Jinja: both write a number of conversations, and all have to come
-- out alike. A model's template may say something of its own where nothing is said for the system: then that is found as well.
local jinja = require("jinja")

local function said(role, content) return { role = role, content = content } end
local odd = "  white space around,\n\nbraces {{ x }} {% y %}, 'quotes' and \"quotes\" \n"
local probes = {
  { said("user", "Hello") },
  { said("user", "Hello"), said("assistant", "Good morning.") },
  { said("user", "One"), said("assistant", "Two"), said("user", odd) },
  { said("user", odd), said("assistant", odd), said("user", "ünï"), said("assistant", "") },
  { said("system", "Be brief."), said("user", "Hello") },
  { said("system", "Be brief."), said("user", "One"), said("assistant", "Two"), said("user", "Three"), said("assistant", "Four") },
}

local function has_system(messages) return messages[1].role == "system" end

local function with_system(messages, system)
  local out = { said("system", system) }
  for i, message in ipairs(messages) do out[i + 1] = message end
  return out
end

-- What one of ours writes; nil where it refuses.
local function ours(render, messages, generate)
  local well, parts = pcall(render, messages, generate)
  if not well then return nil end
  local text = {}
  for i, part in ipairs(parts) do text[i] = type(part) == "string" and part or part.text or part.own end
  return table.concat(text)
end

-- What stands for the system in `text`, which ours would write around it; nil where it is not so.
local function find_system(render, messages, generate, text)
  local mark = "\1"
  local around = ours(render, with_system(messages, mark), generate)
  local at = around and around:find(mark, 1, true)
  if not at then return nil end
  local head, tail = around:sub(1, at - 1), around:sub(at + 1)
  local fits = #text >= #head + #tail and text:sub(1, #head) == head and (tail == "" or text:sub(-#tail) == tail)
  return fits and text:sub(#head + 1, #text - #tail) or nil
end

-- Whether ours says all that the other does: the number of probes that agree, whether all do, and what the system says by default.
local function compare(render, write)
  local agreed, all, system = 0, true, nil
  local first = write(probes[1], false)
  if first and first ~= ours(render, probes[1], false) then system = find_system(render, probes[1], false, first) end
  for _, messages in ipairs(probes) do
    for _, generate in ipairs { false, true } do
      local theirs = write(messages, generate)
      local own = ours(render, system and not has_system(messages) and with_system(messages, system) or messages, generate)
      if theirs and theirs == own then agreed = agreed + 1
      -- A template may refuse what the system says; then nobody will say it.
      elseif theirs or not has_system(messages) then all = false end
    end
  end
  return agreed, all, system
end

return function(text, bos, eos, names)
  local template, message = jinja.parse(text)
  if not template then return { why = message } end
  local last
  local function write(messages, generate)
    local made
    made, last = template:render {
      messages = messages, add_generation_prompt = generate, bos_token = bos, eos_token = eos, tools = jinja.none, documents = jinja.none,
    }
    return made
  end
  if not write(probes[1], true) then return { why = last } end
  local nearest, most = nil, 0
  for _, name in ipairs(names) do
    local agreed, all, system = compare(require("chat." .. name).render, write)
    if all then return { name = name, system = system or "" } end
    if agreed > most then nearest, most = name, agreed end
  end
  return { why = nearest and ("it is like '%s', but not the same"):format(nearest) or "it is like none of them" }
end
