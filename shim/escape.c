/*
 * Detecting what goes past the shim (see escape.h).
 *
 * Symbol binding in a preloaded process always prefers our exports. An object whose import of one
 * of our names is bound to the real function was therefore opened with RTLD_DEEPBIND (or linked
 * -Bsymbolic against a copy). An import that is not bound yet was never called.
 */
#include "shim/escape.h"

#include "report/ledger.h"
#include "shim/driver.h"
#include "shim/elf.h"
#include "shim/lookup.h"
#include "shim/text.h"

#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool goes_past(const struct vs_elf_object *object, const struct vs_driver *driver)
{
    for (unsigned table = 0; table < 2; table++) {
        const ElfW(Rela) *relocation = object->relocations[table];

        for (size_t i = 0; relocation != NULL && i < object->relocation_counts[table]; i++) {
            void *const *slot;
            const char *name = vs_elf_import(object, &relocation[i], &slot);

            if (name == NULL) {
                continue;
            }
            if (strcmp(name, "dlsym") == 0 && *slot == (void *)vs_lookup_real_dlsym) {
                return true;
            }
            if (vs_driver_knows(name) && vs_driver_contains(driver, *slot)) {
                return true;
            }
        }
    }
    return false;
}

static int visit(const struct vs_elf_object *object, void *arg)
{
    const struct vs_driver *driver = arg;
    const char *name = base_name(object->name);
    char text[256];

    if (object->start == driver->start || vs_elf_is_ours((const void *)object->dynamic) ||
        !goes_past(object, driver)) {
        return 0;
    }
    vs_text_format(text, sizeof(text),
                   "%s was opened with RTLD_DEEPBIND and goes past the shim: device memory that it "
                   "takes itself is not counted",
                   name[0] != '\0' ? name : "the program");
    vs_ledger_note("deepbind", text);
    return 0;
}

void vs_escape_note(void)
{
    const struct vs_driver *driver = vs_driver_get();

    if (driver == NULL) {
        return;
    }
    vs_elf_each(visit, (void *)(uintptr_t)driver);
    if (vs_driver_second_seen() || vs_elf_other_namespace_has("libcuda.so")) {
        vs_ledger_note("second-driver", "another copy of libcuda is loaded in this process "
                                        "(dlmopen): device memory taken through it is not counted");
    }
}
