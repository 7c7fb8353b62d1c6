/* The first process of every pod's sandbox: it holds the namespaces, collects orphans and waits
 * for its end. Linked without a C library, so that the image is this one file. */

#define SIGINT 2
#define SIGTERM 15
#define SIGCHLD 17
#define SA_RESTORER 0x04000000
#define IGNORED ((void (*)(int))1)

static long call(long number, long a, long b, long c, long d);

#if defined(__x86_64__)
enum { NR_PAUSE = 34, NR_EXIT = 231, NR_SIGACTION = 13 };

static long call(long number, long a, long b, long c, long d)
{
	long result;
	register long r10 __asm__("r10") = d;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
enum { NR_PAUSE = 73 /* ppoll, of nothing */, NR_EXIT = 94, NR_SIGACTION = 134 };

static long call(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = 0;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return x0;
}
#else
#error "the sandbox program is written for x86-64 and arm64"
#endif

struct action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

/* Does not return, so that nothing is ever restored. */
static void end(int number)
{
	(void)number;
	call(NR_EXIT, 0, 0, 0, 0);
}

void _start(void)
{
	struct action ended = { end, SA_RESTORER, 0, 0 };
	struct action ignored = { IGNORED, SA_RESTORER, 0, 0 };

	call(NR_SIGACTION, SIGTERM, (long)&ended, 0, 8);
	call(NR_SIGACTION, SIGINT, (long)&ended, 0, 8);
	/* The kernel buries the children of whoever ignores their end. */
	call(NR_SIGACTION, SIGCHLD, (long)&ignored, 0, 8);
	for (;;)
		call(NR_PAUSE, 0, 0, 0, 0);
}
