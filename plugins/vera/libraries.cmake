include(${PROJECT_SOURCE_DIR}/plugins/peft/sources.cmake)
