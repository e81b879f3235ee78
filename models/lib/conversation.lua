-- Writes conversations by a chat template in Jinja, and says which parts of the text are to be learned: what the assistant says, with the
-- token that ends its turn. host/tokens/chat.cpp calls it.
--
-- Where a template marks what the model says ({% generation %}), these marks hold, as for transformers' return_assistant_tokens_mask.
-- For any other the text is compared with that of the conversation up to a turn: what the turn adds after the text that asks for an answer
-- (add_generation_prompt) is the assistant's, up to the last text that is no white space.
--
-- Some templates write a turn otherwise once the conversation goes on: they drop what was thought in earlier turns, or end only the last
-- one with another token. The model has to answer as the turn was when it was the last one, so such a turn is a row of its own, which ends
-- with it.
--
-- Messages are tables { role, content, … } as a template sees them. Null is a light userdata. The order of a table's keys is in its
-- __order.
local jinja = require "jinja"

-- The value of a text of JSON; nil: it is none.
local read_json = read_json or function() return nil end

local M = {}

-- --- Texts -----------------------------------------------------------------------------------------------------------------------

-- The length of the beginning that two texts share.
local function shared(a, b)
  local low, high = 0, math.min(#a, #b)
  if a:sub(1, high) == b:sub(1, high) then return high end
  local step = 64
  while low + step <= high and a:sub(low + 1, low + step) == b:sub(low + 1, low + step) do low, step = low + step, step * 2 end
  high = math.min(high, low + step)
  while low < high do
    local middle = (low + high + 1) // 2
    if a:sub(low + 1, middle) == b:sub(low + 1, middle) then low = middle else high = middle - 1 end
  end
  return low
end

-- The length of the end that two texts share.
local function shared_end(a, b) return shared(a:reverse(), b:reverse()) end

-- The length of a text without the white space at its end.
local function trimmed(text)
  local last = #text
  while last > 0 and text:find("^%s", last) do last = last - 1 end
  return last
end

-- Where the words of a text after byte `from` end, up to byte `most`: the first place and the last; nil: there is none.
local function word_ends(text, from, most)
  local first, last
  local at = from + 1
  while true do
    local begin, stop = text:find("%S+", at)
    if not begin or stop > most then break end
    first, last, at = first or stop, stop, stop + 1
  end
  return first, last
end

local function excerpt(text, from)
  local piece = text:sub(from + 1, from + 60)
  if #text > from + 60 then piece = piece:gsub("[\xC0-\xFF]?[\x80-\xBF]*$", "", 1) end  -- no part of a character
  return ("%q"):format(piece):gsub("\\\n", "\\n")
end

-- --- Rendering -------------------------------------------------------------------------------------------------------------------

-- Of the template at hand: template, context, typed, joined, arguments, past, now.
local open = {}
local plain, for_tools = nil, nil

-- What the template writes of the first `count` messages; nil and why it does not.
local function write(messages, count, variables, generate)
  local items = table.move(messages, 1, count, 1, {})
  return open.template:render({ add_generation_prompt = generate }, open.now, variables, { messages = jinja.list(items) })
end

-- A copy of a message with some of its keys changed.
local function with(message, changes)
  local out = {}
  for key, value in pairs(message) do out[key] = value end
  for key, value in pairs(changes) do out[key] = value end
  return out
end

local function is_list(value) return type(value) == "table" and not value.__order and (value[1] ~= nil or next(value) == nil) end

-- The text of content in parts, if all of them are texts.
local function joined(content)
  local texts = {}
  for i, part in ipairs(content) do
    local text = type(part) == "table" and part.text or type(part) == "string" and part
    if type(text) ~= "string" or type(part) == "table" and part.type and part.type ~= "text" then return nil end
    texts[i] = text
  end
  return table.concat(texts)
end

local reasoning = { "reasoning_content", "reasoning", "thinking" }

-- A message as the template wants it. Templates differ in what they take: texts or lists of parts, the arguments of a call as a table or
-- as its JSON. transformers leaves that to whoever makes the data.
local function adapted(message)
  local changes, content = {}, message.content
  if is_list(content) and open.joined then changes.content = joined(content) end
  if type(content) == "string" and open.typed then changes.content = { { type = "text", text = content } } end
  local thought
  for _, key in ipairs(reasoning) do thought = thought or type(message[key]) == "string" and message[key] or nil end
  if thought then changes.reasoning_content, changes.thinking = thought, message.thinking or thought end
  if is_list(message.tool_calls) and open.arguments then
    changes.tool_calls = {}
    for i, call in ipairs(message.tool_calls) do
      local f = type(call) == "table" and call["function"]
      local holder = type(f) == "table" and f or call
      local arguments = type(holder) == "table" and holder.arguments
      local given = arguments
      if open.arguments == "table" and type(arguments) == "string" then given = read_json(arguments) or arguments end
      if open.arguments == "text" and type(arguments) == "table" then given = jinja.to_json(arguments) end
      if given ~= arguments then
        holder = with(holder, { arguments = given })
        call = type(f) == "table" and with(call, { ["function"] = holder }) or holder
      end
      changes.tool_calls[i] = call
    end
  end
  return next(changes) and with(message, changes) or message
end

local function values_of(messages)
  local out = {}
  for i, message in ipairs(messages) do out[i] = jinja.value(adapted(message)) end
  return out
end

-- What a line says beside its messages.
local function variables_of(line)
  local out = {}
  for name, value in pairs(open.context) do out[name] = value end
  if line.tools then out.tools = jinja.value(line.tools) end
  if line.documents then out.documents = jinja.value(line.documents) end
  for name, value in pairs(line.variables or {}) do
    if name ~= "__order" then out[name] = jinja.value(value) end
  end
  return out
end

-- --- Turns -----------------------------------------------------------------------------------------------------------------------

-- A message whose texts begin with `mark`, or end with it.
local function marked(message, mark, at_end)
  local function put(text) return at_end and text .. mark or mark .. text end
  local changes, content = {}, message.content
  if type(content) == "string" then
    changes.content = put(content)
  elseif is_list(content) then
    local at = at_end and #content or 1
    local part = content[at]
    if type(part) == "table" and type(part.text) == "string" then
      changes.content = table.move(content, 1, #content, 1, {})
      changes.content[at] = with(part, { text = put(part.text) })
    end
  end
  if not at_end then
    for _, key in ipairs(reasoning) do
      if type(message[key]) == "string" then changes[key] = put(message[key]) end
    end
  end
  return with(message, changes)
end

-- Two texts of the first `count` messages, of which message `i` begins or ends otherwise. Nothing where the template writes both alike.
local function varied(messages, items, count, i, variables, at_end, generate)
  local texts = {}
  for _, mark in ipairs { "A", "B" } do
    local changed = table.move(items, 1, count, 1, {})
    changed[i] = jinja.value(adapted(marked(messages[i], mark, at_end)))
    texts[#texts + 1] = write(changed, count, variables, generate)
  end
  if #texts == 2 and texts[1] ~= texts[2] then return texts[1], texts[2] end
end

-- Where what message `i` says ends in `said`, the text of the first `count`; nil: it is not known.
local function ending(messages, items, count, i, variables, generate, said)
  local a, b = varied(messages, items, count, i, variables, true, generate)
  return a and #said - math.min(shared_end(a, b), #said)
end

-- Where the assistant begins to speak in `said`, the text of the conversation up to its message `i`.
local function beginning(messages, items, i, variables, said)
  local asked = write(items, i - 1, variables, true)
  if asked and said:sub(1, #asked) == asked then return #asked end
  -- The text before the turn may be another one as well: a system's message that goes with the last of the user's. Then what follows the
  -- message before is compared.
  local over = asked and i > 1 and ending(messages, items, i - 1, i - 1, variables, true, asked)
  local before = i > 1 and ending(messages, items, i, i - 1, variables, false, said)
  local begin = asked and shared(said, asked)
  if over and before then begin = before + shared(said:sub(before + 1), asked:sub(over + 1)) end
  local a, b = varied(messages, items, i, i, variables, false, false)
  if a then begin = math.min(begin or #said, shared(a, b)) end
  begin = math.max(begin or 0, before or 0)
  while said:find("^[\x80-\xBF]", begin + 1) do begin = begin - 1 end  -- not within a character
  return begin
end

-- The turn of message `i` in `whole`, the text of all: { begin, end } in bytes, or a row of its own: { text, begin, end }.
local function turn(messages, items, i, variables, whole)
  local said, why = whole, nil
  if i < #items then said, why = write(items, i, variables, false) end
  if not said then return nil, why end
  local begin, last = beginning(messages, items, i, variables, said), trimmed(said)
  if last <= begin then return nil, "the chat template writes nothing of it" end
  local same = said == whole and #said or shared(said, whole)
  if same >= last then return { begin, last } end
  -- What stands at the end of a whole conversation is not there where it goes on.
  local over = ending(messages, items, i, i, variables, false, said)
  if over then
    local first, stop = word_ends(said, over, same)
    if first and stop > begin then return { begin, stop } end
  end
  if open.past == "refuse" then
    local before, after = excerpt(said, same), excerpt(whole, same)
    return nil, ("the chat template writes it otherwise once the conversation goes on: %s became %s"):format(before, after)
  end
  return { text = said, begin, last }
end

-- Whether a message is to be learned, by its weight or train; an error of which the text is returned for anything else.
local function is_learned(message)
  for _, key in ipairs { "weight", "train" } do
    local value = message[key]
    if value == 0 or value == false then return false end
    if value ~= nil and value ~= 1 and value ~= true then return nil, ("'%s' is %s, and may be 0 or 1"):format(key, tostring(value)) end
  end
  return true
end

local function inside(span, turn_of)
  return span[1] < turn_of[2] and span[2] > turn_of[1]
end

-- --- The interface ---------------------------------------------------------------------------------------------------------------

-- The rows of a conversation: a list of { text, spans }, where spans are { begin, end, begin, end, … } in bytes. Or { why, message }.
function M.rows(messages, line)
  open = line.tools and for_tools or plain
  local items, variables = values_of(messages), variables_of(line)
  local whole, spans, unplaced = write(items, #items, variables, false)
  if not whole then return { why = spans } end
  local marks = open.template.generates and unplaced == nil
  local rows, flat, left_out, why = {}, {}, {}, nil
  for i, message in ipairs(messages) do
    local learned, wrong = is_learned(message)
    if wrong then return { why = wrong, message = i } end
    if message.role == "assistant" and learned ~= marks then
      local found
      found, why = turn(messages, items, i, variables, whole)
      if not found then return { why = why, message = i } end
      if marks and found.text then
        return { why = "it is not to be learned, and the chat template writes it otherwise later", message = i }
      end
      if marks then left_out[#left_out + 1] = found
      elseif found.text then rows[#rows + 1] = { text = found.text, spans = { found[1], found[2] } }
      else flat[#flat + 1], flat[#flat + 2] = found[1], found[2] end
    end
  end
  for _, span in ipairs(marks and spans or {}) do
    local kept = span[2] > span[1]
    for _, out in ipairs(left_out) do kept = kept and not inside(span, out) end
    if kept then flat[#flat + 1], flat[#flat + 2] = span[1], span[2] end
  end
  if #flat > 0 or #rows == 0 then rows[#rows + 1] = { text = whole, spans = flat } end
  return { rows = rows }
end

-- The text after which the assistant answers. Or { why }.
function M.prompt(messages, line)
  open = line.tools and for_tools or plain
  local text, why = write(values_of(messages), #messages, variables_of(line), true)
  if not text then return { why = why } end
  return { text = text }
end

-- --- What a template takes -------------------------------------------------------------------------------------------------------

local needle = "Needle-7"

local function finds(messages)
  local items = {}
  for i, message in ipairs(messages) do items[i] = jinja.value(message) end
  local text = write(items, #items, open.context, false)
  return text and text:find(needle, 1, true) and text
end

local function said(role, content) return { role = role, content = content } end

local function find_content()
  local text = finds { said("user", needle) } or finds { said("user", needle), said("assistant", needle) }
  local parts = { { type = "text", text = needle } }
  local typed = finds { said("user", parts) } or finds { said("user", parts), said("assistant", parts) }
  open.typed, open.joined = typed and not text, text and not typed
end

local function find_arguments()
  local function call(arguments)
    local calls = { { id = "abcdefghi", type = "function", ["function"] = { name = "f", arguments = arguments } } }
    return finds {
      said("user", "a"),
      { role = "assistant", content = "", tool_calls = calls },
      { role = "tool", tool_call_id = "abcdefghi", name = "f", content = "b" },
    }
  end
  -- Where both do, a table: its JSON would be quoted once more.
  if call({ __order = { "x" }, x = needle }) then open.arguments = "table"
  elseif call('{"x": "' .. needle .. '"}') then open.arguments = "text" end
end

-- The text after what the assistant said, up to the next white space: what ends a turn. "": nothing does.
local function find_end()
  local messages = { said("user", "a"), said("assistant", "b") }
  local items = values_of(messages)
  local text = write(items, 2, open.context, false)
  local over = text and ending(messages, items, 2, 2, open.context, false, text)
  return over and text:sub(over + 1):match("^%s*(%S+)") or ""
end

local function opened(options, text)
  local template, why = jinja.parse(text)
  if not template then return nil, why end
  open = { template = template, past = options.past, now = options.now, context = { tools = jinja.none, documents = jinja.none } }
  for _, from in ipairs { options.tokens, options.variables } do
    for name, value in pairs(from) do open.context[name] = jinja.value(value) end
  end
  find_content()
  find_arguments()
  return open
end

-- Opens a template for rows and prompt.
--   template   its text
--   for_tools  the text for lines with tools; "": the same
--   tokens     names of special tokens: bos_token, eos_token, …
--   variables  what else it is given
--   past       "each", or "refuse": what becomes of turns that are written otherwise later
--   now        see jinja.lua
-- Returns { why }, or { ends }: the text that ends the assistant's turns.
function M.open(options)
  jinja.bound(100000)  -- these are short, and many
  local why
  plain, why = opened(options, options.template)
  if plain and (options.for_tools or "") ~= "" then for_tools, why = opened(options, options.for_tools) end
  if why then return { why = why } end
  open = plain
  local ends = find_end()
  jinja.bound()
  return { ends = ends }
end

return M
