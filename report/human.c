/* Forms for people (see emit.h): byte sizes, durations, dates, and text from outside. */
#include "report/emit.h"

#include <string.h>

#include "report/utf8.h"

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

/* The form of a size: value / 10^decimals units[unit], three significant digits. */
struct form {
    uint64_t value;
    unsigned decimals;
    unsigned unit;
    bool exact;
};

static bool form_in(uint64_t bytes, unsigned unit, struct form *form)
{
    unsigned __int128 one = (unsigned __int128)1 << (10 * unit);
    uint64_t scale = unit ? 100 : 1;
    for (form->decimals = unit ? 2 : 0;; form->decimals--, scale /= 10) {
        unsigned __int128 scaled = (unsigned __int128)bytes * scale;
        form->value = (uint64_t)((scaled * 2 + one) / (one * 2));
        form->unit = unit;
        form->exact = form->value * one == scaled;
        if (form->decimals == 0) {
            return form->value < 1024;
        }
        if (form->value < 1000) {
            return true;
        }
    }
}

static struct form form_of(uint64_t bytes)
{
    struct form form = {0};
    for (unsigned unit = 0; unit < sizeof units / sizeof *units; unit++) {
        if (form_in(bytes, unit, &form)) {
            break;
        }
    }
    return form;
}

void vs_out_bytes(struct vs_out *out, uint64_t bytes)
{
    struct form form = form_of(bytes);
    uint64_t scale = form.decimals == 2 ? 100 : form.decimals == 1 ? 10 : 1;
    vs_out_ratio(out, form.value, scale, form.decimals);
    vs_out_char(out, ' ');
    vs_out_str(out, units[form.unit]);
}

bool vs_bytes_exact(uint64_t bytes)
{
    return form_of(bytes).exact;
}

void vs_out_duration(struct vs_out *out, uint64_t ns)
{
    uint64_t seconds = ns / 1000000000u;
    if (ns < 1000000000u) {
        vs_out_ratio(out, ns / 100000u, 10, 1);
        vs_out_str(out, " ms");
    } else if (seconds < 60) {
        vs_out_ratio(out, ns / 100000000u, 10, 1);
        vs_out_str(out, " s");
    } else if (seconds < 3600) {
        vs_out_u64(out, seconds / 60);
        vs_out_str(out, " min ");
        vs_out_padded(out, seconds % 60, 2);
        vs_out_str(out, " s");
    } else {
        vs_out_u64(out, seconds / 3600);
        vs_out_str(out, " h ");
        vs_out_padded(out, seconds / 60 % 60, 2);
        vs_out_str(out, " min");
    }
}

/* Days since 1970-01-01 to a date of the Gregorian calendar, counted in years that begin in March
 * (so that the leap day is the last), within eras of 400 years. */
static void date_of(uint64_t days, unsigned *year, unsigned *month, unsigned *day)
{
    uint64_t shifted = days + 719468; /* days since 0000-03-01 */
    uint64_t era = shifted / 146097;
    unsigned in_era = (unsigned)(shifted % 146097);
    unsigned of_era = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    unsigned in_year = in_era - (365 * of_era + of_era / 4 - of_era / 100);
    unsigned from_march = (5 * in_year + 2) / 153;
    *day = in_year - (153 * from_march + 2) / 5 + 1;
    *month = from_march < 10 ? from_march + 3 : from_march - 9;
    *year = (unsigned)(era * 400 + of_era) + (*month <= 2);
}

void vs_out_utc(struct vs_out *out, uint64_t unix_ns)
{
    uint64_t seconds = unix_ns / 1000000000u;
    unsigned year, month, day;
    date_of(seconds / 86400, &year, &month, &day);
    vs_out_padded(out, year, 4);
    vs_out_char(out, '-');
    vs_out_padded(out, month, 2);
    vs_out_char(out, '-');
    vs_out_padded(out, day, 2);
    vs_out_char(out, 'T');
    vs_out_padded(out, seconds / 3600 % 24, 2);
    vs_out_char(out, ':');
    vs_out_padded(out, seconds / 60 % 60, 2);
    vs_out_char(out, ':');
    vs_out_padded(out, seconds % 60, 2);
    vs_out_char(out, '.');
    vs_out_padded(out, unix_ns / 1000000u % 1000, 3);
    vs_out_char(out, 'Z');
}

void vs_out_foreign(struct vs_out *out, const char *text)
{
    while (*text) {
        size_t length = vs_utf8_length(text);
        unsigned char c = (unsigned char)*text;
        if (length == 0) {
            vs_out_str(out, VS_UTF8_REPLACEMENT);
        } else if (c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)text[1] < 0xa0)) {
            vs_out_char(out, '?'); /* would move a terminal's cursor, or worse */
        } else {
            vs_out_raw(out, text, length);
        }
        text += length ? length : 1;
    }
}
