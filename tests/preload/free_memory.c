/*
 * What cuMemGetInfo says while memory moves between the driver and the pool (test_pool.py): the
 * device's memory less what the program holds, at every moment. Prints how many answers were wrong.
 */
#include "attack.h"

#define MIB ((size_t)1 << 20)
#define BLOCK (32 * MIB)

static size_t told(void)
{
    size_t free_bytes, total;

    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
}

/* Nobody else allocates, so each answer is known; idle memory goes back all the while. */
static void alone(void)
{
    static const size_t sizes[] = {6 * MIB, 10 * MIB, 34 * MIB, 64 * MIB};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LOOKS = 20 };
    int rounds = atoi(arguments[0]), wrong = 0;
    CUdeviceptr p[SIZES];
    size_t before, held = 0;

    start();
    before = told();
    for (int r = 0; r < rounds; r++) {
        for (int step = 0; step < 2 * SIZES; step++) {
            int i = step < SIZES ? step : 2 * SIZES - 1 - step;

            if (step < SIZES) {
                p[i] = take(sizes[i]);
                held += sizes[i];
            } else {
                CHECK(cuMemFree_v2(p[i]));
                held -= sizes[i];
            }
            for (int look = 0; look < LOOKS; look++) {
                wrong += told() != before - held;
            }
        }
    }
    printf("wrong %d\n", wrong);
}

static void in_this_context(void)
{
    CHECK(cuMemFree_v2(take(BLOCK)));
}

static void in_a_context_of_its_own(void)
{
    CUcontext made;

    CHECK(cuCtxCreate_v2(&made, 0, 0));
    CHECK(cuMemFree_v2(take(BLOCK)));
    take(BLOCK);
    CHECK(cuCtxDestroy_v2(made));
}

enum { WORKERS = 2 }; /* each of them holds a block at most */

static struct {
    void (*work)(void);
    int looks, wrong;
    size_t before;
    atomic_int threads;
    atomic_bool over;
} shared;

/* The first thread asks, the others work. */
static void *one_of_them(void *arg)
{
    CHECK(cuCtxSetCurrent(context));
    if (atomic_fetch_add(&shared.threads, 1) != 0) {
        while (!atomic_load(&shared.over)) {
            shared.work();
        }
        return arg;
    }
    for (int i = 0; i < shared.looks; i++) {
        size_t now = told();

        shared.wrong += now > shared.before || shared.before - now > WORKERS * BLOCK;
    }
    atomic_store(&shared.over, true);
    return arg;
}

static void others(void)
{
    start();
    take(BLOCK);
    shared.looks = atoi(arguments[0]);
    shared.work = strcmp(arguments[1], "contexts") == 0 ? in_a_context_of_its_own : in_this_context;
    shared.before = told();
    together(WORKERS + 1, one_of_them, NULL);
    printf("wrong %d\n", shared.wrong + (told() != shared.before));
}

static const struct mode modes[] = {MODE(alone), MODE(others), {NULL, NULL}};

int main(int argc, char **argv)
{
    return run_mode(argc, argv, modes);
}
