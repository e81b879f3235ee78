#!/bin/bash
# One name, one type: two types of one name in one namespace of a program are undefined behaviour that no compiler and no linker tells. Whichever constructor
# the linker meets first serves both; galley::Piece had 0 numbers for -1 in a build that did not inline it. Types in unnamed namespaces are apart.
set -u
failed=0
for root in host models; do
  types=$(find "$GALLEY_SOURCE/$root" -name '*.[ch]pp' -print0 | xargs -0 perl -ne '
    $space = $1 if /^namespace ([\w:]+) \{/;
    ++$unnamed if /^namespace \{/;
    --$unnamed if /^\}  \/\/ namespace$/;
    print "$space\:\:$2 $ARGV\n" if !$unnamed && /^(struct|class|enum class|enum|union)\s+(\w+)(?![\w:]*::)[^;()]*\{/;
    if (eof) { $unnamed = 0; $space = ""; }')
  [ "$(wc -l <<<"$types")" -gt 50 ] || { echo "the sources of $root are not where they should be"; exit 1; }
  twice=$(sort -u <<<"$types" | cut -d' ' -f1 | uniq -d)
  for type in $twice; do
    echo "$type is defined in:"
    grep -F "$type " <<<"$types" | cut -d' ' -f2 | sed "s|^$GALLEY_SOURCE/|  |"
    failed=1
  done
done
exit $failed
