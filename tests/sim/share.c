/*
 * VRAMSIM_SHARE: one simulated machine for all processes that name the same file.
 *
 * The file holds a slot per process with what that process holds of each unit, and each unit's
 * high-water marks. Nothing in it is a sum: sums are taken over the slots, so a charge is one store
 * and there is no moment at which a kill leaves half of it behind.
 *
 * Locks are open-file-description locks on bytes behind the end of the file; the kernel drops them
 * with the process, whatever kills it.
 *   - the machine's lock guards every change. It has a descriptor of its own, which a forked child
 *     closes, so that a child cannot go on holding it for a parent that was killed.
 *   - a slot's lock says that its process lives. Its descriptor is inherited by fork and closed by
 *     exec: as with the real driver (measured), the memory of a killed process comes back only when
 *     no forked child of it is left.
 *
 * Peaks are exact. Whoever gets the machine's lock first raises the peaks to the sums (a process
 * that was killed between its charge and the peak had it, and nothing changed since), then takes
 * dead processes' slots away, then does what it came for, then raises the peaks again. So memory of
 * a killed process is never counted together with what was given out after its end.
 *
 * The file is trusted as little as possible: it must be a regular file of ours, of the exact size,
 * writable by nobody else, never reached by a symbolic link; what is in it is bounded when read; a
 * process's own charges are kept outside it. Something else under that name is refused, not
 * overwritten. A file that shrinks or a descriptor that the program closed ends the machine for
 * this process: said once, then nothing fits. (A stopped process can hold up the others.)
 *
 * Lock order: share->mutex (one thread of this process at a time), then the machine's lock.
 */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x316d697376ULL /* "vsim1" */
#define SLOTS 512u
#define LOCK_MACHINE ((off_t)1 << 40)
#define LOCK_SLOT(i) (LOCK_MACHINE + 1 + (off_t)(i))
#define NO_SLOT SLOTS

struct slot {
    _Atomic uint64_t held[SIM_MAX_UNITS];
    _Atomic uint64_t pid; /* 0: free */
};
struct file {
    _Atomic uint64_t magic; /* written last */
    uint64_t memory;
    uint32_t gpus, instances;
    _Atomic uint64_t peak[SIM_MAX_UNITS], process_peak[SIM_MAX_UNITS];
    _Atomic uint64_t slots_used; /* slots from here on were never taken */
    struct slot slot[SLOTS];
};

struct sim_share {
    pthread_mutex_t mutex;
    char *path;
    struct file *file;
    struct stat identity;
    int lock_fd;   /* the machine's lock; -1 in a forked child until it needs one */
    int member_fd; /* our slot's lock, or -1 */
    unsigned slot; /* ours, or NO_SLOT */
    bool lost;
    int units;
    uint64_t capacity;            /* of a unit */
    uint64_t mine[SIM_MAX_UNITS]; /* what our slot has to say */
    struct sim_share *next;
};

static struct sim_share *shares; /* all that are open, for fork */

static void in_child(void)
{
    for (struct sim_share *share = shares; share != NULL; share = share->next) {
        if (share->lock_fd >= 0)
            close(share->lock_fd);
        share->lock_fd = -1;
        share->slot = NO_SLOT; /* the parent's */
        pthread_mutex_init(&share->mutex, NULL);
    }
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

static int ofd(int fd, int command, short type, off_t at)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int result;
    do {
        result = fcntl(fd, command, &lock);
    } while (result != 0 && errno == EINTR);
    if (command == F_OFD_GETLK && result == 0)
        return lock.l_type != F_UNLCK; /* 1: somebody holds it */
    return result;
}

static bool same_file(const struct sim_share *share, int fd)
{
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == share->identity.st_dev &&
           now.st_ino == share->identity.st_ino && now.st_size == (off_t)sizeof(struct file);
}

static int open_file(const char *path, int flags)
{
    return open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0600);
}

static bool lose(struct sim_share *share)
{
    if (!share->lost)
        sim_say("VRAMSIM_SHARE=%s: the shared machine is gone (file changed or descriptor closed)",
                share->path);
    share->lost = true;
    return false;
}

static bool enter(struct sim_share *share)
{
    pthread_mutex_lock(&share->mutex);
    if (share->lost)
        return false;
    if (share->lock_fd < 0)
        share->lock_fd = open_file(share->path, 0);
    if (share->lock_fd < 0 || !same_file(share, share->lock_fd) ||
        (share->slot != NO_SLOT && !same_file(share, share->member_fd)))
        return lose(share);
    if (ofd(share->lock_fd, F_OFD_SETLKW, F_WRLCK, LOCK_MACHINE) != 0)
        return lose(share);
    return true;
}

