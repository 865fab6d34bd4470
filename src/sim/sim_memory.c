/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process owns: memory, mappings, descriptors. A program that is linked with
 * -Wl,--wrap=malloc and so on (the makefile's SIM_WRAP) calls what is here; in one that is not, this
 * is dead code, and processes own nothing.
 *
 * A block lies behind a header that links it to its owner. Blocks come here too that another
 * allocated (libc within itself): they have no header, and what lies before them is not ours to
 * trust, but can be read, being the allocator's own: a magic number tells.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/sim_private.h"

#define MAGIC       0x73696d626c6f636bull
#define LOCK_NS     200 /* between two looks at a lock that another process holds */
#define ALIGN_BYTES 16ul

struct sim_block {
	LIST_ENTRY(sim_block) link;
	uint64_t len_bytes;
	uint32_t before; /* bytes from the allocation's begin to the block */
	bool is_owned;
	uint64_t unused, magic;
};
_Static_assert(sizeof(struct sim_block) % ALIGN_BYTES == 0, "blocks are aligned");

struct sim_mapping {
	LIST_ENTRY(sim_mapping) link;
	void *base;
	size_t len_bytes;
};

struct sim_file {
	LIST_ENTRY(sim_file) link;
	int fd;
};

#define WEAK __attribute__((weak))
void *__real_malloc(size_t len_bytes) WEAK;
void __real_free(void *block) WEAK;
int __real_posix_memalign(void **block, size_t align_bytes, size_t len_bytes) WEAK;
void *__real_mmap(void *at, size_t len_bytes, int protection, int flags, int fd, off_t offset) WEAK;
int __real_munmap(void *base, size_t len_bytes) WEAK;
int __real_open(const char *path, int flags, ...) WEAK;
int __real_openat(int dir, const char *path, int flags, ...) WEAK;
int __real_close(int fd) WEAK;
void *__real_fdopendir(int fd) WEAK;
int __real_pthread_mutex_lock(pthread_mutex_t *mutex) WEAK;

/* gcc and clang know these names, and that nobody declares them. */
void *__wrap_malloc(size_t len_bytes);
void *__wrap_calloc(size_t n, size_t each_bytes);
void *__wrap_realloc(void *old, size_t len_bytes);
void *__wrap_aligned_alloc(size_t align_bytes, size_t len_bytes);
int __wrap_posix_memalign(void **block, size_t align_bytes, size_t len_bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);
void *__wrap_mmap(void *at, size_t len_bytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *base, size_t len_bytes);
int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_close(int fd);
void *__wrap_fdopendir(int fd);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

/* NULL: what is allocated now is nobody's. */
static struct sim_process *owner(void)
{
	struct sim *sim = sim_here();
	struct sim_process *process = sim ? sim->current : NULL;

	return process && !process->is_adopted && !sim->outside ? process : NULL;
}

__attribute__((no_sanitize("address"))) static struct sim_block *block_of(void *memory)
{
	struct sim_block *block = (struct sim_block *)memory - 1;

	return block->magic == MAGIC ? block : NULL;
}

static void *begin_block(char *allocated, uint32_t before, size_t len_bytes)
{
	struct sim_process *process = owner();
	struct sim_block *block;

	if (!allocated)
		return NULL;
	block = (struct sim_block *)(void *)(allocated + before) - 1;
	block->len_bytes = len_bytes;
	block->before = before;
	block->magic = MAGIC;
	block->is_owned = process != NULL;
	if (process)
		LIST_INSERT_HEAD(&process->owned.blocks, block, link);
	return block + 1;
}

static void end_block(struct sim_block *block)
{
	char *memory = (char *)(block + 1);

	if (block->is_owned)
		LIST_REMOVE(block, link);
	block->magic = 0;
	__real_free(memory - block->before);
}

void *__wrap_malloc(size_t len_bytes)
{
	if (len_bytes > PTRDIFF_MAX - sizeof(struct sim_block)) {
		errno = ENOMEM;
		return NULL;
	}
	return begin_block(__real_malloc(sizeof(struct sim_block) + len_bytes),
			   sizeof(struct sim_block), len_bytes);
}

void *__wrap_calloc(size_t n, size_t each_bytes)
{
	size_t len_bytes;
	void *memory;

	if (__builtin_mul_overflow(n, each_bytes, &len_bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	memory = __wrap_malloc(len_bytes);
	return memory ? memset(memory, 0, len_bytes) : NULL;
}

void __wrap_free(void *memory)
{
	struct sim_block *block;

	if (!memory)
		return;
	block = block_of(memory);
	if (block)
		end_block(block);
	else
		__real_free(memory);
}

void *__wrap_realloc(void *old, size_t len_bytes)
{
	struct sim_block *block = old ? block_of(old) : NULL;
	void *memory;

	if (old && !block) /* what libc allocated within itself: how long it is we can't know */
		return NULL;
	memory = __wrap_malloc(len_bytes);
	if (memory && block) {
		memcpy(memory, old, sim_earlier(len_bytes, block->len_bytes));
		end_block(block);
	}
	return memory;
}

int __wrap_posix_memalign(void **memory, size_t align_bytes, size_t len_bytes)
{
	size_t before = (sizeof(struct sim_block) + align_bytes - 1) / align_bytes * align_bytes;
	void *allocated = NULL;
	int error = __real_posix_memalign(&allocated, align_bytes, before + len_bytes);

	if (!error)
		*memory = begin_block(allocated, (uint32_t)before, len_bytes);
	return error;
}

void *__wrap_aligned_alloc(size_t align_bytes, size_t len_bytes)
{
	void *memory = NULL;

	errno = __wrap_posix_memalign(&memory, align_bytes < ALIGN_BYTES ? ALIGN_BYTES : align_bytes,
				      len_bytes);
	return errno ? NULL : memory;
}

char *__wrap_strdup(const char *text)
{
	size_t len_bytes = strlen(text) + 1;
	char *copy = __wrap_malloc(len_bytes);

	return copy ? memcpy(copy, text, len_bytes) : NULL;
}

void *__wrap_mmap(void *at, size_t len_bytes, int protection, int flags, int fd, off_t offset)
{
	void *base = __real_mmap(at, len_bytes, protection, flags, fd, offset);
	struct sim_process *process = owner();

	if (base != MAP_FAILED && process) {
		struct sim_mapping *mapping = sim_raw_alloc(sizeof(*mapping));

		mapping->base = base;
		mapping->len_bytes = len_bytes;
		LIST_INSERT_HEAD(&process->owned.mappings, mapping, link);
	}
	return base;
}

int __wrap_munmap(void *base, size_t len_bytes)
{
	struct sim_process *process = owner();
	struct sim_mapping *mapping = process ? LIST_FIRST(&process->owned.mappings) : NULL;

	for (; mapping; mapping = LIST_NEXT(mapping, link)) {
		if (mapping->base != base)
			continue;
		LIST_REMOVE(mapping, link);
		sim_raw_free(mapping);
		break;
	}
	return __real_munmap(base, len_bytes);
}

static int own_fd(int fd)
{
	struct sim_process *process = owner();

	if (fd >= 0 && process) {
		struct sim_file *file = sim_raw_alloc(sizeof(*file));

		file->fd = fd;
		LIST_INSERT_HEAD(&process->owned.files, file, link);
	}
	return fd;
}

static void disown_fd(int fd)
{
	struct sim_process *process = owner();
	struct sim_file *file = process ? LIST_FIRST(&process->owned.files) : NULL;

	for (; file; file = LIST_NEXT(file, link)) {
		if (file->fd != fd)
			continue;
		LIST_REMOVE(file, link);
		sim_raw_free(file);
		return;
	}
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	int mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, int) : 0;
	va_end(args);
	return own_fd(__real_open(path, flags, mode));
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
	va_list args;
	int mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, int) : 0;
	va_end(args);
	return own_fd(__real_openat(dir, path, flags, mode));
}

int __wrap_close(int fd)
{
	disown_fd(fd);
	return __real_close(fd);
}

/* The stream closes it, within libc. */
void *__wrap_fdopendir(int fd)
{
	void *dir = __real_fdopendir(fd);

	if (dir)
		disown_fd(fd);
	return dir;
}

/* Another process of this thread may hold it, and would never be continued. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int error;

	if (!sim_self())
		return __real_pthread_mutex_lock(mutex);
	while ((error = pthread_mutex_trylock(mutex)) == EBUSY)
		sim_pause(LOCK_NS);
	return error;
}

uint64_t sim_owned_count(const struct sim_owned *owned)
{
	const struct sim_mapping *mapping;
	const struct sim_block *block;
	const struct sim_file *file;
	uint64_t count = 0;

	LIST_FOREACH(block, &owned->blocks, link)
	count += sim_later(block->len_bytes, 1);
	LIST_FOREACH(mapping, &owned->mappings, link)
	count += mapping->len_bytes;
	LIST_FOREACH(file, &owned->files, link)
	count++;
	return count;
}

void sim_owned_end(struct sim_owned *owned)
{
	struct sim_mapping *mapping;
	struct sim_block *block;
	struct sim_file *file;

	while ((block = LIST_FIRST(&owned->blocks)))
		end_block(block);
	while ((mapping = LIST_FIRST(&owned->mappings))) {
		LIST_REMOVE(mapping, link);
		__real_munmap(mapping->base, mapping->len_bytes);
		sim_raw_free(mapping);
	}
	while ((file = LIST_FIRST(&owned->files))) {
		LIST_REMOVE(file, link);
		__real_close(file->fd);
		sim_raw_free(file);
	}
}
