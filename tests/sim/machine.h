/*
 * The simulated machine as its libraries see it (libcuda.so.1, libnvidia-ml.so.1, vramsim-totals):
 * the knobs that shape it, the names of its devices, and the file through which processes share it.
 * Nothing of CUDA here.
 *
 * A *unit* is what memory is counted for: a GPU, or with VRAMSIM_MIG one instance of it. GPU g's
 * instance i is unit g * instances + i.
 */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_MAX_UNITS 16

/* ---- knobs.c ------------------------------------------------------------------------------- */
struct sim_shape {
    int gpus;      /* VRAMSIM_DEVICES */
    int instances; /* VRAMSIM_MIG: of each GPU; 0 = MIG is off */
    size_t memory; /* VRAMSIM_MEMORY, of each GPU */
};
struct sim_knobs {
    struct sim_shape shape;
    bool gpus_set, instances_set, memory_set; /* said by the environment */
    const char *share;                        /* VRAMSIM_SHARE or NULL */
};
bool sim_knobs_load(struct sim_knobs *knobs); /* false: a variable is bad, said */
bool sim_knob_bad(const char *name, const char *value, const char *accepted); /* says it; false */
const char *sim_knob_get(const char *name); /* NULL where unset or empty */
bool sim_knob_number(const char *name, long low, long high, long fallback, const char *accepted,
                     long *out);
bool sim_knob_size(const char *name, size_t fallback, bool zero, size_t *out);
bool sim_parse_size(const char *text, size_t *bytes);
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline int sim_shape_units(const struct sim_shape *shape)
{
    return shape->gpus * (shape->instances > 0 ? shape->instances : 1);
}
static inline size_t sim_shape_unit_memory(const struct sim_shape *shape)
{
    return shape->instances > 0 ? shape->memory / (size_t)shape->instances : shape->memory;
}

/* ---- machine.c ------------------------------------------------------------------------------- */
struct sim_totals;
const struct sim_shape *sim_machine_shape(void); /* once the machine is open */
__attribute__((visibility("default"))) bool vramsim_totals(int unit, struct sim_totals *out);

/* ---- names.c: the same in every process and every run --------------------------------------- */
void sim_name_gpu_uuid(int gpu, unsigned char uuid[16]);
void sim_name_mig_uuid(int gpu, int instance, unsigned char uuid[16]);
/* "GPU-…" or "MIG-…"; room for 41 bytes */
void sim_name_uuid_text(const char *prefix, const unsigned char uuid[16], char text[48]);
void sim_name_pci(int gpu, char text[16]); /* 0000:10:00.0 */
void sim_name_gpu(const struct sim_shape *shape, bool mig, char text[64]);

/* ---- share.c ---------------------------------------------------------------------------------
 */
struct sim_totals {
    uint64_t used;         /* held now by live processes */
    uint64_t peak;         /* highest sum ever held, dead processes included */
    uint64_t process_peak; /* most that any one process ever held */
};
struct sim_holder {
    pid_t pid;
    uint64_t bytes;
};
struct sim_share;
/* Joins the machine of this file, creating it where there is none. member: this process will hold
 * memory (takes a slot); else it only looks, and create says whether it may make the file. Shape:
 * what the environment wants; becomes what the machine is. NULL: said why. */
struct sim_share *sim_share_open(const struct sim_knobs *knobs, bool member, bool create,
                                 struct sim_shape *shape);
void sim_share_close(struct sim_share *share);
bool sim_share_charge(struct sim_share *share, int unit, size_t bytes); /* false: no room */
void sim_share_uncharge(struct sim_share *share, int unit, size_t bytes);
bool sim_share_totals(struct sim_share *share, int unit, struct sim_totals *totals);
/* Processes that are members, with what each holds of the unit; returns how many there are. */
unsigned sim_share_holders(struct sim_share *share, int unit, struct sim_holder *list,
                           unsigned room);

#endif
