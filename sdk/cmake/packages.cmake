# Debian's packages, `galley` and `galley-sdk`, which `make packages` makes in build/release/packages: of the components "program" and "sdk" of the
# installation, and of manual pages that help2man makes of the program's own help. debian/changelog has a paragraph for each version.
set(man_pages ${PROJECT_BINARY_DIR}/man)
set(changelog ${PROJECT_BINARY_DIR}/changelog.gz)
find_program(GALLEY_HELP2MAN help2man)
mark_as_advanced(GALLEY_HELP2MAN)
if(TARGET galley AND GALLEY_HELP2MAN)
  add_custom_target(man COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C.UTF-8 ${CMAKE_CURRENT_LIST_DIR}/man.sh $<TARGET_FILE:galley> ${GALLEY_HELP2MAN} ${man_pages}
                    COMMAND gzip -9nc ${CMAKE_CURRENT_LIST_DIR}/debian/changelog > ${changelog}
                    DEPENDS galley VERBATIM)
endif()
install(DIRECTORY ${man_pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program OPTIONAL FILES_MATCHING PATTERN *.1.gz)
set(components program sdk)
set(packages galley galley-sdk)
foreach(component package IN ZIP_LISTS components packages)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/debian/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  install(FILES ${changelog} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component} OPTIONAL)
  # `cmake --install --strip` strips targets alone; plugins are installed as folders.
  install(CODE "if(CMAKE_INSTALL_DO_STRIP)
    file(GLOB_RECURSE libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/galley/*.so\")
    if(libraries)
      execute_process(COMMAND ${CMAKE_STRIP} --strip-unneeded \${libraries} COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endif()" COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_VENDOR Galley)
set(CPACK_PACKAGE_CONTACT "The authors of Galley <authors@galley.invalid>")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME galley)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "galley-sdk, openmpi-bin")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # CPack would put it before each of these: a line for lists, and what follows it
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "trainer for language models in little memory\n\
Galley trains and fine-tunes language models by recipes in Lua, on a GPU or on\n\
the processor. Before a device is opened, it plans to the byte what a recipe\n\
needs.")
set(CPACK_DEBIAN_SDK_PACKAGE_NAME galley-sdk)
set(CPACK_DEBIAN_SDK_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_SDK_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SDK_PACKAGE_DEPENDS "galley (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS "cmake, g++ | c++-compiler, make | ninja-build, python3")
set(CPACK_DEBIAN_SDK_DESCRIPTION "headers and templates for plugins of Galley\n\
What plugins for Galley are built against: the headers of its ABI, a package\n\
for CMake, templates for `galley plugin new`, and an emulated GPU on which\n\
`galley check` runs kernels for CUDA.")
include(CPack)
