/*
 * What the driver says of its devices, in the process's own numbering.
 */
#ifndef VS_SHIM_DEVICES_H
#define VS_SHIM_DEVICES_H

#include "report/ledger.h"
#include "shim/driver.h"

struct vs_devices {
    unsigned count; /* at most VS_LEDGER_MAX_DEVICES; more are left out */
    struct vs_ledger_device device[VS_LEDGER_MAX_DEVICES];
};

/* Fills *devices, without their limits. What the driver does not say stays empty or 0. False if it
 * is not initialised. Makes driver calls, none of which creates a context. */
bool vs_devices_describe(struct vs_devices *devices, const struct vs_entries *real);

#endif
