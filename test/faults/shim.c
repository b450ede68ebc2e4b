/*
 * A disk that fails on demand, for one process (LD_PRELOAD). test/faults/Disk.ts compiles and drives it.
 *
 * It looks at calls on the directory FAULT_DIRECTORY and on its files. The file FAULT_RULES says what goes wrong,
 * one rule a line, all fields separated by one blank:
 *
 *   CALL ERRNO SKIP TIMES PATTERN
 *
 *   CALL     a name from the list below, or * for any
 *   ERRNO    the number that the call fails with; or a word:
 *            hang  the call waits until the rules change, and then continues
 *            lose  for flush: EIO, and what was written since the last flush is gone, as after an error that made the
 *                  kernel drop dirty pages
 *   SKIP     so many calls that match go through first
 *   TIMES    so many of the next ones fail, -1 for all
 *   PATTERN  of the whole path, as for fnmatch(3) without flags: * also stands for slashes
 *
 * The first rule that matches and still has calls to skip or to fail decides.
 *
 * Calls: open create read write flush truncate stat lock map close unlink rename mkdir access chmod readlink list.
 * `create` is an open that would make the file. 64-bit, at-offset and vectored variants have the name of the plain one,
 * fsync and fdatasync are `flush`, all forms of stat are `stat`, fcntl locks are `lock`, mmap is `map`.
 *
 * FAULT_STATE is a file of 32-bit words in the machine's byte order, which the test reads and writes at the same time:
 *
 *   0   changes whenever the rules do, after them
 *   1   how many calls have failed or hung
 *   2+  how many calls of each name there were, in the order of the list above
 *
 * With FAULT_LOG each call is written there as a line "CALL PATH" before it is made.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define HANG (-1)
#define LOSE (-2)
#define MOST_RULES 256
#define LONGEST_PATH 1024

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

struct rule {
  char call[16];
  int fault;
  long skip;
  long times;
  char pattern[LONGEST_PATH];
};

struct unflushed {
  struct unflushed *older;
  char path[LONGEST_PATH];
  off_t offset;
  size_t length;
  ssize_t known;
  char before[];
};

struct state {
  _Atomic uint32_t generation, injected, seen[30];
};

/* The order is that of `calls` in Disk.ts. */
static const char *const names[] = {"open",  "create", "read",   "write", "flush",  "truncate", "stat",     "lock", "map",
                                    "close", "unlink", "rename", "mkdir", "access", "chmod",    "readlink", "list", NULL};

static struct state *state;
static const char *directory;
static const char *rules_file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[MOST_RULES];
static int count;
static uint32_t generation;
static struct unflushed *newest;

