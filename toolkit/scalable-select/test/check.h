/* A test is a function whose name states the claim. The program prints a line per test, and "N
 * passed, N failed" at the end. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check_failures __attribute__((unused)), check_passed_tests, check_failed_tests;

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            printf("  %s:%d: not true: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            check_failures++;                                                                    \
        }                                                                                        \
    } while (0)

#define CHECK_EQ(a, b)                                                                                             \
    do {                                                                                                           \
        long long check_a = (long long)(a), check_b = (long long)(b);                                              \
        if (check_a != check_b) {                                                                                  \
            printf("  %s:%d: %s is %lld, not %lld (errno %d)\n", __FILE__, __LINE__, #a, check_a, check_b, errno); \
            check_failures++;                                                                                      \
        }                                                                                                          \
    } while (0)

static inline void check_hung(int signal_number) {
    (void)signal_number;
    static const char text[] = "FAILED (hung: a wake-up was lost)\n";
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0)
        _exit(2);
    _exit(1);
}

#ifdef __SANITIZE_THREAD__
/* To name a line, ThreadSanitizer opens the program's debug information once, through the
 * library's own open() if the program contains it. This may happen during a report, which holds
 * the runtime's locks, and may cause a second report that waits for the first. */
void __sanitizer_symbolize_pc(void *pc, const char *format, char *buffer, size_t size);

static inline void check_can_report(void) {
    char name[64];
    __sanitizer_symbolize_pc((void *)check_hung, "%f", name, sizeof name);
}
#else
static inline void check_can_report(void) {}
#endif

/* A test that takes longer than this has lost a wake-up: each takes a few seconds at most. */
enum { CHECK_HANG_S = 120 };

#define RUN(test)                                               \
    do {                                                        \
        int check_before = check_failures;                      \
        fflush(stdout);                                         \
        check_can_report();                                     \
        signal(SIGALRM, check_hung);                            \
        alarm(CHECK_HANG_S);                                    \
        test();                                                 \
        alarm(0);                                               \
        bool check_ok = check_failures == check_before;         \
        check_ok ? check_passed_tests++ : check_failed_tests++; \
        printf("%s %s\n", check_ok ? "ok" : "FAILED", #test);   \
    } while (0)

static inline int check_end(void) {
    printf("%d passed, %d failed\n", check_passed_tests, check_failed_tests);
    return check_failed_tests != 0;
}

#endif
