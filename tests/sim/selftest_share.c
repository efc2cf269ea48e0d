/*
 * Self-tests of the machine that processes share: accounts under kills, libnvidia-ml, which devices
 * a process sees. Children are this program again.
 */
#include "selftest.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"

static char share_path[64];

static void forget_share(void)
{
    unlink(share_path);
}

static void new_share(void)
{
    strcpy(share_path, "/tmp/vramsim-selftest-XXXXXX");
    CHECK(mkdtemp(share_path) != NULL && rmdir(share_path) == 0); /* a name, not yet a file */
    CHECK(setenv("VRAMSIM_SHARE", share_path, 1) == 0);
    atexit(forget_share);
}

pid_t spawn(const char *name, int *socket_end)
{
    int ends[2] = {-1, -1};
    if (socket_end != NULL)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (socket_end != NULL) {
            close(ends[0]);
            dup2(ends[1], PEER);
        }
        execl("/proc/self/exe", "selftest", name, (char *)NULL);
        _exit(127);
    }
    if (socket_end != NULL) {
        close(ends[1]);
        *socket_end = ends[0];
    }
    return pid;
}

void put(int fd, const void *data, size_t size)
{
    CHECK(write(fd, data, size) == (ssize_t)size);
}

void get(int fd, void *data, size_t size)
{
    CHECK(recv(fd, data, size, MSG_WAITALL) == (ssize_t)size);
}

void ended_well(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static struct sim_totals totals(void)
{
    bool (*ask)(int, struct sim_totals *) = NULL;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "vramsim_totals");
    struct sim_totals now;
    CHECK(ask != NULL && ask(0, &now));
    return now;
}

/* ---- the shared machine ------------------------------------------------------------------------
 */
#define CHILDREN 16
#define MOST (32 * MIB) /* that a child holds at once */

/* Allocates and frees for ever; never more than MOST at once, often just that. */
static void case_share_child(void)
{
    start();
    unsigned seed = (unsigned)getpid();
    CUdeviceptr block[8] = {0};
    for (;;) {
        int i = rand_r(&seed) % 8;
        if (block[i] == 0)
            OK(cuMemAlloc(&block[i], MOST / 8));
        else if (rand_r(&seed) % 4 == 0) {
            OK(cuMemFree(block[i]));
            block[i] = 0;
        }
    }
}

/* Children that are killed at any instruction leave the sums right and the peak true: never more
 * than 16 children at 32 MiB, although there are far more than 16 in the course of it. */
static void test_share_stress(void)
{
    new_share();
    pid_t child[CHILDREN];
    unsigned seed = 20250;
    for (int i = 0; i < CHILDREN; i++)
        child[i] = spawn("share_child", NULL);
    double end = now_ms() + 2000;
    unsigned killed = 0;
    while (killed <= 20 || now_ms() < end) {
        usleep(rand_r(&seed) % 15000);
        int i = rand_r(&seed) % CHILDREN;
        int status;
        kill(child[i], SIGKILL);
        CHECK(waitpid(child[i], &status, 0) == child[i]);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        child[i] = spawn("share_child", NULL);
        killed++;
    }
    usleep(300000);
    for (int i = 0; i < CHILDREN; i++) {
        kill(child[i], SIGKILL);
        CHECK(waitpid(child[i], NULL, 0) == child[i]);
    }
    start();
    size_t now_free, all;
    OK(cuMemGetInfo(&now_free, &all));
    CHECK(now_free == all);
    struct sim_totals now = totals();
    printf("%u killed, peak %llu, of one process %llu\n", killed, (unsigned long long)now.peak,
           (unsigned long long)now.process_peak);
    CHECK(now.used == 0 && now.peak <= CHILDREN * MOST && now.peak > MOST);
    CHECK(now.process_peak == MOST);
}

static void case_share_holder(void)
{
    start();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 600 * MIB));
    put(PEER, "x", 1);
    pause();
}

