#!/bin/bash
# CONTRIBUTING.md has a row for each pass, in the order in which they run, and the files that it names are there.
set -u
failed=0
table=$(sed -n '/^| pass | file |/,/^$/p' "$GALLEY_SOURCE/CONTRIBUTING.md" | tail -n +3 | sed '/^$/d')
passes=$("$GALLEY" plan recipe.lua --dump help | awk '$1 != "plan" { print $1 }')
[ "$(wc -l <<<"$passes")" -gt 10 ] || { echo "'galley plan --dump help' lists no passes:"; echo "$passes"; exit 1; }
rows=$(sed -E 's/^\| `([a-z-]+)` .*/\1/' <<<"$table")
if ! diff <(echo "$passes") <(echo "$rows"); then
  echo "    < passes that the program has; > rows of the table 'Passes' in CONTRIBUTING.md"
  failed=1
fi
while IFS='|' read -r _ pass files _; do
  for file in $(grep -oE '[a-z_/]+(\.cpp|/)' <<<"$files"); do
    [ -e "$GALLEY_SOURCE/host/passes/$file" ] && continue
    echo "the table says that $pass is in host/passes/$file, which is not there"
    failed=1
  done
  grep -q '\.cpp' <<<"$files" || { echo "the table names no file of $pass"; failed=1; }
done <<<"$table"
exit $failed
