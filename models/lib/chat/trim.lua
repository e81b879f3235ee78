-- A text without the white space around it (ASCII's, and the no-break and ideographic spaces, as Python strips them).
local spaces = { ["\u{85}"] = true, ["\u{a0}"] = true, ["\u{1680}"] = true, ["\u{2028}"] = true, ["\u{2029}"] = true, ["\u{202f}"] = true,
                 ["\u{205f}"] = true, ["\u{3000}"] = true }
for c = 0x2000, 0x200a do spaces[utf8.char(c)] = true end
for c = 0x1c, 0x1f do spaces[string.char(c)] = true end

return function(text)
  local from, to = 1, #text
  local function width_at(at)
    for width = 1, 3 do
      if at + width - 1 <= to and (width == 1 and text:sub(at, at):find("^%s$") or spaces[text:sub(at, at + width - 1)]) then return width end
    end
  end
  local function width_before(at)
    for width = 1, 3 do
      if at - width + 1 >= from and (width == 1 and text:sub(at, at):find("^%s$") or spaces[text:sub(at - width + 1, at)]) then return width end
    end
  end
  local width = width_at(from)
  while width do
    from = from + width
    width = width_at(from)
  end
  width = width_before(to)
  while width do
    to = to - width
    width = width_before(to)
  end
  return text:sub(from, to)
end
