# How to build a plugin. Galley's own plugins and all others use the same options in the same order, so that the same source computes the
# same bytes wherever it is built.
#
#   galley_add_plugin(MANIFEST plugin.toml
#                     SOURCES plugin.cpp...            the library <id>.so: strategies, ops, formats, devices
#                     [KERNELS_CPU cpu.cpp...]         built once for each CPU level: <id>-cpu-v3.so and <id>-cpu-v4.so
#                     [KERNELS_CUDA cuda.cu...]        <id>-cuda.so, when the project has the language CUDA; and, by the C++ compiler,
#                                                      <id>-cuda-emulated.so, which plans anywhere and runs on the emulated GPU
#                     [KERNELS device file...]         <id>-<device>.so, for a device of another kind; several devices: KERNELS a a.cpp b b.cpp
#                     [NAME id]                        must equal the manifest's id; optional, for readers
#                     [INCLUDES dir...]                in addition to the SDK's
#                     [LIBRARIES lib...]               for <id>.so
#                     [KERNEL_LIBRARIES lib...]        for the CPU kernels
#                     [CUDA_LIBRARIES lib...]          for <id>-cuda.so
#                     [EXAMPLE file...]                what the plugin's example.lua reads
#                     [OUTPUT_DIRECTORY dir])          default: ${CMAKE_BINARY_DIR}/plugins
#
# The result is the folder OUTPUT_DIRECTORY/<id> with the libraries and a copy of the manifest; Galley loads this folder. An example.lua
# beside the manifest, which `galley check` trains with, is copied, too. The copy ends with
# a [[kernels]] table for each library of kernels that was built; a manifest that already has `kernels` is copied unchanged. Each library
# exports only `galley_entry_v1` and must resolve all other symbols by itself. Targets: plugin-<id>, which includes the others,
# plugin-<id>-main, plugin-<id>-cpu-v3, plugin-<id>-cpu-v4, plugin-<id>-cuda, plugin-<id>-cuda-emulated, plugin-<id>-<device>.
#
# CPU kernels see GALLEY_CPU_LEVEL: 3 or 4 (x86-64-v3, x86-64-v4); 0 in <id>-cpu-base.so, the only one on other processors.
#
# `cmake --install` installs the folder in <prefix>/lib/galley/plugins, where an installed Galley looks for plugins. GALLEY_PLUGIN_INSTALL
# sets another folder; OFF installs nothing.
include_guard(GLOBAL)
include(GNUInstallDirs)

set(GALLEY_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/galley-plugin.map CACHE INTERNAL "What a plugin exports")

# CMake 3.25 does not know that nvcc speaks C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

# The id that a manifest declares.
function(galley_manifest_id out manifest)
  file(STRINGS ${manifest} line REGEX "^id[ \t]*=" LIMIT_COUNT 1)
  if(NOT line MATCHES "^id[ \t]*=[ \t]*\"([a-z0-9][a-z0-9._-]*)\"")
    message(FATAL_ERROR "${manifest}: no line of the form id = \"name\" (lower case, digits, '.', '-', '_')")
  endif()
  set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

