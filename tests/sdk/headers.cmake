# Each header of the SDK compiles alone, twice over, as the languages that plugins are written in, and no structure of the C headers
# has padding, which two compilers could lay out differently or leave uninitialised. By the oldest standards that they may be used with:
# Galley's own plugins include them as C++20.
# Usage: cmake -D CC=gcc -D CXX=g++ -D SDK=sdk -P headers.cmake
cmake_minimum_required(VERSION 3.25)
set(INCLUDE ${SDK}/include)
set(EMULATED ${SDK}/emulated/include)
file(GLOB_RECURSE c_headers RELATIVE ${INCLUDE} ${INCLUDE}/galley/*.h)
file(GLOB_RECURSE cpp_headers RELATIVE ${INCLUDE} ${INCLUDE}/galley/*.hpp)
file(GLOB_RECURSE emulated_headers RELATIVE ${EMULATED} ${EMULATED}/galley/*.hpp)
if(NOT c_headers OR NOT emulated_headers)
  message(FATAL_ERROR "no headers under ${INCLUDE}/galley or ${EMULATED}/galley")
endif()
set(warnings -Wall -Wextra -Wpedantic -Werror -Wno-unknown-pragmas -fsyntax-only -I${INCLUDE} -I${EMULATED})  # unroll is nvcc's
set(failed)

function(check header compiler language standard)
  # Nothing is declared by a header of macros only, and ISO C wants a declaration in every file.
  file(WRITE header.${language} "#include \"${header}\"\n#include \"${header}\"\ntypedef int galley_not_empty;\n")
  execute_process(COMMAND ${compiler} -std=${standard} ${warnings} ${ARGN} header.${language} RESULT_VARIABLE code ERROR_VARIABLE text)
  if(code)
    message(NOTICE "${header} as ${standard}:\n${text}")
    set(failed ${failed} "${header} as ${standard}" PARENT_SCOPE)
  endif()
endfunction()

# What <windows.h> and <sys/sysmacros.h> define: no name of a field, a parameter or a type may be one of these.
set(macros interface near far small huge pascal cdecl hyper IN OUT OPTIONAL CONST VOID TRUE FALSE BOOL CALLBACK ERROR NO_ERROR DELETE min max
  major minor)
list(TRANSFORM macros REPLACE "(.+)" "-D\\1=[a macro of a system header]")
foreach(header IN LISTS c_headers)
  check(${header} ${CC} c c11 -Wpadded)
  check(${header} ${CXX} cpp c++17 -Wpadded)
  check(${header} ${CC} c gnu11 ${macros})
endforeach()
foreach(header IN LISTS cpp_headers emulated_headers)
  check(${header} ${CXX} cpp c++17)
endforeach()
if(failed)
  string(REPLACE ";" ", " failed "${failed}")
  message(FATAL_ERROR "does not compile alone: ${failed}")
endif()