static void leave(struct sim_share *share)
{
    if (!share->lost)
        ofd(share->lock_fd, F_OFD_SETLK, F_UNLCK, LOCK_MACHINE);
    pthread_mutex_unlock(&share->mutex);
}

static unsigned slots_used(const struct sim_share *share)
{
    uint64_t used = atomic_load(&share->file->slots_used);
    return used < SLOTS ? (unsigned)used : SLOTS;
}

/* What a slot holds, bounded: a foreign number cannot make a sum wrap. */
static uint64_t held(const struct sim_share *share, unsigned slot, int unit)
{
    uint64_t bytes = atomic_load(&share->file->slot[slot].held[unit]);
    return bytes < share->capacity ? bytes : share->capacity;
}

static uint64_t sum(const struct sim_share *share, int unit)
{
    uint64_t all = 0;
    for (unsigned i = 0; i < slots_used(share); i++)
        all += held(share, i, unit);
    return all;
}

static void raise(_Atomic uint64_t *mark, uint64_t value)
{
    if (atomic_load(mark) < value)
        atomic_store(mark, value);
}

static void settle(struct sim_share *share, int unit)
{
    raise(&share->file->peak[unit], sum(share, unit));
    for (unsigned i = 0; i < slots_used(share); i++)
        raise(&share->file->process_peak[unit], held(share, i, unit));
}

static void clear_slot(struct slot *slot)
{
    for (int unit = 0; unit < SIM_MAX_UNITS; unit++)
        atomic_store(&slot->held[unit], 0);
    atomic_store(&slot->pid, 0);
}

static void bury(struct sim_share *share)
{
    bool settled = false;
    for (unsigned i = 0; i < slots_used(share); i++) {
        struct slot *slot = &share->file->slot[i];
        if (i == share->slot || atomic_load(&slot->pid) == 0 ||
            ofd(share->lock_fd, F_OFD_GETLK, F_WRLCK, LOCK_SLOT(i)) != 0)
            continue;
        for (int unit = 0; !settled && unit < share->units; unit++)
            settle(share, unit);
        settled = true;
        clear_slot(slot);
    }
}

/* ---- members -----------------------------------------------------------------------------------
 */
bool sim_share_charge(struct sim_share *share, int unit, size_t bytes)
{
    bool fits = false;
    if (enter(share) && share->slot != NO_SLOT) {
        settle(share, unit);
        bury(share);
        uint64_t all = sum(share, unit);
        fits = all <= share->capacity && bytes <= share->capacity - all;
        if (fits) {
            share->mine[unit] += bytes;
            atomic_store(&share->file->slot[share->slot].held[unit], share->mine[unit]);
            settle(share, unit);
        }
    }
    leave(share);
    return fits;
}

void sim_share_uncharge(struct sim_share *share, int unit, size_t bytes)
{
    if (enter(share) && share->slot != NO_SLOT) {
        settle(share, unit);
        share->mine[unit] -= bytes;
        atomic_store(&share->file->slot[share->slot].held[unit], share->mine[unit]);
    }
    leave(share);
}

bool sim_share_totals(struct sim_share *share, int unit, struct sim_totals *totals)
{
    memset(totals, 0, sizeof *totals);
    bool good = enter(share);
    if (good) {
        settle(share, unit);
        bury(share);
        totals->used = sum(share, unit);
        totals->peak = atomic_load(&share->file->peak[unit]);
        totals->process_peak = atomic_load(&share->file->process_peak[unit]);
    }
    leave(share);
    return good;
}

unsigned sim_share_holders(struct sim_share *share, int unit, struct sim_holder *list,
                           unsigned room)
{
    unsigned count = 0;
    if (enter(share)) {
        settle(share, unit);
        bury(share);
        for (unsigned i = 0; i < slots_used(share); i++) {
            pid_t pid = (pid_t)atomic_load(&share->file->slot[i].pid);
            if (pid == 0)
                continue;
            if (count < room)
                list[count] = (struct sim_holder){pid, held(share, i, unit)};
            count++;
        }
    }
    leave(share);
    return count;
}

/* ---- joining -----------------------------------------------------------------------------------
 */
static bool refuse(const char *path, const char *why)
{
    sim_say("VRAMSIM_SHARE=%s: %s", path, why);
    return false;
}

static bool ours(const char *path, const struct stat *is)
{
    if (!S_ISREG(is->st_mode))
        return refuse(path, "is not a regular file");
    if (is->st_uid != geteuid())
        return refuse(path, "belongs to another user");
    if ((is->st_mode & 022) != 0)
        return refuse(path, "is writable by others");
    if (is->st_size != 0 && is->st_size != (off_t)sizeof(struct file))
        return refuse(path, "is not a simulated machine");
    return true;
}

