/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The job's key, and what is proved with it.
 *
 * Both sides of a connection send a nonce, and each proves by an HMAC over both that it has the
 * key, which itself is never sent. The label says what is proved, so that no answer to one
 * question is an answer to another.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

_Static_assert(VERBS_MAC_BYTES == crypto_auth_hmacsha256_BYTES, "the size of a proof");

static int key_read(const char *path, int fd, struct verbs_key *key)
{
	struct stat file;
	ssize_t length;

	if (fstat(fd, &file))
		return base_fail(-errno, "RAMPS_KEY_FILE=%s: %s", path, strerrordesc_np(errno));
	if (file.st_mode & 077)
		return base_fail(-EACCES,
				 "RAMPS_KEY_FILE=%s can be read by others; chmod it to 0600", path);
	length = read(fd, key->bytes, sizeof(key->bytes));
	if (length < 0)
		return base_fail(-errno, "RAMPS_KEY_FILE=%s: %s", path, strerrordesc_np(errno));
	if (length < VERBS_LEAST_KEY_BYTES)
		return base_fail(-EINVAL,
				 "RAMPS_KEY_FILE=%s holds %d bytes, a key has %d or more; make one with: "
				 "head -c 32 /dev/urandom",
				 path, (int)length, VERBS_LEAST_KEY_BYTES);
	key->len_bytes = (uint32_t)length;
	return 0;
}

int verbs_key_load(struct verbs_key *key)
{
	const char *path = getenv("RAMPS_KEY_FILE");
	int fd, ret;

	if (sodium_init() < 0)
		return base_fail(-EIO, "libsodium has no source of random bytes");
	key->len_bytes = 0;
	if (!path || !*path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return base_fail(-errno, "RAMPS_KEY_FILE=%s: %s", path, strerrordesc_np(errno));
	ret = key_read(path, fd, key);
	close(fd);
	return ret;
}

void verbs_key_forget(struct verbs_key *key)
{
	sodium_memzero(key, sizeof(*key));
}

void verbs_random(void *bytes, size_t len_bytes)
{
	randombytes_buf(bytes, len_bytes);
}

void verbs_prove(const struct verbs_key *key, const struct verbs_nonces *nonces, const char *label,
		 const struct verbs_claim *claim, unsigned char mac[VERBS_MAC_BYTES])
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key->bytes, key->len_bytes);
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)label, strlen(label) + 1);
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)nonces, sizeof(*nonces));
	crypto_auth_hmacsha256_update(&state, claim->bytes, claim->len_bytes);
	crypto_auth_hmacsha256_final(&state, mac);
	sodium_memzero(&state, sizeof(state));
}

bool verbs_proved(const struct verbs_key *key, const struct verbs_nonces *nonces, const char *label,
		  const struct verbs_claim *claim, const unsigned char mac[VERBS_MAC_BYTES])
{
	unsigned char right[VERBS_MAC_BYTES];

	verbs_prove(key, nonces, label, claim, right);
	return sodium_memcmp(right, mac, sizeof(right)) == 0;
}

/* A forked child is another process, and so has another identity. */
void verbs_own_identity(unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned char own[FABRIC_IDENTITY_BYTES];
	static pid_t pid;

	pthread_mutex_lock(&lock);
	if (pid != getpid()) {
		randombytes_buf(own, sizeof(own));
		pid = getpid();
	}
	memcpy(identity, own, sizeof(own));
	pthread_mutex_unlock(&lock);
}
