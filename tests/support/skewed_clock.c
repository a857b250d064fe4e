/* Preloaded into a server, it makes the server's clock of the day differ by so many microseconds
 * as the file WEIR_TEST_SKEW_FILE holds, eight bytes that may change at any time. Clocks that only
 * measure spans are left as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long skewed_micros(void) {
    static const volatile long long *skew;
    struct timespec now;
    if (!skew) {
        int file = open(getenv("WEIR_TEST_SKEW_FILE"), O_RDONLY);
        void *mapped = mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, file, 0);
        if (file < 0 || mapped == MAP_FAILED)
            abort();
        close(file);
        skew = mapped;
    }
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000 + *skew;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    long long now = skewed_micros();
    (void)zone;
    tv->tv_sec = now / 1000000;
    tv->tv_usec = now % 1000000;
    return 0;
}

time_t time(time_t *seconds) {
    time_t now = skewed_micros() / 1000000;
    if (seconds)
        *seconds = now;
    return now;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (id != CLOCK_REALTIME)
        return syscall(SYS_clock_gettime, id, now);
    long long micros = skewed_micros();
    now->tv_sec = micros / 1000000;
    now->tv_nsec = micros % 1000000 * 1000;
    return 0;
}