/* Direct system calls that bypass the functions that this file replaces. */
static int raw_open(const char *path, int flags, int mode) {
  return syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

__attribute__((constructor)) static void begin(void) {
  const char *file = getenv("FAULT_STATE");
  if (file == NULL) return;
  int descriptor = raw_open(file, O_RDWR, 0);
  if (descriptor < 0) return;
  void *memory =
      (void *)syscall(SYS_mmap, NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  syscall(SYS_close, descriptor);
  if (memory == MAP_FAILED) return;
  directory = getenv("FAULT_DIRECTORY");
  rules_file = getenv("FAULT_RULES");
  state = memory;
}

/* Reads the rules again if they have changed; otherwise the counts stay. Under the mutex. */
static void load(void) {
  static char text[MOST_RULES * 256];
  uint32_t now = atomic_load(&state->generation);
  if (now == generation) return;
  int descriptor = raw_open(rules_file, O_RDONLY, 0);
  if (descriptor < 0) return;
  size_t length = 0;
  for (;;) {
    long got = syscall(SYS_read, descriptor, text + length, sizeof text - 1 - length);
    if (got <= 0) break;
    length += got;
  }
  syscall(SYS_close, descriptor);
  text[length] = 0;
  char *rest = text;
  char *line;
  generation = now;
  count = 0;
  while (count < MOST_RULES && (line = strsep(&rest, "\n")) != NULL && *line != 0) {
    struct rule *rule = &rules[count];
    char fault[16];
    if (sscanf(line, "%15s %15s %ld %ld %1023[^\n]", rule->call, fault, &rule->skip, &rule->times, rule->pattern) != 5)
      abort();
    rule->fault = strcmp(fault, "hang") == 0 ? HANG : strcmp(fault, "lose") == 0 ? LOSE : atoi(fault);
    count++;
  }
}

static void record(const char *call, const char *path) {
  static int descriptor = -1;
  const char *file = getenv("FAULT_LOG");
  if (file == NULL) return;
  if (descriptor < 0) descriptor = raw_open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  char line[LONGEST_PATH + 32];
  int length = snprintf(line, sizeof line, "%s %s\n", call, path);
  if (length > 0) syscall(SYS_write, descriptor, line, length);
}

static int is_watched(const char *path) {
  if (state == NULL) return 0;
  size_t length = strlen(directory);
  return strncmp(path, directory, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static void count_call(const char *call) {
  for (int i = 0; names[i] != NULL; i++) {
    if (strcmp(names[i], call) == 0) atomic_fetch_add(&state->seen[i], 1);
  }
}

/* What is to go wrong with a call on a watched path: an error number, LOSE, or 0 for nothing. A hang is over then. */
static int fault_of(const char *call, const char *path) {
  int saved = errno;
  int fault = 0;
  pthread_mutex_lock(&mutex);
  count_call(call);
  record(call, path);
  load();
  for (int i = 0; i < count; i++) {
    struct rule *rule = &rules[i];
    if (strcmp(rule->call, "*") != 0 && strcmp(rule->call, call) != 0) continue;
    if (fnmatch(rule->pattern, path, 0) != 0) continue;
    if (rule->skip > 0) {
      rule->skip--;
      break;
    }
    if (rule->times == 0) continue;
    if (rule->times > 0) rule->times--;
    fault = rule->fault;
    break;
  }
  if (fault != 0) atomic_fetch_add(&state->injected, 1);
  for (uint32_t begun = generation; fault == HANG;) {
    pthread_mutex_unlock(&mutex);
    usleep(2000);
    pthread_mutex_lock(&mutex);
    load();
    if (generation != begun) fault = 0;
  }
  pthread_mutex_unlock(&mutex);
  errno = saved;
  return fault;
}

/* The path of a descriptor of a watched file goes to `path`. */
static int path_of(int descriptor, char path[LONGEST_PATH]) {
  char link[64];
  if (state == NULL) return 0;
  int saved = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, LONGEST_PATH - 1);
  errno = saved;
  if (length < 0) return 0;
  path[length] = 0;
  return is_watched(path);
}

/* Whether a call must fail, with errno set. Losing is for flushes only. */
static int fails(const char *call, const char *path) {
  int fault = fault_of(call, path);
  if (fault == 0) return 0;
  errno = fault == LOSE ? EIO : fault;
  return 1;
}

static int fails_at(const char *call, int descriptor) {
  char path[LONGEST_PATH];
  return path_of(descriptor, path) && fails(call, path);
}

static int fails_for(const char *call, const char *path) {
  char whole[LONGEST_PATH];
  if (path == NULL || state == NULL) return 0;
  if (path[0] != '/') {
    if (getcwd(whole, sizeof whole) == NULL) return 0;
    size_t length = strlen(whole);
    snprintf(whole + length, sizeof whole - length, "/%s", path);
    path = whole;
  }
  return is_watched(path) && fails(call, path);
}

static void remember(int descriptor, const char *path, size_t length, off_t offset) {
  struct unflushed *one = malloc(sizeof *one + length);
  if (one == NULL) abort();
  strcpy(one->path, path);
  one->offset = offset;
  one->length = length;
  one->known = syscall(SYS_pread64, descriptor, one->before, length, offset);
  pthread_mutex_lock(&mutex);
  one->older = newest;
  newest = one;
  pthread_mutex_unlock(&mutex);
}

/* Forgets what was written to a file since its last flush, or undoes it, the newest first. */
static void settle(int descriptor, const char *path, int undo) {
  pthread_mutex_lock(&mutex);
  for (struct unflushed **link = &newest; *link != NULL;) {
    struct unflushed *one = *link;
    if (strcmp(one->path, path) != 0) {
      link = &one->older;
      continue;
    }
    if (undo) {
      size_t known = one->known > 0 ? (size_t)one->known : 0;
      memset(one->before + known, 0, one->length - known);
      if (syscall(SYS_pwrite64, descriptor, one->before, one->length, one->offset) < 0) abort();
    }
    *link = one->older;
    free(one);
  }
  pthread_mutex_unlock(&mutex);
}

/* Whether a write must fail; otherwise it is noted. */
static int refuses(int descriptor, size_t length, off_t offset) {
  char path[LONGEST_PATH];
  if (!path_of(descriptor, path)) return 0;
  if (fails("write", path)) return 1;
  if (offset >= 0) remember(descriptor, path, length, offset);
  return 0;
}

static int flush(int descriptor, int (*real)(int)) {
  char path[LONGEST_PATH];
  if (!path_of(descriptor, path)) return real(descriptor);
  int fault = fault_of("flush", path);
  if (fault != 0) {
    if (fault == LOSE) settle(descriptor, path, 1);
    errno = fault == LOSE ? EIO : fault;
    return -1;
  }
  settle(descriptor, path, 0);
  return real(descriptor);
}

static const char *opening(const char *path, int flags) {
  if (state == NULL) return "open";
  return (flags & O_CREAT) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0 ? "create" : "open";
}

#define OPEN(name)                                              \
  int name(const char *path, int flags, ...) {                  \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
    va_end(rest);                                               \
    return fails_for(opening(path, flags), path) ? -1 : REAL(name)(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

ssize_t read(int descriptor, void *bytes, size_t length) {
  return fails_at("read", descriptor) ? -1 : REAL(read)(descriptor, bytes, length);
}

ssize_t pread(int descriptor, void *bytes, size_t length, off_t offset) {
  return fails_at("read", descriptor) ? -1 : REAL(pread)(descriptor, bytes, length, offset);
}

ssize_t pread64(int descriptor, void *bytes, size_t length, off64_t offset) {
  return fails_at("read", descriptor) ? -1 : REAL(pread64)(descriptor, bytes, length, offset);
}

ssize_t readv(int descriptor, const struct iovec *parts, int many) {
  return fails_at("read", descriptor) ? -1 : REAL(readv)(descriptor, parts, many);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
  return refuses(descriptor, length, lseek(descriptor, 0, SEEK_CUR)) ? -1 : REAL(write)(descriptor, bytes, length);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t offset) {
  return refuses(descriptor, length, offset) ? -1 : REAL(pwrite)(descriptor, bytes, length, offset);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t offset) {
  return refuses(descriptor, length, offset) ? -1 : REAL(pwrite64)(descriptor, bytes, length, offset);
}

ssize_t writev(int descriptor, const struct iovec *parts, int many) {
  return fails_at("write", descriptor) ? -1 : REAL(writev)(descriptor, parts, many);
}

int fsync(int descriptor) { return flush(descriptor, REAL(fsync)); }

int fdatasync(int descriptor) { return flush(descriptor, REAL(fdatasync)); }

int ftruncate(int descriptor, off_t length) {
  return fails_at("truncate", descriptor) ? -1 : REAL(ftruncate)(descriptor, length);
}

int ftruncate64(int descriptor, off64_t length) {
  return fails_at("truncate", descriptor) ? -1 : REAL(ftruncate64)(descriptor, length);
}

int stat(const char *path, struct stat *found) { return fails_for("stat", path) ? -1 : REAL(stat)(path, found); }

int stat64(const char *path, struct stat64 *found) { return fails_for("stat", path) ? -1 : REAL(stat64)(path, found); }

int lstat(const char *path, struct stat *found) { return fails_for("stat", path) ? -1 : REAL(lstat)(path, found); }

int lstat64(const char *path, struct stat64 *found) {
  return fails_for("stat", path) ? -1 : REAL(lstat64)(path, found);
}

int fstat(int descriptor, struct stat *found) {
  return fails_at("stat", descriptor) ? -1 : REAL(fstat)(descriptor, found);
}

int fstat64(int descriptor, struct stat64 *found) {
  return fails_at("stat", descriptor) ? -1 : REAL(fstat64)(descriptor, found);
}

/* What programs call that were linked with an older C library. */
int __xstat64(int version, const char *path, struct stat64 *found);
int __lxstat64(int version, const char *path, struct stat64 *found);
int __fxstat64(int version, int descriptor, struct stat64 *found);
int __xstat64(int version, const char *path, struct stat64 *found) {
  return fails_for("stat", path) ? -1 : REAL(__xstat64)(version, path, found);
}
int __lxstat64(int version, const char *path, struct stat64 *found) {
  return fails_for("stat", path) ? -1 : REAL(__lxstat64)(version, path, found);
}
int __fxstat64(int version, int descriptor, struct stat64 *found) {
  return fails_at("stat", descriptor) ? -1 : REAL(__fxstat64)(version, descriptor, found);
}

/* libuv makes its statx by way of this. */
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  va_list rest;
  va_start(rest, number);
  long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
  long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_statx) {
    const char *path = (const char *)b;
    if (path != NULL && *path != 0 ? fails_for("stat", path) : fails_at("stat", (int)a)) return -1;
  }
  return real(number, a, b, c, d, e, f);
}

#define LOCK(name)                                              \
  int name(int descriptor, int command, ...) {                  \
    va_list rest;                                               \
    va_start(rest, command);                                    \
    void *argument = va_arg(rest, void *);                      \
    va_end(rest);                                               \
    int locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK; \
    return locks && fails_at("lock", descriptor) ? -1 : REAL(name)(descriptor, command, argument); \
  }
LOCK(fcntl)
LOCK(fcntl64)

void *mmap(void *at, size_t length, int protection, int flags, int descriptor, off_t offset) {
  if (descriptor >= 0 && fails_at("map", descriptor)) return MAP_FAILED;
  return REAL(mmap)(at, length, protection, flags, descriptor, offset);
}

void *mmap64(void *at, size_t length, int protection, int flags, int descriptor, off64_t offset) {
  if (descriptor >= 0 && fails_at("map", descriptor)) return MAP_FAILED;
  return REAL(mmap64)(at, length, protection, flags, descriptor, offset);
}

/* The descriptor is gone all the same, as it is in Linux. */
int close(int descriptor) {
  int failed = fails_at("close", descriptor);
  int saved = errno;
  int result = REAL(close)(descriptor);
  if (!failed) return result;
  errno = saved;
  return -1;
}

int unlink(const char *path) { return fails_for("unlink", path) ? -1 : REAL(unlink)(path); }

int rename(const char *from, const char *to) {
  return fails_for("rename", from) || fails_for("rename", to) ? -1 : REAL(rename)(from, to);
}

int mkdir(const char *path, mode_t mode) { return fails_for("mkdir", path) ? -1 : REAL(mkdir)(path, mode); }

int access(const char *path, int mode) { return fails_for("access", path) ? -1 : REAL(access)(path, mode); }

int chmod(const char *path, mode_t mode) { return fails_for("chmod", path) ? -1 : REAL(chmod)(path, mode); }

int fchmod(int descriptor, mode_t mode) {
  return fails_at("chmod", descriptor) ? -1 : REAL(fchmod)(descriptor, mode);
}

ssize_t readlink(const char *path, char *target, size_t size) {
  return fails_for("readlink", path) ? -1 : REAL(readlink)(path, target, size);
}

DIR *opendir(const char *path) { return fails_for("list", path) ? NULL : REAL(opendir)(path); }

int scandir64(const char *path, struct dirent64 ***names, int (*choose)(const struct dirent64 *),
              int (*compare)(const struct dirent64 **, const struct dirent64 **)) {
  return fails_for("list", path) ? -1 : REAL(scandir64)(path, names, choose, compare);
}
