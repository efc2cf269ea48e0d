/* See lookups.c: RTLD_NEXT from inside a library that is not in the global scope. */
#include <dlfcn.h>
#include <stdio.h>

int lookups_inside(void);
int lookups_marker(void);

__attribute__((visibility("default"))) int lookups_marker(void)
{
    return 1;
}

__attribute__((visibility("default"))) int lookups_inside(void)
{
    /* Our own scope: RTLD_DEFAULT finds our own marker although we were opened locally. */
    if (dlsym(RTLD_DEFAULT, "lookups_marker") != (void *)lookups_marker) {
        printf("library: RTLD_DEFAULT\n");
        return 1;
    }
    /* Behind us there is none. */
    if (dlsym(RTLD_NEXT, "lookups_marker") != NULL) {
        printf("library: RTLD_NEXT\n");
        return 1;
    }
    dlerror();
    return 0;
}
