/* Which driver library this one stands in front of. */
#include "driver.h"

const struct driver_kind driver_kind = {
    .soname = "libcuda.so.1", .plain_name = "libcuda.so", .no_driver = 100, .no_function = 500};