/* With the machine's lock: a new file gets its shape, an old one is asked for it. */
static bool agree(struct sim_share *share, const struct sim_knobs *knobs, bool create,
                  struct sim_shape *shape)
{
    struct file *file = share->file;
    uint64_t magic = atomic_load(&file->magic);
    if (magic == 0 && create) { /* new, or its maker was killed before it was done */
        file->memory = knobs->shape.memory;
        file->gpus = (uint32_t)knobs->shape.gpus;
        file->instances = (uint32_t)knobs->shape.instances;
        atomic_store(&file->magic, MAGIC);
    } else if (magic != MAGIC) {
        return refuse(share->path, "is not a simulated machine");
    }
    *shape = (struct sim_shape){
        .gpus = (int)file->gpus, .instances = (int)file->instances, .memory = file->memory};
    if (file->gpus > SIM_MAX_UNITS || file->instances > 7 || file->memory == 0 ||
        file->memory > (uint64_t)1 << 50 || sim_shape_units(shape) > SIM_MAX_UNITS)
        return refuse(share->path, "is not a simulated machine");
    if (knobs->gpus_set && knobs->shape.gpus != shape->gpus)
        return refuse(share->path, "that machine has another number of devices (VRAMSIM_DEVICES)");
    if (knobs->memory_set && knobs->shape.memory != shape->memory)
        return refuse(share->path, "that machine has another memory size (VRAMSIM_MEMORY)");
    if (knobs->instances_set && knobs->shape.instances != shape->instances)
        return refuse(share->path, "that machine is cut up in another way (VRAMSIM_MIG)");
    return true;
}

static bool take_slot(struct sim_share *share)
{
    share->member_fd = open_file(share->path, 0);
    if (share->member_fd < 0 || !same_file(share, share->member_fd))
        return refuse(share->path, "was replaced meanwhile");
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &share->file->slot[i];
        if (atomic_load(&slot->pid) != 0 ||
            ofd(share->member_fd, F_OFD_SETLK, F_WRLCK, LOCK_SLOT(i)) != 0)
            continue;
        clear_slot(slot);
        share->slot = i;
        raise(&share->file->slots_used, i + 1);
        atomic_store(&slot->pid, (uint64_t)getpid());
        return true;
    }
    return refuse(share->path, "has no room for another process");
}

static bool join(struct sim_share *share, const struct sim_knobs *knobs, bool member, bool create,
                 struct sim_shape *shape)
{
    share->lock_fd = open_file(share->path, create ? O_CREAT : 0);
    if (share->lock_fd < 0)
        return refuse(share->path, strerror(errno));
    if (ofd(share->lock_fd, F_OFD_SETLKW, F_WRLCK, LOCK_MACHINE) != 0)
        return refuse(share->path, strerror(errno));
    if (fstat(share->lock_fd, &share->identity) != 0 || !ours(share->path, &share->identity))
        return false;
    if (share->identity.st_size == 0 &&
        (!create || ftruncate(share->lock_fd, sizeof(struct file)) != 0))
        return refuse(share->path, create ? strerror(errno) : "is empty");
    share->file =
        mmap(NULL, sizeof(struct file), PROT_READ | PROT_WRITE, MAP_SHARED, share->lock_fd, 0);
    if (share->file == MAP_FAILED) {
        share->file = NULL;
        return refuse(share->path, strerror(errno));
    }
    if (!agree(share, knobs, create, shape))
        return false;
    share->units = sim_shape_units(shape);
    share->capacity = sim_shape_unit_memory(shape);
    bury(share);
    return !member || take_slot(share);
}

struct sim_share *sim_share_open(const struct sim_knobs *knobs, bool member, bool create,
                                 struct sim_shape *shape)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sim_share *share = calloc(1, sizeof *share);
    if (share == NULL || (share->path = strdup(knobs->share)) == NULL)
        abort();
    share->lock_fd = share->member_fd = -1;
    share->slot = NO_SLOT;
    pthread_mutex_init(&share->mutex, NULL);
    bool good = join(share, knobs, member, create, shape);
    if (share->lock_fd >= 0)
        ofd(share->lock_fd, F_OFD_SETLK, F_UNLCK, LOCK_MACHINE);
    if (!good) {
        sim_share_close(share);
        return NULL;
    }
    share->next = shares;
    shares = share;
    pthread_once(&once, watch_forks);
    return share;
}

void sim_share_close(struct sim_share *share)
{
    for (struct sim_share **at = &shares; *at != NULL; at = &(*at)->next) {
        if (*at == share) {
            *at = share->next;
            break;
        }
    }
    if (share->file != NULL)
        munmap(share->file, sizeof(struct file));
    if (share->member_fd >= 0)
        close(share->member_fd);
    if (share->lock_fd >= 0)
        close(share->lock_fd);
    free(share->path);
    free(share);
}
