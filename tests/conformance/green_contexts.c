/* Green contexts: resources, streams, what belongs to the primary, whose events cover what. */
#include "cu.h"

static CUdevResource whole, part[2], rest;
static CUdevResourceDesc desc;

static void resources(CUdevice device)
{
    unsigned groups = 1, many = 0;
    CUdevResource again;

    TELL(cuDeviceGetDevResource, device, &whole, CU_DEV_RESOURCE_TYPE_SM);
    TELL(cuDeviceGetDevResource, device, &again, CU_DEV_RESOURCE_TYPE_INVALID);
    FACT(whole.type == CU_DEV_RESOURCE_TYPE_SM && whole.sm.smCount > 0);
    TELL(cuDevSmResourceSplitByCount, NULL, &many, &whole, NULL, 0, 8);
    FACT(many >= 2 && many <= whole.sm.smCount / 8);
    TELL(cuDevSmResourceSplitByCount, part, &groups, &whole, &rest, 0, 8);
    FACT(groups == 1 && part[0].sm.smCount >= 8);
    FACT(rest.sm.smCount == whole.sm.smCount - part[0].sm.smCount);
    TELL(cuDevSmResourceSplitByCount, part, &groups, &whole, &rest, 0, whole.sm.smCount + 1);
    groups = 1;
    TELL(cuDevSmResourceSplitByCount, &again, &groups, &part[0], NULL, 0, 8);
    /* A split that failed leaves its outputs undefined: what is used from here on is made anew. */
    groups = 1;
    MUST(cuDevSmResourceSplitByCount, part, &groups, &whole, &rest, 0, 8);
    TELL(cuDevResourceGenerateDesc, &desc, part, 1);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext primary, form = NULL, got = NULL;
    CUgreenCtx green = NULL, second = NULL, got_green = NULL;
    CUstream stream = NULL, plain = NULL, inside = NULL;
    CUevent event;
    CUdeviceptr p = 0, q = 0;
    CUdevResource mine;
    unsigned flags = 0;
    unsigned long long id = 0, other = 0;
    int active = 0;

    cu_start(argc, argv);
    NEED(cuGreenCtxCreate);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuCtxGetCurrent, &primary);
    resources(device);

    cu_say("created");
    TELL(cuGreenCtxCreate, &green, desc, device, 0);
    TELL(cuGreenCtxCreate, &green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
    TELL(cuGreenCtxGetDevResource, green, &mine, CU_DEV_RESOURCE_TYPE_SM);
    FACT(mine.sm.smCount == part[0].sm.smCount);
    TELL(cuCtxFromGreenCtx, &form, green);
    FACT(form != primary);
    TELL(cuCtxFromGreenCtx, &got, green);
    FACT(got == form);
    if (CU_HAVE(cuGreenCtxGetId)) {
        TELL(cuGreenCtxGetId, green, &id);
        TELL(cuCtxGetId, form, &other);
        FACT(id == other);
    }

    cu_say("streams");
    TELL(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_DEFAULT, 0);
    TELL(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
    MUST(cuStreamCreate, &plain, CU_STREAM_NON_BLOCKING);
    TELL(cuStreamGetCtx, stream, &got);
    FACT(got == form);
    TELL(cuStreamGetGreenCtx, stream, &got_green);
    FACT(got_green == green);
    TELL(cuStreamGetGreenCtx, plain, &got_green);
    FACT(got_green == NULL);
    if (CU_HAVE(cuStreamGetCtx_v2)) {
        TELL(cuStreamGetCtx_v2, stream, &got, &got_green);
        FACT(got == primary && got_green == green);
        TELL(cuStreamGetCtx_v2, plain, &got, &got_green);
        FACT(got == primary && got_green == NULL);
    }

    cu_say("current");
    TELL(cuCtxSetCurrent, form);
    TELL(cuCtxGetCurrent, &got);
    FACT(got == form);
    TELL(cuMemAlloc, &p, 1 << 20);
    TELL(cuPointerGetAttribute, &got, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    FACT(got == primary);
    FACT(got == form);
    TELL(cuStreamCreate, &inside, CU_STREAM_DEFAULT);
    TELL(cuStreamGetGreenCtx, inside, &got_green);
    FACT(got_green == green);
    TELL(cuStreamGetGreenCtx, NULL, &got_green);
    FACT(got_green == green);
    TELL(cuStreamQuery, CU_STREAM_PER_THREAD);
    TELL(cuMemsetD8, p, 7, 1 << 20);
    TELL(cuCtxSynchronize);
    FACT(cu_all_bytes(p, 1 << 20, 7));
    TELL(cuCtxSetCurrent, primary);

    cu_say("events");
    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    struct gate *gate = gate_new();
    gate_wait(gate, stream);
    TELL(cuGreenCtxRecordEvent, green, event);
    TELL(cuEventQuery, event);
    if (CU_HAVE(cuCtxRecordEvent)) {
        TELL(cuCtxRecordEvent, primary, event);
        TELL(cuEventQuery, event);
    }
    TELL(cuGreenCtxWaitEvent, green, event);
    TELL(cuStreamQuery, plain);
    gate_open(gate);
    TELL(cuEventSynchronize, event);
    TELL(cuStreamSynchronize, stream);
    gate_free(gate);

    /* Work of the primary outside the green context: its event does not cover it. */
    gate = gate_new();
    gate_wait(gate, plain);
    TELL(cuGreenCtxRecordEvent, green, event);
    TELL(cuEventSynchronize, event);
    TELL(cuStreamQuery, plain);
    gate_open(gate);
    TELL(cuStreamSynchronize, plain);
    gate_free(gate);

    cu_say("what the host copies after a plain free was done on green streams");
    gate = gate_new();
    MUST(cuMemAlloc, &q, 1 << 20);
    gate_wait(gate, stream);
    MUST(cuMemsetD8Async, q, 9, 1 << 20, stream);
    gate_open_later(gate);
    TELL(cuMemFree, p);
    FACT(cu_all_bytes(q, 1 << 20, 9));
    TELL(cuStreamSynchronize, stream);
    gate_free(gate);
    TELL(cuMemFree, q);

    cu_say("the end");
    MUST(cuStreamDestroy, stream);
    MUST(cuStreamDestroy, inside);
    TELL(cuGreenCtxCreate, &second, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
    TELL(cuGreenCtxDestroy, second);
    TELL(cuGreenCtxDestroy, green);
    TELL(cuDevicePrimaryCtxGetState, device, &flags, &active);
    FACT(active == 1);
    TELL(cuStreamQuery, plain);
    return cu_end();
}
