/* fork before cuInit and after it: what the child gets, and that the parent does not notice. */
#include <sys/wait.h>
#include <unistd.h>

#include "cu.h"

static int child(CUdeviceptr inherited)
{
    CUdeviceptr p = 0;
    CUcontext now = NULL;
    CUdevice device = 0;
    size_t size = 0, total = 0;

    TELL(cuCtxGetCurrent, &now);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuMemFree, inherited);
    TELL(cuMemGetInfo, &size, &total);
    TELL(cuInit, 0);
    TELL(cuDeviceGet, &device, 0);
    TELL(cuMemAlloc, &p, 4096);
    return 0;
}

static void reap(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    cu_say("the child ended with %d, signal %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr p = 0;

    cu_load(argc, argv);
    pid_t pid = fork();
    if (pid == 0) {
        cu_say("a child from before cuInit");
        TELL(cuInit, 0);
        TELL(cuDeviceGet, &device, 0);
        TELL(cuDevicePrimaryCtxRetain, &context, device);
        TELL(cuCtxSetCurrent, context);
        TELL(cuMemAlloc, &p, 1 << 20);
        TELL(cuMemFree, p);
        _exit(0);
    }
    reap(pid);

    cu_start(argc, argv);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuMemsetD8, p, 8, 1 << 20);
    pid = fork();
    if (pid == 0) {
        cu_say("a child from after it");
        _exit(child(p));
    }
    reap(pid);
    cu_say("the parent");
    FACT(cu_all_bytes(p, 1 << 20, 8));
    TELL(cuMemFree, p);
    TELL(cuMemFree, p);
    return cu_end();
}
