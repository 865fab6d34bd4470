/* SPDX-License-Identifier: BSD-2-Clause */
/* What tests of all folders share. cmocka's own headers are included here, in their order. */
#ifndef SUPPORT_SUPPORT_H
#define SUPPORT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

/* Fails the test, with the text of the error, unless ret is 0 (or a count). */
#define assert_ok(ret) support_assert_ret((ret), 0, #ret, __FILE__, __LINE__)
/* Fails the test unless ret is -code. */
#define assert_error(ret, code) support_assert_ret((ret), (code), #ret, __FILE__, __LINE__)

void support_assert_ret(int ret, int code, const char *what, const char *file, int line);

/* In a child process, where cmocka's assertions must not be used: says what is wrong and exits with 1. */
#define child_check(condition)                                                \
	do {                                                                  \
		if (!(condition))                                             \
			support_child_failed(#condition, __FILE__, __LINE__); \
	} while (0)

/* How it ends then: by _exit(), unless a test says otherwise. */
extern void (*support_end_child)(int status);

_Noreturn void support_child_failed(const char *what, const char *file, int line);

/* full rounds, or fewer where QUICK is 1 or SAN is set. At least 1. */
unsigned int support_rounds(unsigned int full);

/* A fixture: an empty directory in /dev/shm of this test program, in RAMPS_SHM_DIR. For *_setup_teardown or a
 * group's. The teardown fails if files are left in it. */
int support_shm_setup(void **state);
int support_shm_teardown(void **state);

/* An address "shm://..." that was not used before in this program. */
void support_shm_address(char *buf, size_t len_bytes);

/* Runs body(arg) in a child process, which ends with the test program at the latest. */
pid_t support_spawn(void (*body)(void *), void *arg);

/* Waits for a child's end. Its exit status, 128 + the signal that ended it, or -1 after timeout_ms: then it is killed. */
int support_join(pid_t pid, int timeout_ms);

/* Calls done(arg) until it returns true, or timeout_ms have passed. What it returned last. */
bool support_wait(bool (*done)(void *), void *arg, int timeout_ms);

/* Number of descriptors, and of mappings of shared memory, that this process has. */
unsigned int support_descriptors(void);
unsigned int support_mappings(void);

#endif
