/* SPDX-License-Identifier: BSD-2-Clause */
#include "programs/bad_support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm/shm.h"

#include <cmocka.h>

#define CHILD_MS 60000

char bad_root[64];
static bool in_child;

/* cmocka would go on with the next test, in the child. */
static void __attribute__((noreturn)) end(const char *file, int line)
{
	if (!in_child)
		_fail(file, line);
	fprintf(stderr, "%s:%d: in a child\n", file, line);
	_exit(1);
}

void bad_must(bool good, const char *what, const char *file, int line)
{
	if (good)
		return;
	fprintf(stderr, "not so: %s (last error: %s)\n", what, ramps_last_error()->text);
	end(file, line);
}

void bad_must_work(int ret, const char *what, const char *file, int line)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, strerrorname_np(-ret), ramps_last_error()->text);
	end(file, line);
}

/* What is wrong with the record of the last error, or NULL. */
static const char *bad_record(const struct ramps_error *error, int code, const char *what)
{
	if (error->code != code)
		return "code in ramps_last_error() differs";
	if (strncmp(error->call, "ramps_", 6) != 0 ||
	    (!strncmp(what, "ramps_", 6) && strncmp(what, error->call, strlen(error->call)) != 0))
		return "ramps_last_error()->call is not the call";
	if (!*error->text || strpbrk(error->text, "\n\r"))
		return "text is not one line";
	return error->peer ? NULL : "no peer";
}

void bad_must_fail(int ret, int code, const char *words, const char *what, const char *file, int line)
{
	const struct ramps_error *error = ramps_last_error();
	const char *wrong = NULL;
	char copy[512], *save, *word;

	if (ret != -code)
		wrong = "another status";
	else
		wrong = bad_record(error, code, what);
	snprintf(copy, sizeof(copy), "%s", words);
	for (word = strtok_r(copy, "|", &save); word && !wrong; word = strtok_r(NULL, "|", &save))
		if (!strstr(error->text, word))
			wrong = "a word is missing";
	if (!wrong)
		return;
	fprintf(stderr, "%s\n  %s: wanted %s with '%s'\n  got %d (%s) %s, call %s: %s\n", what,
		wrong, strerrorname_np(code), words, ret,
		ret < 0 ? strerrorname_np(-ret) : "no error", error->peer, error->call, error->text);
	end(file, line);
}

uint32_t bad_rounds(uint32_t n)
{
	const char *quick = getenv("QUICK");

	if (quick && *quick && strcmp(quick, "0") != 0)
		n /= 10;
	if (getenv("SAN"))
		n /= 2;
	return n ? n : 1;
}

int64_t bad_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t bad_soon_ms(void)
{
	return getenv("SAN") ? 10000 : 1500;
}

static const char *const variables[] = {
	"RAMPS_SERVERS", "RAMPS_JOB", "RAMPS_RANK",   "RAMPS_WORKERS", "OMPI_COMM_WORLD_RANK",
	"PMI_RANK",      "PMI_SIZE",  "SLURM_PROCID", "SLURM_NTASKS",  "OMPI_COMM_WORLD_SIZE",
};

