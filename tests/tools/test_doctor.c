/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `ramps doctor` on a node made of files: a sound one first, then each thing broken alone. Exactly its item
 * is marked, with the command that mends it; what depends on it says why it was not looked at.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "support/support.h"

#include "tools/arena.h"

#define DEVICE "sys/class/infiniband/mlx5_0"
#define PORT   DEVICE "/ports/1"

static char root[64];

/* Makes the folders on the way to root/path. */
static void make_way(const char *full)
{
	char part[512];

	snprintf(part, sizeof(part), "%s", full);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(part, 0755);
		*slash = '/';
	}
}

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *out;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	make_way(full);
	out = fopen(full, "w");
	assert_non_null(out);
	fputs(text, out);
	assert_int_equal(fclose(out), 0);
}

static void put_link(const char *path, const char *target)
{
	char full[512];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	make_way(full);
	unlink(full);
	assert_int_equal(symlink(target, full), 0);
}

static void drop(const char *path)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -r '%s/%s'", root, path);
	assert_int_equal(system(command), 0);
}

static void put_limits(const char *soft, const char *hard)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "Limit                     Soft Limit           Hard Limit           Units\n"
		 "Max processes             63000                63000                processes\n"
		 "Max locked memory         %-20s %-20s bytes\n",
		 soft, hard);
	put("proc/self/limits", text);
}

static void put_gids(const char *type)
{
	put(PORT "/gids/0", "fe80:0000:0000:0000:5054:00ff:fe77:0001\n");
	put(PORT "/gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001\n");
	put(PORT "/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	put(PORT "/gid_attrs/types/0", "IB/RoCE v1\n");
	put(PORT "/gid_attrs/types/1", type);
	put(PORT "/gid_attrs/ndevs/0", "eth0\n");
}

/* A node with a card, where nothing is wrong. */
static int make_node(void **state)
{
	char full[600];

	(void)state;
	snprintf(root, sizeof(root), "/dev/shm/ramps-doctor.XXXXXX");
	assert_non_null(mkdtemp(root));
	snprintf(full, sizeof(full), "%s/dev/shm/x", root);
	make_way(full);
	unsetenv("RAMPS_SHM_DIR");
	put("proc/sys/kernel/osrelease", "6.1.0-test\n");
	put_limits("67108864", "67108864");
	put("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3,9\n");
	put("proc/self/uid_map", "         0          0 4294967295\n");
	put("proc/net/route",
	    "Iface\tDestination\tGateway\neth1\t000200C0\t0\neth0\t00000000\t010200C0\n");
	put("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
	put("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm \n");
	put("sys/devices/system/node/node0/cpulist", "0-3\n");
	put("sys/devices/system/node/node1/cpulist", "4-7\n");
	put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "12\n");
	put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "5\n");
	put("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never\n");
	put("sys/module/ib_uverbs/refcnt", "2\n");
	put("sys/module/rdma_ucm/refcnt", "0\n");
	put("sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_0\n");
	put("sys/class/infiniband_verbs/uverbs3/dev", "231:195\n");
	put("sys/class/misc/rdma_cm/dev", "10:124\n");
	put("dev/infiniband/uverbs3", "");
	put("dev/infiniband/rdma_cm", "");
	put(DEVICE "/device/numa_node", "0\n");
	put_link(DEVICE "/device/driver", "../../../../bus/pci/drivers/mlx5_core");
	put(PORT "/state", "4: ACTIVE\n");
	put(PORT "/phys_state", "5: LinkUp\n");
	put(PORT "/link_layer", "Ethernet\n");
	put(PORT "/rate", "100 Gb/sec (4X EDR)\n");
	put_gids("RoCE v2\n");
	put("sys/class/net/lo/mtu", "65536\n");
	put("sys/class/net/eth0/mtu", "1500\n");
	put("sys/class/net/eth0/flags", "0x1003\n");
	put("sys/class/net/eth1/mtu", "1500\n");
	put("verbs", "active_mtu 1024\nmax_mtu 4096\natomic_cap HCA\noutstanding 16\n");
	return 0;
}

static int drop_node(void **state)
{
	(void)state;
	drop("");
	return 0;
}

