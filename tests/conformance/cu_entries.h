/* Every entry point that a conformance program uses, by the name that cuda.h gives it. */
#ifndef VS_TESTS_CONFORMANCE_CU_ENTRIES_H
#define VS_TESTS_CONFORMANCE_CU_ENTRIES_H

/* clang-format off */
#define CU_ENTRIES(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuGetProcAddress) \
    X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) \
    X(cuDeviceTotalMem) X(cuDeviceGetAttribute) \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxReset) \
    X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxSetFlags) \
    X(cuCtxCreate) X(cuCtxDestroy) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent) \
    X(cuCtxPopCurrent) X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuCtxGetFlags) \
    X(cuCtxGetApiVersion) X(cuCtxRecordEvent) X(cuCtxWaitEvent) \
    X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemAllocPitch) X(cuMemGetAddressRange) \
    X(cuMemAllocManaged) X(cuMemAllocHost) X(cuMemHostAlloc) X(cuMemFreeHost) \
    X(cuMemHostGetDevicePointer) X(cuMemHostGetFlags) X(cuMemHostRegister) \
    X(cuMemHostUnregister) \
    X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemAllocFromPoolAsync) \
    X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolSetAttribute) \
    X(cuMemPoolGetAttribute) X(cuMemPoolGetAccess) X(cuMemPoolSetAccess) \
    X(cuMemPoolExportPointer) X(cuMemPoolExportToShareableHandle) \
    X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool) \
    X(cuDeviceSetMemPool) \
    X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) \
    X(cuMemUnmap) X(cuMemSetAccess) X(cuMemGetAccess) X(cuMemGetAllocationGranularity) \
    X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle) \
    X(cuMemcpyPeerAsync) X(cuMemcpy3D) X(cuMemcpy3DPeerAsync) X(cuMemcpy2DUnaligned) \
    X(cuMemcpy) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD) X(cuMemcpy2D) \
    X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyAsync) \
    X(cuMemsetD8) X(cuMemsetD16) X(cuMemsetD32) X(cuMemsetD8Async) X(cuMemsetD32Async) \
    X(cuMemsetD2D8) X(cuMemcpy2DAsync) \
    X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamQuery) \
    X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamGetFlags) X(cuStreamGetPriority) \
    X(cuStreamGetCtx) X(cuStreamAddCallback) X(cuLaunchHostFunc) \
    X(cuStreamWaitValue32) X(cuStreamWriteValue32) \
    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing) \
    X(cuThreadExchangeStreamCaptureMode) \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
    X(cuEventElapsedTime) \
    X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphInstantiate) X(cuGraphLaunch) \
    X(cuGraphExecDestroy) X(cuGraphGetNodes) \
    X(cuGraphUpload) X(cuGraphClone) X(cuGraphNodeFindInClone) X(cuGraphDestroyNode) \
    X(cuGraphGetRootNodes) X(cuGraphGetEdges) X(cuGraphNodeGetType) \
    X(cuGraphNodeGetDependencies) X(cuGraphNodeGetDependentNodes) X(cuGraphAddDependencies) \
    X(cuGraphRemoveDependencies) X(cuGraphAddKernelNode) X(cuGraphAddMemcpyNode) \
    X(cuGraphAddMemsetNode) X(cuGraphAddHostNode) X(cuGraphAddEmptyNode) \
    X(cuGraphAddEventRecordNode) X(cuGraphAddEventWaitNode) X(cuGraphAddChildGraphNode) \
    X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode) X(cuGraphKernelNodeGetParams) \
    X(cuGraphMemsetNodeGetParams) X(cuGraphMemsetNodeSetParams) X(cuGraphMemcpyNodeGetParams) \
    X(cuGraphHostNodeGetParams) X(cuGraphEventRecordNodeGetEvent) \
    X(cuGraphChildGraphNodeGetGraph) X(cuGraphMemAllocNodeGetParams) \
    X(cuGraphMemFreeNodeGetParams) X(cuGraphExecKernelNodeSetParams) \
    X(cuGraphExecMemsetNodeSetParams) X(cuGraphExecUpdate) X(cuGraphNodeSetEnabled) \
    X(cuDeviceGraphMemTrim) X(cuDeviceGetGraphMemAttribute) X(cuDeviceSetGraphMemAttribute) \
    X(cuArrayCreate) X(cuArray3DCreate) X(cuArrayDestroy) X(cuArrayGetDescriptor) \
    X(cuArray3DGetDescriptor) X(cuArrayGetPlane) X(cuArrayGetMemoryRequirements) \
    X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuMipmappedArrayGetLevel) \
    X(cuMemcpyHtoA) X(cuMemcpyAtoH) X(cuMemcpyDtoA) X(cuMemcpyAtoD) X(cuMemcpyAtoA) \
    X(cuMemcpyHtoAAsync) X(cuMemcpyAtoHAsync) X(cuMemcpy3DAsync) \
    X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel) \
    X(cuPointerGetAttribute) X(cuPointerGetAttributes) \
    X(cuDeviceGetDevResource) X(cuDevSmResourceSplitByCount) X(cuDevResourceGenerateDesc) \
    X(cuGreenCtxCreate) X(cuGreenCtxDestroy) X(cuGreenCtxGetDevResource) X(cuCtxFromGreenCtx) \
    X(cuGreenCtxGetId) X(cuCtxGetId) X(cuGreenCtxStreamCreate) X(cuGreenCtxRecordEvent) \
    X(cuGreenCtxWaitEvent) X(cuStreamGetGreenCtx) X(cuStreamGetCtx_v2) \
    X(cuStreamSetAttribute) X(cuStreamGetAttribute) X(cuStreamCopyAttributes) \
    X(cuModuleGetGlobal) X(cuModuleGetFunctionCount) X(cuFuncGetModule) X(cuFuncGetName) \
    X(cuFuncGetParamInfo) X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLibraryGetGlobal) \
    X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) X(cuIpcGetEventHandle) \
    X(cuIpcOpenEventHandle)
/* clang-format on */

#endif
