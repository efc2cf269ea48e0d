/* The slow half of lock.h: spinning, then sleeping. errno is left as it was found. */
#include "report/lock.h"

#include "report/sys.h"

#define SPINS 128
#define NAP_NS 50000
#define END_WAIT_NS UINT64_C(1000000000)

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool spin(struct vs_lock *lock)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 && vs_lock_try(lock)) {
            return true;
        }
        relax();
    }
    return false;
}

static void nap(void)
{
    struct timespec step = {0, NAP_NS};
    VS_SYS(SYS_nanosleep, &step, NULL);
}

void vs_lock_wait(struct vs_lock *lock)
{
    while (!spin(lock)) {
        nap();
    }
}

bool vs_lock_take_until(struct vs_lock *lock, uint64_t deadline_ns)
{
    if (vs_lock_try(lock)) {
        return true;
    }
    while (!spin(lock)) {
        if (vs_sys_clock(CLOCK_MONOTONIC) >= deadline_ns) {
            return false;
        }
        nap();
    }
    return true;
}

static _Atomic uint64_t end_deadline; /* 0: not counting yet */

void vs_lock_end_begins(void)
{
    atomic_store_explicit(&end_deadline, 0, memory_order_relaxed);
}

bool vs_lock_take_at_end(struct vs_lock *lock)
{
    if (vs_lock_try(lock)) {
        return true;
    }
    uint64_t deadline = atomic_load_explicit(&end_deadline, memory_order_relaxed);
    if (deadline == 0) {
        deadline = vs_sys_clock(CLOCK_MONOTONIC) + END_WAIT_NS;
        atomic_store_explicit(&end_deadline, deadline, memory_order_relaxed);
    }
    return vs_lock_take_until(lock, deadline);
}
