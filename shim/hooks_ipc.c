/* Hooks: memory between processes. */
#include "shim/guard.h"

VS_HOOK cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuIpcGetMemHandle)
    return guard.entries->cuIpcGetMemHandle(handle, address);
}

#define OPEN(name)                                                                                 \
    VS_HOOK name(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        return guard.entries->name(address, handle, flags);                                        \
    }

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

VS_HOOK cuIpcCloseMemHandle(CUdeviceptr address)
{
    VS_HOOK_ENTER(cuIpcCloseMemHandle)
    return guard.entries->cuIpcCloseMemHandle(address);
}
