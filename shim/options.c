/*
 * From the environment to struct vs_options (see options.h).
 *
 * Each kind of value has one parser that takes a slice and stores into the field, or returns a
 * phrase that says what is wrong. Defaults go through the same parsers. What is said, and whether
 * it is a warning or a refusal, is decided in one place (refuse).
 */
#include "shim/options.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "shim/nearest.h"
#include "shim/say.h"
#include "shim/text.h"

static const char prefix[] = "VRAMSHIM_";
#define PREFIX_LENGTH (sizeof(prefix) - 1)

enum { ROLE_PLAIN, ROLE_CAP };
enum { STATE_LATER, STATE_PARTLY, STATE_ACTS };

const struct vs_option_info vs_options_table[VS_OPTION_COUNT] = {
#define VS_OPTION(id_, kind_, field_, choices_, low_, high_, default_, role_, acts_, accepted_,    \
                  meaning_)                                                                        \
    [VS_OPTION_##id_] = {.name = "VRAMSHIM_" #id_,                                                 \
                         .choices = choices_,                                                      \
                         .fallback = default_,                                                     \
                         .accepted = accepted_,                                                    \
                         .meaning = meaning_,                                                      \
                         .low = low_,                                                              \
                         .high = high_,                                                            \
                         .offset = offsetof(struct vs_options, field_),                            \
                         .kind = VS_OPTION_IS_##kind_,                                             \
                         .cap = ROLE_##role_ == ROLE_CAP,                                          \
                         .acts = STATE_##acts_ != STATE_LATER,                                     \
                         .partly = STATE_##acts_ == STATE_PARTLY},
#include "shim/options.def"
};

static_assert(sizeof(((struct vs_options *)0)->report) == VS_OPTIONS_PATH_SIZE,
              "every path field has the same size");

/* A slice of the environment, and where in it the problem is, if narrower than the whole. */
struct value {
    const char *text;
    size_t length;
    const char *item;
    size_t item_length;
};

