-- ChatML, as Qwen, SmolLM and many others write conversations:
--
--   <|im_start|>ROLE
--   CONTENT<|im_end|>
--
-- A chat template is a function of the messages, a list of { role = …, content = … }, and of whether the assistant is to go on. It returns
-- the parts of the text in order: a string is the template's own, in which special tokens are control; { text = … } is somebody's, in
-- which they are text; reply = true marks what the assistant writes, which is what counts in the loss. `stop` names the tokens that end a
-- reply. A function in a recipe is given all keys of the messages, and as third argument the whole line that they are from (while
-- training).
local function render(messages, generate)
  local parts = {}
  for _, message in ipairs(messages) do
    local reply = message.role == "assistant"
    parts[#parts + 1] = "<|im_start|>"
    parts[#parts + 1] = { text = message.role .. "\n" }
    parts[#parts + 1] = { text = message.content, reply = reply }
    parts[#parts + 1] = { own = "<|im_end|>", reply = reply }
    parts[#parts + 1] = "\n"
  end
  if generate then parts[#parts + 1] = "<|im_start|>assistant\n" end
  return parts
end

return { render = render, stop = { "<|im_end|>" } }
