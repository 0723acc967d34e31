/* A wall clock that is as many seconds off as the file says whose name is in TEST_CLOCK_SECONDS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

typedef int (*clock_fn)(clockid_t, struct timespec *);

static clock_fn real;
static const volatile int64_t *seconds;

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("TEST_CLOCK_SECONDS");
    int fd = file ? open(file, O_RDONLY) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        seconds = mapped;
    real = (clock_fn)dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real)
        real = (clock_fn)dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && seconds && clock == CLOCK_REALTIME)
        now->tv_sec += *seconds;
    return result;
}
