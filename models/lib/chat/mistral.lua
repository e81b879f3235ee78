-- Mistral instruct (Jiang et al. 2023, arXiv:2310.06825, and the templates of the released tokenizers):
--
--   <s>[INST] USER [/INST] ASSISTANT</s>[INST] SYSTEM
--
--   USER [/INST]
--
-- The system's message goes before the last of the user's, where that is the last of all. chatml.lua says what a template returns.
local turns_of = require("conversation.turns")

local function render(messages)
  local system, turns = turns_of(messages)
  local parts = { "<s>" }
  for i, message in ipairs(turns) do
    if message.role == "user" then
      parts[#parts + 1] = "[INST] "
      if i == #turns and system then parts[#parts + 1] = { text = system .. "\n\n" } end
      parts[#parts + 1] = { text = message.content }
      parts[#parts + 1] = " [/INST]"
    else
      parts[#parts + 1] = { text = " " .. message.content, reply = true }
      parts[#parts + 1] = { own = "</s>", reply = true }
    end
  end
  return parts
end

return { render = render, stop = { "</s>" } }
