# What the plugins of adapters share, compiled into each of them: names of modules, and configurations as PEFT writes them.
file(GLOB peft_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/peft/*.cpp)
list(APPEND sources ${peft_sources})
list(APPEND ARG_INCLUDES ${PROJECT_SOURCE_DIR}/plugins)
list(APPEND libraries galley-pcre2) # for the regular expressions of configurations
