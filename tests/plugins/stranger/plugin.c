/* A plugin that provides nothing: what matters is how it is built. */
#include "galley/galley.h"

/* Not static, to see that it is not exported either. */
extern const char* const stranger_id;
const char* const stranger_id = "stranger";

GALLEY_PUBLIC extern const galley_entry galley_entry_v1;
const galley_entry galley_entry_v1 = {
    .size = sizeof(galley_entry),
    .revision = 1,
    .abi_major = GALLEY_ABI_MAJOR,
    .abi_minor = GALLEY_ABI_MINOR,
    .id = "stranger",
    .version = "0.1.0",
};
