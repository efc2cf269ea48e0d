/* This process's ledger and live table, for the snapshot and for tests; NULL before vs_ledger_open.
 */
#ifndef VS_REPORT_SELF_H
#define VS_REPORT_SELF_H

#include "report/layout.h"
#include "report/live.h"

struct vs_ledger *vs_ledger_self(void);
struct vs_live *vs_ledger_live(void);

#endif
