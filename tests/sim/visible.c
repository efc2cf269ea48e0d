/*
 * CUDA_VISIBLE_DEVICES: which devices of the machine the program sees, and in which order.
 *
 * Measured on one H200, driver 580, where one GPU can show it:
 *   - empty: no device. A list is read up to the first element that names no device: junk, -1, an
 *     empty element, a number or UUID that is not there, and an element of the other kind (UUIDs
 *     after numbers or the reverse).
 *   - a number is what atoi makes of it (" 0", "00", "0x1", "0:1", "4294967296" are all 0).
 *   - a UUID is "GPU-" (in capitals) and hex digits, of either case, dashes ignored, as many as
 * name one device; what follows 32 digits is ignored, anything else after fewer is junk. Without
 * MIG "MIG-" means the same as "GPU-".
 *   - a device that is named twice makes cuInit fail with INVALID_DEVICE.
 * From the documentation: an ambiguous prefix names no device; with MIG a process sees one instance
 * only (the first that is named, or the first of the first GPU), by "MIG-UUID" or, as before R470,
 * "MIG-GPU-UUID/gi/ci". Here instance i of a GPU is gi i + 1, ci 0.
 */
#include "machine.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_device sim_devices[SIM_MAX_DEVICES];
int sim_device_count;

static void describe(struct sim_device *device, int index, int unit)
{
    const struct sim_shape *shape = sim_machine_shape();
    memset(device, 0, sizeof *device);
    device->index = index;
    device->physical = unit;
    device->gpu = shape->instances > 0 ? unit / shape->instances : unit;
    sim_name_gpu(shape, shape->instances > 0, device->name);
    char pci[16];
    sim_name_pci(device->gpu, pci);
    snprintf(device->pci, sizeof device->pci, "%s", pci);
    unsigned char uuid[16];
    if (shape->instances > 0)
        sim_name_mig_uuid(device->gpu, unit % shape->instances, uuid);
    else
        sim_name_gpu_uuid(device->gpu, uuid);
    memcpy(device->uuid.bytes, uuid, sizeof uuid);
    size_t free_bytes;
    sim_machine_info(unit, &free_bytes, &device->total);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether the text up to a comma, slash or space is a prefix of this UUID. */
static bool prefix_of(const char *text, const unsigned char uuid[16])
{
    int digits = 0;
    for (; digits < 32 && *text != '\0' && *text != ',' && *text != '/' && *text != ' '; text++) {
        if (*text == '-')
            continue;
        int half = digits % 2 == 0 ? uuid[digits / 2] >> 4 : uuid[digits / 2] & 15;
        if (digit(*text) != half)
            return false;
        digits++;
    }
    return digits > 0;
}

static int gpu_named(const char *text, int gpus)
{
    int found = -1;
    for (int gpu = 0; gpu < gpus; gpu++) {
        unsigned char uuid[16];
        sim_name_gpu_uuid(gpu, uuid);
        if (!prefix_of(text, uuid))
            continue;
        if (found >= 0)
            return -1;
        found = gpu;
    }
    return found;
}

static int instance_named(const char *text, const struct sim_shape *shape)
{
    if (strncmp(text, "GPU-", 4) == 0) {
        int gpu = gpu_named(text + 4, shape->gpus), gi = 0, ci = 0;
        const char *slash = strchr(text, '/');
        if (gpu < 0 || slash == NULL || sscanf(slash, "/%d/%d", &gi, &ci) != 2 || gi < 1 ||
            gi > shape->instances || ci != 0)
            return -1;
        return gpu * shape->instances + gi - 1;
    }
    int found = -1;
    for (int unit = 0; unit < sim_shape_units(shape); unit++) {
        unsigned char uuid[16];
        sim_name_mig_uuid(unit / shape->instances, unit % shape->instances, uuid);
        if (!prefix_of(text, uuid))
            continue;
        if (found >= 0)
            return -1;
        found = unit;
    }
    return found;
}

/* The unit that an element names, -1 if none. */
static int unit_named(const char *text, const struct sim_shape *shape, bool *by_name)
{
    int each = shape->instances > 0 ? shape->instances : 1;
    int gpu = -1;
    *by_name = strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0;
    if (*by_name && text[0] == 'M' && shape->instances > 0)
        return instance_named(text + 4, shape);
    if (*by_name) {
        gpu = gpu_named(text + 4, shape->gpus);
    } else {
        char *end;
        int number = (int)strtol(text, &end, 10);
        if (end != text && number >= 0 && number < shape->gpus)
            gpu = number;
    }
    return gpu >= 0 ? gpu * each : -1;
}

CUresult sim_devices_open(void)
{
    const struct sim_shape *shape = sim_machine_shape();
    const int most = shape->instances > 0 ? 1 : SIM_MAX_DEVICES;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    sim_device_count = 0;
    if (visible == NULL) {
        for (int i = 0; i < shape->gpus && i < most; i++)
            describe(&sim_devices[sim_device_count++], i, i);
        return CUDA_SUCCESS;
    }
    bool names = false;
    for (const char *at = visible; at != NULL;) {
        bool by_name;
        int unit = unit_named(at, shape, &by_name);
        if (unit < 0 || (sim_device_count > 0 && by_name != names))
            break;
        names = by_name;
        for (int i = 0; i < sim_device_count; i++) {
            if (sim_devices[i].physical == unit) {
                sim_device_count = 0;
                return CUDA_ERROR_INVALID_DEVICE;
            }
        }
        if (sim_device_count < most) {
            describe(&sim_devices[sim_device_count], sim_device_count, unit);
            sim_device_count++;
        }
        at = strchr(at, ',');
        if (at != NULL)
            at++;
    }
    return CUDA_SUCCESS;
}
