/* Opens a driver that lacks a function and looks that one up first of all: attack2_message PATH. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *driver = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
    void *found = driver != NULL ? dlsym(driver, "cuMemPoolDestroy") : NULL;
    const char *error = dlerror();

    printf("found %d, message %d\n", found != NULL, error != NULL);
    return 0;
}