int bad_setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	strcpy(bad_root, "/dev/shm/ramps-test.XXXXXX");
	return mkdtemp(bad_root) ? setenv("RAMPS_SHM_DIR", bad_root, 1) : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int bad_teardown(void **state)
{
	(void)state;
	return nftw(bad_root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *bad_address(void)
{
	static char addresses[8][32];
	static uint32_t count;
	char *address = addresses[count % 8];

	snprintf(address, sizeof(addresses[0]), "shm://bad-%u", count++);
	return address;
}

const char *bad_directory(const char *address)
{
	static char directories[4][256];
	static uint32_t count;
	char *directory = directories[count++ % 4];

	must_work(shm_directory(address, directory, sizeof(directories[0])));
	return directory;
}

static uint64_t digest;

static uint64_t fold(uint64_t hash, const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
		uint64_t word = 0;

		memcpy(&word, (const char *)bytes + i, length - i < 8 ? length - i : 8);
		hash = (hash ^ word) * 1099511628211ull;
		hash ^= hash >> 29;
	}
	return hash;
}

/* Added up: the order in which files are found says nothing. */
static int digest_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	static uint64_t block[8192];
	uint64_t hash = fold(14695981039346656037ull, path, strlen(path));
	ssize_t n;
	int fd;

	(void)type;
	(void)ftw;
	hash = fold(hash, &st->st_ino, sizeof(st->st_ino));
	hash = fold(hash, &st->st_mode, sizeof(st->st_mode));
	hash = fold(hash, &st->st_uid, sizeof(st->st_uid));
	hash = fold(hash, &st->st_size, sizeof(st->st_size));
	hash = fold(hash, &st->st_mtim, sizeof(st->st_mtim));
	if (S_ISREG(st->st_mode)) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		must(fd >= 0);
		while ((n = read(fd, block, sizeof(block))) > 0)
			hash = fold(hash, block, (size_t)n);
		close(fd);
	}
	digest += hash;
	return 0;
}

uint64_t bad_digest(const char *path)
{
	digest = 0;
	must(nftw(path, digest_one, 8, FTW_PHYS) == 0);
	return digest;
}

void bad_remove(const char *path)
{
	must(nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

/* Waits for a child's end and returns its wait status; one that hangs is killed. */
static int wait_end(pid_t pid)
{
	struct pollfd end_of = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status;

	must(end_of.fd >= 0);
	if (poll(&end_of, 1, CHILD_MS) <= 0) {
		fprintf(stderr, "a child hangs\n");
		kill(pid, SIGKILL);
	}
	close(end_of.fd);
	must(waitpid(pid, &status, 0) == pid);
	return status;
}

static pid_t start_child(void)
{
	const pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		in_child = true;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

int bad_fork(void (*function)(void *), void *arg)
{
	pid_t pid = start_child();

	if (pid == 0) {
		function(arg);
		_exit(0);
	}
	return wait_end(pid);
}

void bad_child(void (*function)(void *), void *arg)
{
	int status = bad_fork(function, arg);

	if (WIFSIGNALED(status))
		fprintf(stderr, "a child: %s\n", strsignal(WTERMSIG(status)));
	must(status == 0);
}

/* There under AddressSanitizer: a child's _exit() does not look for leaks by itself. */
extern void __lsan_do_leak_check(void) __attribute__((weak));

static void __attribute__((noreturn))
serve(const struct ramps_server_options *options, int ready, int hold)
{
	struct ramps_server *server;
	char byte = 0;

	must_work(ramps_server_start(options, &server));
	must(write(ready, &byte, 1) == 1);
	while (read(hold, &byte, 1) < 0 && errno == EINTR)
		;
	ramps_server_stop(server);
	if (__lsan_do_leak_check)
		__lsan_do_leak_check();
	_exit(0);
}

void bad_server_start(struct bad_server *server, const struct ramps_server_options *options)
{
	int ready[2], hold[2];
	char byte;

	must(pipe(ready) == 0 && pipe(hold) == 0);
	server->pid = start_child();
	if (server->pid == 0) {
		close(ready[0]);
		close(hold[1]);
		serve(options, ready[1], hold[0]);
	}
	close(ready[1]);
	close(hold[0]);
	server->hold = hold[1];
	must(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
}

void bad_server_stop(struct bad_server *server)
{
	must(write(server->hold, "", 1) == 1);
	close(server->hold);
	must(wait_end(server->pid) == 0);
}

void bad_server_kill(struct bad_server *server)
{
	must(kill(server->pid, SIGKILL) == 0);
	must(waitpid(server->pid, NULL, 0) == server->pid);
	close(server->hold); /* now, or it would stop of its own accord */
}

int bad_join(const char *servers, uint32_t rank, uint32_t workers, struct ramps_worker **worker)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;

	options.servers = servers;
	options.rank = rank;
	options.workers = workers;
	return ramps_worker_join(&options, worker);
}
