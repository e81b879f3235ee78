-- A time as text, as Python's strftime writes it in the locale C, for the interpreter in jinja.lua.
--
-- A time is { year, month, day, hour, minute, second }, from year 1 on; the last three may be missing: 0.
local values = require "jinja.values"
local fail = values.fail

local M = {}

local months = {
  "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
}
local days = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" }
local lengths = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }

local function is_leap(year) return year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0) end

local function day_of_year(t)
  local day = t.day
  for month = 1, t.month - 1 do day = day + lengths[month] + (month == 2 and is_leap(t.year) and 1 or 0) end
  return day
end

-- 0: Sunday.
local function weekday(t)
  local past = t.year - 1
  return (past * 365 + past // 4 - past // 100 + past // 400 + day_of_year(t)) % 7
end

-- The week of the year, whose first begins on its first day with this number (0: Sunday).
local function week(t, first) return (day_of_year(t) + 6 - (weekday(t) - first) % 7) // 7 end

local function hour12(t) return ((t.hour or 0) + 11) % 12 + 1 end

-- Each with its number of digits, which '-' in front leaves out.
local numbers = {
  d = { 2, function(t) return t.day end },
  m = { 2, function(t) return t.month end },
  y = { 2, function(t) return t.year % 100 end },
  Y = { 1, function(t) return t.year end },
  H = { 2, function(t) return t.hour or 0 end },
  I = { 2, hour12 },
  M = { 2, function(t) return t.minute or 0 end },
  S = { 2, function(t) return t.second or 0 end },
  f = { 6, function() return 0 end },
  j = { 3, day_of_year },
  u = { 1, function(t) return (weekday(t) + 6) % 7 + 1 end },
  w = { 1, weekday },
  U = { 2, function(t) return week(t, 0) end },
  W = { 2, function(t) return week(t, 1) end },
}
local texts = {
  a = function(t) return days[weekday(t) + 1]:sub(1, 3) end,
  A = function(t) return days[weekday(t) + 1] end,
  b = function(t) return months[t.month]:sub(1, 3) end,
  B = function(t) return months[t.month] end,
  p = function(t) return (t.hour or 0) < 12 and "AM" or "PM" end,
  z = function() return "" end,
  Z = function() return "" end,
  n = function() return "\n" end,
  t = function() return "\t" end,
  ["%"] = function() return "%" end,
}
texts.h = texts.b
local composed = {
  c = "%a %b %e %H:%M:%S %Y", D = "%m/%d/%y", F = "%Y-%m-%d", R = "%H:%M", T = "%H:%M:%S", r = "%I:%M:%S %p", x = "%m/%d/%y", X = "%H:%M:%S",
}

function M.format(format, t)
  return (format:gsub("%%(%-?)(.?)", function(sign, letter)
    if composed[letter] and sign == "" then return M.format(composed[letter], t) end
    if letter == "e" then return (sign == "" and "%2d" or "%d"):format(t.day) end
    local number, text = numbers[letter], texts[letter]
    if number then return ("%0" .. (sign == "" and number[1] or 1) .. "d"):format(number[2](t)) end
    if text and sign == "" then return text(t) end
    fail("'%%%s%s' in a format of strftime_now is not supported", sign, letter)
  end))
end

return M
