#!/bin/bash
# The root of the repository holds what a visitor expects there, and nothing else: a test that writes into the checkout is found here.
set -u
cd "$GALLEY_SOURCE" || exit 1
expected='CMakeLists.txt CMakePresets.json CONTRIBUTING.md LICENSE Makefile README.md docs host models plugins scripts sdk tests'
if git rev-parse --is-inside-work-tree >/dev/null 2>&1 && [ "$(git rev-parse --show-toplevel)" = "$(pwd -P)" ]; then
  names=$(git ls-files --cached --others --exclude-standard | cut -d/ -f1 | sort -u)
else
  names=$(ls -A | grep -vxE 'build|runs|\.git|\.cache|__pycache__')  # a copy without its history
fi
failed=0
for name in $names; do
  case $name in .[a-z]*) continue ;; esac
  case " $expected " in *" $name "*) ;; *) echo "'$name' does not belong at the root of the repository"; failed=1 ;; esac
done
exit $failed
