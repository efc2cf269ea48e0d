/*
 * Every entry point of the simulated driver: E(export, base name, driver version that introduced it,
 * LEGACY or PT (per-thread-default-stream twin)). One line adds one: `entry-row INCLUDE-FOLDER EXPORT`
 * prints it.
 */
#ifndef SIM_ENTRIES_H
#define SIM_ENTRIES_H

/* clang-format off */
#define SIM_ENTRIES(E) \
    E(cuCtxAttach, "cuCtxAttach", 2000, LEGACY) \
    E(cuCtxCreate, "cuCtxCreate", 2000, LEGACY) \
    E(cuCtxCreate_v2, "cuCtxCreate", 3020, LEGACY) \
    E(cuCtxCreate_v3, "cuCtxCreate", 11040, LEGACY) \
    E(cuCtxCreate_v4, "cuCtxCreate", 12050, LEGACY) \
    E(cuCtxDestroy, "cuCtxDestroy", 2000, LEGACY) \
    E(cuCtxDestroy_v2, "cuCtxDestroy", 4000, LEGACY) \
    E(cuCtxDetach, "cuCtxDetach", 2000, LEGACY) \
    E(cuCtxGetApiVersion, "cuCtxGetApiVersion", 3020, LEGACY) \
    E(cuCtxGetCacheConfig, "cuCtxGetCacheConfig", 3020, LEGACY) \
    E(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, LEGACY) \
    E(cuCtxGetDevice, "cuCtxGetDevice", 2000, LEGACY) \
    E(cuCtxGetDevice_v2, "cuCtxGetDevice", 13000, LEGACY) \
    E(cuCtxGetFlags, "cuCtxGetFlags", 7000, LEGACY) \
    E(cuCtxGetId, "cuCtxGetId", 12000, LEGACY) \
    E(cuCtxGetLimit, "cuCtxGetLimit", 3010, LEGACY) \
    E(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", 5050, LEGACY) \
    E(cuCtxPopCurrent, "cuCtxPopCurrent", 2000, LEGACY) \
    E(cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000, LEGACY) \
    E(cuCtxPushCurrent, "cuCtxPushCurrent", 2000, LEGACY) \
    E(cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000, LEGACY) \
    E(cuCtxRecordEvent, "cuCtxRecordEvent", 12050, LEGACY) \
    E(cuCtxSetCacheConfig, "cuCtxSetCacheConfig", 3020, LEGACY) \
    E(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, LEGACY) \
    E(cuCtxSetFlags, "cuCtxSetFlags", 12010, LEGACY) \
    E(cuCtxSetLimit, "cuCtxSetLimit", 3010, LEGACY) \
    E(cuCtxSynchronize, "cuCtxSynchronize", 2000, LEGACY) \
    E(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, LEGACY) \
    E(cuCtxWaitEvent, "cuCtxWaitEvent", 12050, LEGACY) \
    E(cuDeviceComputeCapability, "cuDeviceComputeCapability", 2000, LEGACY) \
    E(cuDeviceGet, "cuDeviceGet", 2000, LEGACY) \
    E(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000, LEGACY) \
    E(cuDeviceGetByPCIBusId, "cuDeviceGetByPCIBusId", 4010, LEGACY) \
    E(cuDeviceGetCount, "cuDeviceGetCount", 2000, LEGACY) \
    E(cuDeviceGetName, "cuDeviceGetName", 2000, LEGACY) \
    E(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, LEGACY) \
    E(cuDeviceGetProperties, "cuDeviceGetProperties", 2000, LEGACY) \
    E(cuDeviceGetUuid, "cuDeviceGetUuid", 9020, LEGACY) \
    E(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, LEGACY) \
    E(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", 7000, LEGACY) \
    E(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, LEGACY) \
    E(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, LEGACY) \
    E(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, LEGACY) \
    E(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, LEGACY) \
    E(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, LEGACY) \
    E(cuDevicePrimaryCtxSetFlags, "cuDevicePrimaryCtxSetFlags", 7000, LEGACY) \
    E(cuDevicePrimaryCtxSetFlags_v2, "cuDevicePrimaryCtxSetFlags", 11000, LEGACY) \
    E(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, LEGACY) \
    E(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, LEGACY) \
    E(cuDriverGetVersion, "cuDriverGetVersion", 2020, LEGACY) \
    E(cuEventCreate, "cuEventCreate", 2000, LEGACY) \
    E(cuEventDestroy, "cuEventDestroy", 2000, LEGACY) \
    E(cuEventDestroy_v2, "cuEventDestroy", 4000, LEGACY) \
    E(cuEventElapsedTime, "cuEventElapsedTime", 2000, LEGACY) \
    E(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080, LEGACY) \
    E(cuEventQuery, "cuEventQuery", 2000, LEGACY) \
    E(cuEventRecord, "cuEventRecord", 2000, LEGACY) \
    E(cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010, LEGACY) \
    E(cuEventRecordWithFlags_ptsz, "cuEventRecordWithFlags", 11010, PT) \
    E(cuEventRecord_ptsz, "cuEventRecord", 7000, PT) \
    E(cuEventSynchronize, "cuEventSynchronize", 2000, LEGACY) \
    E(cuGetErrorName, "cuGetErrorName", 6000, LEGACY) \
    E(cuGetErrorString, "cuGetErrorString", 6000, LEGACY) \
    E(cuGetProcAddress, "cuGetProcAddress", 11030, LEGACY) \
    E(cuGetProcAddress_v2, "cuGetProcAddress", 12000, LEGACY) \
    E(cuInit, "cuInit", 2000, LEGACY) \
    E(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, LEGACY) \
    E(cuLaunchHostFunc_ptsz, "cuLaunchHostFunc", 10000, PT) \
    E(cuMemAlloc, "cuMemAlloc", 2000, LEGACY) \
    E(cuMemAllocHost_v2, "cuMemAllocHost", 3020, LEGACY) \
    E(cuMemAllocManaged, "cuMemAllocManaged", 6000, LEGACY) \
    E(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, LEGACY) \
    E(cuMemAlloc_v2, "cuMemAlloc", 3020, LEGACY) \
    E(cuMemFree, "cuMemFree", 2000, LEGACY) \
    E(cuMemFreeHost, "cuMemFreeHost", 2000, LEGACY) \
    E(cuMemFree_v2, "cuMemFree", 3020, LEGACY) \
    E(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, LEGACY) \
    E(cuMemGetInfo_v2, "cuMemGetInfo", 3020, LEGACY) \
    E(cuMemHostAlloc, "cuMemHostAlloc", 2020, LEGACY) \
    E(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer", 3020, LEGACY) \
    E(cuMemHostGetFlags, "cuMemHostGetFlags", 2030, LEGACY) \
    E(cuMemHostRegister, "cuMemHostRegister", 4000, LEGACY) \
    E(cuMemHostRegister_v2, "cuMemHostRegister", 6050, LEGACY) \
    E(cuMemHostUnregister, "cuMemHostUnregister", 4000, LEGACY) \
    E(cuStreamAddCallback, "cuStreamAddCallback", 5000, LEGACY) \
    E(cuStreamAddCallback_ptsz, "cuStreamAddCallback", 7000, PT) \
    E(cuStreamCreate, "cuStreamCreate", 2000, LEGACY) \
    E(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, LEGACY) \
    E(cuStreamDestroy, "cuStreamDestroy", 2000, LEGACY) \
    E(cuStreamDestroy_v2, "cuStreamDestroy", 4000, LEGACY) \
    E(cuStreamGetCtx, "cuStreamGetCtx", 9020, LEGACY) \
    E(cuStreamGetCtx_ptsz, "cuStreamGetCtx", 9020, PT) \
    E(cuStreamGetDevice, "cuStreamGetDevice", 12080, LEGACY) \
    E(cuStreamGetDevice_ptsz, "cuStreamGetDevice", 12080, PT) \
    E(cuStreamGetFlags, "cuStreamGetFlags", 5050, LEGACY) \
    E(cuStreamGetFlags_ptsz, "cuStreamGetFlags", 7000, PT) \
    E(cuStreamGetId, "cuStreamGetId", 12000, LEGACY) \
    E(cuStreamGetId_ptsz, "cuStreamGetId", 12000, PT) \
    E(cuStreamGetPriority, "cuStreamGetPriority", 5050, LEGACY) \
    E(cuStreamGetPriority_ptsz, "cuStreamGetPriority", 7000, PT) \
    E(cuStreamQuery, "cuStreamQuery", 2000, LEGACY) \
    E(cuStreamQuery_ptsz, "cuStreamQuery", 7000, PT) \
    E(cuStreamSynchronize, "cuStreamSynchronize", 2000, LEGACY) \
    E(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, PT) \
    E(cuStreamWaitEvent, "cuStreamWaitEvent", 3020, LEGACY) \
    E(cuStreamWaitEvent_ptsz, "cuStreamWaitEvent", 7000, PT) \
    E(cuStreamWaitValue32, "cuStreamWaitValue32", 8000, LEGACY) \
    E(cuStreamWaitValue32_ptsz, "cuStreamWaitValue32", 8000, PT) \
    E(cuStreamWaitValue32_v2, "cuStreamWaitValue32", 11070, LEGACY) \
    E(cuStreamWaitValue32_v2_ptsz, "cuStreamWaitValue32", 11070, PT) \
    E(cuStreamWaitValue64, "cuStreamWaitValue64", 9000, LEGACY) \
    E(cuStreamWaitValue64_ptsz, "cuStreamWaitValue64", 9000, PT) \
    E(cuStreamWaitValue64_v2, "cuStreamWaitValue64", 11070, LEGACY) \
    E(cuStreamWaitValue64_v2_ptsz, "cuStreamWaitValue64", 11070, PT) \
    E(cuStreamWriteValue32, "cuStreamWriteValue32", 8000, LEGACY) \
    E(cuStreamWriteValue32_ptsz, "cuStreamWriteValue32", 8000, PT) \
    E(cuStreamWriteValue32_v2, "cuStreamWriteValue32", 11070, LEGACY) \
    E(cuStreamWriteValue32_v2_ptsz, "cuStreamWriteValue32", 11070, PT) \
    E(cuStreamWriteValue64, "cuStreamWriteValue64", 9000, LEGACY) \
    E(cuStreamWriteValue64_ptsz, "cuStreamWriteValue64", 9000, PT) \
    E(cuStreamWriteValue64_v2, "cuStreamWriteValue64", 11070, LEGACY) \
    E(cuStreamWriteValue64_v2_ptsz, "cuStreamWriteValue64", 11070, PT)
/* clang-format on */

#endif
