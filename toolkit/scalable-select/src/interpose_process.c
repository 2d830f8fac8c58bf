/* Interposes the functions by which a process changes its limit on descriptors and its permitted system calls, and
 * by which a thread gets a separate descriptor table. */
#define _GNU_SOURCE
#include "real.h"
#include "sp.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int limit_set(int result) {
    if (result == 0 && !sp_is_other_process())
        sp_refresh_limit();
    return result;
}

SP_EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit) {
    SP_STARTED();
    return limit_set(sp_real.setrlimit(resource, limit));
}

SP_EXPORT int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit) {
    SP_STARTED();
    return limit_set(sp_real.setrlimit64(resource, limit));
}

SP_EXPORT int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit, struct rlimit *old) {
    SP_STARTED();
    return limit_set(sp_real.prlimit(pid, resource, limit, old));
}

SP_EXPORT int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *limit, struct rlimit64 *old) {
    SP_STARTED();
    return limit_set(sp_real.prlimit64(pid, resource, limit, old));
}

SP_EXPORT int unshare(int what) {
    SP_STARTED();
    bool is_leaving = (what & CLONE_FILES) != 0 && sp_table_leave();
    int result = sp_real.unshare(what);
    if (is_leaving && result != 0)
        sp_table_stay();
    return result;
}

/* fork for signal handlers, which runs no pthread_atfork handlers. */
SP_EXPORT pid_t _Fork(void);
SP_EXPORT pid_t _Fork(void) {
    SP_STARTED();
    if (sp_real._Fork == NULL)
        sp_find_late();
    if (sp_real._Fork == NULL) {
        errno = ENOSYS;
        return -1;
    }
    sp_fork_prepare();
    pid_t child = sp_real._Fork();
    if (child == 0)
        sp_fork_child();
    return child;
}

/* If the report's handler is installed, the program sees no handler. */
SP_EXPORT int sigaction(int number, const struct sigaction *act, struct sigaction *old) {
    SP_STARTED();
    int result = sp_real.sigaction(number, act, old);
    if (result == 0 && old != NULL && (old->sa_flags & SA_SIGINFO) == 0 && sp_is_our_handler(old->sa_handler))
        *old = (struct sigaction){.sa_handler = SIG_DFL};
    return result;
}

SP_EXPORT void (*signal(int number, void (*handler)(int)))(int) {
    SP_STARTED();
    void (*old)(int) = sp_real.signal(number, handler);
    return sp_is_our_handler(old) ? SIG_DFL : old;
}

/* A filter may kill the process for a call that only this library makes. From here on the library makes no calls,
 * not even at exit. */
static void enter_sandbox(void) {
    if (sp_is_other_process())
        return;
    int saved = errno;
    sp_stats_leave_signals();
    sp_stats_report();
    errno = saved;
    atomic_store(&sp_is_sandboxed, 1);
}

SP_EXPORT int prctl(int option, ...) {
    SP_STARTED();
    va_list list;
    va_start(list, option);
    unsigned long a = va_arg(list, unsigned long), b = va_arg(list, unsigned long), c = va_arg(list, unsigned long),
                  d = va_arg(list, unsigned long);
    va_end(list);
    if (option == PR_SET_SECCOMP)
        enter_sandbox();
    return sp_real.prctl(option, a, b, c, d);
}

SP_EXPORT int seccomp_load(void *filter);
SP_EXPORT int seccomp_load(void *filter) {
    SP_STARTED();
    if (sp_real.seccomp_load == NULL)
        sp_find_late();
    if (sp_real.seccomp_load == NULL)
        return -ENOSYS;
    enter_sandbox();
    return sp_real.seccomp_load(filter);
}

#ifdef __x86_64__
/* syscall(2), for the numbers that close descriptors, leave the table or install a filter. All others jump to the
 * C library's function with registers and stack untouched, because syscall(SYS_vfork) returns twice into the
 * caller's frame. */
long sp_direct_call(long number, long a, long b, long c) __attribute__((used, visibility("hidden")));
long (*sp_next_syscall)(long, ...) __attribute__((used, visibility("hidden")));

long sp_direct_error(int error) __attribute__((used, visibility("hidden")));
long sp_direct_error(int error) {
    errno = error;
    return -1;
}

/* The constructor has not run. An allocator with its lock held may call this function, so it
 * only makes the call. */
static long call_kernel(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result < 0 ? sp_direct_error((int)-result) : result;
}

long sp_direct_call(long number, long a, long b, long c) {
    if (!sp_has_started && number != SYS_seccomp)
        return call_kernel(number, a, b, c);
    SP_STARTED();
    switch (number) {
    case SYS_close:
        return close((int)a);
    case SYS_close_range:
        return close_range((unsigned)a, (unsigned)b, (int)c);
    case SYS_unshare:
        return unshare((int)a);
    case SYS_dup2:
        return dup2((int)a, (int)b);
    case SYS_dup3:
        return dup3((int)a, (int)b, (int)c);
    default:
        if (a == SECCOMP_SET_MODE_STRICT || a == SECCOMP_SET_MODE_FILTER)
            enter_sandbox();
        return sp_real.syscall(number, a, b, c);
    }
}

