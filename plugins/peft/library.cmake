# What the plugins of adapters share, inside each of them: names of modules, and configurations as PEFT writes them.
if(NOT TARGET galley-peft)
  file(GLOB peft_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/peft/*.cpp)
  add_library(galley-peft STATIC ${peft_sources})
  target_include_directories(galley-peft PUBLIC ${PROJECT_SOURCE_DIR}/plugins)
  target_link_libraries(galley-peft PUBLIC galley::sdk galley-pcre2) # for the regular expressions of configurations
  target_compile_options(galley-peft PRIVATE "$<$<CONFIG:Release>:-O1>")
  set_target_properties(galley-peft PROPERTIES UNITY_BUILD ${GALLEY_UNITY} UNITY_BUILD_BATCH_SIZE 0)
endif()
list(APPEND libraries galley-peft)
