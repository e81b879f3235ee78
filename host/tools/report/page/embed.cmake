# Writes a .cpp with the page's files as bytes, for host/tools/report/page.cpp.
# Usage: cmake -D OUTPUT=page_bytes.cpp -D PAGE=host/tools/report/page -D SCRIPTS=a.js,b.js -D LIBRARY=dygraph.min.js
#              -D LIBRARY_CSS=dygraph.min.css -P embed.cmake
cmake_minimum_required(VERSION 3.25)
set(code "// Written by host/tools/report/page/embed.cmake.\n#include \"host/tools/report/page.hpp\"\n\nnamespace galley::page_files {\n")

function(add name text)
  if(text MATCHES "</[sS][cC][rR][iI][pP][tT]" AND NOT name STREQUAL "html")
    message(FATAL_ERROR "${name} of the page holds '</script'")
  endif()
  string(SHA256 hash "${text}")
  string(HEX "${text}" hex)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND code "static constexpr unsigned char ${name}_bytes[] = {${bytes}0};\n"
                     "const File ${name} = {${name}_bytes, sizeof ${name}_bytes - 1, \"${hash}\"};\n")
  set(code "${code}" PARENT_SCOPE)
endfunction()

# Nobody asks for the library's source map, which is not in the page.
file(READ ${LIBRARY} library)
string(REGEX REPLACE "/[/*][#@] sourceMappingURL=[^\n]*" "" library "${library}")
file(READ ${LIBRARY_CSS} library_css)
string(REGEX REPLACE "/[/*][#@] sourceMappingURL=[^\n]*" "" library_css "${library_css}")
file(READ ${PAGE}/page.html html)
file(READ ${PAGE}/page.css css)
file(READ ${PAGE}/dygraphs.txt licence)
set(script)
string(REPLACE "," ";" scripts "${SCRIPTS}")
foreach(name IN LISTS scripts)
  file(READ ${PAGE}/${name} text)
  string(APPEND script "${text}")
endforeach()
foreach(name IN ITEMS html css script library library_css licence)
  add(${name} "${${name}}")
endforeach()
string(APPEND code "}  // namespace galley::page_files\n")
file(WRITE ${OUTPUT} "${code}")
