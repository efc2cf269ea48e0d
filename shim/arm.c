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
#include "report/process.h"
#include "report/report.h"
#include "report/sys.h"
#include "shim/devices.h"
#include "shim/process.h"
#include "shim/sanitizer.h"
#include "shim/say.h"
#include "shim/text.h"

#include <unistd.h>

/* Both written before the state is ARMED, read-only afterwards. */
static struct vs_options options;
static struct vs_arm_device sizes[VS_LEDGER_MAX_DEVICES];

const struct vs_options *vs_arm_resolved(void)
{
    return &options;
}

const struct vs_arm_device *vs_arm_device(unsigned device)
{
    static const struct vs_arm_device unknown;

    return device < VS_LEDGER_MAX_DEVICES ? &sizes[device] : &unknown;
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

static int check_caps(struct vs_devices *devices)
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

static void say_problem(const char *line)
{
    vs_say(VS_SAY_ERROR, "%s", line);
}

/* What a cap holds for, and what not; the announcement says the same. */
static void note_caps(bool pool)
{
    bool own = options.given[VS_OPTION_LIMIT] || options.given[VS_OPTION_FRACTION];

    if (own && pool) {
        vs_ledger_note(
            "cap-pool-only",
            "the cap holds for what the pool serves (plain and stream-ordered memory); this "
            "version does not limit other kinds of device memory");
    }
    if ((own && !pool) || options.given[VS_OPTION_GROUP_LIMIT]) {
        vs_ledger_note("cap-not-enforced",
                       own && !pool ? "a cap is set, but the pool is off, and this version limits "
                                      "nothing else"
                                    : "a group's cap is set, but this version does not enforce it");
    }
}

/* Whether a pool serves, and why not where it was not turned off. compute-sanitizer finds accesses
 * out of bounds and after free by allocation: a pool would hide them. */
static bool pool_wanted(void)
{
    if (!options.pool) {
        return false;
    }
    if (vs_sanitizer_present()) {
        vs_ledger_note("pool-off", "compute-sanitizer is at work, and pooling would hide what it "
                                   "looks for: the driver allocates, as with VRAMSHIM_POOL=off");
        vs_say(caps_given() ? VS_SAY_ERROR : VS_SAY_RESOLVED,
               "compute-sanitizer is at work: the pool is off%s",
               caps_given() ? ", and memory is NOT limited" : "");
        return false;
    }
    return true;
}

/* With the lock held. */
static enum vs_process_state open_books(struct vs_devices *devices)
{
    int error = vs_ledger_open(vs_process_start_ns());
    bool pool;

    vs_options_announce(&options, &vs_options_to_stderr);
    if (error != 0) {
        vs_say(VS_SAY_ERROR, "no memory for the ledger (error %d): nothing is counted", -error);
        return VS_PROCESS_OFF;
    }
    for (unsigned i = 0; i < devices->count; i++) {
        vs_ledger_add_device(i, &devices->device[i]);
        sizes[i] =
            (struct vs_arm_device){devices->device[i].total_bytes, devices->device[i].limit_bytes};
    }
    pool = pool_wanted();
    note_caps(pool);
    atomic_store_explicit(&vs_process_page()->pool_on, pool, memory_order_relaxed);
    vs_report_claim(options.report, say_problem);
    return VS_PROCESS_ARMED;
}

void vs_arm(const struct vs_driver *driver)
{
    struct vs_process_page *page;
    struct vs_devices *devices;
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
    if (vs_devices_describe(devices, &driver->real) || !fine) {
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
