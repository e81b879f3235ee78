#!/bin/bash
# The host knows no strategy by name: not as a text in its sources, nor, where the name is no English word, anywhere in its sources or its binary. And it
# exports nothing of its own that a plugin could link to.
set -u
failed=0
for manifest in "$GALLEY_SOURCE"/plugins/*/plugin.toml; do
  while read -r name; do
    if grep -rnF "\"$name\"" "$GALLEY_SOURCE/host" --include='*.cpp' --include='*.hpp'; then echo "host names the strategy '$name'"; failed=1; fi
    case $name in accumulate|freeze|clip|recompute) continue ;; esac
    if grep -rnwi "$name" "$GALLEY_SOURCE/host" --include='*.cpp' --include='*.hpp'; then echo "host names the strategy '$name'"; failed=1; fi
    # HTML's `&amp;` stands in the plotting library, which is embedded.
    if strings -a -n 8 "$GALLEY" | sed 's/&amp;//g' | grep -wi "$name"; then echo "the binary names the strategy '$name'"; failed=1; fi
  done < <(awk '/^\[\[strategy\]\]/ {s = 1} s && /^name *=/ {gsub(/"/, "", $3); print $3; s = 0}' "$manifest")
done
if nm -D --defined-only "$GALLEY" | c++filt | grep -E ' (galley|toml|lua)'; then echo "the host exports the above"; failed=1; fi
exit $failed
