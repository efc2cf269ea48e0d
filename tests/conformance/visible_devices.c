/* CUDA_VISIBLE_DEVICES: which lists show how many devices, and what cuInit says to the others. Each
 * is tried by this program again, in a process of its own. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cu.h"

#define UUID 36

static void look(int argc, char **argv)
{
    int count = 0;
    CUuuid id = {{0}};
    cu_load(argc, argv);
    CUresult result = CU(cuInit)(0);
    if (result == CUDA_SUCCESS) {
        MUST(cuDeviceGetCount, &count);
        MUST(cuDeviceGetUuid, &id, 0);
    }
    const char *wanted = getenv("CONFORMANCE_VISIBLE");
    char digits[UUID + 1] = "";
    for (int i = 0; i < 16; i++)
        snprintf(digits + 2 * i, 3, "%02x", (unsigned char)id.bytes[i]);
    cu_say("%s: %s, devices %d%s", getenv("CONFORMANCE_LABEL"), cu_result_name(result), count,
           count == 0                    ? ""
           : strcmp(digits, wanted) == 0 ? ", the first one is device 0"
                                         : ", the first one is another");
    exit(cu_end());
}

static void with(const char *label, const char *list, const char *digits, char **argv)
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
        setenv("CONFORMANCE_VISIBLE", digits, 1);
        setenv("CONFORMANCE_LABEL", label, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        cu_say("%s: it did not end well", label);
}

int main(int argc, char **argv)
{
    if (getenv("CONFORMANCE_VISIBLE") != NULL)
        look(argc, argv);
    /* The first device's UUID, with no list in the way: everything is numbered from that. */
    CUuuid id = {{0}};
    char digits[UUID + 1] = "", text[256];
    unsetenv("CUDA_VISIBLE_DEVICES");
    cu_start(argc, argv);
    MUST(cuDeviceGetUuid, &id, 0);
    for (int i = 0; i < 16; i++)
        snprintf(digits + 2 * i, 3, "%02x", (unsigned char)id.bytes[i]);

    static const char *const lists[] = {
        "0",      "",         "-1",   "junk",       "0,0",  "0, 0", "0,0,junk",
        "0,-1,0", "0,junk,0", " 0",   "0 ",         ",0",   "0,",   "0,,0",
        "00",     "0x1",      "0x0",  "-0",         "0:1",  "0;1",  "0-1",
        "99",     "99,0",     "0,99", "NoDevFiles", "none", "all",  "4294967296",
    };
    for (unsigned i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        snprintf(text, sizeof text, "\"%s\"", lists[i]);
        with(text, lists[i], digits, argv);
    }
    /* By UUID: the whole of it is taken without its dashes, too. */
    char list[256];
    snprintf(list, sizeof list, "GPU-%s", digits);
    with("its UUID", list, digits, argv);
    snprintf(list, sizeof list, "GPU-%.30s", digits);
    with("most of its UUID", list, digits, argv);
    snprintf(list, sizeof list, "GPU-%sxyz", digits);
    with("its UUID and more", list, digits, argv);
    snprintf(list, sizeof list, "GPU-%.30sxyz", digits);
    with("most of its UUID and junk", list, digits, argv);
    snprintf(list, sizeof list, "GPU-%s,0", digits);
    with("its UUID, then its number", list, digits, argv);
    snprintf(list, sizeof list, "0,GPU-%s", digits);
    with("its number, then its UUID", list, digits, argv);
    snprintf(list, sizeof list, "GPU-%s,GPU-%.30s", digits, digits);
    with("its UUID twice", list, digits, argv);
    snprintf(list, sizeof list, "gpu-%s", digits);
    with("in small letters", list, digits, argv);
    with("without GPU-", digits, digits, argv);
    with("GPU- alone", "GPU-", digits, argv);
    return cu_end();
}
