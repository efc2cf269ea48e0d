/* Parsing and expanding VRAMSHIM_REPORT (see pattern.h). */
#include "report/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/emit.h"
#include "report/report.h"

#define VARIABLE_NAME 128

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is(const struct vs_pattern_item *item, const char *word)
{
    return item->length == strlen(word) && memcmp(item->from, word, item->length) == 0;
}

static bool ends_in(const struct vs_pattern_item *item, const char *extension)
{
    size_t length = strlen(extension);
    return item->length >= length &&
           memcmp(item->from + item->length - length, extension, length) == 0;
}

static const char *check_percents(const struct vs_pattern_item *item)
{
    const char *end = item->from + item->length;
    for (const char *c = item->from; c < end; c++) {
        if (*c != '%') {
            continue;
        }
        c++;
        if (c == end) {
            return "a path must not end in %";
        }
        if (*c == 'q') {
            const char *close = memchr(c, '}', (size_t)(end - c));
            if (c + 1 == end || c[1] != '{' || !close) {
                return "%q must be followed by {VARIABLE}";
            }
            if (close == c + 2) {
                return "%q{} names no variable";
            }
            if (close - (c + 2) >= VARIABLE_NAME) {
                return "the variable of %q{} has too long a name";
            }
            c = close;
        } else if (!strchr("phe%", *c)) {
            return "only %p, %h, %e, %q{VARIABLE} and %% are known in a path";
        }
    }
    return NULL;
}

static const char *check_item(struct vs_pattern_item *item)
{
    if (item->length == 0) {
        return "an entry of the list is empty";
    }
    if (is(item, "none")) {
        item->type = VS_PATTERN_NONE;
        return NULL;
    }
    if (is(item, "stderr")) {
        item->type = VS_PATTERN_STDERR;
        return NULL;
    }
    if (ends_in(item, ".json")) {
        item->type = VS_PATTERN_JSON;
    } else if (ends_in(item, ".txt")) {
        item->type = VS_PATTERN_TEXT;
    } else {
        return "a path must end in .json or .txt";
    }
    if (item->length >= VS_PATTERN_PATH) {
        return "a path is too long";
    }
    return check_percents(item);
}

const char *vs_pattern_parse(const char *spec, struct vs_pattern_item item[VS_PATTERN_ITEMS],
                             size_t *count)
{
    bool none = false;
    *count = 0;
    for (const char *from = spec;;) {
        const char *end = from + strcspn(from, ",");
        if (*count == VS_PATTERN_ITEMS) {
            return "at most 8 entries are possible";
        }
        struct vs_pattern_item *into = &item[*count];
        const char *last = end;
        while (from < last && blank(*from)) {
            from++;
        }
        while (last > from && blank(last[-1])) {
            last--;
        }
        into->from = from;
        into->length = (size_t)(last - from);
        const char *wrong = check_item(into);
        if (wrong) {
            return wrong;
        }
        none = none || into->type == VS_PATTERN_NONE;
        ++*count;
        if (*end == '\0') {
            break;
        }
        from = end + 1;
    }
    return none && *count > 1 ? "none must stand alone" : NULL;
}

const char *vs_report_spec_check(const char *spec)
{
    struct vs_pattern_item item[VS_PATTERN_ITEMS];
    size_t count;
    return vs_pattern_parse(spec, item, &count);
}

static void put_flat(struct vs_out *out, const char *text)
{
    for (; *text; text++) {
        vs_out_char(out, *text == '/' ? '_' : *text);
    }
}

static const char *put_variable(struct vs_out *out, const char *open)
{
    char name[VARIABLE_NAME];
    const char *close = strchr(open, '}');
    size_t length = (size_t)(close - open - 1);
    memcpy(name, open + 1, length);
    name[length] = '\0';
    const char *value = getenv(name);
    if (value) {
        vs_out_str(out, value);
    }
    return close;
}

int vs_pattern_expand(const struct vs_pattern_item *item, const struct vs_pattern_facts *facts,
                      char path[VS_PATTERN_PATH])
{
    struct vs_out out;
    vs_out_to_memory(&out, path, VS_PATTERN_PATH - 1);
    const char *end = item->from + item->length;
    for (const char *c = item->from; c < end; c++) {
        if (*c != '%') {
            vs_out_char(&out, *c);
            continue;
        }
        switch (*++c) {
        case 'p':
            vs_out_u64(&out, (uint64_t)facts->pid);
            break;
        case 'h':
            put_flat(&out, facts->host);
            break;
        case 'e': {
            const char *slash = strrchr(facts->executable, '/');
            put_flat(&out, slash ? slash + 1 : facts->executable);
            break;
        }
        case 'q':
            c = put_variable(&out, c + 1);
            break;
        default:
            vs_out_char(&out, '%');
        }
    }
    return out.error ? -ENAMETOOLONG : 0;
}