static void tell(const struct vs_options_listener *listener, int level, enum vs_option option,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void tell(const struct vs_options_listener *listener, int level, enum vs_option option,
                 const char *format, ...)
{
    char line[VS_SAY_MAX];
    va_list arguments;

    if (!listener || !listener->say) {
        return;
    }
    va_start(arguments, format);
    vs_text_vformat(line, sizeof(line), format, arguments);
    va_end(arguments);
    listener->say(listener->context, level, option, line);
}

static void say_to_stderr(void *context, int level, enum vs_option option, const char *line)
{
    (void)context;
    (void)option;
    vs_say(level, "%s", line);
}

const struct vs_options_listener vs_options_to_stderr = {.say = say_to_stderr, .context = NULL};

static bool equals(const struct value *value, const char *word)
{
    return value->length == strlen(word) && vs_text_alike(value->text, word, value->length);
}

static const char *parse_bool(const struct value *value, bool *out)
{
    static const char *const words[] = {"0", "1", "off", "on", "false", "true", "no", "yes"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (equals(value, words[i])) {
            *out = i % 2 == 1;
            return NULL;
        }
    }
    return "it is neither on nor off";
}

/* The position of the value in a comma list of words, -1 if it is none of them. */
static int position(const char *choices, const struct value *value)
{
    for (int at = 0; *choices; at++) {
        size_t length = strcspn(choices, ",");

        if (length == value->length && vs_text_alike(choices, value->text, length)) {
            return at;
        }
        choices += length + (choices[length] == ',');
    }
    return -1;
}

/* Where on or off are among the choices, their other spellings are too. */
static const char *parse_choice(const struct value *value, const char *choices, int *out)
{
    int at = position(choices, value);
    bool on;

    if (at < 0 && !parse_bool(value, &on)) {
        struct value word = {.text = on ? "on" : "off", .length = on ? 2 : 3};

        at = position(choices, &word);
    }
    if (at < 0) {
        return "it is none of the words";
    }
    *out = at;
    return NULL;
}

static const char *parse_name(const struct value *value, char out[VS_OPTIONS_GROUP_MAX + 1])
{
    if (value->length > VS_OPTIONS_GROUP_MAX) {
        return "the name is longer than 64 characters";
    }
    for (size_t i = 0; i < value->length; i++) {
        char c = value->text[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-')) {
            return "the name has a character that is not allowed";
        }
    }
    memcpy(out, value->text, value->length);
    out[value->length] = '\0';
    return NULL;
}

static const char *parse_path(const struct value *value, char out[VS_OPTIONS_PATH_SIZE])
{
    if (value->length >= VS_OPTIONS_PATH_SIZE) {
        return "it is too long";
    }
    memcpy(out, value->text, value->length);
    out[value->length] = '\0';
    return NULL;
}

static const char *parse_report(const struct value *value, char out[VS_OPTIONS_PATH_SIZE])
{
    char before[VS_OPTIONS_PATH_SIZE];
    const char *why;

    memcpy(before, out, sizeof(before));
    why = parse_path(value, out);
    if (!why) {
        why = vs_report_spec_check(out);
    }
    if (why) {
        memcpy(out, before, sizeof(before));
    }
    return why;
}

static const char *parse_cap(struct value *value, struct vs_cap *out)
{
    return vs_cap_parse(value->text, value->length, out, &value->item, &value->item_length);
}

/* Blanks around a value are an accident, but in a path they may be meant. */
static void trim(struct value *value)
{
    static const char blanks[] = " \t\r\n";

    while (value->length > 0 && strchr(blanks, value->text[0])) {
        value->text++;
        value->length--;
    }
    while (value->length > 0 && strchr(blanks, value->text[value->length - 1])) {
        value->length--;
    }
}

static const char *parse(struct vs_options *out, const struct vs_option_info *info,
                         struct value *value)
{
    void *field = (char *)out + info->offset;

    if (info->kind != VS_OPTION_IS_PATH && info->kind != VS_OPTION_IS_DIR &&
        info->kind != VS_OPTION_IS_REPORT) {
        trim(value);
        if (value->length == 0) {
            return "it is blank";
        }
    }
    switch (info->kind) {
    case VS_OPTION_IS_BOOL:
        return parse_bool(value, field);
    case VS_OPTION_IS_CHOICE:
        return parse_choice(value, info->choices, field);
    case VS_OPTION_IS_SIZE:
        return vs_size_parse(value->text, value->length, field);
    case VS_OPTION_IS_INTEGER:
        return vs_size_parse_integer(value->text, value->length, info->low, info->high, field);
    case VS_OPTION_IS_CAP:
        return parse_cap(value, field);
    case VS_OPTION_IS_AMOUNT:
        return vs_size_parse_amount(value->text, value->length, field);
    case VS_OPTION_IS_FRACTION:
        return vs_size_parse_fraction(value->text, value->length, field);
    case VS_OPTION_IS_NAME:
        return parse_name(value, field);
    case VS_OPTION_IS_PATH:
    case VS_OPTION_IS_DIR:
        return parse_path(value, field);
    case VS_OPTION_IS_REPORT:
        return parse_report(value, field);
    }
    return "it has no parser";
}

static void default_dir(char out[VS_OPTIONS_PATH_SIZE])
{
    const char *base = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";

    vs_text_format(out, VS_OPTIONS_PATH_SIZE, "%s/vramshim-%u", base, (unsigned)geteuid());
}

/* The defaults are part of the table, and a test reads every one of them back. */
static void set_default(struct vs_options *out, enum vs_option option)
{
    const struct vs_option_info *info = &vs_options_table[option];
    struct value value = {.text = info->fallback, .length = strlen(info->fallback)};
    void *field = (char *)out + info->offset;
    bool none = equals(&value, "none");

    if (info->kind == VS_OPTION_IS_DIR) {
        default_dir(out->dir);
    } else if (none && info->kind == VS_OPTION_IS_SIZE) {
        *(uint64_t *)field = VS_OPTIONS_NO_SIZE;
    } else if (none && info->kind == VS_OPTION_IS_INTEGER) {
        *(int64_t *)field = VS_OPTIONS_NO_INTEGER;
    } else if (!none || info->kind == VS_OPTION_IS_CHOICE) {
        (void)parse(out, info, &value); /* every other kind: all zero is none */
    }
}

/* Says that a value is not taken. Returns VS_OPTIONS_BAD_CAP if it is a cap, else 0. */
static int refuse(const struct vs_options_listener *listener, enum vs_option option,
                  const struct value *value, const char *why)
{
    const struct vs_option_info *info = &vs_options_table[option];
    char shown[VS_TEXT_SHOWN], item[VS_TEXT_SHOWN];
    bool narrower = value->item && value->item_length < value->length;

    vs_text_escape(shown, sizeof(shown), value->text, value->length);
    vs_text_escape(item, sizeof(item), narrower ? value->item : "",
                   narrower ? value->item_length : 0);
    tell(listener, VS_SAY_ERROR, option, "%s=\"%s\" %s: %s%s%s%s; accepted: %s%s%s", info->name,
         shown, info->cap ? "refused" : "ignored", why, narrower ? " (at \"" : "", item,
         narrower ? "\")" : "", info->accepted, info->cap ? "" : "; using ",
         info->cap ? "" : info->fallback);
    return info->cap ? VS_OPTIONS_BAD_CAP : 0;
}

enum vs_option vs_options_find(const char *name, size_t length)
{
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        const char *known = vs_options_table[i].name;

        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            return (enum vs_option)i;
        }
    }
    return VS_OPTION_COUNT;
}