function(galley_add_plugin)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;MANIFEST;OUTPUT_DIRECTORY"
                        "SOURCES;KERNELS;KERNELS_CPU;KERNELS_CUDA;INCLUDES;LIBRARIES;KERNEL_LIBRARIES;CUDA_LIBRARIES;EXAMPLE")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "galley_add_plugin: unknown argument ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_MANIFEST)
    message(FATAL_ERROR "galley_add_plugin: MANIFEST is missing")
  endif()
  get_filename_component(manifest ${ARG_MANIFEST} ABSOLUTE)
  galley_manifest_id(id ${manifest})
  if(ARG_NAME AND NOT ARG_NAME STREQUAL id)
    message(FATAL_ERROR "galley_add_plugin: NAME is ${ARG_NAME}, but ${manifest} says id = \"${id}\"")
  endif()
  if(NOT ARG_SOURCES)
    message(FATAL_ERROR "${manifest}: the plugin has no SOURCES; its library must export galley_entry_v1")
  endif()
  if(NOT ARG_OUTPUT_DIRECTORY)
    set(ARG_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
  endif()
  set(folder ${ARG_OUTPUT_DIRECTORY}/${id})
  add_custom_target(plugin-${id} ALL)
  galley_add_plugin_library_(plugin-${id}-main ${folder} ${id} "${ARG_SOURCES}" "${ARG_INCLUDES}" "${ARG_LIBRARIES}")
  add_dependencies(plugin-${id} plugin-${id}-main)
  set(libraries ${id}.so)
  set(tables)  # what the manifest's copy says of the kernels

  if(ARG_KERNELS_CPU)
    set(levels base)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
      set(levels v3 v4)
    endif()
    foreach(level IN LISTS levels)
      set(target plugin-${id}-cpu-${level})
      galley_add_plugin_library_(${target} ${folder} ${id}-cpu-${level} "${ARG_KERNELS_CPU}" "${ARG_INCLUDES}"
                                 "${ARG_KERNEL_LIBRARIES}")
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-O3>")
      set(isa)
      if(NOT level STREQUAL "base")
        set(isa "isa = \"x86-64-${level}\"\n")
      endif()
      string(APPEND tables "\n[[kernels]]\ndevice = \"cpu\"\n${isa}library = \"${id}-cpu-${level}.so\"\n")
      if(level STREQUAL "v3")
        target_compile_options(${target} PRIVATE -march=x86-64-v3 -mtune=generic)
        target_compile_definitions(${target} PRIVATE GALLEY_CPU_LEVEL=3)
      elseif(level STREQUAL "v4")
        # Left alone, compilers halve the vectors for fear of lower clocks, which processors with this level have outgrown.
        target_compile_options(${target} PRIVATE -march=x86-64-v4 -mtune=generic -mprefer-vector-width=512)
        target_compile_definitions(${target} PRIVATE GALLEY_CPU_LEVEL=4)
      else()
        target_compile_definitions(${target} PRIVATE GALLEY_CPU_LEVEL=0)
      endif()
      add_dependencies(plugin-${id} ${target})
      list(APPEND libraries ${id}-cpu-${level}.so)
    endforeach()
  endif()

  if(ARG_KERNELS_CUDA)
    # A file of C++ around each source: in one project the same source may be CUDA's and C++'s.
    set(wrapped)
    foreach(source IN LISTS ARG_KERNELS_CUDA)
      get_filename_component(source ${source} ABSOLUTE)
      string(MD5 hash ${source})
      set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/cuda-emulated/${id}-${hash}.cpp)
      set(text "#include \"${source}\"\n")
      set(before)
      if(EXISTS ${wrapper})
        file(READ ${wrapper} before)
      endif()
      if(NOT text STREQUAL before)
        file(WRITE ${wrapper} ${text})
      endif()
      list(APPEND wrapped ${wrapper})
    endforeach()
    galley_add_plugin_library_(plugin-${id}-cuda-emulated ${folder} ${id}-cuda-emulated "${wrapped}" "${ARG_INCLUDES}" galley::emulated)
    # They run as fast with -O1 as with -O2, since most of it is the emulation, and compile in two thirds of the time.
    # `#pragma unroll` is nvcc's; and compilers that see through a thread's loops doubt that the part of an array which it uses is filled.
    target_compile_options(plugin-${id}-cuda-emulated PRIVATE -O1 -Wno-unknown-pragmas -Wno-uninitialized)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(plugin-${id}-cuda-emulated PRIVATE -Wno-maybe-uninitialized)
    endif()
    if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
      # Each CUDA thread would be a thread to ThreadSanitizer, which takes 8,191 in a process; libraries of their own look for races in
      # kernels (tests/CMakeLists.txt, galley_kernels_under). What calls them is watched here.
      target_compile_options(plugin-${id}-cuda-emulated PRIVATE -fno-sanitize=thread)
    endif()
    add_dependencies(plugin-${id} plugin-${id}-cuda-emulated)
    list(APPEND libraries ${id}-cuda-emulated.so)
    string(APPEND tables "\n[[kernels]]\ndevice = \"cuda\"\nlibrary = \"${id}-cuda-emulated.so\"\n")
  endif()

  if(ARG_KERNELS_CUDA AND CMAKE_CUDA_COMPILER)
    galley_add_plugin_library_(plugin-${id}-cuda ${folder} ${id}-cuda "${ARG_KERNELS_CUDA}" "${ARG_INCLUDES}" "${ARG_CUDA_LIBRARIES}")
    # The runtime is inside each library, so that two plugins may have been built with two versions of CUDA.
    set_target_properties(plugin-${id}-cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    # No contraction into FMA, as for the CPU; each spill to memory is reported.
    target_compile_options(plugin-${id}-cuda PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xptxas=-warn-spills,-warn-lmem-usage>")
    add_dependencies(plugin-${id} plugin-${id}-cuda)
    list(APPEND libraries ${id}-cuda.so)
    string(APPEND tables "\n[[kernels]]\ndevice = \"cuda\"\nisa = \"sm_80\"\nlibrary = \"${id}-cuda.so\"\n")
  endif()

  set(device)  # of another kind: a word without a dot, with its files after it
  set(devices)
  foreach(word IN LISTS ARG_KERNELS)
    if(NOT word MATCHES "\\.")
      set(device ${word})
      set(files_${device})
      list(APPEND devices ${device})
    elseif(NOT device)
      message(FATAL_ERROR "galley_add_plugin: KERNELS names a device, then its files; '${word}' is no device")
    else()
      list(APPEND files_${device} ${word})
    endif()
  endforeach()
  foreach(device IN LISTS devices)
    if(NOT files_${device})
      message(FATAL_ERROR "galley_add_plugin: KERNELS ${device} has no file")
    endif()
    set(target plugin-${id}-${device})
    galley_add_plugin_library_(${target} ${folder} ${id}-${device} "${files_${device}}" "${ARG_INCLUDES}" "")
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-O3>")
    target_compile_definitions(${target} PRIVATE GALLEY_KERNEL_DEVICE="${device}")
    add_dependencies(plugin-${id} ${target})
    list(APPEND libraries ${id}-${device}.so)
    string(APPEND tables "\n[[kernels]]\ndevice = \"${device}\"\nlibrary = \"${id}-${device}.so\"\n")
  endforeach()

  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifest})
  file(READ ${manifest} text)
  if(NOT text MATCHES "(^|\n)[ \t]*(\\[\\[[ \t]*kernels[ \t]*\\]\\]|kernels[ \t]*=[ \t\n]*\\[[ \t\n]*{)")
    string(APPEND text "${tables}")
  endif()
  set(before)
  if(EXISTS ${folder}/plugin.toml)
    file(READ ${folder}/plugin.toml before)
  endif()
  if(NOT text STREQUAL before)
    file(WRITE ${folder}/plugin.toml "${text}")
  endif()

  get_filename_component(beside ${manifest} DIRECTORY)
  foreach(file IN ITEMS example.lua LISTS ARG_EXAMPLE)
    get_filename_component(file ${file} ABSOLUTE BASE_DIR ${beside})
    if(EXISTS ${file})
      configure_file(${file} ${folder} COPYONLY)
    elseif(NOT file MATCHES "/example.lua$")
      message(FATAL_ERROR "galley_add_plugin: ${file}, of EXAMPLE, is not there")
    endif()
  endforeach()

  galley_install_plugin_(${folder})

  # What an earlier build left (a level or a device that the plugin no longer has) would otherwise still be loaded.
  file(GLOB built RELATIVE ${folder} ${folder}/*.so)
  list(REMOVE_ITEM built ${libraries} "")
  foreach(old IN LISTS built)
    file(REMOVE ${folder}/${old})
  endforeach()
endfunction()

# Installs a plugin's folder.
function(galley_install_plugin_ folder)
  if(NOT DEFINED GALLEY_PLUGIN_INSTALL)
    set(GALLEY_PLUGIN_INSTALL ${CMAKE_INSTALL_LIBDIR}/galley/plugins)
  endif()
  if(GALLEY_PLUGIN_INSTALL)
    install(DIRECTORY ${folder} DESTINATION ${GALLEY_PLUGIN_INSTALL} USE_SOURCE_PERMISSIONS)
  endif()
endfunction()

function(galley_add_plugin_library_ target folder name sources includes libraries)
  add_library(${target} MODULE ${sources})
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so" OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${folder} POSITION_INDEPENDENT_CODE ON
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${GALLEY_PLUGIN_MAP})
  target_include_directories(${target} PRIVATE ${includes})
  target_link_libraries(${target} PRIVATE galley::sdk ${libraries})
  # Stated here whatever the build type says: arithmetic must not differ between a debug and a release build either. No contraction
  # into FMA; errno and trapping are the two things that keep loops from being vectorised without any effect on values. Kernels that train,
  # those of the processor, are compiled with -O3; references are no faster with it.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-O2;-ffp-contract=off;-fno-math-errno;-fno-trapping-math>")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${GALLEY_PLUGIN_MAP}")
  # A plugin takes nothing from the program by name. Sanitizers do, so they are let through.
  if(NOT "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}" MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE LINKER:--no-undefined)
  endif()
endfunction()
