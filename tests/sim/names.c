/*
 * What the simulated GPUs are called. A UUID depends on nothing but the number of the GPU (and of
 * the MIG instance), and two of them differ from the first digit on as a rule, so that a short
 * prefix names one device, as on a real machine.
 */
#include "machine.h"

#include <stdio.h>

static uint64_t scatter(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void make(uint64_t seed, unsigned char uuid[16])
{
    uint64_t half[2] = {scatter(seed), scatter(seed ^ 0x76726d73696d0000u)};
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(half[i / 8] >> (8 * (i % 8)));
}

void sim_name_gpu_uuid(int gpu, unsigned char uuid[16])
{
    make((uint64_t)gpu, uuid);
    /* The first digit is the device's own: at most 16 of them. */
    uuid[0] = (unsigned char)((((unsigned)gpu * 7 + 5) % 16) << 4 | (uuid[0] & 15));
}

void sim_name_mig_uuid(int gpu, int instance, unsigned char uuid[16])
{
    make(1000 + (uint64_t)gpu * 100 + (uint64_t)instance, uuid);
}

void sim_name_uuid_text(const char *prefix, const unsigned char uuid[16], char text[48])
{
    const unsigned char *u = uuid;
    snprintf(text, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             prefix, u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
             u[12], u[13], u[14], u[15]);
}

void sim_name_pci(int gpu, char text[16])
{
    snprintf(text, 16, "0000:%02X:00.0", (unsigned)(16 + gpu) & 0xff);
}

void sim_name_gpu(const struct sim_shape *shape, bool mig, char text[64])
{
    if (mig)
        snprintf(text, 64, "Simulated GPU MIG 1g.%zumb", sim_shape_unit_memory(shape) >> 20);
    else
        snprintf(text, 64, "Simulated GPU");
}
