/* folder.h: folders of plain files: synced, removed, and filled anew so that they hold the files they had or the new
 * ones, never some of each. */
#ifndef BASE_FOLDER_H
#define BASE_FOLDER_H

#include "base/arena.h"
#include "base/io.h"

an_status folder_sync(const char *path, diag *d) MUST_CHECK;
/* With the files in it; what is not there is fine. A link goes itself, and what it points to stays as it is. */
void folder_remove(const char *path);

/* New files for a folder, written below `temp`, which is inside it, and put in their places together. A reader knows
 * the folder by the file `last`: it is taken away before any other changes, and the new one comes when all others
 * are there. What fails is undone. A process that dies meanwhile leaves the folder as it was, or without `last` and
 * with all that is missing in it: the next folder_begin puts that in its place. Other files of the folder stay. */
typedef struct {
    arena mem;
    const char *dir, *last;
    const char *temp;   /* NULL: nothing begun */
    const char *whole;  /* its name once all files are in it */
    const char *old;    /* files that were there, until none of them can be wanted any more */
    size_t was;         /* dir_unmake */
    file_out lock;
    bool stuck;         /* a failure could not be undone: what is missing is left for the next */
} folder_out;
/* AN_USAGE: another process fills it. Both names are the caller's until the end. */
an_status folder_begin(const char *dir, const char *last, folder_out *o, diag *d) MUST_CHECK;
/* the new files have none of that name: an old one goes with the others */
an_status folder_drop(folder_out *o, const char *name, diag *d) MUST_CHECK;
an_status folder_finish(folder_out *o, diag *d) MUST_CHECK; /* ends it in any case */
/* fine after folder_finish, and on a zeroed one. A folder that was not there is not there again */
void folder_abandon(folder_out *o);

#endif
