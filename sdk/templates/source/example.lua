-- Enough options to be itself; rows.txt lies beside it, and its ids are below 16.
data.ids { path = "rows.txt" }
