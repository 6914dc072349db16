/* A wall clock that a test sets: what the server reads is off by the number of µs in a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic long long *offset;

__attribute__((constructor)) static void start(void) {
  const char *file = getenv("FENCELOCK_CLOCK");
  int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) offset = page;
  close(fd);
}
static long long shift(long long micros) { return offset ? micros + atomic_load(offset) : micros; }

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  static int (*real)(struct timeval *restrict, void *restrict);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int end = real(tv, zone);
  if (end == 0) {
    long long micros = shift(tv->tv_sec * 1000000LL + tv->tv_usec);
    tv->tv_sec = micros / 1000000;
    tv->tv_usec = micros % 1000000;
  }
  return end;
}
int clock_gettime(clockid_t id, struct timespec *ts) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int end = real(id, ts);
  if (end == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    long long micros = shift(ts->tv_sec * 1000000LL + ts->tv_nsec / 1000);
    ts->tv_nsec = micros % 1000000 * 1000 + ts->tv_nsec % 1000;
    ts->tv_sec = micros / 1000000;
  }
  return end;
}
time_t time(time_t *out) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (out) *out = ts.tv_sec;
  return ts.tv_sec;
}
/* Whoever waits until some time of this clock waits by the right one; what counts from the start of the machine is far below. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
  static int (*real)(pthread_cond_t *restrict, pthread_mutex_t *restrict, const struct timespec *restrict);
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec right = *until;
  if (offset && right.tv_sec > 1000000000) {
    long long micros = right.tv_sec * 1000000LL + right.tv_nsec / 1000 - atomic_load(offset);
    right.tv_nsec = micros % 1000000 * 1000 + right.tv_nsec % 1000;
    right.tv_sec = micros / 1000000;
  }
  return real(cond, mutex, &right);
}
