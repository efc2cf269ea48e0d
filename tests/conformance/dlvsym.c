/* dlvsym: symbols with versions, without, and wrong ones. */
#include <dlfcn.h>

#include "cu.h"

#ifdef __aarch64__
#define GLIBC_FIRST "GLIBC_2.17"
#else
#define GLIBC_FIRST "GLIBC_2.2.5"
#endif

static void *ask(const char *what, void *handle, const char *name, const char *version)
{
    dlerror();
    void *found = dlvsym(handle, name, version);
    const char *why = dlerror();
    cu_say("%s, %s@%s: %s, %s", what, name, version, found == NULL ? "NULL" : "found",
           why == NULL ? "no error" : "an error");
    return found;
}

int main(int argc, char **argv)
{
    cu_load(argc, argv);
    void *library = cu_library(), *libc = dlopen("libc.so.6", RTLD_NOW);

    FACT(ask("libc", libc, "malloc", GLIBC_FIRST) == dlsym(libc, "malloc"));
    ask("libc", libc, "malloc", "GLIBC_9.99");
    ask("libc", libc, "no_such_symbol", GLIBC_FIRST);
    ask("default", RTLD_DEFAULT, "malloc", GLIBC_FIRST);
    ask("default", RTLD_DEFAULT, "malloc", "GLIBC_9.99");
    ask("next", RTLD_NEXT, "malloc", GLIBC_FIRST);
    ask("next", RTLD_NEXT, "malloc", "GLIBC_9.99");
    ask("libcuda", library, "cuNoSuchThing", "NO_SUCH");
    ask("libcuda", library, "cuMemAlloc_v2", "NO_SUCH");
    return cu_end();
}
