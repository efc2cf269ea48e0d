/*
 * The fuzz entry in normal runs: every file of its corpus, and mutations of them from a seed.
 *
 * usage: random CORPUS [SEED [ROUNDS]]; the seed is printed, so that a failure can be repeated.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_FILES 64
#define MAX_SIZE 4096

static struct {
    uint8_t bytes[MAX_SIZE];
    size_t size;
} files[MAX_FILES];

static uint64_t next_random(uint64_t *state)
{
    /* splitmix64 */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t read_corpus(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t count = 0;

    if (!dir) {
        perror(folder);
        exit(1);
    }
    while (count < MAX_FILES && (entry = readdir(dir))) {
        char path[4096];
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        file = fopen(path, "rb");
        if (!file) {
            perror(path);
            exit(1);
        }
        files[count].size = fread(files[count].bytes, 1, MAX_SIZE, file);
        fclose(file);
        count++;
    }
    closedir(dir);
    return count;
}

static size_t mutate(uint8_t *out, const uint8_t *from, size_t size, uint64_t *state)
{
    static const char pieces[][12] = {"VRAMSHIM_", "KiB",  "GB",   "%",    "=",
                                      ",",         "GPU-", "0",    "-1",   "9999999999",
                                      "0.",        "off",  "auto", "none", " "};
    unsigned steps = (unsigned)(next_random(state) % 8);

    memcpy(out, from, size);
    while (steps--) {
        size_t at = size ? next_random(state) % size : 0;
        const char *piece;
        size_t length;

        switch (next_random(state) % 4) {
        case 0: /* change a byte */
            if (size > 0)
                out[at] = (uint8_t)next_random(state);
            break;
        case 1: /* drop a few */
            length = size - at < 4 ? size - at : next_random(state) % 4;
            memmove(out + at, out + at + length, size - at - length);
            size -= length;
            break;
        case 2: /* cut */
            size = at;
            break;
        default: /* put something that means something */
            piece = pieces[next_random(state) % (sizeof(pieces) / sizeof(pieces[0]))];
            length = strlen(piece);
            if (size + length > MAX_SIZE)
                break;
            memmove(out + at + length, out + at, size - at);
            memcpy(out + at, piece, length);
            size += length;
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    static uint8_t input[MAX_SIZE];
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    unsigned long rounds = argc > 3 ? strtoul(argv[3], NULL, 0) : 20000;
    uint64_t state = seed;
    size_t count;

    if (argc < 2) {
        fprintf(stderr, "usage: random CORPUS [SEED [ROUNDS]]\n");
        return 2;
    }
    count = read_corpus(argv[1]);
    fprintf(stderr, "random: %zu files, seed %ju, %lu rounds\n", count, (uintmax_t)seed, rounds);
    if (count == 0)
        return 1;
    for (size_t i = 0; i < count; i++)
        LLVMFuzzerTestOneInput(files[i].bytes, files[i].size);
    for (unsigned long i = 0; i < rounds; i++) {
        size_t from = next_random(&state) % count;

        LLVMFuzzerTestOneInput(input, mutate(input, files[from].bytes, files[from].size, &state));
    }
    return 0;
}
