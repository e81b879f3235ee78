#!/bin/sh
# man.sh GALLEY HELP2MAN DIR: writes a manual page of the program and of each command into DIR, of their --help.
set -eu
galley=$1 help2man=$2 out=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
rm -rf "$out"; mkdir -p "$out"

version=$("$galley" --version | cut -d' ' -f2)
# Pages carry the month of the release, not of the build.
SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' "$(dirname "$0")/debian/changelog" | head -n 1)" +%s); export SOURCE_DATE_EPOCH

# help2man takes "Usage:" for a synopsis, a line that ends with a colon for a heading, and a program's name from its --version. --name is the
# line that apropos shows.
page() {  # NAME WORDS… : of `galley WORDS --help`
  name=$1; shift
  cat > "$work/$name" <<END
#!/bin/sh
if [ "\$1" = --help ]; then "$galley" $* --help | sed 's/^usage:/Usage:/; s/^Galley [0-9.]*: /Galley /; s/ \(Examples*:\)$/\n\n\1/'; else echo $name $version; fi
END
  chmod +x "$work/$name"
  if [ $# = 0 ]; then about='trains language models in little memory'; else about=$("$galley" "$@" --help | sed -n '3{s/…/.../g;p}'); fi
  "$help2man" --no-info --locale=C.UTF-8 --source='Galley' --manual='Galley' --name="$about" "$work/$name" > "$out/$name.1"
  gzip -9n "$out/$name.1"
}

page galley
for command in $("$galley" --help | sed -n 's/^  galley \([a-z]*\) .*/\1/p' | sort -u); do page "galley-$command" "$command"; done
