-- A text without the white space around it: what Python's str.strip() takes for white space.
local spaces = {}
for _, space in ipairs {
  " ", "\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\u{85}", "\u{a0}", "\u{1680}", "\u{2000}", "\u{2001}", "\u{2002}",
  "\u{2003}", "\u{2004}", "\u{2005}", "\u{2006}", "\u{2007}", "\u{2008}", "\u{2009}", "\u{200a}", "\u{2028}", "\u{2029}", "\u{202f}",
  "\u{205f}", "\u{3000}",
} do spaces[space] = true end

-- The bytes, up to three, of the white space that begins at `at`, or that ends there; nil where there is none.
local function width(text, at, backward)
  for bytes = 1, 3 do
    local first = backward and at - bytes + 1 or at
    if first >= 1 and spaces[text:sub(first, first + bytes - 1)] then return bytes end
  end
end

return function(text)
  local first, last = 1, #text
  local bytes = width(text, first)
  while bytes and first <= last do
    first = first + bytes
    bytes = width(text, first)
  end
  bytes = width(text, last, true)
  while bytes and last >= first do
    last = last - bytes
    bytes = width(text, last, true)
  end
  return text:sub(first, last)
end
