/*
 * Counting what the hooks saw: the only way from the hooks to the ledger.
 */
#ifndef VS_SHIM_COUNT_H
#define VS_SHIM_COUNT_H

#include "report/ledger.h"
#include "shim/guard.h"
#include "shim/place.h"
#include "shim/process.h"

/* The slow half of vs_count_allowed. */
bool vs_count_arms(const struct vs_guard *guard);

/* False where no memory may be taken: a cap was refused. Arms the shim where nothing has yet. */
static inline bool vs_count_allowed(const struct vs_guard *guard)
{
    return __builtin_expect(vs_process_state() == VS_PROCESS_ARMED, 1) || vs_count_arms(guard);
}

/* Opens the body of a hook that allocates, after VS_HOOK_ENTER: refused memory returns at once. */
#define VS_COUNT_ALLOW()                                                                           \
    if (!vs_count_allowed(&guard)) {                                                               \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    }

/* What a program asked for. */
struct vs_count_request {
    size_t bytes;
    enum vs_kind kind;
    CUstream stream;   /* of a stream-ordered call, else NULL */
    CUmemoryPool pool; /* that the program named, else NULL */
};

/* Result of an allocating call: counts success, failure and out-of-memory. address is read only on
 * success. */
void vs_count_alloc(const struct vs_guard *guard, CUresult result, CUdeviceptr const *address,
                    const struct vs_count_request *request);

/* What an arena was asked for. */
struct vs_count_served {
    struct vs_place place;
    size_t bytes;
    enum vs_verdict verdict; /* of an out-of-memory */
    unsigned pool;           /* the program's memory pool (mempool.h); 0: none */
};

/* The same for memory of an arena. Before it is left. */
void vs_count_pool_alloc(const struct vs_guard *guard, CUresult result, CUdeviceptr address,
                         const struct vs_count_served *served);

/* The whole free of memory of a pool, before the pool's own: nobody else can be given the address
 * until then. */
void vs_count_pool_free(const struct vs_guard *guard, CUdeviceptr address);

/* Frees what starts at address with the call that follows, and counts it:
 *     struct vs_alloc alloc;
 *     bool known = vs_count_free_begin(&guard, address, &alloc);
 *     result = …the driver's free…;
 *     vs_count_free_end(known, result, &alloc); */
bool vs_count_free_begin(const struct vs_guard *guard, CUdeviceptr address, struct vs_alloc *alloc);
void vs_count_free_end(bool known, CUresult result, const struct vs_alloc *alloc);

/* A context is gone with all that was in it; identity as vs_place_context_goes gave it. */
void vs_count_context_gone(uint64_t identity);

#endif
