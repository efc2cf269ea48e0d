/*
 * Arming: from the first successful cuInit on, this process is counted.
 */
#ifndef VS_SHIM_ARM_H
#define VS_SHIM_ARM_H

#include "shim/driver.h"
#include "shim/options.h"

/* Reads and checks the options, once per process. 0, or 1 when a cap cannot be understood (said in
 * one line): then this process must not get device memory. */
int vs_arm_options(void);

/*
 * Called after the driver said yes to cuInit, or when memory was allocated without our having seen
 * one. Describes the devices, opens the ledger, claims the report's targets. Idempotent, from any
 * thread; when it returns the process is armed, refused or off (see process.h). Makes driver calls
 * that create no context, and holds no lock meanwhile.
 */
void vs_arm(const struct vs_driver *driver);

/* The options in force; valid once armed. */
const struct vs_options *vs_arm_resolved(void);

/* What is known of a device since arming; all 0 for one that is not there. */
struct vs_arm_device {
    uint64_t total_bytes;
    uint64_t limit_bytes; /* this process's cap; 0 = none */
};

const struct vs_arm_device *vs_arm_device(unsigned device);

#endif
