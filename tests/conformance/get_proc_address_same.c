/* For each entry that the programs use, cuGetProcAddress finds the very function that dlsym finds.
 */
#include "cu.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    const char *symbol;
    size_t different = 0;

    cu_load(argc, argv);
    if (dlsym(cu_library(), "cuGetProcAddress_v2") == NULL)
        cu_absent("cuGetProcAddress_v2");
    MUST(cuInit, 0);
    for (size_t i = 0; (symbol = cu_symbol(i)) != NULL; i++) {
        if (dlsym(cu_library(), symbol) == cu_by_version(symbol))
            continue;
        cu_say("%s is another one", symbol);
        different++;
    }
    FACT(different == 0);
    cu_end();
    return different != 0;
}
