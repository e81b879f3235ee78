-- Llama 3 (Meta, "Llama 3 Model Card": prompt formats):
--
--   <|begin_of_text|><|start_header_id|>ROLE<|end_header_id|>
--
--   CONTENT<|eot_id|>…
--
-- Contents are trimmed. chatml.lua says what a template returns.
local trim = require("conversation.trim")

local function render(messages, generate)
  local parts = { "<|begin_of_text|>" }
  for _, message in ipairs(messages) do
    local reply = message.role == "assistant"
    parts[#parts + 1] = "<|start_header_id|>"
    parts[#parts + 1] = { text = message.role }
    parts[#parts + 1] = "<|end_header_id|>\n\n"
    parts[#parts + 1] = { text = trim(message.content), reply = reply }
    parts[#parts + 1] = { own = "<|eot_id|>", reply = reply }
  end
  if generate then parts[#parts + 1] = "<|start_header_id|>assistant<|end_header_id|>\n\n" end
  return parts
end

return { render = render, stop = { "<|eot_id|>", "<|end_of_text|>" } }
