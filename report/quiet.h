/*
 * Writing to descriptors that are not ours, at moments when nothing may go wrong: no signal of the
 * write's own reaches the program, errno stays, and nobody who does not read holds us up for good.
 */
#ifndef VS_REPORT_QUIET_H
#define VS_REPORT_QUIET_H

#include <stdbool.h>
#include <stddef.h>

#define VS_QUIET_PATIENCE_MS 2000

/*
 * Writes all of it: 0 or -errno. SIGPIPE and SIGXFSZ that a write causes are taken away again.
 * *patience_ms is what the descriptor may keep us waiting from now on, over all calls with it: a
 * pipe that is full, blocking or not, costs no more. Regular files are never waited for.
 */
int vs_quiet_write(int fd, const char *from, size_t length, int *patience_ms);

/* Remembers what descriptor 2 is now, and tells whether it still is that: a program that closed it
 * may have a database file or a socket there. Until remembered, whatever is there will do. */
void vs_quiet_remember_stderr(void);
bool vs_quiet_is_stderr(void);

#endif
