/* Describing devices (see devices.h). */
#include "shim/devices.h"

#include <string.h>

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

bool vs_devices_describe(struct vs_devices *devices, const struct vs_entries *real)
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
