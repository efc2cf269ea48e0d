/* dlsym where the answer is "no": NULL, and dlerror says why, once. */
#include <dlfcn.h>
#include <stdlib.h>

#include "cu.h"

static void miss(const char *what, void *handle, const char *name)
{
    dlerror();
    void *found = dlsym(handle, name);
    const char *why = dlerror();
    cu_say("%s, %s: %s, %s", what, name, found == NULL ? "NULL" : "found",
           why == NULL ? "no error" : "an error");
    cu_say("asked again: %s", dlerror() == NULL ? "no error" : "an error");
}

int main(int argc, char **argv)
{
    cu_load(argc, argv);
    void *library = cu_library(), *self = dlopen(NULL, RTLD_NOW);

    miss("libcuda", library, "cuNoSuchThing");
    miss("libcuda", library, "cuMemAlloc_v99");
    miss("libcuda", library, "");
    miss("libcuda", library, "cuMemAlloc_v2");
    miss("the program", self, "no_such_symbol");
    miss("the program", self, "malloc");
    miss("default", RTLD_DEFAULT, "no_such_symbol");
    miss("default", RTLD_DEFAULT, "malloc");
    miss("default", RTLD_DEFAULT, "dlsym");
    miss("next", RTLD_NEXT, "no_such_symbol");
    miss("next", RTLD_NEXT, "malloc");
    miss("next", RTLD_NEXT, "dlsym");
    /* An error stays until it is asked for, also across a look-up that succeeds. */
    dlerror();
    dlsym(library, "cuNoSuchThing");
    FACT(dlsym(library, "cuMemAlloc_v2") != NULL);
    dlerror();
    FACT(dlerror() == NULL);
    FACT(dlsym(RTLD_DEFAULT, "free") == (void *)free);
    return cu_end();
}
