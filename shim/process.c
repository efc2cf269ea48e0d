/*
 * The life of the process: the page that a fork wipes (see process.h). What hooks the ends of a
 * process is in hooks_process.c.
 */
#include "shim/process.h"

#include "report/sys.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static struct vs_process_page before_cuda; /* never written */
struct vs_process_page *vs_process_current = &before_cuda;

static void child_after_fork(void)
{
    struct vs_process_page *page = vs_process_page();

    if (page != &before_cuda) {
        *page = (struct vs_process_page){0};
    }
}

int vs_process_prepare(void)
{
    struct vs_process_page *expected = &before_cuda;
    struct vs_process_page *page;
    size_t size = (size_t)getpagesize();

    _Static_assert(sizeof(struct vs_process_page) <= 4096, "one page holds it");
    if (vs_process_page() != &before_cuda) {
        return 0;
    }
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return -errno;
    }
    madvise(page, size, MADV_WIPEONFORK); /* where this fails the handler below stands in */
    if (!__atomic_compare_exchange_n(&vs_process_current, &expected, page, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        munmap(page, size);
        return 0;
    }
    pthread_atfork(NULL, NULL, child_after_fork);
    return 0;
}

bool vs_process_is_owner(void)
{
    return vs_process_page()->owner == vs_sys_getpid();
}
