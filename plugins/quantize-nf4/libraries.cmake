list(APPEND ARG_INCLUDES ${PROJECT_SOURCE_DIR}/plugins) # bitsandbytes/config.hpp
