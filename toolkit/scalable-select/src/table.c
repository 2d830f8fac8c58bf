/* Determines which descriptor table a task uses. The library's state is about the numbers of one table, so only tasks
 * that share this table ("at home") may use it. Tasks that share the memory but not the table:
 *
 *   - the child of a vfork, or of a clone(CLONE_VM) without CLONE_FILES; it may run on its parent's thread-local memory
 *   - a thread that called unshare(CLONE_FILES) or close_range(CLOSE_RANGE_UNSHARE), and threads started by it
 *
 * For these every function of this library is the C library's. They are distinguished by the number of the task: of
 * what a child of vfork can read about itself cheaply, only that differs from its parent's. A verdict is kept with the
 * number of the task that it is about. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local char sp_has_vforked __attribute__((tls_model("initial-exec")));
int sp_has_cloned;

struct table {
    _Atomic int home;     /* the process whose threads may own knowledge; 0 in a child that was forked without notice */
    _Atomic int is_split; /* some thread of it has left the table */
    _Atomic int is_led_away; /* the first thread has */
};

static struct table *table;                                                               /* wiped in a fork's child */
static _Thread_local _Atomic uint64_t verdict __attribute__((tls_model("initial-exec"))); /* task << 1 | is at home */

static int this_task(void) {
    return (int)sp_real.syscall(SYS_gettid);
}

static int this_process(void) {
    return (int)sp_real.syscall(SYS_getpid);
}

static void keep(int task, bool is_home) {
    atomic_store_explicit(&verdict, (uint64_t)task << 1 | is_home, memory_order_relaxed);
}

/* 0: one table; above 0: two tables; below 0: unknown. */
static long compare_tables(int one, int other) {
    return sp_real.syscall(SYS_kcmp, one, other, KCMP_FILES, 0, 0);
}

/* Compares with the tables of the threads that have state. */
static long compare_with_owners(int task) {
    for (int i = 0, used = atomic_load(&sp_slots_used); i < used; i++) {
        struct sp_thread *t = sp_slot(i);
        long answer = t != NULL ? compare_tables(task, atomic_load(&t->task)) : -1;
        if (answer >= 0) /* otherwise the owner has just ended, or the kernel refuses to tell */
            return answer;
    }
    return -1;
}

/* Some filters kill for kcmp, so it is called only in a process that a thread has left. */
static __attribute__((noinline)) bool judge(int task) {
    int home = atomic_load(&table->home);
    long answer = this_process() != home ? 1 : 0;
    if (answer == 0 && atomic_load(&table->is_split)) {
        answer = compare_with_owners(task);
        if (answer < 0 && !atomic_load(&table->is_led_away) && compare_tables(task, home) == 0)
            answer = 0; /* compared with the first thread, because no owner is known */
    }
    if (answer >= 0 && home != 0)
        keep(task, answer == 0);
    return answer == 0;
}

bool sp_is_at_home(void) {
    if (atomic_load_explicit(&sp_is_sandboxed, memory_order_relaxed))
        return true; /* no system call may be made, and only marks are set from now on */
    int saved = errno, task = this_task();
    uint64_t known = atomic_load_explicit(&verdict, memory_order_relaxed);
    bool is_home = (int)(known >> 1) == task ? (known & 1) != 0 : judge(task);
    errno = saved;
    return is_home;
}

bool sp_is_other_process(void) {
    int home = table != NULL && !atomic_load(&sp_is_sandboxed) ? atomic_load(&table->home) : 0;
    return home != 0 && this_process() != home;
}

bool sp_may_own(void) {
    int none = 0;
    atomic_compare_exchange_strong(&table->home, &none, this_process());
    return sp_is_at_home();
}

bool sp_table_leave(void) {
    if (table == NULL || atomic_load(&sp_is_sandboxed) || !sp_is_at_home() || sp_status_number("\nThreads:") == 1)
        return false;
    int task = this_task();
    atomic_store(&table->is_split, 1);
    if (task == atomic_load(&table->home))
        atomic_store(&table->is_led_away, 1);
    /* On a kernel that cannot compare tables, the table of later threads is unknown. */
    if (compare_tables(task, task) != 0)
        atomic_store(&sp_is_sandboxed, 1);
    sp_release_own();
    keep(task, false);
    return true;
}

void sp_table_stay(void) {
    keep(this_task(), true);
}

bool sp_table_start(void) {
    if (table == NULL)
        table = sp_map_wiped_on_fork(sizeof *table);
    if (table == NULL)
        return false;
    atomic_store(&table->is_split, 0);
    atomic_store(&table->is_led_away, 0);
    atomic_store(&table->home, this_process());
    keep(0, false);
    return true;
}
