-- The messages of templates that know turns only: what the system says, and the rest.
-- The rest has to be the user's and the assistant's in turn.
return function(messages)
  local first = 1
  local system = messages[1] and messages[1].role == "system" and messages[1].content or nil
  if system then first = 2 end
  local turns = {}
  for i = first, #messages do
    local wanted = #turns % 2 == 0 and "user" or "assistant"
    if messages[i].role ~= wanted then
      error(("message %d is the %s's, where this template takes the %s's"):format(i, messages[i].role, wanted), 0)
    end
    turns[#turns + 1] = messages[i]
  end
  if system == "" then system = nil end
  return system, turns
end