enum vs_option vs_options_nearest(const char *name, size_t length)
{
    unsigned least = UINT32_MAX;
    enum vs_option nearest = VS_OPTION_COUNT;

    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        const char *known = vs_options_table[i].name;
        unsigned distance = vs_nearest_distance(name, length, known, strlen(known));

        if (distance < least) {
            least = distance;
            nearest = (enum vs_option)i;
        }
    }
    return nearest;
}

static void say_unknown(const struct vs_options_listener *listener, const char *name, size_t length)
{
    char shown[VS_TEXT_SHOWN];

    vs_text_escape(shown, sizeof(shown), name, length);
    tell(listener, VS_SAY_ERROR, VS_OPTION_COUNT, "%s is not an option and is ignored; nearest: %s",
         shown, vs_options_table[vs_options_nearest(name, length)].name);
}

/* GROUP and GROUP_LIMIT go only together. */
static int check_group(const struct vs_options *out, const bool present[VS_OPTION_COUNT],
                       const struct vs_options_listener *listener)
{
    bool named = present[VS_OPTION_GROUP];
    enum vs_option set = named ? VS_OPTION_GROUP : VS_OPTION_GROUP_LIMIT;
    enum vs_option unset = named ? VS_OPTION_GROUP_LIMIT : VS_OPTION_GROUP;
    char space[VS_SIZE_TEXT];

    if (named == present[VS_OPTION_GROUP_LIMIT]) {
        return 0;
    }
    if (out->given[set]) { /* else it has been refused already */
        tell(listener, VS_SAY_ERROR, set,
             "%s=\"%s\" refused: %s is not set, and they go only together; accepted: %s",
             vs_options_table[set].name, vs_options_text(out, set, space, sizeof(space)),
             vs_options_table[unset].name, vs_options_table[set].accepted);
    }
    return VS_OPTIONS_BAD_CAP;
}

/* Members with folders of their own would be groups of their own: a cap that fails open. */
static int check_group_dir(const struct vs_options *out, const bool present[VS_OPTION_COUNT],
                           const struct vs_options_listener *listener)
{
    char shown[VS_TEXT_SHOWN];
    const char *dir = "unusable";

    if (!present[VS_OPTION_GROUP] || !present[VS_OPTION_DIR] ||
        (out->given[VS_OPTION_DIR] && out->dir[0] == '/')) {
        return 0;
    }
    if (out->given[VS_OPTION_DIR]) {
        dir = vs_text_escape(shown, sizeof(shown), out->dir, strlen(out->dir));
    }
    tell(listener, VS_SAY_ERROR, VS_OPTION_GROUP,
         "VRAMSHIM_GROUP=\"%s\" refused: its members meet in VRAMSHIM_DIR, which is \"%s\"; "
         "accepted: an absolute path, or none",
         out->group, dir);
    return VS_OPTIONS_BAD_CAP;
}

/* As far as it can be told without the devices; vs_options_check_devices does the rest. */
static int check_pool_size(const struct vs_options *out, const struct vs_options_listener *listener)
{
    uint64_t cap = out->group_limit.bytes;
    char size[VS_SIZE_TEXT], most[VS_SIZE_TEXT];

    if (out->limit.count == 1 && out->limit.entries[0].index == VS_CAP_EVERY) {
        uint64_t own = out->limit.entries[0].amount.bytes;

        if (own > 0 && (cap == 0 || own < cap)) {
            cap = own;
        }
    }
    if (cap == 0 || out->pool_size <= cap) {
        return 0;
    }
    tell(listener, VS_SAY_ERROR, VS_OPTION_POOL_SIZE,
         "VRAMSHIM_POOL_SIZE=\"%s\" refused: more than the cap of %s; accepted: %s",
         vs_size_text(size, out->pool_size), vs_size_text(most, cap),
         vs_options_table[VS_OPTION_POOL_SIZE].accepted);
    return VS_OPTIONS_BAD_CAP;
}

