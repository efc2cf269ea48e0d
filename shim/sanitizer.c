/*
 * Detecting compute-sanitizer (see sanitizer.h).
 *
 * Its library is loaded into the process that it watches; the variables that it sets are inherited
 * by children which it does not. So the list of mappings decides, and the variable only where that
 * cannot be read. The loader's own list is not asked: a constructor may be waiting, under the
 * loader's lock, for the thread that is here.
 */
#include "shim/sanitizer.h"

#include "report/sys.h"

#include <stdlib.h>
#include <string.h>

#define LIBRARY "libsanitizer-collection.so"
#define LIBRARY_LENGTH (sizeof(LIBRARY) - 1)

/* memmem, which is a GNU extension. */
static bool contains(const char *text, size_t length)
{
    const char *end = text + length, *at = text;

    while ((size_t)(end - at) >= LIBRARY_LENGTH &&
           (at = memchr(at, LIBRARY[0], (size_t)(end - at) - LIBRARY_LENGTH + 1)) != NULL) {
        if (memcmp(at, LIBRARY, LIBRARY_LENGTH) == 0) {
            return true;
        }
        at++;
    }
    return false;
}

bool vs_sanitizer_present(void)
{
    char piece[4096 + LIBRARY_LENGTH];
    size_t kept = 0; /* of the end of the piece before */
    bool found = false, read_any = false;
    int fd = vs_sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    long got = 0;

    while (fd >= 0 && !found && (got = vs_sys_read(fd, piece + kept, 4096)) > 0) {
        size_t length = kept + (size_t)got;

        read_any = true;
        found = contains(piece, length);
        kept = length < LIBRARY_LENGTH ? length : LIBRARY_LENGTH - 1;
        memmove(piece, piece + length - kept, kept);
    }
    if (fd >= 0) {
        vs_sys_close(fd);
    }
    return found || (!read_any && getenv("NV_SANITIZER_INJECTION_PORT_BASE") != NULL);
}
