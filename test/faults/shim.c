/*
 * A disk that fails on demand, for one process (LD_PRELOAD).
 *
 * Calls on files whose path begins with FAULT_FILES behave as files in the directory FAULT_SWITCHES say:
 *   full   writes fail with ENOSPC
 *   flush  flushes fail with EIO, and what was written since the last flush is gone, as after an error that made the
 *          kernel drop dirty pages
 *   hang   flushes and removals do not come back until the switch is gone
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct unflushed {
  struct unflushed *older;
  char path[512];
  off_t offset;
  size_t length;
  ssize_t known;
  char before[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct unflushed *newest;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_on(const char *name) {
  char path[1024];
  const char *switches = getenv("FAULT_SWITCHES");
  if (switches == NULL) return 0;
  snprintf(path, sizeof path, "%s/%s", switches, name);
  return access(path, F_OK) == 0;
}

/* Whether a descriptor is of a file under the fault; its path goes to `path`. */
static int is_ours(int descriptor, char path[512]) {
  char link[64];
  const char *files = getenv("FAULT_FILES");
  if (files == NULL) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, 511);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, files, strlen(files)) == 0;
}

static void remember(int descriptor, const char *path, size_t length, off_t offset) {
  struct unflushed *one = malloc(sizeof *one + length);
  if (one == NULL) abort();
  strcpy(one->path, path);
  one->offset = offset;
  one->length = length;
  one->known = REAL(pread)(descriptor, one->before, length, offset);
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
      if (REAL(pwrite)(descriptor, one->before, one->length, one->offset) < 0) abort();
    }
    *link = one->older;
    free(one);
  }
  pthread_mutex_unlock(&mutex);
}

/* Whether a write must fail; otherwise it is noted. */
static int refuses(int descriptor, size_t length, off_t offset) {
  char path[512];
  if (!is_ours(descriptor, path)) return 0;
  if (is_on("full")) {
    errno = ENOSPC;
    return 1;
  }
  remember(descriptor, path, length, offset);
  return 0;
}

/* Waits for as long as the disk is to hang. */
static void hang(void) {
  while (is_on("hang")) usleep(5000);
}

static int flush(int descriptor, int (*real)(int)) {
  char path[512];
  if (!is_ours(descriptor, path)) return real(descriptor);
  hang();
  if (is_on("flush")) {
    settle(descriptor, path, 1);
    errno = EIO;
    return -1;
  }
  settle(descriptor, path, 0);
  return real(descriptor);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
  if (refuses(descriptor, length, lseek(descriptor, 0, SEEK_CUR))) return -1;
  return REAL(write)(descriptor, bytes, length);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t offset) {
  return refuses(descriptor, length, offset) ? -1 : REAL(pwrite)(descriptor, bytes, length, offset);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t offset) {
  return refuses(descriptor, length, offset) ? -1 : REAL(pwrite64)(descriptor, bytes, length, offset);
}

int fsync(int descriptor) { return flush(descriptor, REAL(fsync)); }

int fdatasync(int descriptor) { return flush(descriptor, REAL(fdatasync)); }

int unlink(const char *path) {
  const char *files = getenv("FAULT_FILES");
  if (files != NULL && strncmp(path, files, strlen(files)) == 0) hang();
  return REAL(unlink)(path);
}
