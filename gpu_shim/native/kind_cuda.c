/* The driver library that this one shadows. */
#include "driver.h"

const struct driver_kind driver_kind = {
    .soname = "libcuda.so.1", .plain_name = "libcuda.so", .no_driver = 100, .no_function = 500};
