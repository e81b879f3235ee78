#include "host/commands/cli.hpp"

int main(int argc, char** argv) { return galley::run_program({argv + 1, argv + argc}); }
