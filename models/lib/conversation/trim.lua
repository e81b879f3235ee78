-- A text without the white space around it, as Python's str.strip() leaves it.
local strip = require("jinja.values").strip

return function(text) return strip(text, nil, true, true) end
