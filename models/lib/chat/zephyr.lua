-- Zephyr (Tunstall et al. 2023, arXiv:2310.16944, and the template of its tokenizer), which TinyLlama shares:
--
--   <|ROLE|>
--   CONTENT</s>
--
-- chatml.lua says what a template returns.
local roles = { system = true, user = true, assistant = true, tool = true }

local function render(messages, generate)
  local parts = {}
  for _, message in ipairs(messages) do
    local reply = message.role == "assistant"
    local head = "<|" .. message.role .. "|>\n"
    parts[#parts + 1] = roles[message.role] and head or { text = head }
    parts[#parts + 1] = { text = message.content, reply = reply }
    parts[#parts + 1] = { own = "</s>", reply = reply }
    parts[#parts + 1] = "\n"
  end
  if generate then parts[#parts + 1] = "<|assistant|>\n" end
  return parts
end

return { render = render, stop = { "</s>" } }
