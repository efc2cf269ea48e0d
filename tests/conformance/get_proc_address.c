/* cuGetProcAddress: versions, flags, symbol status, unknown names, missing arguments. */
#include <string.h>

#include "cu.h"

static __typeof__(&cuGetProcAddress) get;

static void *ask(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status = 77;
    void *pointer = &status;
    CUresult result = get(name, &pointer, version, flags, &status);

    cu_say("%s %d flags %d: %s, %s, status %d", name, version, (int)flags, cu_result_name(result),
           pointer == NULL              ? "NULL"
           : pointer == (void *)&status ? "unset"
                                        : "found",
           (int)status);
    return pointer;
}

int main(int argc, char **argv)
{
    void *pointer = NULL;
    CUdriverProcAddressQueryResult status = 77;

    cu_load(argc, argv);
    get = CU(cuGetProcAddress);
    /* Before cuInit. */
    void *new = ask("cuMemAlloc", 12000, 0);
    void *old = ask("cuMemAlloc", 3000, 0);
    MUST(cuInit, 0);
    FACT(new != old);
    FACT(new == ask("cuMemAlloc", 12000, 0));
    FACT(new == ask("cuMemAlloc", 3020, 0));
    FACT(old == ask("cuMemAlloc", 2000, 0));
    ask("cuMemAlloc", 1000, 0);
    ask("cuMemAlloc", 0, 0);
    ask("cuMemAlloc", -1, 0);
    ask("cuMemAlloc", 99000, 0);

    cu_say("names that carry a version");
    ask("cuMemAlloc_v2", 12000, 0);
    ask("cuMemAlloc_v3", 12000, 0);
    ask("cuMemFreeAsync_ptsz", 12000, 0);

    cu_say("names that are not there");
    ask("cuNoSuchThing", 12000, 0);
    ask("", 12000, 0);
    ask("malloc", 12000, 0);
    ask("cumemalloc", 12000, 0);

    cu_say("default streams");
    void *plain = ask("cuMemAllocAsync", 12000, CU_GET_PROC_ADDRESS_DEFAULT);
    void *legacy = ask("cuMemAllocAsync", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    void *thread = ask("cuMemAllocAsync", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    FACT(plain == legacy);
    FACT(plain != thread);
    FACT(new == ask("cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
    ask("cuMemAlloc", 12000, 3);
    ask("cuMemAlloc", 12000, 4);

    cu_say("newer than asked for");
    ask("cuMemAllocAsync", 11010, 0);
    ask("cuMemAllocAsync", 11020, 0);
    ask("cuCtxRecordEvent", 12000, 0);
    ask("cuGetProcAddress", 11030, 0);
    ask("cuGetProcAddress", 12000, 0);
    FACT(ask("cuGetProcAddress", 11030, 0) != ask("cuGetProcAddress", 12000, 0));
    FACT(ask("cuGetProcAddress", 12000, 0) == (void *)get);

    cu_say("missing arguments");
    /* No name, or no place for the pointer, is the end of the program natively. */
    cu_told("no place for the status", get("cuMemAlloc", &pointer, 12000, 0, NULL));
    FACT(pointer == new);
    cu_told("no place, unknown name", get("cuNoSuchThing", &pointer, 12000, 0, NULL));

    cu_say("through what it returned");
    __typeof__(&cuGetProcAddress) again = NULL;
    *(void **)&again = ask("cuGetProcAddress", 12000, 0);
    cu_told("cuMemAlloc", again("cuMemAlloc", &pointer, 12000, 0, &status));
    FACT(pointer == new);
    CUresult (*first)(const char *, void **, int, cuuint64_t) = NULL;
    *(void **)&first = ask("cuGetProcAddress", 11030, 0);
    pointer = NULL;
    cu_told("cuMemAlloc, by the first version", first("cuMemAlloc", &pointer, 12000, 0));
    FACT(pointer == new);
    cu_told("unknown, by the first version", first("cuNoSuchThing", &pointer, 12000, 0));
    return cu_end();
}
