/*
 * Arming the shim (see arm.h).
 *
 * Everything that asks the driver is done before the lock is taken, into memory of the caller's
 * own; two threads that arm at once ask twice, and the first one's answers hold.
 *
 * Lock: page->arming, held over the ledger's opening and the claims, never over a driver call.
 */
#include "shim/arm.h"

#include "report/ledger.h"
#include "report/report.h"
#include "report/sys.h"
#include "shim/count.h"
#include "shim/process.h"
#include "shim/say.h"
#include "shim/text.h"

#include <string.h>
#include <unistd.h>

static struct vs_options options; /* written before the state is ARMED, read-only afterwards */

struct devices {
    unsigned count;
    struct vs_ledger_device device[VS_LEDGER_MAX_DEVICES];
};

const struct vs_options *vs_arm_resolved(void)
{
    return &options;
}

static bool caps_given(void)
{
    return options.given[VS_OPTION_LIMIT] || options.given[VS_OPTION_FRACTION] ||
           options.given[VS_OPTION_GROUP_LIMIT];
}

int vs_arm_options(void)
{
    struct vs_process_page *page;
    int result;

    if (vs_process_prepare() != 0) {
        /* No memory for a page: too little to count with. But a cap never fails open. */
        result = vs_options_load(&options, environ, &vs_options_to_stderr);
        return result != 0 || caps_given() ? 1 : 0;
    }
    page = vs_process_page();
    pthread_mutex_lock(&page->arming);
    if (!page->options_loaded) {
        page->options_result = vs_options_load(&options, environ, &vs_options_to_stderr);
        vs_say_set_level((int)options.verbose);
        page->options_loaded = true;
    }
    result = page->options_result;
    pthread_mutex_unlock(&page->arming);
    return result == 0 ? 0 : 1;
}

static void format_uuid(char *out, size_t size, const CUuuid *uuid)
{
    static const char digits[] = "0123456789abcdef";
    size_t at = 4;

    _Static_assert(sizeof("GPU-") + 36 <= sizeof(((struct vs_ledger_device *)0)->uuid), "fits");
    if (size < sizeof("GPU-") + 36) {
        return;
    }
    memcpy(out, "GPU-", 4);
    for (unsigned i = 0; i < 16; i++) {
        unsigned byte = (unsigned char)uuid->bytes[i];

        if (i == 4 || i == 6 || i == 8 || i == 10) {
            out[at++] = '-';
        }
        out[at++] = digits[byte >> 4];
        out[at++] = digits[byte & 15];
    }
    out[at] = '\0';
}

/* False if the driver is not initialised. No call here creates a context. */
static bool describe(const struct vs_entries *real, struct devices *devices)
{
    int count = 0, version = 0;

    devices->count = 0;
    if (real->cuDeviceGetCount == NULL || real->cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return false;
    }
    if (real->cuDriverGetVersion != NULL) {
        real->cuDriverGetVersion(&version);
    }
    for (int i = 0; i < count && i < VS_LEDGER_MAX_DEVICES; i++) {
        struct vs_ledger_device *device = &devices->device[i];
        CUdevice handle = i;
        CUuuid uuid;
        size_t total = 0;
        CUresult named = CUDA_ERROR_NOT_SUPPORTED;

        *device = (struct vs_ledger_device){.driver_version = version};
        if (real->cuDeviceGet != NULL && real->cuDeviceGet(&handle, i) != CUDA_SUCCESS) {
            handle = i;
        }
        if (real->cuDeviceGetUuid_v2 != NULL) {
            named = real->cuDeviceGetUuid_v2(&uuid, handle);
        } else if (real->cuDeviceGetUuid != NULL) {
            named = real->cuDeviceGetUuid(&uuid, handle);
        }
        if (named == CUDA_SUCCESS) {
            format_uuid(device->uuid, sizeof(device->uuid), &uuid);
        }
        if (real->cuDeviceGetName == NULL ||
            real->cuDeviceGetName(device->name, sizeof(device->name), handle) != CUDA_SUCCESS) {
            device->name[0] = '\0';
        }
        if (real->cuDeviceTotalMem_v2 != NULL &&
            real->cuDeviceTotalMem_v2(&total, handle) == CUDA_SUCCESS) {
            device->total_bytes = total;
        }
        devices->count++;
    }
    return true;
}

