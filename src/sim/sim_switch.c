/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks, and going from one to another. A switch saves what a call must keep and no more: the
 * ucontext functions ask the kernel for the signal mask each time, which takes ten times as long;
 * they serve where there is no assembly for the machine. Sanitizers are told of each switch.
 *
 * Stacks are kept for the next process. Below each lies a page that may not be touched.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/sim_private.h"

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIM_TSAN 1
#endif
#endif

#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(SIM_ASAN) || defined(SIM_TSAN)
#define STACK_BYTES (512ul << 10)
#else
#define STACK_BYTES (128ul << 10) /* of which few are ever touched */
#endif
#define GUARD_BYTES 4096ul

/* Where a stack begins differs between processes, or all would meet in the same few sets of the caches. */
#define COLOURS      31u
#define COLOUR_BYTES 320u

#if defined(__x86_64__)
/* Saves the registers that a call keeps on the old stack, and continues on the new one. */
__asm__(".text\n"
	".p2align 4\n"
	".type sim_switch_stacks, @function\n"
	"sim_switch_stacks:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size sim_switch_stacks, . - sim_switch_stacks\n");
#define SAVED_WORDS 6
#define ENTRY_WORD  6
#define TOP_WORDS   8 /* so that the stack is aligned as after a call */
#elif defined(__aarch64__)
__asm__(".text\n"
	".p2align 4\n"
	".type sim_switch_stacks, @function\n"
	"sim_switch_stacks:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp, #0]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp, #0]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size sim_switch_stacks, . - sim_switch_stacks\n");
#define ENTRY_WORD 11
#define TOP_WORDS  20
#else
#include <ucontext.h>
#define SIM_UCONTEXT 1
#endif

#ifndef SIM_UCONTEXT
extern void sim_switch_stacks(void **from, void *to);
#endif

void sim_context_of_thread(struct sim_context *context)
{
#ifdef SIM_UCONTEXT
	context->sp = sim_raw_alloc(sizeof(ucontext_t));
#endif
#ifdef SIM_TSAN
	context->sanitizer = __tsan_get_current_fiber();
#endif
	(void)context;
}

void sim_context_make(struct sim_context *context, char *stack, size_t len_bytes)
{
	context->stack = stack;
	context->stack_bytes = len_bytes;
#ifdef SIM_UCONTEXT
	ucontext_t *u = sim_raw_alloc(sizeof(*u));

	getcontext(u); /* cppcheck-suppress getcontextCalled */
	u->uc_stack.ss_sp = stack;
	u->uc_stack.ss_size = len_bytes;
	u->uc_link = NULL;
	makecontext(u, sim_process_main, 0); /* cppcheck-suppress makecontextCalled */
	context->sp = u;
#else
	void **top = (void **)(stack + len_bytes) - TOP_WORDS;

	memset(top, 0, TOP_WORDS * sizeof(*top));
	top[ENTRY_WORD] = (void *)sim_process_main;
	context->sp = top;
#endif
#ifdef SIM_TSAN
	context->sanitizer = __tsan_create_fiber(0);
#endif
}

void sim_context_end(struct sim_context *context)
{
#ifdef SIM_UCONTEXT
	sim_raw_free(context->sp);
#endif
#ifdef SIM_TSAN
	if (context->sanitizer)
		__tsan_destroy_fiber(context->sanitizer);
#endif
	memset(context, 0, sizeof(*context));
}

#ifdef SIM_ASAN
static __thread struct sim_context *left, *entered;
#endif

/* The first thing that is done on the other side. */
static void arrive(void)
{
#ifdef SIM_ASAN
	const void *bottom;
	size_t size;

	__sanitizer_finish_switch_fiber(entered->sanitizer, &bottom, &size);
	if (!left->stack) { /* the thread's own: only it knows */
		left->stack = bottom;
		left->stack_bytes = size;
	}
#endif
}

void sim_context_begun(void)
{
	arrive();
}

void sim_context_switch(struct sim_context *from, struct sim_context *to, bool ends)
{
#ifdef SIM_ASAN
	left = from;
	entered = to;
	__sanitizer_start_switch_fiber(ends ? NULL : &from->sanitizer, to->stack, to->stack_bytes);
#else
	(void)ends;
#endif
#ifdef SIM_TSAN
	__tsan_switch_to_fiber(to->sanitizer, 0);
#endif
#ifdef SIM_UCONTEXT
	swapcontext(from->sp, to->sp); /* cppcheck-suppress swapcontextCalled */
#else
	sim_switch_stacks(&from->sp, to->sp);
#endif
	arrive();
}

/* A free stack holds the address of the next one in its last word. */
static void **next_of(char *stack)
{
	return (void **)(void *)(stack + STACK_BYTES) - 1;
}

int sim_stack_get(struct sim *sim, struct sim_process *process)
{
	char *stack = sim->stacks;

	if (stack) {
		sim->stacks = *next_of(stack);
	} else {
		stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (stack == MAP_FAILED)
			return -ENOMEM;
		mprotect(stack, GUARD_BYTES, PROT_NONE);
		stack += GUARD_BYTES;
	}
	process->stack = stack;
	sim_context_make(&process->context, stack, STACK_BYTES - process->id % COLOURS * COLOUR_BYTES);
	return 0;
}

void sim_stack_put(struct sim *sim, struct sim_process *process)
{
	char *stack = process->stack;

	if (!stack)
		return;
#ifdef SIM_ASAN
	__asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
	sim_context_end(&process->context);
	*next_of(stack) = sim->stacks;
	sim->stacks = stack;
	process->stack = NULL;
}

void sim_stacks_end(struct sim *sim)
{
	while (sim->stacks) {
		char *stack = sim->stacks;

		sim->stacks = *next_of(stack);
		munmap(stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
	}
#ifdef SIM_UCONTEXT
	sim_raw_free(sim->context.sp);
#endif
}
