/*
 * Physical memory: bytes, who pays for them, what is known about accesses.
 *
 * Bytes come into being at the first touch; a device with 80 GiB costs nothing to simulate. Device
 * memory is poisoned then (VRAMSIM_POISON), so that a program that relies on what fresh memory
 * holds, or on what its last owner left there, shows; big pieces share one page pattern until
 * written. Host memory (pinned, managed) is mapped at once, since its address is the address of the
 * bytes.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL 65536 /* below: malloc, above: mmap */
#define POISON 0xa5
#define PATTERN ((size_t)16 << 20)
/* What is shared is written out; bigger pieces begin as zeroes. */
#define SHARED_POISON ((size_t)256 << 20)

CUresult sim_phys_new(int physical, size_t size, struct sim_phys **out)
{
    size_t charge = (size + 511) & ~(size_t)511;
    if (charge < size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (physical >= 0 && !sim_machine_charge(physical, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_phys *phys = calloc(1, sizeof *phys);
    if (phys == NULL) {
        if (physical >= 0)
            sim_machine_uncharge(physical, charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    phys->refs = 1;
    phys->size = size;
    phys->physical = physical;
    phys->charged = physical >= 0 ? charge : 0;
    phys->fd = -1;
    *out = phys;
    return CUDA_SUCCESS;
}

struct sim_phys *sim_phys_ref(struct sim_phys *phys)
{
    phys->refs++;
    return phys;
}

static bool mapped(const struct sim_phys *phys)
{
    return phys->fd >= 0 || phys->size >= SMALL || phys->physical < 0;
}

void sim_phys_unref(struct sim_phys *phys)
{
    if (phys == NULL || --phys->refs > 0)
        return;
    if (phys->bytes != NULL && !phys->borrowed) {
        if (mapped(phys))
            munmap(phys->bytes, phys->size);
        else
            free(phys->bytes);
    }
    if (phys->fd >= 0)
        close(phys->fd);
    if (phys->charged > 0)
        sim_machine_uncharge(phys->physical, phys->charged);
    sim_race_forget(&phys->shadow);
    free(phys);
}

static bool fill(int fd, const unsigned char *from, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, from, size);
        if (done <= 0)
            return false;
        from += done;
        size -= (size_t)done;
    }
    return true;
}

static void poison(struct sim_phys *phys)
{
    unsigned char row[4096], *bytes = phys->bytes;
    if (phys->size <= 2 * PATTERN) {
        /* With huge pages where there are some: a fault for every 4 KiB is most of what a small
         * test program costs. */
        madvise(bytes, phys->size, MADV_HUGEPAGE);
        sim_bytes_fill(bytes, phys->size, 1, POISON);
        return;
    }
    /* The same copy-on-write pages again and again. */
    int fd = memfd_create("vramsim-poison", MFD_CLOEXEC);
    if (fd < 0)
        return;
    memset(row, POISON, sizeof row);
    bool filled = true;
    for (size_t at = 0; filled && at < PATTERN; at += sizeof row)
        filled = fill(fd, row, sizeof row);
    for (size_t at = 0; filled && at < phys->size; at += PATTERN) {
        size_t length = phys->size - at < PATTERN ? phys->size - at : PATTERN;
        if (mmap(bytes + at, length, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED)
            abort();
    }
    close(fd);
}

unsigned char *sim_phys_bytes(struct sim_phys *phys)
{
    if (phys->bytes != NULL)
        return phys->bytes;
    if (mapped(phys)) {
        int flags = phys->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *bytes = mmap(NULL, phys->size, PROT_READ | PROT_WRITE, flags, phys->fd, 0);
        phys->bytes = bytes == MAP_FAILED ? NULL : bytes;
        if (phys->bytes != NULL && phys->fd < 0 && phys->physical >= 0 && sim_config.poison)
            poison(phys);
    } else {
        void *bytes = NULL;
        if (posix_memalign(&bytes, 512, phys->size) == 0)
            phys->bytes =
                memset(bytes, phys->physical >= 0 && sim_config.poison ? POISON : 0, phys->size);
    }
    if (phys->bytes == NULL)
        sim_say("no host memory for %zu bytes of device memory", phys->size);
    return phys->bytes;
}

int sim_phys_share(struct sim_phys *phys)
{
    if (phys->fd >= 0 || phys->borrowed || phys->physical < 0)
        return phys->fd;
    int fd = memfd_create("vramsim", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (phys->bytes == NULL && sim_config.poison && phys->size <= SHARED_POISON)
        sim_phys_bytes(phys);
    unsigned char *old = phys->bytes;
    bool was_mapped = mapped(phys);
    if ((old != NULL && !fill(fd, old, phys->size)) || ftruncate(fd, (off_t)phys->size) != 0) {
        close(fd);
        return -1;
    }
    phys->fd = fd;
    phys->bytes = NULL;
    if (old != NULL && was_mapped)
        munmap(old, phys->size);
    else
        free(old);
    return fd;
}
