/* What a power cut would leave, what the wall clock says, and which boot this is. Preloaded into the workers of the test `power`.
 *
 * The model: POSIX and nothing more, but that the disk does not lie.
 *  - A file keeps what was in it when a successful fsync or fdatasync of it began: read before the real call through the very
 *    descriptor (another one's close would drop SQLite's POSIX locks, SAFETY E4a), put in place after it. Of two that sync one
 *    file the later reading stays: a lock covers reading, syncing and putting in place.
 *  - Whatever was written since may be there or not, sector by sector, in any order; the length of a file that has grown lies
 *    anywhere between the two. One that was cut short is that short, or as long as it was: its length is one number, which file
 *    systems with a journal (ext4, XFS) write in one piece. SQLite takes that for granted where it empties its log without a sync
 *    (wal_checkpoint(TRUNCATE)): the first half of a log that is in the database already would be an older state of half of it.
 *    That is the test's part (disk.rs). Of a sector written twice since, only the last writing can survive here, not the first.
 *  - A name is on the disk when its folder was synced while it was there. A file that was made since may be gone, also when it
 *    was synced itself; one that was removed since may be back as it was last synced. Files are known by inode, so a file that
 *    was made again under an old name shares nothing with the old one.
 *  - O_SYNC, msync, sync_file_range, sync and syncfs make nothing durable here: neither we nor SQLite rely on them.
 *
 * The test tells, in the environment:
 *  FENCELOCK_POWER_DISK    the folder that loses power; nothing outside is recorded
 *  FENCELOCK_POWER_SHADOW  where the synced state is kept: INODE for a file, INODE.d for a folder ("inode type name" in lines)
 *  FENCELOCK_POWER_HOST    boot_id and timens_offsets are read from there; `clock` has 8 bytes, ns added to the wall clock
 *  FENCELOCK_POWER_LIES    if set, fsync succeeds and nothing is recorded: the control, which must be seen
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int open_fn(const char *, int, ...);
typedef int openat_fn(int, const char *, int, ...);
typedef int sync_fn(int);
typedef int clock_fn(clockid_t, struct timespec *);

/* Set before main and never again, so threads only read them. */
static const char *disk, *shadow, *host, *lies;
static volatile const int64_t *ahead;
static open_fn *real_open, *real_open64;
static openat_fn *real_openat, *real_openat64;
static sync_fn *real_fsync, *real_fdatasync;
static clock_fn *real_clock;

static void die(const char *what) {
    fprintf(stderr, "the power shim: %s: %s\n", what, strerror(errno));
    abort();
}
static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) die(name);
    return found;
}
static void resolve(void) {
    *(void **)&real_open = real("open");
    *(void **)&real_open64 = real("open64");
    *(void **)&real_openat = real("openat");
    *(void **)&real_openat64 = real("openat64");
    *(void **)&real_fsync = real("fsync");
    *(void **)&real_fdatasync = real("fdatasync");
    *(void **)&real_clock = real("clock_gettime");
}
__attribute__((constructor)) static void start(void) {
    resolve();
    disk = getenv("FENCELOCK_POWER_DISK");
    shadow = getenv("FENCELOCK_POWER_SHADOW");
    host = getenv("FENCELOCK_POWER_HOST");
    lies = getenv("FENCELOCK_POWER_LIES");
    if (!host) return;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/clock", host);
    int fd = real_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(path);
    void *map = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) die("mmap");
    close(fd);
    ahead = map;
}

/* ---- the wall clock ---- */

static int64_t offset(void) { return ahead ? *ahead : 0; }

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_clock) resolve();
    int failed = real_clock(clock, at);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ns = at->tv_sec * INT64_C(1000000000) + at->tv_nsec + offset();
    if (ns < 0) ns = 0;
    at->tv_sec = ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
    return 0;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return failed;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* ---- the boot ---- */

static const char *redirect(const char *path, char *buffer) {
    if (!host || !path) return path;
    const char *name = strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? "boot_id"
                       : strcmp(path, "/proc/self/timens_offsets") == 0     ? "timens_offsets"
                                                                            : NULL;
    if (!name) return path;
    snprintf(buffer, PATH_MAX, "%s/%s", host, name);
    return buffer;
}
#define MODE                                        \
    mode_t mode = 0;                                \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list more;                               \
        va_start(more, flags);                      \
        mode = va_arg(more, mode_t);                \
        va_end(more);                               \
    }                                               \
    char buffer[PATH_MAX];                          \
    if (!real_open) resolve();

int open(const char *path, int flags, ...) {
    MODE return real_open(redirect(path, buffer), flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE return real_open64(redirect(path, buffer), flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE return real_openat(at, redirect(path, buffer), flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE return real_openat64(at, redirect(path, buffer), flags, mode);
}

/* ---- the disk ---- */

static void put(int out, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(out, bytes, n);
        if (done < 0 && errno != EINTR) die("write");
        if (done > 0) bytes += done, n -= (size_t)done;
    }
}
static void keep_file(int fd, int out) {
    char bytes[65536];
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, bytes, sizeof bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) die("pread");
        if (n == 0) return;
        put(out, bytes, (size_t)n);
        at += n;
    }
}
static void keep_folder(int fd, int out) {
    int again = real_openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    if (!folder) die("a folder");
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        char line[PATH_MAX];
        char type = entry->d_type == DT_REG ? 'f' : entry->d_type == DT_DIR ? 'd' : 'o';
        int n = snprintf(line, sizeof line, "%ju %c %s\n", (uintmax_t)entry->d_ino, type, entry->d_name);
        put(out, line, (size_t)n);
    }
    closedir(folder);
}
/* What loses power: whether this descriptor is part of it. */
static int is_ours(int fd, struct stat *meta) {
    if (!disk || fstat(fd, meta) || !(S_ISREG(meta->st_mode) || S_ISDIR(meta->st_mode))) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    size_t length = strlen(disk);
    return !strncmp(path, disk, length) && (path[length] == 0 || path[length] == '/');
}
static int keep(int fd, sync_fn *sync) {
    struct stat meta;
    if (lies) return 0;
    if (!is_ours(fd, &meta)) return sync(fd);
    char path[PATH_MAX], unfinished[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/lock", shadow);
    int lock = real_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0) die(path);
    while (flock(lock, LOCK_EX))
        if (errno != EINTR) die("flock");
    snprintf(path, sizeof path, "%s/%ju%s", shadow, (uintmax_t)meta.st_ino, S_ISDIR(meta.st_mode) ? ".d" : "");
    snprintf(unfinished, sizeof unfinished, "%s.new", path);
    int out = real_open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0) die(unfinished);
    S_ISDIR(meta.st_mode) ? keep_folder(fd, out) : keep_file(fd, out);
    close(out);
    int failed = sync(fd), why = errno;
    if (failed) unlink(unfinished);
    else if (rename(unfinished, path)) die(path);
    close(lock);
    errno = why;
    return failed;
}
int fsync(int fd) {
    if (!real_fsync) resolve();
    return keep(fd, real_fsync);
}
int fdatasync(int fd) {
    if (!real_fdatasync) resolve();
    return keep(fd, real_fdatasync);
}
