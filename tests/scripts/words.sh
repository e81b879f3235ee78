#!/bin/bash
# One word, one idea: words that once had several meanings are no names in the host any more. The glossary of CONTRIBUTING.md stays short.
set -u
failed=0
# Without comments and texts: these may use a word in its plain sense.
code=$(find "$GALLEY_SOURCE/host" -name '*.[ch]pp' -print0 | xargs -0 perl -ne \
  's/"(?:[^"\\]|\\.)*"/""/g unless /^\s*#/; s{//.*}{}; print "$ARGV:$.: $_" if /\S/; close ARGV if eof')
[ "$(wc -l <<<"$code")" -gt 10000 ] || { echo "the host's sources are not where they should be"; exit 1; }
given_up() {  # the names, as a pattern, and what to say instead
  if grep -E ":[0-9]+: .*\b($1)\b" <<<"$code"; then echo "    a name above has been given up; there is: $2"; failed=1; fi
}
given_up '[Ss]tored_?|as_stored|with_stored|stored_(as|dtype)|exported_stored|StoredAs' 'kept_dtype, format, home, staged, in_format, safetensors_dtype'
given_up 'WeightSums?|weight_sums?|sums_|sum_bytes|Sums?' 'checksums, accumulators, totals'
given_up 'Parts?|[A-Z][a-z]+Part|Part[A-Z][a-z]+' 'nodes of a launch, pieces of an update, components of a format, Split, Scope'
given_up '[Ee]arly[A-Za-z_]*|[a-z_]*_early' 'overlap, extension'
given_up 'Step|TimedStep|StepsOf' 'Entry, Prepared, TimedInstruction, Originals, Stage; a step is one of training'
# A word of the field needs no row in the glossary, nor one that few files use.
rows=$(sed -n '/^## Glossary$/,/^## /p' "$GALLEY_SOURCE/CONTRIBUTING.md" | grep '^|' | tail -n +3)  # without heading and rule
count=$(grep -c . <<<"$rows")
[ "$count" -ge 15 ] || { echo "CONTRIBUTING.md has $count rows below '## Glossary': the glossary is not where it should be"; failed=1; }
if [ "$count" -gt 25 ]; then echo "the glossary has $count rows, and at most 25 may be: which words does nobody have to look up?"; failed=1; fi
# Of an order, in texts and comments too.
if grep -rnwI behind "$GALLEY_SOURCE"/{host,sdk,models,plugins,docs,scripts,CONTRIBUTING.md}; then echo '    say "after"'; failed=1; fi
exit $failed
