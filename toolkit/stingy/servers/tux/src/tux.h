/* tux: a static web server with the architecture of TUX, the web server of Linux 2.4: accept first, then run each
 * request's next *atom*, one after another. It is written without tricks, like most servers: memory comes from malloc
 * where it is needed. It is the subject of toolkit/stingy's case study.
 *
 *     accept -> parse -> vhost lookup -> process -> header -> body ----------------------> flush -> (next request)
 *                                           `-> listing: head, entries, tail -> header -> body
 *
 * An atom ends by queueing the next (add_tux_atom), or by waiting for the client (tux_wait).
 */
#ifndef TUX_H
#define TUX_H

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

enum {
    INPUT_BEGIN = 1024,
    INPUT_MOST = 16384, /* largest head of a request */
    TARGET_MOST = 8000,
    LISTING_ENTRIES_A_TURN = 64,
    LISTING_MOST_BYTES = 1 << 20,
};

struct tux_request;
typedef void tux_atom(struct tux_request *req);

struct tux_options {
    const char *address, *documents, *access_log, *user;
    uint16_t port;
    unsigned threads, timeout_s, connections;
    bool has_vhosts;
};

/* An open file, shared by all requests for it. */
struct tux_file {
    char *path;
    int fd;
    unsigned users;
    off_t bytes;
    time_t modified;
    ino_t inode;
    uint64_t checked_ms;
    bool is_cached;
};

enum { FILE_SLOTS = 256 };

struct tux_thread {
    const struct tux_options *options;
    int epoll, listener, documents;
    FILE *log;
    uint64_t now_ms;
    time_t date_s;
    char date[40];
    struct tux_file *files[FILE_SLOTS];
    struct tux_request *work_first, *work_last; /* requests whose next atom is to run */
    struct tux_request *idle_first, *idle_last; /* requests that wait for the client, longest wait first */
    unsigned connections, spare;                /* spare: a descriptor to close when no more are available */
    bool is_listening;
    void *scheduler; /* the state of loop.c */
};

enum tux_method { TUX_GET, TUX_HEAD };
enum tux_wait { TUX_INPUT, TUX_OUTPUT };

/* A connection and its current request. */
struct tux_request {
    struct tux_thread *thread;
    tux_atom *atom; /* the next atom */
    struct tux_request *work_next;
    struct tux_request *idle_previous, *idle_next;
    uint64_t since_ms; /* start of its wait */
    uint64_t began_ms; /* arrival of this request's first byte */
    int fd;
    bool is_queued, is_waiting, is_watched_for_output;

    /* The input has `input_used` bytes; the first `head_bytes` are the head of this request. */
    char *input;
    size_t input_size, input_used, head_bytes;

    /* The request. */
    enum tux_method method;
    uint8_t minor_version;
    bool is_kept, has_body, has_range, is_range_suffix, is_ended_by_client;
    char *target, *host, *path, *none_match;
    time_t modified_since; /* -1: not given */
    off_t range_first, range_last;

    /* The answer. */
    int status;
    const char *type;
    struct tux_file *file;
    off_t body_at, body_end; /* range in the file, or in `body` */
    char *location;
    char *header;
    size_t header_used, header_sent;
    char *body; /* listings and error pages */
    size_t body_size, body_used;
    DIR *directory;
    uint64_t sent_bytes, discarded_bytes;
};

/* loop.c: the order in which atoms run. */
void add_tux_atom(struct tux_request *req, tux_atom *atom);
/* Runs `atom` when the client has sent something, or can receive more. */
void tux_wait(struct tux_request *req, enum tux_wait wait, tux_atom *atom);
/* The answer has been sent and everything but the input is freed: continues with the connection's next request. */
void tux_next_request(struct tux_request *req);
void tux_close(struct tux_request *req);
/* Serves until tux_is_ended. */
int event_loop(struct tux_thread *thread);
extern volatile sig_atomic_t tux_is_ended;

/* The atoms. */
tux_atom parse_request, http_lookup_vhost, http_process_message, http_dirlist_head, list_directory, http_dirlist_tail,
    http_send_header, http_send_body, flush_request, linger_request;

/* request.c */
struct tux_request *tux_new_request(struct tux_thread *thread, int fd);
void tux_free_request(struct tux_request *req);
/* Frees everything of one request, and removes its head from the input. */
void tux_reset_request(struct tux_request *req);
/* Answers with an error page, and then closes the connection unless it may be kept. */
void tux_error(struct tux_request *req, int status, bool may_keep);
const char *tux_reason(int status);
bool tux_append(struct tux_request *req, const char *text, size_t bytes);

/* parse.c: returns 0, or the status of the error. */
int tux_parse_head(struct tux_request *req, char *head, size_t bytes);

/* files.c: returns NULL with errno on failure. */
struct tux_file *tux_open_file(struct tux_thread *thread, const char *path);
void tux_release_file(struct tux_file *file);
void tux_forget_files(struct tux_thread *thread);
const char *tux_type(const char *path);

/* time.c */
uint64_t tux_now_ms(void);
void tux_format_date(time_t at, char out[40]);
time_t tux_parse_date(const char *text);

#endif