void (*sp_next_vfork)(void) __attribute__((used, visibility("hidden")));
void (*sp_next_clone)(void) __attribute__((used, visibility("hidden")));

__attribute__((constructor(101), used, visibility("hidden"))) void sp_find_next(void);
void sp_find_next(void) {
    *(void **)(&sp_next_syscall) = dlsym(RTLD_NEXT, "syscall");
    *(void **)(&sp_next_vfork) = dlsym(RTLD_NEXT, "vfork");
    *(void **)(&sp_next_clone) = dlsym(RTLD_NEXT, "clone");
}

/* vfork returns twice into its caller's frame, and clone's child has another stack. Both marks are set with
 * registers and stack untouched (sp_may_be_child). CLONE_VM is 0x100. */
__asm__(".text\n"
        ".globl vfork, __vfork, clone, __clone\n"
        ".type vfork, @function\n"
        ".type __vfork, @function\n"
        ".type clone, @function\n"
        ".type __clone, @function\n"
        "vfork:\n"
        "__vfork:\n"
        "	.cfi_startproc\n"
        "	endbr64\n"
        "	movq	sp_has_vforked@gottpoff(%rip), %rax\n"
        "	movb	$1, %fs:(%rax)\n"
        "	movq	sp_next_vfork(%rip), %rax\n"
        "	testq	%rax, %rax\n"
        "	jne	1f\n"
        "	subq	$8, %rsp\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	call	sp_find_next\n"
        "	addq	$8, %rsp\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	movq	sp_next_vfork(%rip), %rax\n"
        "1:	jmp	*%rax\n"
        "	.cfi_endproc\n"
        ".size vfork, .-vfork\n"
        "clone:\n"
        "__clone:\n"
        "	.cfi_startproc\n"
        "	endbr64\n"
        "	testl	$0x100, %edx\n"
        "	je	1f\n"
        "	movl	$1, sp_has_cloned(%rip)\n"
        "1:	movq	sp_next_clone(%rip), %rax\n"
        "	testq	%rax, %rax\n"
        "	jne	2f\n"
        "	pushq	%rdi\n" /* before the constructor ran */
        "	pushq	%rsi\n"
        "	pushq	%rdx\n"
        "	pushq	%rcx\n"
        "	pushq	%r8\n"
        "	pushq	%r9\n"
        "	subq	$8, %rsp\n"
        "	.cfi_adjust_cfa_offset 56\n"
        "	call	sp_find_next\n"
        "	addq	$8, %rsp\n"
        "	popq	%r9\n"
        "	popq	%r8\n"
        "	popq	%rcx\n"
        "	popq	%rdx\n"
        "	popq	%rsi\n"
        "	popq	%rdi\n"
        "	.cfi_adjust_cfa_offset -56\n"
        "	movq	sp_next_clone(%rip), %rax\n"
        "2:	jmp	*%rax\n"
        "	.cfi_endproc\n"
        ".size clone, .-clone\n"
        ".previous\n");

__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "	.cfi_startproc\n"
        "	endbr64\n"
        "	cmpq	$3, %rdi\n" /* SYS_close */
        "	je	sp_direct_call\n"
        "	cmpq	$33, %rdi\n" /* SYS_dup2 */
        "	je	sp_direct_call\n"
        "	cmpq	$272, %rdi\n" /* SYS_unshare */
        "	je	sp_direct_call\n"
        "	cmpq	$292, %rdi\n" /* SYS_dup3 */
        "	je	sp_direct_call\n"
        "	cmpq	$317, %rdi\n" /* SYS_seccomp */
        "	je	sp_direct_call\n"
        "	cmpq	$436, %rdi\n" /* SYS_close_range */
        "	je	sp_direct_call\n"
        "	cmpq	$58, %rdi\n" /* SYS_vfork */
        "	je	2f\n"
        "	cmpq	$435, %rdi\n" /* SYS_clone3 */
        "	je	2f\n"
        "	cmpq	$56, %rdi\n" /* SYS_clone */
        "	jne	3f\n"
        "	testl	$0x100, %esi\n"
        "	je	3f\n"
        "2:	movl	$1, sp_has_cloned(%rip)\n"
        "3:	movq	sp_next_syscall(%rip), %rax\n"
        "	testq	%rax, %rax\n"
        "	je	1f\n"
        "	jmp	*%rax\n"
        "1:	movq	%rdi, %rax\n" /* the constructor has not run: make the call here */
        "	movq	%rsi, %rdi\n"
        "	movq	%rdx, %rsi\n"
        "	movq	%rcx, %rdx\n"
        "	movq	%r8, %r10\n"
        "	movq	%r9, %r8\n"
        "	movq	8(%rsp), %r9\n"
        "	syscall\n"
        "	cmpq	$-4095, %rax\n"
        "	jae	4f\n"
        "	ret\n"
        "4:	negl	%eax\n"
        "	movl	%eax, %edi\n"
        "	jmp	sp_direct_error\n"
        "	.cfi_endproc\n"
        ".size syscall, .-syscall\n"
        ".previous\n");
#endif