static int check_caps(struct devices *devices)
{
    struct vs_options_device seen[VS_LEDGER_MAX_DEVICES];

    for (unsigned i = 0; i < devices->count; i++) {
        seen[i].uuid = devices->device[i].uuid[0] != '\0' ? devices->device[i].uuid : NULL;
        seen[i].total_bytes = devices->device[i].total_bytes;
    }
    if (vs_options_check_devices(&options, seen, devices->count, &vs_options_to_stderr) != 0) {
        return 1;
    }
    for (unsigned i = 0; i < devices->count; i++) {
        if (vs_options_limit_for(&options, i, seen[i].uuid, seen[i].total_bytes,
                                 &devices->device[i].limit_bytes) != 0) {
            vs_say(VS_SAY_ERROR,
                   "device %u: its size is unknown, so its cap cannot hold; "
                   "CUDA is refused to this process",
                   i);
            return 1;
        }
    }
    return 0;
}

/*
 * CLOCK_MONOTONIC at the start of this process, from the kernel's own record (field 22 of
 * /proc/self/stat: clock ticks since boot). Where that can't be read, now.
 */
static uint64_t process_start(void)
{
    char text[1024];
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC), boot = vs_sys_clock(CLOCK_BOOTTIME);
    uint64_t ticks = 0, started;
    long length = -1;
    int fd = vs_sys_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);

    if (fd >= 0) {
        length = vs_sys_read(fd, text, sizeof(text) - 1);
        vs_sys_close(fd);
    }
    if (length <= 0) {
        return now;
    }
    text[length] = '\0';
    /* Field 2 is the name in parentheses and may hold anything; count from its end. */
    const char *at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL) {
        return now;
    }
    for (at++; *at >= '0' && *at <= '9'; at++) {
        ticks = ticks * 10 + (uint64_t)(*at - '0');
    }
    started = ticks * (1000000000U / (uint64_t)sysconf(_SC_CLK_TCK)); /* since boot */
    if (started > boot) {
        return now;
    }
    return boot - started < now ? now - (boot - started) : 0;
}

static void say_problem(const char *line)
{
    vs_say(VS_SAY_ERROR, "%s", line);
}

/* With the lock held. */
static enum vs_process_state open_books(struct devices *devices)
{
    int error = vs_ledger_open(process_start());

    vs_options_announce(&options, &vs_options_to_stderr);
    if (error != 0) {
        vs_say(VS_SAY_ERROR, "no memory for the ledger (error %d): nothing is counted", -error);
        return VS_PROCESS_OFF;
    }
    for (unsigned i = 0; i < devices->count; i++) {
        vs_ledger_add_device(i, &devices->device[i]);
    }
    if (caps_given()) {
        vs_ledger_note("cap-not-enforced", "a cap is set, but this version does not enforce caps");
    }
    vs_report_claim(options.report, say_problem);
    return VS_PROCESS_ARMED;
}

void vs_arm(const struct vs_driver *driver)
{
    struct vs_process_page *page;
    struct devices *devices;
    enum vs_process_state state = VS_PROCESS_REFUSED;
    bool fine = vs_arm_options() == 0;

    if (vs_process_prepare() != 0) {
        return;
    }
    page = vs_process_page();
    /* Too large for the stack of an unknown thread. */
    devices = vs_sys_map(sizeof(*devices));
    if (devices == NULL) {
        return;
    }
    if (describe(&driver->real, devices) || !fine) {
        pthread_mutex_lock(&page->arming);
        if (vs_process_state() == VS_PROCESS_UNARMED) {
            page->owner = vs_sys_getpid();
            if (fine && check_caps(devices) == 0) {
                state = open_books(devices);
            }
            vs_process_set(state);
        }
        pthread_mutex_unlock(&page->arming);
    }
    vs_sys_unmap(devices, sizeof(*devices));
}
