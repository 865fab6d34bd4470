/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads and stores of shared 8-byte and 4-byte words, by name of their ordering. All that is read
 * or written concurrently goes through these or base_copy(). A server's stores to its arena go
 * through word_publish() and word_store(), so that a simulator can end the server at any of them.
 */
#ifndef BASE_WORD_H
#define BASE_WORD_H

#include <stdint.h>

/* Sees everything that the storer wrote before word_publish(). */
static inline uint64_t word_acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint64_t word_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void word_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Everything stored before is seen by whoever acquires the value. */
static inline void word_publish(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Orders the store before later loads: the announcing half of "announce, then look again". */
static inline void word_announce(uint64_t *word, uint64_t value)
{
	__atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}

#endif