static json_t *doctor_json(const char *arguments, int status)
{
	char line[512], *output;
	json_error_t error;
	json_t *json;
	int ended;

	snprintf(line, sizeof(line), "doctor --root %s --json --arena 1M %s", root, arguments);
	ended = run_ramps(line, &output);
	json = json_loads(output, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		fail_msg("%s: %s", error.text, output);
	if (!WIFEXITED(ended) || WEXITSTATUS(ended) != status)
		fail_msg("status %d, not %d: %s", ended, status, output);
	assert_true(json_boolean_value(json_object_get(json, "fit")) == (status == 0));
	free(output);
	return json;
}

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static json_t *item_of(json_t *json, const char *name)
{
	json_t *item;
	size_t i;

	json_array_foreach(json_object_get(json, "items"), i,
			   item) if (!strcmp(text_of(item, "name"), name)) return item;
	fail_msg("there is no item %s", name);
	return NULL;
}

/* The one item marked is `name`, with this text; not looked at are those in `skipped`, "a,b". */
static void only_broken(const char *arguments, const char *name, const char *mend, const char *skipped)
{
	json_t *json = doctor_json(arguments, 1), *item;
	char list[512] = "";
	size_t i;

	json_array_foreach(json_object_get(json, "items"), i, item)
	{
		const char *is = text_of(item, "name"), *state = text_of(item, "state");

		if (!strcmp(state, "mend") && strcmp(is, name) != 0)
			fail_msg("%s is marked: %s: %s", is, text_of(item, "found"),
				 text_of(item, "mend"));
		if (!strcmp(state, "not looked at")) {
			strcat(list, *list ? "," : "");
			strcat(list, is);
			assert_true(json_is_null(json_object_get(item, "found")));
			assert_true(*text_of(item, "why_not"));
		}
	}
	item = item_of(json, name);
	assert_string_equal(text_of(item, "state"), "mend");
	assert_string_equal(text_of(item, "mend"), mend);
	assert_true(*text_of(item, "found"));
	assert_string_equal(list, skipped);
	json_decref(json);
}

static void found(json_t *json, const char *name, const char *text)
{
	const char *is = text_of(item_of(json, name), "found");

	if (!strstr(is, text))
		fail_msg("%s: '%s' is not in '%s'", name, text, is);
}

static void sound_node_is_fit(void **state)
{
	json_t *json, *item;
	size_t i;

	(void)state;
	json = doctor_json("", 0);
	json_array_foreach(json_object_get(json, "items"), i, item)
	{
		if (strcmp(text_of(item, "state"), "ok") != 0)
			fail_msg("%s: %s", text_of(item, "name"), text_of(item, "mend"));
		assert_true(json_is_null(json_object_get(item, "mend")));
		assert_true(json_is_null(json_object_get(item, "why_not")));
	}
	assert_int_equal(i, 17);
	assert_string_equal(text_of(json, "device"), "mlx5_0");
	assert_int_equal(json_integer_value(json_object_get(json, "gid_index")), 1);
	found(json, "kernel", "Linux 6.1.0-test");
	found(json, "huge_pages", "12 of 2 MiB (5 free), for shared memory: advise");
	found(json, "memlock", "64 MiB");
	found(json, "device", "mlx5_0 (mlx5_core, eth0)");
	found(json, "file_uverbs", "/dev/infiniband/uverbs3");
	found(json, "port", "port 1, ACTIVE, Ethernet, 100 Gb/sec");
	found(json, "gid", "index 1 of 2, RoCE v2, 10.77.0.1");
	found(json, "mtu", "eth0 1500, path 1024");
	found(json, "atomics", "16 READs and atomics");
	found(json, "numa_node", "node 0, CPUs 0-3; this process on CPUs 0-3,9");
	json_decref(json);
}

static void slow_clock(void **state)
{
	(void)state;
	put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
	only_broken("", "clock",
		    "echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource", "");
}

static void too_little_shared_memory(void **state)
{
	char mend[512] = "";
	json_t *json;

	(void)state;
	put("proc/self/status", "CapEff:\t0000000000004000\nCpus_allowed_list:\t0\n");
	json = doctor_json("--arena 1T", 1);
	snprintf(mend, sizeof(mend), "%s", text_of(item_of(json, "shm"), "mend"));
	json_decref(json);
	assert_int_equal(strncmp(mend, "mount -o remount,size=10", 24), 0);
	only_broken("--arena 1T", "shm", mend, "");
	drop("dev/shm");
	only_broken("", "shm", "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm", "");
}

static void too_little_locked_memory(void **state)
{
	(void)state;
	put_limits("65536", "65536");
	only_broken("", "memlock",
		    "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, then log in again "
		    "(services: LimitMEMLOCK=infinity)",
		    "");
	put_limits("65536", "unlimited");
	only_broken("", "memlock", "ulimit -l unlimited", "");
	put_limits("65536", "67108864");
	only_broken("", "memlock", "ulimit -l $(ulimit -H -l)", "");
	/* the right to raise the limit */
	put_limits("65536", "65536");
	put("proc/self/status", "CapEff:\t0000000001000000\nCpus_allowed_list:\t0\n");
	only_broken("", "memlock", "ulimit -l unlimited", "");
	/* in a container, and not where only the mark of one is */
	put("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0\n");
	put(".dockerenv", "");
	put_link("proc/self/ns/pid", "pid:[4026532000]");
	put_link("proc/self/ns/cgroup", "cgroup:[4026531835]");
	only_broken("", "memlock", "start the container with --ulimit memlock=-1", "");
	put_link("proc/self/ns/pid", "pid:[4026531836]");
	only_broken("", "memlock",
		    "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, then log in again "
		    "(services: LimitMEMLOCK=infinity)",
		    "");
}

static void lock_capability_counts_where_the_kernel_looks(void **state)
{
	json_t *json;

	(void)state;
	put_limits("65536", "65536");
	put("proc/self/status", "CapEff:\t0000000000004000\nCpus_allowed_list:\t0\n");
	json = doctor_json("", 0);
	found(json, "memlock", "64 KiB, but CAP_IPC_LOCK: no limit");
	json_decref(json);
	/* root of a user namespace */
	put("proc/self/uid_map", "         0       1000          1\n");
	json = doctor_json("", 1);
	assert_string_equal(text_of(item_of(json, "memlock"), "state"), "mend");
	json_decref(json);
}

#define AFTER_DEVICE "file_uverbs,file_rdma_cm,port,gid,open,atomics,mtu,address,numa_node"

static void no_device(void **state)
{
	(void)state;
	drop("sys/class/infiniband");
	put("sys/module/rdma_rxe/refcnt", "0\n");
	only_broken("", "device", "rdma link add rxe0 type rxe netdev eth0", AFTER_DEVICE);
	drop("sys/module/rdma_rxe");
	put("lib/modules/6.1.0-test/modules.dep", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: kernel/x.ko\n"
						  "kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko:\n");
	only_broken("", "device", "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0",
		    AFTER_DEVICE);
	put_link("sys/bus/pci/devices/0000:01:00.0/driver", "../../../bus/pci/drivers/mlx5_core");
	only_broken("", "device", "modprobe mlx5_ib", AFTER_DEVICE);
	drop("sys/bus");
	put("lib/modules/6.1.0-test/modules.dep", "kernel/drivers/infiniband/sw/rxe/not_rdma_rxe.ko:\n");
	only_broken("", "device",
		    "plug an RDMA card, or boot a kernel with rdma_rxe (this one has none); meanwhile "
		    "shm:// needs none",
		    AFTER_DEVICE);
	drop("sys/module");
	only_broken("", "device",
		    "plug an RDMA card, or boot a kernel with rdma_rxe (this one has none); meanwhile "
		    "shm:// needs none",
		    "module_ib_uverbs,module_rdma_ucm," AFTER_DEVICE);
}

static void device_is_chosen(void **state)
{
	json_t *json;

	(void)state;
	put("sys/class/infiniband/mlx4_0/ports/1/state", "1: DOWN\n");
	json = doctor_json("", 0);
	found(json, "device", "mlx5_0 (mlx5_core, eth0) of mlx4_0, mlx5_0");
	json_decref(json);
	only_broken("-d nothing", "device", "choose one that is there: -d mlx4_0", AFTER_DEVICE);
	only_broken("--device=mlx5_0 --port=2", "port", "choose one that is there: -i 1",
		    "gid,mtu,address");
}

static void module_is_missing(void **state)
{
	(void)state;
	drop("sys/module/rdma_ucm");
	drop("sys/class/misc/rdma_cm");
	drop("dev/infiniband/rdma_cm");
	only_broken("", "module_rdma_ucm", "modprobe rdma_ucm", "file_rdma_cm,address");
	put("lib/modules/6.1.0-test/modules.dep", "kernel/x.ko:\n");
	only_broken("", "module_rdma_ucm", "apt-get install linux-image-amd64, and boot that kernel",
		    "file_rdma_cm,address");
	put("sys/module/rdma_ucm/refcnt", "0\n");
	put("sys/class/misc/rdma_cm/dev", "10:124\n");
	put("dev/infiniband/rdma_cm", "");
	drop("sys/module/ib_uverbs");
	put("lib/modules/6.1.0-test/modules.dep", "kernel/drivers/infiniband/core/ib_uverbs.ko.xz:\n");
	only_broken("", "module_ib_uverbs", "modprobe ib_uverbs", "file_uverbs,open,atomics,address");
	/* built in */
	put("sys/class/infiniband_verbs/abi_version", "6\n");
	json_decref(doctor_json("", 0));
}

static void device_file_is_missing(void **state)
{
	(void)state;
	drop("dev/infiniband/uverbs3");
	only_broken("", "file_uverbs",
		    "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs3 c 231 195",
		    "open,atomics,address");
	put(".dockerenv", "");
	only_broken("", "file_uverbs", "start the container with --device=/dev/infiniband/uverbs3",
		    "open,atomics,address");
	drop(".dockerenv");
	put("dev/infiniband/uverbs3", "");
	drop("dev/infiniband/rdma_cm");
	only_broken("", "file_rdma_cm",
		    "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/rdma_cm c 10 124",
		    "address");
}

static void port_is_down(void **state)
{
	(void)state;
	put(PORT "/state", "1: DOWN\n");
	put(PORT "/phys_state", "3: Disabled\n");
	put("sys/class/net/eth0/flags", "0x1002\n");
	only_broken("", "port", "ip link set dev eth0 up", "mtu,address");
	/* its addresses went with it */
	put(PORT "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	only_broken("", "port", "ip link set dev eth0 up", "gid,mtu,address");
	put(PORT "/phys_state", "2: Polling\n");
	put("sys/class/net/eth0/flags", "0x1003\n");
	only_broken("", "port", "check the cable and the switch's port of eth0: there is no link",
		    "gid,mtu,address");
}

static void gid_does_not_serve(void **state)
{
	(void)state;
	only_broken("-x 0", "gid", "choose one that serves: -x 1", "address");
	only_broken("-x 7", "gid", "choose one that serves: -x 1", "address");
	put_gids("IB/RoCE v1\n");
	only_broken("", "gid", "choose a device that does RoCE v2 by -d: mlx5_0 does v1 only", "address");
	put_gids("RoCE v2\n");
	put(PORT "/gids/1", "fe80:0000:0000:0000:5054:00ff:fe77:0001\n");
	only_broken("", "gid", "ip addr add ADDRESS/24 dev eth0", "address");
	put(PORT "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	put(PORT "/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	only_broken("", "gid", "ip addr add ADDRESS/24 dev eth0", "address");
}

static void packets_do_not_fit(void **state)
{
	(void)state;
	put("sys/class/net/eth0/mtu", "1119\n");
	put("verbs", "active_mtu 512\nmax_mtu 4096\natomic_cap HCA\noutstanding 16\n");
	only_broken("", "mtu", "ip link set dev eth0 mtu 1500", "");
	put("sys/class/net/eth0/mtu", "4191\n");
	put("verbs", "active_mtu 4096\nmax_mtu 4096\natomic_cap HCA\noutstanding 16\n");
	only_broken("", "mtu", "ip link set dev eth0 mtu 4192", "");
	put("sys/class/net/eth0/mtu", "4192\n");
	json_decref(doctor_json("", 0));
}

static void device_can_not_do_it(void **state)
{
	(void)state;
	put("verbs", "active_mtu 1024\nmax_mtu 4096\natomic_cap NONE\noutstanding 16\n");
	only_broken("", "atomics",
		    "choose a device that has them by -d: all of ramps is made of fetch-adds", "");
	put("verbs", "open_error has no driver for mlx5_0\n");
	only_broken("", "open", "apt-get install ibverbs-providers", "atomics,address");
	put("verbs",
	    "active_mtu 1024\nmax_mtu 4096\natomic_cap HCA\noutstanding 16\nbind_error can't bind\n");
	only_broken("", "address",
		    "ip addr show dev eth0: 10.77.0.1 must be there, and on no other interface", "");
}

static void infiniband_has_other_needs(void **state)
{
	json_t *json;

	(void)state;
	put(PORT "/link_layer", "InfiniBand\n");
	put(PORT "/gids/0", "fe80:0000:0000:0000:506b:4b03:00f6:1234\n");
	drop(PORT "/gid_attrs");
	put("sys/class/net/eth0/mtu", "100\n");
	json = doctor_json("", 0);
	found(json, "gid", "InfiniBand, fe80::506b:4b03:f6:1234");
	found(json, "mtu", "path 1024 of at most 4096");
	assert_string_equal(text_of(item_of(json, "address"), "state"), "not looked at");
	json_decref(json);
	put(PORT "/state", "2: INIT\n");
	only_broken("", "port", "systemctl start opensm, here or on one node of this network",
		    "mtu,address");
}

static void process_is_on_the_wrong_cpus(void **state)
{
	(void)state;
	put(DEVICE "/device/numa_node", "1\n");
	only_broken("", "numa_node", "numactl --cpunodebind=1 --membind=1 COMMAND", "");
	put("proc/self/status", "CapEff:\t0\nCpus_allowed_list:\t0,7\n");
	json_decref(doctor_json("", 0));
	put("proc/self/status", "CapEff:\t0\nCpus_allowed_list:\t12-70\n");
	only_broken("", "numa_node", "numactl --cpunodebind=1 --membind=1 COMMAND", "");
}

static void shm_alone_needs_no_device(void **state)
{
	json_t *json;

	(void)state;
	drop("sys/class/infiniband");
	put_limits("65536", "65536");
	json = doctor_json("--fabric shm", 0);
	assert_int_equal(json_array_size(json_object_get(json, "items")), 4);
	json_decref(json);
}

/* What docker's filter did for years. */
static void forbid_pidfd(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = sizeof(program) / sizeof(program[0]), .filter = program };

	child_check(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	child_check(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

static void doctor_without_pidfd(void *arg)
{
	char line[512], *output;
	int ended;

	(void)arg;
	forbid_pidfd();
	snprintf(line, sizeof(line), "doctor --root %s --json --arena 1M", root);
	ended = run_ramps(line, &output);
	child_check(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
	child_check(strstr(output,
			   "no pidfd (Operation not permitted): ends of processes are looked for"));
	free(output);
	exit(0);
}

static void forbidden_system_call(void **state)
{
	(void)state;
	assert_int_equal(support_join(support_spawn(doctor_without_pidfd, NULL), 20000), 0);
}

static void text_has_one_line_an_item(void **state)
{
	char line[256], *output, *at;
	uint32_t lines = 0;

	(void)state;
	put(PORT "/state", "1: DOWN\n");
	put("sys/class/net/eth0/flags", "0x1002\n");
	snprintf(line, sizeof(line), "doctor --root %s --arena 1M", root);
	assert_int_equal(WEXITSTATUS(run_ramps(line, &output)), 1);
	for (at = output; (at = strchr(at, '\n')); at++)
		lines++;
	assert_int_equal(lines, 1 + 17 + 2);
	assert_non_null(strstr(output, "\nport "));
	assert_non_null(strstr(output, "ip link set dev eth0 up\n"));
	assert_non_null(strstr(output, "\nnot fit, to mend: port\n"));
	assert_non_null(strstr(output, "not looked at: the port is down\n"));
	at = strstr(output, "MEND");
	assert_non_null(at);
	assert_null(strstr(at + 1, "MEND"));
	free(output);
}

#define NODE_TEST(name) cmocka_unit_test_setup_teardown(name, make_node, drop_node)

int main(void)
{
	const struct CMUnitTest tests[] = {
		NODE_TEST(sound_node_is_fit),
		NODE_TEST(slow_clock),
		NODE_TEST(too_little_shared_memory),
		NODE_TEST(too_little_locked_memory),
		NODE_TEST(lock_capability_counts_where_the_kernel_looks),
		NODE_TEST(no_device),
		NODE_TEST(device_is_chosen),
		NODE_TEST(module_is_missing),
		NODE_TEST(device_file_is_missing),
		NODE_TEST(port_is_down),
		NODE_TEST(gid_does_not_serve),
		NODE_TEST(packets_do_not_fit),
		NODE_TEST(device_can_not_do_it),
		NODE_TEST(infiniband_has_other_needs),
		NODE_TEST(process_is_on_the_wrong_cpus),
		NODE_TEST(shm_alone_needs_no_device),
		NODE_TEST(forbidden_system_call),
		NODE_TEST(text_has_one_line_an_item),
	};

	cmocka_set_test_filter(getenv("CMOCKA_TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
