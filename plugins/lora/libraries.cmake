include(${PROJECT_SOURCE_DIR}/plugins/peft/library.cmake)
