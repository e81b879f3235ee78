// The small programs of the executor's tests serve here, too.
#include "tests/exec/small.cpp"
