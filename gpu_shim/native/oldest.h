/* Included before everything else: links the oldest version of each libc function that has
 * several, so that the libraries load in every image with glibc 2.17 or newer.
 */
#ifndef BALLAST_OLDEST_H
#define BALLAST_OLDEST_H

#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

#define USE_OLDEST(name) __asm__(".symver " #name ", " #name "@" OLDEST)

USE_OLDEST(dladdr);
USE_OLDEST(dlclose);
USE_OLDEST(dlerror);
USE_OLDEST(dlvsym);
USE_OLDEST(pthread_create);
USE_OLDEST(pthread_detach);
USE_OLDEST(pthread_mutex_trylock);
USE_OLDEST(pthread_once);
USE_OLDEST(pthread_sigmask);

#endif
