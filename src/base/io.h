/* io.h: whole files in, whole files out. Reading maps or copies; writing is atomic (temporary name, fsync, rename),
 * but for pipes and devices, which are written to as they are. A process that dies while it writes leaves
 * PATH.tmp.PID, which the next one that writes PATH removes. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/base.h"

typedef struct {
    unsigned char *at; /* never NULL after success; one NUL byte follows the content when it was read, not mapped */
    size_t n;
    bool mapped;
} file_bytes;

/* "-" reads standard input. The message names the path and the reason. Of what is no regular file only what this
 * process was handed open (/dev/stdin, <(...) of a shell) is read: no reader here waits for the writer of a pipe. */
an_status file_read(const char *path, size_t limit, file_bytes *out, diag *d) MUST_CHECK;
/* its first n bytes, or as many as it has; of a pipe none: they would be gone for who reads it next */
an_status file_head(const char *path, void *to, size_t n, size_t *got, diag *d) MUST_CHECK;
/* A regular file only: a pipe is not waited for, a device not read, and a link followed only with `links`. */
an_status file_read_plain(const char *path, bool links, size_t limit, file_bytes *out, diag *d) MUST_CHECK;
an_status file_map(const char *path, file_bytes *out, diag *d) MUST_CHECK; /* read-only view of a regular file */
/* The same, and the file stays open: *fd is for file_holds and file_let_go. A mapping of a file that was cut since
 * ends the process that reads past its end, so who reads it for long asks first. */
an_status file_map_held(const char *path, file_bytes *out, int *fd, diag *d) MUST_CHECK;
bool file_holds(int fd, size_t n, size_t *now); /* it has n bytes or more; *now: how many */
void file_let_go(int fd);                       /* -1 is fine */
void file_drop(file_bytes *f);
/* Pages of a mapped file (never of other memory: its content would be lost) that lie wholly inside need not stay in
 * memory; touching them reads the file again. */
void file_forget(const void *p, size_t n);

typedef struct {
    bool folder, plain; /* plain: a regular file */
    int unseen; /* errno: there may be something, but it cannot be looked at; nothing else is set */
    uint64_t bytes;
    uint64_t device, inode; /* equal: the same thing under two names */
} path_info;
/* False: there is no such thing. What cannot be seen counts as there: who opens it is told why it cannot be. */
bool path_look(const char *path, path_info *out);
/* The same for who goes by what it finds without opening it: what cannot be seen is an error with name and reason. */
an_status path_find(const char *path, bool *there, path_info *out, diag *d) MUST_CHECK;
/* for who keeps a file of its own under this name: whatever else stands there is an error that says what it is */
an_status path_plain(const char *path, diag *d) MUST_CHECK;
/* the folder a file stands in: "." for a bare name, "/" at the root. False: no room for it */
bool path_folder(const char *path, char *to, size_t room);
/* what is written to one would replace what was written to the other, however they are spelt. A device or a pipe takes
 * both */
bool path_same(const char *a, const char *b);

an_status file_write(const char *path, const void *p, size_t n, diag *d) MUST_CHECK;

/* A file written in pieces, in any order. Under its own name only after file_finish (fsync, rename); abandoned, it
 * never was. */
typedef struct {
    char *path, *tmp; /* NULL: nothing open */
    int fd;
} file_out;
an_status file_begin(const char *path, file_out *o, diag *d) MUST_CHECK;
an_status file_put(file_out *o, uint64_t at, const void *p, size_t n, diag *d) MUST_CHECK;
an_status file_finish(file_out *o, diag *d) MUST_CHECK; /* closes it in any case; a failure leaves nothing behind */
void file_abandon(file_out *o); /* fine after file_finish, and on a zeroed one */
/* In the open folder dir, what process pid began and did not finish: removed when that process is gone. */
bool file_remove_left(int dir, const char *name, long pid);
bool file_is_at(int fd, const char *path); /* what was opened under this name is still what has it */
/* like mkdir -p; a failure leaves no folder that was not there */
an_status dir_make(const char *path, diag *d) MUST_CHECK;
/* The same, and how to take it back: `was` bytes of the path name what was there before. Folders with something in
 * them stay. */
an_status dir_make_new(const char *path, size_t *was, diag *d) MUST_CHECK;
void dir_unmake(const char *path, size_t was);
/* "cannot VERB PATH: " and what errno says: AN_INPUT, but AN_NOMEM where it was memory that the system had none of. */
an_status file_fail(const char *verb, const char *path, diag *d);

#endif
