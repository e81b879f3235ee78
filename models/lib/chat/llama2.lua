-- Llama 2 chat (Touvron et al. 2023, arXiv:2307.09288, appendix A.3.3, and the released code):
--
--   <s>[INST] <<SYS>>
--   SYSTEM
--   <</SYS>>
--
--   USER [/INST] ASSISTANT </s><s>[INST] …
--
-- Contents are trimmed, the system's is not. chatml.lua says what a template returns.
local trim = require("conversation.trim")
local turns_of = require("conversation.turns")

local function render(messages)
  local system, turns = turns_of(messages)
  local parts = {}
  for i, message in ipairs(turns) do
    if message.role == "user" then
      parts[#parts + 1] = "<s>[INST] "
      if i == 1 and system then
        parts[#parts + 1] = "<<SYS>>\n"
        parts[#parts + 1] = { text = system }
        parts[#parts + 1] = "\n<</SYS>>\n\n"
      end
      parts[#parts + 1] = { text = trim(message.content) }
      parts[#parts + 1] = " [/INST]"
    else
      parts[#parts + 1] = { text = " " .. trim(message.content) .. " ", reply = true }
      parts[#parts + 1] = { own = "</s>", reply = true }
    end
  end
  return parts
end

return { render = render, stop = { "</s>" } }
