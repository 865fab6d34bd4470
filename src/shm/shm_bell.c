/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting on a word.
 *
 * A futex compares 32 bits, and a word that goes full, none, full between a look at it and the
 * sleep has the same half as before: who sleeps on the word itself can sleep for ever. So there
 * are bells: 32-bit words in a file of the fabric's own, chosen by a hash of the word's place,
 * that change whenever a word does on which somebody sleeps. Bit 0 of a bell says that somebody
 * sleeps or is about to.
 *
 *   to sleep   set bit 0, which gives the bell's value b; look at the word once more; if it is
 *              still what was seen, sleep while the bell is b
 *   to ring    after the change of the word: load the bell; if bit 0 is clear nobody sleeps, and
 *              that is all; else swap b for b + 1, which clears bit 0, and if that succeeded wake
 *              all
 *
 * All of these are sequentially consistent. Either the ringer's load comes after the sleeper's
 * setting of bit 0: then it sees the bit, and the sleeper is woken or finds another bell than b.
 * Or it comes before: then the sleeper's second look comes after the change of the word and sees
 * it. A swap fails only when another ringer cleared the bit; who set it again since then looked
 * at the word after its change. A bell's count can wrap only while somebody is between setting
 * the bit and sleeping for 2^31 rings.
 *
 * A ringer that dies between its swap and the waking leaves sleepers asleep, so that nobody sleeps
 * longer than SHM_LOOK_NS at a time, after which it also looks whether the peer is still there.
 *
 * Before it sleeps, a waiter spins for a moment (the other core may be about to change the word)
 * and then yields (the other process may be waiting for this core).
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/word.h"
#include "shm/shm_private.h"

#define SPINS       40
#define YIELD_SPINS 10 /* before the next sched_yield() */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

uint32_t *shm_bell(uint32_t *bells, uint32_t region, uint64_t offset)
{
	uint64_t place = (offset >> 3) + ((uint64_t)region << 56);

	return bells + (place * 0x9e3779b97f4a7c15ull >> 54) * (SHM_BELLS_BYTES / SHM_BELLS / 4);
}

static void wake_all(uint32_t *bell)
{
	int saved_errno = errno;

	syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved_errno;
}

static void ring(uint32_t *bell, uint32_t value)
{
	if (unlikely(value & 1) && __atomic_compare_exchange_n(bell, &value, value + 1, false,
							       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		wake_all(bell);
}

/* After an atomic operation on the word. */
void shm_ring(uint32_t *bell)
{
	ring(bell, __atomic_load_n(bell, __ATOMIC_SEQ_CST));
}

/* After a plain store to the word, which a mere load of the bell could overtake. */
void shm_ring_after_store(uint32_t *bell)
{
	ring(bell, __atomic_fetch_add(bell, 0, __ATOMIC_SEQ_CST));
}

/* Sleeps until the bell rings or the deadline, if the word is still what was seen. */
static void sleep_on(uint32_t *bell, const uint64_t *word, uint64_t seen, uint64_t sleep_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(sleep_ns / NS_PER_S),
		.tv_nsec = (long)(sleep_ns % NS_PER_S),
	};
	uint32_t value = __atomic_fetch_or(bell, 1, __ATOMIC_SEQ_CST) | 1;

	if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == seen)
		syscall(SYS_futex, bell, FUTEX_WAIT, value, &timeout, NULL, 0);
}

static int timed_out(const struct shm_endpoint *ep)
{
	return base_fail(-ETIMEDOUT, "a word at %s did not change in time", ep->address);
}

/* The slow part: yields, then sleeps, until the word changes. */
static int wait_long(struct shm_endpoint *ep, uint32_t *bell, const uint64_t *word, uint64_t seen,
		     uint64_t deadline_ns)
{
	uint64_t started_ns = base_now_ns(), now_ns = started_ns;

	for (;;) {
		int ret = shm_look(ep, now_ns);

		if (ret)
			return ret;
		if (now_ns >= deadline_ns)
			return timed_out(ep);
		if (now_ns - started_ns < ep->fabric->awake_ns) {
			sched_yield();
			for (int i = 0; i < YIELD_SPINS && word_acquire(word) == seen; i++)
				pause_cpu();
		} else {
			uint64_t left_ns = deadline_ns - now_ns;

			sleep_on(bell, word, seen, left_ns < SHM_LOOK_NS ? left_ns : SHM_LOOK_NS);
		}
		if (word_acquire(word) != seen)
			return 0;
		now_ns = base_now_ns();
	}
}

int shm_wait_word(struct fabric_endpoint *base, uint32_t region, uint64_t offset, uint64_t seen,
		  uint64_t *value, uint64_t deadline_ns)
{
	const struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = (uint16_t)region,
		.offset = offset,
		.len_bytes = sizeof(uint64_t),
	};
	struct shm_endpoint *ep = shm_of(base);
	const uint64_t *word;
	int ret;

	if (ep->broken)
		return shm_refuse(ep, &op, -ENOTCONN);
	ret = region < FABRIC_MAX_REGIONS ? shm_admit(ep, &op) : -EACCES;
	if (!ret && offset % sizeof(uint64_t))
		ret = -EINVAL;
	if (ret)
		return shm_refuse(ep, &op, ret);
	word = (const uint64_t *)(ep->regions[region].base + offset);

	*value = word_acquire(word);
	if (*value == seen && deadline_ns) {
		for (int i = 0; i < SPINS && word_acquire(word) == seen; i++)
			pause_cpu();
		if (word_acquire(word) == seen)
			ret = wait_long(ep, shm_bell(ep->bells, region, offset), word, seen, deadline_ns);
	} else {
		ret = shm_tick(ep, 0);
		if (!ret && *value == seen)
			ret = timed_out(ep);
	}
	if (*value == seen)
		*value = word_acquire(word);
	return *value == seen || ret == -ENOTCONN ? ret : 0;
}
