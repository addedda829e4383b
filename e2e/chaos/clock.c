/* Preloaded into a node: its wall clock and its clock that counts sleep are wrong by what a shared file says.
 * The file holds two little-endian 64-bit numbers, nanoseconds: wall clock, CLOCK_BOOTTIME. It may change at any time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *wrong;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) wrong = page;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!real_clock_gettime) begin();
    int failed = real_clock_gettime(id, now);
    if (failed || !wrong) return failed;
    int64_t by = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? wrong[0] : id == CLOCK_BOOTTIME ? wrong[1] : 0;
    int64_t nanos = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + by;
    now->tv_sec = nanos / INT64_C(1000000000);
    now->tv_nsec = nanos % INT64_C(1000000000);
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at) *at = exact.tv_sec;
    return exact.tv_sec;
}
