/* Variables of modules and libraries, and what can be asked about functions. */
#include <string.h>

#include "cu.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .global .align 4 .u32 counter;\n"
                          ".visible .global .align 8 .b8 table[40];\n"
                          ".visible .entry spin_us(.param .u64 us)\n{\n ret;\n}\n";

int main(int argc, char **argv)
{
    CUmodule module = NULL, owner = NULL;
    CUfunction function = NULL;
    CUlibrary library = NULL;
    CUdeviceptr p = 0, q = 0, base = 0;
    size_t size = 0, offset = 9;
    unsigned word = 5, count = 0;
    const char *name = "";
    CUcontext owner_ctx = NULL, current = NULL;

    cu_start(argc, argv);
    MUST(cuModuleLoadData, &module, ptx);
    TELL(cuModuleGetGlobal, &p, &size, module, "counter");
    cu_say("size: %zu", size);
    FACT(cu_all_bytes(p, 4, 0));
    TELL(cuModuleGetGlobal, &q, NULL, module, "counter");
    FACT(p == q);
    TELL(cuModuleGetGlobal, NULL, &size, module, "table");
    cu_say("size: %zu", size);
    TELL(cuModuleGetGlobal, &q, &size, module, "nothing");
    TELL(cuModuleGetGlobal, &q, &size, module, NULL);
    TELL(cuMemcpyHtoD, p, &word, 4);
    word = 0;
    TELL(cuMemcpyDtoH, &word, p, 4);
    cu_say("word: %u", word);
    TELL(cuMemGetAddressRange, &base, &size, p);
    TELL(cuPointerGetAttribute, &owner_ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    MUST(cuCtxGetCurrent, &current);
    FACT(owner_ctx == current);
    TELL(cuMemFree, p);

    cu_say("functions");
    TELL(cuModuleGetFunction, &function, module, "spin_us");
    if (CU_HAVE(cuFuncGetModule)) {
        TELL(cuFuncGetModule, &owner, function);
        FACT(owner == module);
    }
    if (CU_HAVE(cuModuleGetFunctionCount)) {
        TELL(cuModuleGetFunctionCount, &count, module);
        cu_say("count: %u", count);
        TELL(cuFuncGetName, &name, function);
        cu_say("name: %s", name);
        TELL(cuFuncGetParamInfo, function, 0, &offset, &size);
        cu_say("offset %zu, size %zu", offset, size);
        TELL(cuFuncGetParamInfo, function, 1, &offset, &size);
    }
    TELL(cuModuleUnload, module);

    cu_say("a library");
    TELL(cuLibraryLoadData, &library, ptx, NULL, NULL, 0, NULL, NULL, 0);
    TELL(cuLibraryGetGlobal, &p, &size, library, "counter");
    cu_say("size: %zu", size);
    FACT(cu_all_bytes(p, 4, 0));
    TELL(cuLibraryGetGlobal, &p, &size, library, "nothing");
    TELL(cuLibraryUnload, library);
    return cu_end();
}