static void case_share_full(void)
{
    start();
    CUdeviceptr p;
    IS(cuMemAlloc(&p, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p, 424 * MIB));
    IS(cuMemAlloc(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
}

/* A killed process's memory comes back and is not counted together with what is taken after its
 * end; two live processes see one machine; the peak outlives them. */
static void test_share(void)
{
    new_share();
    start();
    int end;
    char c;
    CUdeviceptr p;
    pid_t holder = spawn("share_holder", &end);
    get(end, &c, 1);
    struct stat is;
    CHECK(stat(share_path, &is) == 0 && (is.st_mode & 0777) == 0600);
    kill(holder, SIGKILL);
    CHECK(waitpid(holder, NULL, 0) == holder);
    OK(cuMemAlloc(&p, 300 * MIB));
    CHECK(totals().used == 300 * MIB && totals().peak == 600 * MIB);
    OK(cuMemFree(p));
    holder = spawn("share_holder", &end);
    get(end, &c, 1);
    expect_child("share_full", NULL, 0, NULL);
    CHECK(totals().used == 600 * MIB && totals().peak == 1024 * MIB);
    kill(holder, SIGKILL);
    CHECK(waitpid(holder, NULL, 0) == holder);
    OK(cuMemAlloc(&p, 1000 * MIB));
    CHECK(totals().process_peak == 1000 * MIB);
    OK(cuMemFree(p));
    expect_child("init_os", "VRAMSIM_MEMORY=2G", 0, "another memory size");
}

static void case_init_os(void)
{
    IS(cuInit(0), CUDA_ERROR_OPERATING_SYSTEM);
}

/* What is no machine of ours is refused and left alone. */
static void test_share_refused(void)
{
    new_share();
    FILE *file = fopen(share_path, "w");
    CHECK(file != NULL && fputs("a letter", file) >= 0 && fclose(file) == 0);
    expect_child("init_os", NULL, 0, "is not a simulated machine");
    struct stat is;
    CHECK(stat(share_path, &is) == 0 && is.st_size == 8);
    CHECK(unlink(share_path) == 0 && symlink("/tmp/nowhere-at-all", share_path) == 0);
    expect_child("init_os", NULL, 0, "VRAMSIM_SHARE=");
    CHECK(access("/tmp/nowhere-at-all", F_OK) != 0 && unlink(share_path) == 0);
    expect_child("init_fine", NULL, 0, NULL);
    CHECK(chmod(share_path, 0666) == 0);
    expect_child("init_os", NULL, 0, "writable by others");
}

static void case_init_fine(void)
{
    OK(cuInit(0));
}

/* ---- what a process sees -----------------------------------------------------------------------
 */
static void case_visible(void)
{
    char seen[64] = "";
    int count = 0;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        OK(cuDeviceGetCount(&count));
    snprintf(seen, sizeof seen, "%d:", (int)result);
    for (int i = 0; i < count; i++) {
        int bus;
        OK(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%d", bus - 16);
    }
    fprintf(stderr, "sees %s;\n", seen);
}

static void sees(const char *list, const char *wanted)
{
    char variable[320], words[64];
    snprintf(variable, sizeof variable, "CUDA_VISIBLE_DEVICES=%s", list);
    snprintf(words, sizeof words, "sees %s;", wanted);
    expect_child("visible", variable, 0, words);
}

static void test_visible(void)
{
    char uuid[3][48], text[256], mig[48];
    unsigned char bytes[16];
    for (int gpu = 0; gpu < 3; gpu++) {
        sim_name_gpu_uuid(gpu, bytes);
        sim_name_uuid_text("GPU", bytes, uuid[gpu]);
    }
    CHECK(setenv("VRAMSIM_DEVICES", "3", 1) == 0);
    expect_child("visible", NULL, 0, "sees 0:012;");
    sees("", "100:");
    sees("2,0", "0:20");
    sees(" 1, 2", "0:12");
    sees("0,1,0", "101:");
    sees("0,9,1", "0:0");
    sees("1,-1,0", "0:1");
    sees("1,,0", "0:1");
    sees("-1", "100:");
    sees("junk", "100:");
    sees("4294967297", "0:1");
    sees("0x1", "0:0");
    snprintf(text, sizeof text, "%s,%s", uuid[2], uuid[0]);
    sees(text, "0:20");
    snprintf(text, sizeof text, "%.5s,%.12s", uuid[1], uuid[2]);
    sees(text, "0:12");
    snprintf(text, sizeof text, "%s,0", uuid[1]);
    sees(text, "0:1");
    snprintf(text, sizeof text, "0,%s", uuid[1]);
    sees(text, "0:0");
    snprintf(text, sizeof text, "%s,%.8s", uuid[1], uuid[1]);
    sees(text, "101:");
    snprintf(text, sizeof text, "%.8sxyz", uuid[1]);
    sees(text, "100:");
    sees("GPU-", "100:");
    sees(uuid[1] + 4, "100:");
    CHECK(setenv("VRAMSIM_MIG", "2", 1) == 0);
    expect_child("visible", NULL, 0, "sees 0:0;");
    sees("1,2", "0:1");
    sim_name_mig_uuid(2, 1, bytes);
    sim_name_uuid_text("MIG", bytes, mig);
    sees(mig, "0:2");
    snprintf(text, sizeof text, "MIG-%s/1/0", uuid[1]);
    sees(text, "0:1");
    snprintf(text, sizeof text, "MIG-%s/7/0", uuid[1]);
    sees(text, "100:");
}

/* ---- libnvidia-ml ------------------------------------------------------------------------------
 */
struct nvml_process {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gi, ci;
};

static void *nvml(const char *name)
{
    static void *library;
    if (library == NULL)
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(library != NULL);
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}
/* Every argument is a number or a pointer, and goes into a register of its own. */
static int call(const char *name, uintptr_t a, uintptr_t b, uintptr_t c)
{
    int (*function)(uintptr_t, uintptr_t, uintptr_t);
    *(void **)&function = nvml(name);
    return function(a, b, c);
}
#define WORD(x) ((uintptr_t)(x))

static void compare_nvml(unsigned long long wanted)
{
    void *device;
    unsigned count = 0;
    unsigned long long memory[3];
    struct {
        unsigned version;
        unsigned long long total, reserved, free, used;
    } second = {.version = 40u | 2u << 24};
    struct nvml_process list[4];
    size_t now_free, all;
    OK(cuMemGetInfo(&now_free, &all));
    CHECK(call("nvmlDeviceGetHandleByIndex_v2", WORD(0), WORD(&device), 0) == 0);
    CHECK(call("nvmlDeviceGetMemoryInfo", WORD(device), WORD(memory), 0) == 0);
    CHECK(memory[0] == all && memory[1] == now_free && memory[2] == all - now_free);
    CHECK(call("nvmlDeviceGetMemoryInfo_v2", WORD(device), WORD(&second), 0) == 0 &&
          second.free == now_free);
    second.version = 7;
    CHECK(call("nvmlDeviceGetMemoryInfo_v2", WORD(device), WORD(&second), 0) == 25);
    CHECK(call("nvmlDeviceGetComputeRunningProcesses_v3", WORD(device), WORD(&count), WORD(NULL)) ==
              7 &&
          count > 0);
    count = 4;
    CHECK(call("nvmlDeviceGetComputeRunningProcesses_v3", WORD(device), WORD(&count), WORD(list)) ==
          0);
    unsigned long long sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += list[i].bytes;
    CHECK(sum == wanted && memory[2] == wanted);
}

static void case_nvml_own(void)
{
    CUdeviceptr p;
    char text[96];
    void *device, *same;
    int version;
    start();
    OK(cuMemAlloc(&p, 5 * MIB));
    CHECK(call("nvmlDeviceGetCount_v2", WORD(&version), 0, 0) == 1);
    CHECK(call("nvmlInit_v2", 0, 0, 0) == 0);
    compare_nvml(5 * MIB);
    CHECK(call("nvmlDeviceGetHandleByIndex_v2", WORD(0), WORD(&device), 0) == 0);
    CHECK(call("nvmlDeviceGetUUID", WORD(device), WORD(text), WORD(96)) == 0 &&
          strncmp(text, "GPU-", 4) == 0);
    CHECK(call("nvmlDeviceGetHandleByUUID", WORD(text), WORD(&same), 0) == 0 && same == device);
    CHECK(call("nvmlDeviceGetHandleByPciBusId_v2", WORD("00000000:10:00.0"), WORD(&same), 0) == 0);
    CHECK(same == device && call("nvmlDeviceGetHandleByUUID", WORD("GPU-no"), WORD(&same), 0) == 6);
    CHECK(call("nvmlSystemGetCudaDriverVersion", WORD(&version), 0, 0) == 0 && version == 13000);
    CHECK(call("nvmlShutdown", 0, 0, 0) == 0 && call("nvmlShutdown", 0, 0, 0) == 1);
}

static void test_nvml(void)
{
    expect_child("nvml_own", NULL, 0, NULL);
    new_share();
    int end;
    char c;
    pid_t holder = spawn("share_holder", &end);
    get(end, &c, 1);
    start();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 8 * MIB));
    CHECK(call("nvmlInit_v2", 0, 0, 0) == 0);
    compare_nvml(608 * MIB);
    kill(holder, SIGKILL);
    CHECK(waitpid(holder, NULL, 0) == holder);
    compare_nvml(8 * MIB);
    CHECK(call("nvmlShutdown", 0, 0, 0) == 0);
}

const struct test selftest_share[] = {
    {"share", test_share},
    {"share_stress", test_share_stress},
    {"share_refused", test_share_refused},
    {"share_child", case_share_child},
    {"share_holder", case_share_holder},
    {"share_full", case_share_full},
    {"init_os", case_init_os},
    {"init_fine", case_init_fine},
    {"visible", case_visible},
    {"visible_devices", test_visible},
    {"nvml", test_nvml},
    {"nvml_own", case_nvml_own},
    {NULL, NULL},
};
