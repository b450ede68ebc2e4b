/*
 * Lets system calls on the files under one directory fail, for one process (LD_PRELOAD).
 *
 * FAULT_DIRECTORY is the directory. FAULT_PLAN is a file of 32-bit words in the machine's byte order, which the test
 * reads and writes while the process runs:
 *
 *   0  kinds: a bit for each kind of call that is to fail; 0 while the disk is sound
 *   1  skip: how many calls of these kinds succeed first; it counts down
 *   2  count: how many calls fail then; it counts down, except from 0xffffffff
 *   3  error: the errno, or 0 for a call that hangs until `kinds` is 0
 *   4  injected: how many calls have failed or hung
 *   5  hanging: how many calls hang now
 *   8+ seen: how many calls of each kind there were
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The order is that of `kinds` in SystemCalls.ts. */
enum kind { OPEN, STAT, ACCESS, READ, WRITE, SYNC, TRUNCATE, LOCK, MAP, UNLINK, MKDIR, CHMOD, READLINK, OPENDIR };

struct plan {
  _Atomic uint32_t kinds, skip, count, error, injected, hanging, reserved[2], seen[24];
};

static struct plan *plan;
static char directory[PATH_MAX];
static size_t directory_length;

/* Calls go to the kernel directly where this library itself needs one of those that it stands in for. */
__attribute__((constructor)) static void begin(void) {
  const char *files = getenv("FAULT_DIRECTORY");
  const char *file = getenv("FAULT_PLAN");
  if (files == NULL || file == NULL) return;
  int descriptor = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR, 0);
  if (descriptor < 0) return;
  void *memory =
      (void *)syscall(SYS_mmap, NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  syscall(SYS_close, descriptor);
  if (memory == MAP_FAILED) return;
  snprintf(directory, sizeof directory, "%s", files);
  directory_length = strlen(directory);
  plan = memory;
}

static int is_under(const char *path) {
  if (plan == NULL || path == NULL || strncmp(path, directory, directory_length) != 0) return 0;
  return path[directory_length] == 0 || path[directory_length] == '/';
}

static int is_open_under(int descriptor) {
  char link[64], path[PATH_MAX];
  if (plan == NULL || descriptor < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return is_under(path);
}

/* Takes one from a counter unless it is 0; an infinite one stays. */
static int take(_Atomic uint32_t *counter) {
  uint32_t left = atomic_load(counter);
  while (left != 0) {
    if (left == UINT32_MAX) return 1;
    if (atomic_compare_exchange_weak(counter, &left, left - 1)) return 1;
  }
  return 0;
}

/* Whether a call of this kind on a file of ours must fail; errno is set then. It may hang first. */
static int fails(enum kind kind) {
  atomic_fetch_add(&plan->seen[kind], 1);
  if ((atomic_load(&plan->kinds) & (1u << kind)) == 0) return 0;
  if (take(&plan->skip) || !take(&plan->count)) return 0;
  atomic_fetch_add(&plan->injected, 1);
  uint32_t error = atomic_load(&plan->error);
  if (error != 0) {
    errno = (int)error;
    return 1;
  }
  atomic_fetch_add(&plan->hanging, 1);
  while (atomic_load(&plan->kinds) != 0) usleep(2000);
  atomic_fetch_sub(&plan->hanging, 1);
  return 0;
}

#define ON_PATH(kind, path) (is_under(path) && fails(kind))
#define ON_FILE(kind, descriptor) (is_open_under(descriptor) && fails(kind))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

int open64(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return ON_PATH(OPEN, path) ? -1 : REAL(open64)(path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return ON_PATH(OPEN, path) ? -1 : REAL(open)(path, flags, mode);
}

int stat64(const char *path, struct stat64 *to) { return ON_PATH(STAT, path) ? -1 : REAL(stat64)(path, to); }
int lstat64(const char *path, struct stat64 *to) { return ON_PATH(STAT, path) ? -1 : REAL(lstat64)(path, to); }
int fstat64(int file, struct stat64 *to) { return ON_FILE(STAT, file) ? -1 : REAL(fstat64)(file, to); }

/* What programs call that were linked with an older C library. */
int __xstat64(int version, const char *path, struct stat64 *to);
int __lxstat64(int version, const char *path, struct stat64 *to);
int __fxstat64(int version, int file, struct stat64 *to);
int __xstat64(int version, const char *path, struct stat64 *to) {
  return ON_PATH(STAT, path) ? -1 : REAL(__xstat64)(version, path, to);
}
int __lxstat64(int version, const char *path, struct stat64 *to) {
  return ON_PATH(STAT, path) ? -1 : REAL(__lxstat64)(version, path, to);
}
int __fxstat64(int version, int file, struct stat64 *to) {
  return ON_FILE(STAT, file) ? -1 : REAL(__fxstat64)(version, file, to);
}

/* libuv asks for `statx` in this way. */
long syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  long a = va_arg(arguments, long), b = va_arg(arguments, long), c = va_arg(arguments, long);
  long d = va_arg(arguments, long), e = va_arg(arguments, long), f = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_statx && plan != NULL) {
    const char *path = (const char *)b;
    int is_ours = path != NULL && path[0] != 0 ? is_under(path) : is_open_under((int)a);
    if (is_ours && fails(STAT)) return -1;
  }
  return REAL(syscall)(number, a, b, c, d, e, f);
}

int access(const char *path, int mode) { return ON_PATH(ACCESS, path) ? -1 : REAL(access)(path, mode); }

ssize_t read(int file, void *to, size_t length) { return ON_FILE(READ, file) ? -1 : REAL(read)(file, to, length); }
ssize_t pread64(int file, void *to, size_t length, off64_t offset) {
  return ON_FILE(READ, file) ? -1 : REAL(pread64)(file, to, length, offset);
}

ssize_t write(int file, const void *from, size_t length) {
  return ON_FILE(WRITE, file) ? -1 : REAL(write)(file, from, length);
}
ssize_t pwrite64(int file, const void *from, size_t length, off64_t offset) {
  return ON_FILE(WRITE, file) ? -1 : REAL(pwrite64)(file, from, length, offset);
}

int fsync(int file) { return ON_FILE(SYNC, file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return ON_FILE(SYNC, file) ? -1 : REAL(fdatasync)(file); }
int ftruncate64(int file, off64_t length) { return ON_FILE(TRUNCATE, file) ? -1 : REAL(ftruncate64)(file, length); }

static int is_lock(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK;
}

int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  return is_lock(command) && ON_FILE(LOCK, file) ? -1 : REAL(fcntl64)(file, command, argument);
}

void *mmap64(void *at, size_t length, int protection, int flags, int file, off64_t offset) {
  if (ON_FILE(MAP, file)) return MAP_FAILED;
  return REAL(mmap64)(at, length, protection, flags, file, offset);
}

int unlink(const char *path) { return ON_PATH(UNLINK, path) ? -1 : REAL(unlink)(path); }
int mkdir(const char *path, mode_t mode) { return ON_PATH(MKDIR, path) ? -1 : REAL(mkdir)(path, mode); }
int chmod(const char *path, mode_t mode) { return ON_PATH(CHMOD, path) ? -1 : REAL(chmod)(path, mode); }
int fchmod(int file, mode_t mode) { return ON_FILE(CHMOD, file) ? -1 : REAL(fchmod)(file, mode); }
ssize_t readlink(const char *path, char *to, size_t length) {
  return ON_PATH(READLINK, path) ? -1 : REAL(readlink)(path, to, length);
}
DIR *opendir(const char *path) { return ON_PATH(OPENDIR, path) ? NULL : REAL(opendir)(path); }
