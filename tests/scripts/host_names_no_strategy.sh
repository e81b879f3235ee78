#!/bin/bash
# The host knows no strategy by name: not as a text in its sources, nor, where the name is no English word, anywhere in its sources or its binary. And it
# exports nothing of its own that a plugin could link to.
set -u
failed=0
# In machine code, four bytes may look like a name in some other spelling by chance ("SgD"): there it has to be spelt as it is. HTML's `&amp;` stands in the
# plotting library, which is embedded.
objcopy --only-section=.text -O binary "$GALLEY" code || exit 1
objcopy --remove-section=.text "$GALLEY" rest || exit 1
strings -a code >code.txt
strings -a rest | sed 's/&amp;//g' >rest.txt
[ -s code.txt ] && [ -s rest.txt ] || { echo "there are no texts in $GALLEY"; exit 1; }
for manifest in "$GALLEY_SOURCE"/plugins/*/plugin.toml; do
  while read -r name; do
    if grep -rnF "\"$name\"" "$GALLEY_SOURCE/host" --include='*.cpp' --include='*.hpp'; then echo "host names the strategy '$name'"; failed=1; fi
    case $name in accumulate|freeze|clip|recompute|zero) continue ;; esac
    if grep -rnwi "$name" "$GALLEY_SOURCE/host" --include='*.cpp' --include='*.hpp'; then echo "host names the strategy '$name'"; failed=1; fi
    if grep -wi "$name" rest.txt || grep -w "$name" code.txt; then echo "the binary names the strategy '$name'"; failed=1; fi
  done < <(awk '/^\[\[strategy\]\]/ {s = 1} s && /^name *=/ {gsub(/"/, "", $3); print $3; s = 0}' "$manifest")
done
if nm -D --defined-only "$GALLEY" | c++filt | grep -E ' (galley|toml|lua)'; then echo "the host exports the above"; failed=1; fi
exit $failed