/* So many unknown names are said; a hostile environment could hold thousands. */
#define UNKNOWN_MAX 8

int vs_options_load(struct vs_options *out, char *const *environment,
                    const struct vs_options_listener *listener)
{
    bool seen[VS_OPTION_COUNT] = {false}, present[VS_OPTION_COUNT] = {false};
    unsigned unknown = 0;
    int result = 0;

    memset(out, 0, sizeof(*out));
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        set_default(out, (enum vs_option)i);
    }
    for (; environment && *environment; environment++) {
        const char *name = *environment, *equal;
        enum vs_option option;
        struct value value;
        const char *why;

        if (strncmp(name, prefix, PREFIX_LENGTH) != 0 || !(equal = strchr(name, '='))) {
            continue;
        }
        option = vs_options_find(name, (size_t)(equal - name));
        if (option == VS_OPTION_COUNT) {
            if (++unknown <= UNKNOWN_MAX) {
                say_unknown(listener, name, (size_t)(equal - name));
            }
            continue;
        }
        value = (struct value){.text = equal + 1, .length = strlen(equal + 1)};
        if (seen[option]) {
            continue;
        }
        seen[option] = true;
        if (value.length == 0) {
            continue;
        }
        present[option] = true;
        why = parse(out, &vs_options_table[option], &value);
        out->given[option] = !why;
        if (why) {
            result |= refuse(listener, option, &value, why);
        }
    }
    if (unknown > UNKNOWN_MAX) {
        tell(listener, VS_SAY_ERROR, VS_OPTION_COUNT,
             "%u more VRAMSHIM_ names are not options and are ignored", unknown - UNKNOWN_MAX);
    }
    /* Every check speaks for itself, so all of them run. */
    result |= check_group(out, present, listener);
    result |= check_group_dir(out, present, listener);
    result |= check_pool_size(out, listener);
    return result;
}

/* The names of the caps that were given and are in this state. */
static size_t caps_in_state(const struct vs_options *options, bool acts, char *names, size_t size)
{
    size_t used = 0;

    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        const struct vs_option_info *info = &vs_options_table[i];

        if (options->given[i] && info->cap && info->acts == acts && (!acts || info->partly)) {
            used += vs_text_format(names + used, size - used, "%s%s", used ? ", " : "", info->name);
        }
    }
    return used;
}

/* What the caps that were given do not hold for: one line for those of a kind. */
static void say_unenforced(const struct vs_options *options,
                           const struct vs_options_listener *listener)
{
    char names[256];

    if (caps_in_state(options, true, names, sizeof(names))) {
        tell(listener, VS_SAY_ERROR, VS_OPTION_COUNT,
             options->pool
                 ? "%s: holds for what the pool serves (plain and stream-ordered memory); other "
                   "kinds of device memory are NOT limited by this version"
                 : "%s: accepted, but with VRAMSHIM_POOL=off this version does not enforce "
                   "caps: memory is NOT limited",
             names);
    }
    if (caps_in_state(options, false, names, sizeof(names))) {
        tell(listener, VS_SAY_ERROR, VS_OPTION_COUNT,
             "%s: accepted, but this version does not enforce it: memory is NOT limited by it",
             names);
    }
}

void vs_options_announce(const struct vs_options *options,
                         const struct vs_options_listener *listener)
{
    char space[VS_OPTIONS_TEXT];
    char shown[VS_TEXT_SHOWN * 4];

    say_unenforced(options, listener);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        const struct vs_option_info *info = &vs_options_table[i];
        const char *text;

        if (!options->given[i]) {
            continue;
        }
        text = vs_options_text(options, (enum vs_option)i, space, sizeof(space));
        vs_text_escape(shown, sizeof(shown), text, strlen(text));
        tell(listener, VS_SAY_RESOLVED, (enum vs_option)i, "%s=%s%s", info->name, shown,
             info->acts ? "" : " (accepted, does nothing yet)");
    }
}
