/* The depth of hooks on this thread (see guard.h). */
#include "shim/guard.h"

__thread int vs_guard_depth __attribute__((tls_model("initial-exec")));
