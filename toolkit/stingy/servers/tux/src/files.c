/* Open files shared by all requests: a table of the most recent ones, checked again after a second. */
#define _GNU_SOURCE
#include "tux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRUSTED_MS = 1000 };

static unsigned slot_of(const char *path) {
    uint32_t hash = 2166136261u;
    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * 16777619u;
    return hash % FILE_SLOTS;
}

static void file_delete(struct tux_file *file) {
    close(file->fd);
    free(file->path);
    free(file);
}

void tux_release_file(struct tux_file *file) {
    if (--file->users == 0 && !file->is_cached)
        file_delete(file);
}

static void forget(struct tux_file **slot) {
    if (!*slot)
        return;
    (*slot)->is_cached = false;
    if ((*slot)->users == 0)
        file_delete(*slot);
    *slot = NULL;
}

void tux_forget_files(struct tux_thread *thread) {
    for (unsigned i = 0; i < FILE_SLOTS; i++)
        forget(&thread->files[i]);
}

static bool is_unchanged(const struct tux_file *file, const struct stat *now) {
    return file->inode == now->st_ino && file->bytes == now->st_size && file->modified == now->st_mtime;
}

struct tux_file *tux_open_file(struct tux_thread *thread, const char *path) {
    struct tux_file **slot = &thread->files[slot_of(path)], *file = *slot;
    struct stat status;
    if (file && strcmp(file->path, path) == 0) {
        if (thread->now_ms - file->checked_ms < TRUSTED_MS ||
            (fstatat(thread->documents, path, &status, 0) == 0 && is_unchanged(file, &status))) {
            if (thread->now_ms - file->checked_ms >= TRUSTED_MS)
                file->checked_ms = thread->now_ms;
            file->users++;
            return file;
        }
    }
    /* O_NONBLOCK: a FIFO must not stop the server. */
    int fd = openat(thread->documents, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EACCES;
        int why = errno;
        close(fd);
        errno = why;
        return NULL;
    }
    file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        close(fd);
        errno = ENOMEM;
        return NULL;
    }
    file->fd = fd, file->users = 1, file->bytes = status.st_size, file->modified = status.st_mtime,
    file->inode = status.st_ino;
    file->checked_ms = thread->now_ms;
    file->is_cached = true;
    forget(slot);
    *slot = file;
    return file;
}

const char *tux_type(const char *path) {
    static const struct {
        const char *suffix, *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".htm", "text/html; charset=utf-8"},
        {".txt", "text/plain; charset=utf-8"},
        {".css", "text/css"},
        {".js", "text/javascript"},
        {".json", "application/json"},
        {".png", "image/png"},
        {".jpg", "image/jpeg"},
        {".jpeg", "image/jpeg"},
        {".gif", "image/gif"},
        {".svg", "image/svg+xml"},
    };
    size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t suffix = strlen(types[i].suffix);
        if (bytes > suffix && strcmp(path + bytes - suffix, types[i].suffix) == 0)
            return types[i].type;
    }
    return "application/octet-stream";
}
