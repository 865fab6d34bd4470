/* SPDX-License-Identifier: BSD-2-Clause */
/* What the node gives to every process: kernel, clock, shared memory, huge pages, locked memory. */
#include "doctor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli.h"

#define CLOCK_READINGS   256u
#define TMPFS_TYPE       0x01021994
#define HUGETLBFS_TYPE   0x958458f6
#define CAP_IPC_LOCK     14u
#define CAP_SYS_RESOURCE 24u

/* 0, or -errno of what the shm fabric does with a process's descriptor. */
static int try_pidfd(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0), ret = 0;

	if (fd < 0)
		return -errno;
	if (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0))
		ret = -errno;
	close(fd);
	return ret;
}

/* Without process descriptors a peer's end is looked for in /proc: later, but it is found. */
static void check_kernel(struct doctor *doctor)
{
	struct doctor_item *item = doctor_add(doctor, "kernel", "kernel");
	char release[64] = "", path[64];
	int ret = try_pidfd();

	if (!doctor_line(doctor, release, sizeof(release), "proc/sys/kernel/osrelease"))
		strcpy(release, "unknown");
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getpid());
	if (!ret) {
		doctor_found(item, "Linux %s, pidfd", release);
	} else if (!access(path, R_OK)) {
		doctor_found(item, "Linux %s, no pidfd (%s): ends of processes are looked for in /proc",
			     release, strerrordesc_np(-ret));
	} else {
		doctor_found(item, "Linux %s, no pidfd (%s), no /proc", release, strerrordesc_np(-ret));
		doctor_mend_as_root(item, "mount -t proc proc /proc");
	}
}

static uint64_t ns_of_a_reading(void)
{
	uint64_t best = UINT64_MAX;

	for (int round = 0; round < 4; round++) {
		uint64_t begin = base_now_ns(), ns;

		for (uint32_t i = 1; i < CLOCK_READINGS; i++)
			base_now_ns();
		ns = (base_now_ns() - begin) / CLOCK_READINGS;
		if (ns < best)
			best = ns;
	}
	return best;
}

/* The best clock that the kernel offers besides `current`, or NULL. */
static const char *better_clock(const char *available)
{
	static const char *const good[] = { "tsc", "kvm-clock", "arch_sys_counter",
					    "hyperv_clocksource_tsc_page" };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if (strstr(available, good[i]))
			return good[i];
	return NULL;
}

static bool is_slow_clock(const char *name)
{
	return !strcmp(name, "hpet") || !strcmp(name, "acpi_pm") || strstr(name, "jiffies");
}

static void check_clock(struct doctor *doctor)
{
	static const char path[] = "sys/devices/system/clocksource/clocksource0";
	struct doctor_item *item = doctor_add(doctor, "clock", "clock");
	char source[64] = "", available[128] = "";
	struct timespec step = { 0 };
	const char *better;

	clock_getres(CLOCK_MONOTONIC, &step);
	doctor_line(doctor, source, sizeof(source), "%s/current_clocksource", path);
	doctor_line(doctor, available, sizeof(available), "%s/available_clocksource", path);
	doctor_found(item, "%s, steps of %lld ns, %llu ns a reading", *source ? source : "monotonic",
		     (long long)step.tv_sec * 1000000000 + step.tv_nsec,
		     (unsigned long long)ns_of_a_reading());
	if (!is_slow_clock(source))
		return;
	better = better_clock(available);
	if (better)
		doctor_mend_as_root(item, "echo %s >/%s/current_clocksource", better, path);
	else
		doctor_mend_as_root(item,
				    "boot with clocksource=tsc tsc=reliable: %s costs a device "
				    "access at each reading",
				    source);
}

/* Where there is too little: how to get more. */
static void mend_shm_size(const struct doctor *doctor, struct doctor_item *item, const char *path,
			  const struct statvfs *fs)
{
	uint64_t size = (uint64_t)fs->f_blocks * fs->f_frsize;
	uint64_t used = size - (uint64_t)fs->f_bfree * fs->f_frsize;
	uint64_t unit = 1 << 20, wanted = (doctor->arena_bytes + used + unit - 1) / unit;

	if (size >= doctor->arena_bytes + (doctor->arena_bytes >> 4))
		doctor_mend(item, "ls -lS %s, and remove what nobody uses", path);
	else if (doctor_in_container(doctor))
		doctor_mend(item, "start the container with --shm-size=%llum", (unsigned long long)wanted);
	else
		doctor_mend_as_root(item, "mount -o remount,size=%lluM %s",
				    (unsigned long long)wanted, path);
}

static void check_shm(struct doctor *doctor)
{
	const char *own = getenv("RAMPS_SHM_DIR"), *path = own && *own ? own : "/dev/shm";
	struct doctor_item *item = doctor_add(doctor, "shm", "shared memory");
	char full[512], size[CLI_TEXT_BYTES], left[CLI_TEXT_BYTES], arena[CLI_TEXT_BYTES];
	struct statvfs fs;
	struct statfs type;
	uint64_t bytes;

	snprintf(full, sizeof(full), "%s%s", own && *own ? "" : doctor->root, path);
	if (statvfs(full, &fs) || statfs(full, &type)) {
		doctor_found(item, "%s: %s", path, strerrordesc_np(errno));
		if (own && *own)
			doctor_mend(item, "unset RAMPS_SHM_DIR");
		else
			doctor_mend_as_root(item, "mkdir -p %s && mount -t tmpfs -o mode=1777 tmpfs %s",
					    path, path);
		return;
	}
	bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	doctor_found(item, "%s, %s, %s free, for an arena of %s", path,
		     cli_text_size(size, (uint64_t)fs.f_blocks * fs.f_frsize),
		     cli_text_size(left, bytes), cli_text_size(arena, doctor->arena_bytes));
	if ((unsigned long)type.f_type != TMPFS_TYPE && (unsigned long)type.f_type != HUGETLBFS_TYPE) {
		doctor_found(item, "%s is on a disk", path);
		if (own && *own)
			doctor_mend(item, "unset RAMPS_SHM_DIR");
		else
			doctor_mend_as_root(item, "mount -t tmpfs -o mode=1777 tmpfs %s", path);
	} else if (access(full, R_OK | W_OK | X_OK)) {
		doctor_found(item, "%s can't be written", path);
		doctor_mend_as_root(item, "chmod 1777 %s", path);
	} else if (bytes < doctor->arena_bytes) {
		mend_shm_size(doctor, item, path, &fs);
	}
}

