/*
 * What a program may expect of dlsym and dlvsym, with and without the shim. Prints "ok" or the
 * first thing that is wrong. A library of its own (lookups_lib.c) checks RTLD_NEXT from inside a
 * library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s\n", __LINE__, #condition);                                         \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* Stands in for malloc's family member nobody uses, to have something behind us to find. */
__attribute__((visibility("default"))) char *strfry(char *text)
{
    return text;
}

int main(int argc, char **argv)
{
    void *self, *driver, *first;
    const char *error;

    (void)argc;
    /* Before any driver: our names are not there, whoever asks. */
    dlerror();
    REQUIRE(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    error = dlerror();
    REQUIRE(error != NULL && strstr(error, "cuMemAlloc_v2") != NULL);
    REQUIRE(dlerror() == NULL);
    REQUIRE(dlsym(RTLD_NEXT, "cuNotThere") == NULL && dlerror() != NULL);
    self = dlopen(NULL, RTLD_NOW);
    REQUIRE(self != NULL);
    REQUIRE(dlsym(self, "cuInit") == NULL && dlerror() != NULL);

    /* The caller counts: RTLD_NEXT from the program skips the program's own. */
    REQUIRE(dlsym(RTLD_DEFAULT, "strfry") == (void *)strfry);
    REQUIRE(dlsym(RTLD_NEXT, "strfry") != NULL && dlsym(RTLD_NEXT, "strfry") != (void *)strfry);
    REQUIRE(dlvsym(RTLD_NEXT, "strfry", STRFRY_VERSION) == dlsym(RTLD_NEXT, "strfry"));
    REQUIRE(dlvsym(RTLD_NEXT, "strfry", "GLIBC_9.9") == NULL && dlerror() != NULL);

    /* From a library of ours, which has one too: it finds what is behind it. */
    void *library = dlopen(argv[1], RTLD_NOW);
    REQUIRE(library != NULL);
    int (*inside)(void) = (int (*)(void))dlsym(library, "lookups_inside");
    REQUIRE(inside != NULL && inside() == 0);

    /* The driver, locally: RTLD_DEFAULT does not see it from here without a preload. */
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(driver != NULL);
    dlerror();
    first = dlsym(driver, "cuMemAlloc_v2");
    REQUIRE(first != NULL && dlerror() == NULL);
    for (int i = 0; i < 1000; i++) {
        REQUIRE(dlsym(driver, "cuMemAlloc_v2") == first);
    }
    REQUIRE(dlerror() == NULL);
    REQUIRE(dlsym(driver, "cuNotThere") == NULL);
    error = dlerror();
    REQUIRE(error != NULL && strstr(error, "cuNotThere") != NULL);
    REQUIRE(dlsym(driver, "cuCtxGetCurrent") != NULL);

    /* Closed and opened again: still the same answer, or at least one that works. */
    dlclose(driver);
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    REQUIRE(driver != NULL);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    REQUIRE(init != NULL && init(0) == 0);
    REQUIRE(dlsym(RTLD_DEFAULT, "cuInit") == (void *)init);
    REQUIRE(dlsym(self, "cuInit") == (void *)init);
    printf("ok\n");
    return 0;
}
