/*
 * The two outputs of a report, made from a snapshot alone: nothing of the running process enters,
 * so equal snapshots give equal bytes. Errors are the output's (vs_out_flush).
 */
#ifndef VS_REPORT_DOCUMENT_H
#define VS_REPORT_DOCUMENT_H

#include "report/emit.h"
#include "report/snapshot.h"

/* JSON, schema vramshim.report/1 (docs/report.schema.json). */
void vs_document_json(struct vs_out *out, const struct vs_snapshot *snapshot);

/* For people: peak against limit, leaks, out-of-memory verdicts, then the rest; one screen for a
 * clean run. */
void vs_document_text(struct vs_out *out, const struct vs_snapshot *snapshot);

/* "exit", "_exit", … as in the report. */
const char *vs_end_name(enum vs_end end);

/* "vmm", "native"; NULL: no pool (enum vs_ledger_backing). */
const char *vs_backing_name(uint32_t backing);

/* "over-limit", … as in the report. */
const char *vs_verdict_name(uint32_t verdict);

#endif
