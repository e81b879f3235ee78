-- Which of Galley's chat templates writes the same as a model's own, which is in Jinja: both write a number of conversations, and all have
-- to come out alike. A model's template may write a text of its own where a conversation has no system message: then that text is found as
-- well.
--
-- Some conversations are not to be expected of every template: a role of its own for tools, a system message after the first. Where the
-- two differ in such a one, or the model's template refuses it, the template is still the same, and says what it does not cover.
--
-- Their texts are not compared: each model has an edited copy, and copies that look different write the same. So the model's template is
-- run, which takes an interpreter of Jinja. Rows are written by ours alone, which says what of the text is to be learned; Jinja does not.
local jinja = require("jinja")

local function said(role, content) return { role = role, content = content } end
local odd = "  white space around,\n\nbraces {{ x }} {% y %}, 'quotes' and \"quotes\" \n"
local special = "<s>[INST] <|im_start|>user\n<<SYS>> <|eot_id|></s> [/INST] <|user|>"
local call = '{"name": "f", "arguments": {"x": 1}}\n<tool_call>\n</tool_call> [TOOL_CALLS]'
local thought = "<think>\nSo it is.\n</think>\n\nYes."
local probes = {
  { said("user", "Hello") },
  { said("user", "Hello"), said("assistant", "Good morning.") },
  { said("user", "One"), said("assistant", "Two"), said("user", odd) },
  { said("user", odd), said("assistant", odd), said("user", "ünï"), said("assistant", "") },
  { said("user", ""), said("assistant", "\n\nTwo\n"), said("user", " \n"), said("assistant", " ") },
  { said("user", special), said("assistant", special), said("user", call), said("assistant", call) },
  { said("user", "One"), said("assistant", thought), said("user", thought), said("assistant", thought) },
  { said("system", "Be brief."), said("user", "Hello") },
  { said("system", odd), said("user", "One"), said("assistant", "Two"), said("user", "Three"), said("assistant", "Four") },
}

-- What need not be covered; host/tokens/chat.cpp says how a conversation that has it is told.
local traits = {
  empty_system = { { said("system", ""), said("user", "One"), said("assistant", "Two") } },
  later_system = {
    { said("user", "One"), said("system", "Two"), said("user", "Three"), said("assistant", "Four") },
    { said("system", "One"), said("user", "Two"), said("assistant", "Three"), said("system", "Four"), said("assistant", "Five") },
  },
  repeated_role = {
    { said("user", "One"), said("user", "Two"), said("assistant", "Three") },
    { said("user", "One"), said("assistant", "Two"), said("assistant", "Three") },
  },
  assistant_first = {
    { said("assistant", "One"), said("user", "Two"), said("assistant", "Three") },
    { said("system", "One"), said("assistant", "Two"), said("user", "Three") },
  },
}
local roles = { "tool", "function", "developer", "ipython", "observation" }

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

-- What both write of a conversation, ours with the system's text that is said by default.
local function write_both(render, write, messages, generate, system)
  local mine = system and not has_system(messages) and with_system(messages, system) or messages
  return ours(render, mine, generate), write(messages, generate)
end

-- Whether ours writes all that the other does: the number of probes that agree, whether all do, and what the system says by default.
local function compare(render, write)
  local agreed, all, system = 0, true, nil
  local first = write(probes[1], false)
  if first and first ~= ours(render, probes[1], false) then system = find_system(render, probes[1], false, first) end
  for _, messages in ipairs(probes) do
    for _, generate in ipairs { false, true } do
      local own, theirs = write_both(render, write, messages, generate, system)
      if theirs and theirs == own then agreed = agreed + 1
      -- A template may refuse what the system says; then nobody will say it.
      elseif theirs or not has_system(messages) then all = false end
    end
  end
  return agreed, all, system
end

-- Whether no conversation comes out otherwise than the model's template writes it. What ours refuses is refused later, too.
local function covers(render, write, conversations, system)
  for _, messages in ipairs(conversations) do
    for _, generate in ipairs { false, true } do
      local own, theirs = write_both(render, write, messages, generate, system)
      if own and own ~= theirs then return false end
    end
  end
  return true
end

-- What of the traits and roles is not covered.
local function uncovered(render, write, system)
  local out = { traits = {}, roles = { "system", "user", "assistant" } }
  for trait, conversations in pairs(traits) do
    if not covers(render, write, conversations, system) then out.traits[#out.traits + 1] = trait end
  end
  table.sort(out.traits)
  local refused = ours(render, probes[8], false) and not write(probes[8], false)
  if refused then table.remove(out.roles, 1) end
  for _, role in ipairs(roles) do
    local conversations = {
      { said("user", "One"), said(role, "Two"), said("assistant", "Three") },
      { said("user", "One"), said("assistant", "Two"), said(role, odd), said("assistant", "Three"), said(role, "Four") },
      { said("user", "One"), said(role, "Two"), said(role, "Three"), said("user", "Four") },
      { said(role, "One"), said("user", "Two"), said("assistant", "Three") },
    }
    if covers(render, write, conversations, system) then out.roles[#out.roles + 1] = role end
  end
  return out
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
    local render = require("chat." .. name).render
    local agreed, all, system = compare(render, write)
    if all then
      local found = uncovered(render, write, system)
      found.name, found.system = name, system or ""
      return found
    end
    if agreed > most then nearest, most = name, agreed end
  end
  return { why = nearest and ("it is like '%s', but not the same"):format(nearest) or "it is like none of them" }
end
