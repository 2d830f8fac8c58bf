/* The compiler and the C library, for lwIP. */
#ifndef TUX_LWIP_ARCH_CC_H
#define TUX_LWIP_ARCH_CC_H

#include <stdio.h>
#include <stdlib.h>

#define LWIP_PLATFORM_ASSERT(text)                  \
    do {                                            \
        fprintf(stderr, "tux: lwIP: %s\n", (text)); \
        abort();                                    \
    } while (0)
#define LWIP_RAND() ((u32_t)random())

#endif