/* Nothing needs them: what there is is shown. */
static void check_huge_pages(struct doctor *doctor)
{
	struct doctor_item *item = doctor_add(doctor, "huge_pages", "huge pages");
	char text[192] = "", line[128], *chosen, **sizes;
	uint32_t n = doctor_names(doctor, &sizes, "sys/kernel/mm/hugepages");
	size_t length = 0;

	for (uint32_t i = 0; i < n && length < sizeof(text); i++) {
		int64_t pages = doctor_number(doctor, 0, "sys/kernel/mm/hugepages/%s/nr_hugepages",
					      sizes[i]);
		int64_t unused = doctor_number(doctor, 0,
					       "sys/kernel/mm/hugepages/%s/free_hugepages", sizes[i]);
		unsigned long long kib = strtoull(sizes[i] + strcspn(sizes[i], "0123456789"), NULL, 10);
		char size[CLI_TEXT_BYTES];

		if (pages > 0)
			length += (size_t)snprintf(text + length, sizeof(text) - length,
						   "%s%lld of %s (%lld free)", length ? ", " : "",
						   (long long)pages, cli_text_size(size, kib << 10),
						   (long long)unused);
	}
	doctor_names_free(sizes, n);
	if (doctor_line(doctor, line, sizeof(line), "sys/kernel/mm/transparent_hugepage/shmem_enabled") &&
	    (chosen = strchr(line, '['))) {
		chosen[strcspn(chosen, "]")] = '\0';
		doctor_found(item, "%s, for shared memory: %s", *text ? text : "none reserved",
			     chosen + 1);
	} else {
		doctor_found(item, "%s", *text ? text : "none reserved");
	}
}

void doctor_check_node(struct doctor *doctor)
{
	check_kernel(doctor);
	check_clock(doctor);
	check_shm(doctor);
	check_huge_pages(doctor);
}

/* Whether the capability counts: the kernel asks for it in the first user namespace only. */
static bool has_capability(const struct doctor *doctor, uint32_t number)
{
	char text[64], map[64] = "";
	unsigned long long inside, outside, count;

	if (!doctor_field(doctor, "proc/self/status", "CapEff:", text, sizeof(text)) ||
	    !(strtoull(text, NULL, 16) >> number & 1))
		return false;
	if (!doctor_line(doctor, map, sizeof(map), "proc/self/uid_map"))
		return true;
	return sscanf(map, "%llu %llu %llu", &inside, &outside, &count) != 3 ||
	       (inside == 0 && outside == 0 && count == 4294967295);
}

static const char *limit_text(char buf[CLI_TEXT_BYTES], uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		return strcpy(buf, "unlimited");
	return cli_text_size(buf, bytes);
}

static uint64_t limit_of(const char *text)
{
	return *text == 'u' ? UINT64_MAX : strtoull(text, NULL, 10);
}

static void mend_memlock(const struct doctor *doctor, struct doctor_item *item, uint64_t hard)
{
	uint64_t needed = doctor->arena_bytes + DOCTOR_QUEUE_BYTES;

	if (hard >= needed)
		doctor_mend(item, "ulimit -l %s", hard == UINT64_MAX ? "unlimited" : "$(ulimit -H -l)");
	else if (doctor_in_container(doctor))
		doctor_mend(item, "start the container with --ulimit memlock=-1");
	else if (has_capability(doctor, CAP_SYS_RESOURCE))
		doctor_mend(item, "ulimit -l unlimited");
	else
		doctor_mend_as_root(item, "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, "
					  "then log in again (services: LimitMEMLOCK=infinity)");
}

void doctor_check_memlock(struct doctor *doctor)
{
	struct doctor_item *item = doctor_add(doctor, "memlock", "locked memory");
	char line[128], soft_text[32], hard_text[32], limit[CLI_TEXT_BYTES], most[CLI_TEXT_BYTES],
		needed[CLI_TEXT_BYTES];
	uint64_t soft, hard;

	if (!doctor_field(doctor, "proc/self/limits", "Max locked memory", line, sizeof(line)) ||
	    sscanf(line, "%31s %31s", soft_text, hard_text) != 2) {
		doctor_found(item, "no limit in /proc/self/limits");
		doctor_mend_as_root(item, "mount -t proc proc /proc");
		return;
	}
	soft = limit_of(soft_text);
	hard = limit_of(hard_text);
	limit_text(limit, soft);
	if (has_capability(doctor, CAP_IPC_LOCK)) {
		doctor_found(item, "%s, but CAP_IPC_LOCK: no limit", limit);
		if (soft == UINT64_MAX)
			doctor_found(item, "unlimited, CAP_IPC_LOCK");
		return;
	}
	cli_text_size(needed, doctor->arena_bytes + DOCTOR_QUEUE_BYTES);
	doctor_found(item, "%s, at most %s, no CAP_IPC_LOCK, needs %s", limit,
		     limit_text(most, hard), needed);
	if (soft < doctor->arena_bytes + DOCTOR_QUEUE_BYTES)
		mend_memlock(doctor, item, hard);
}
