/* SPDX-License-Identifier: BSD-2-Clause */
/* The RDMA device, the kernel modules that programs reach it by, and their device files. */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* A card's ordinary driver, and the module that makes it an RDMA device. */
static const struct {
	const char *driver, *module;
} cards[] = {
	{ "mlx5_core", "mlx5_ib" }, { "mlx4_core", "mlx4_ib" },   { "bnxt_en", "bnxt_re" },
	{ "ice", "irdma" },         { "i40e", "irdma" },          { "cxgb4", "iw_cxgb4" },
	{ "qede", "qedr" },         { "hns3", "hns_roce_hw_v2" }, { "mana", "mana_ib" },
};

enum module_is {
	MODULE_UNKNOWN = 0, /* no list of this kernel's modules here */
	MODULE_THERE,
	MODULE_MISSING,
};

/* Whether this kernel has the module, loaded or not. */
static enum module_is find_module(const struct doctor *doctor, const char *name)
{
	static const char *const lists[] = { "modules.dep", "modules.builtin" };
	enum module_is found = MODULE_UNKNOWN;
	char release[64], path[512], wanted[64], line[4096];

	if (!doctor_line(doctor, release, sizeof(release), "proc/sys/kernel/osrelease"))
		return found;
	snprintf(wanted, sizeof(wanted), "/%s.ko", name);
	for (size_t i = 0; i < 2 && found != MODULE_THERE; i++) {
		FILE *in;

		snprintf(path, sizeof(path), "%.200s/lib/modules/%s/%s", doctor->root, release,
			 lists[i]);
		in = fopen(path, "re");
		while (in && fgets(line, sizeof(line), in)) {
			const char *at;

			line[strcspn(line, ":\n")] = '\0';
			found = found ? found : MODULE_MISSING;
			at = strstr(line, wanted);
			if (at && at[strlen(wanted)] != '-' && at[strlen(wanted)] != '_')
				found = MODULE_THERE;
			if (found == MODULE_THERE)
				break;
		}
		if (in)
			fclose(in);
	}
	return found;
}

/* The module that makes an RDMA device of a card that is in this machine, or NULL. */
static const char *card_module(const struct doctor *doctor)
{
	const char *module = NULL;
	char **names, driver[64];
	uint32_t n = doctor_names(doctor, &names, "sys/bus/pci/devices");

	for (uint32_t i = 0; i < n && !module; i++) {
		if (!doctor_link(doctor, driver, sizeof(driver), "sys/bus/pci/devices/%s/driver",
				 names[i]))
			continue;
		for (size_t k = 0; k < sizeof(cards) / sizeof(cards[0]); k++)
			if (!strcmp(driver, cards[k].driver) &&
			    find_module(doctor, cards[k].module) != MODULE_MISSING)
				module = cards[k].module;
	}
	doctor_names_free(names, n);
	return module;
}

static bool has_default_route(const struct doctor *doctor, const char *netdev)
{
	char path[512], line[256], name[64], destination[32];
	bool found = false;
	FILE *in;

	snprintf(path, sizeof(path), "%.200s/proc/net/route", doctor->root);
	in = fopen(path, "re");
	while (in && !found && fgets(line, sizeof(line), in))
		found = sscanf(line, "%63s %31s", name, destination) == 2 &&
			!strcmp(destination, "00000000") && !strcmp(name, netdev);
	if (in)
		fclose(in);
	return found;
}

/* The interface of the default route, else a card's, else any that is not lo. */
static void choose_netdev(const struct doctor *doctor, char *buf, size_t len_bytes)
{
	char **names;
	uint32_t n = doctor_names(doctor, &names, "sys/class/net");
	int best = 0;

	snprintf(buf, len_bytes, "eth0");
	for (uint32_t i = 0; i < n; i++) {
		int good = 1 + 4 * has_default_route(doctor, names[i]) +
			   2 * doctor_exists(doctor, "sys/class/net/%s/device", names[i]);

		if (good <= best || !strcmp(names[i], "lo"))
			continue;
		best = good;
		snprintf(buf, len_bytes, "%s", names[i]);
	}
	doctor_names_free(names, n);
}

static void mend_no_device(const struct doctor *doctor, struct doctor_item *item)
{
	const char *module = card_module(doctor);
	enum module_is rxe = find_module(doctor, "rdma_rxe");
	char netdev[64];
	bool loaded = doctor_exists(doctor, "sys/module/rdma_rxe");

	choose_netdev(doctor, netdev, sizeof(netdev));
	if (module)
		doctor_mend_as_root(item, "modprobe %s", module);
	else if (loaded)
		doctor_mend_as_root(item, "rdma link add rxe0 type rxe netdev %s", netdev);
	else if (rxe == MODULE_THERE)
		doctor_mend_as_root(item, "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev %s",
				    netdev);
	else if (doctor_in_container(doctor))
		doctor_mend_as_root(item,
				    "on the container's host: modprobe rdma_rxe && rdma link add rxe0 type "
				    "rxe netdev %s",
				    netdev);
	else
		doctor_mend_as_root(item,
				    "plug an RDMA card, or boot a kernel with rdma_rxe (%s); "
				    "meanwhile shm:// needs none",
				    rxe == MODULE_MISSING ? "this one has none" :
							    "this one has no modules in /lib/modules");
}

/* "a, b, c" */
static void join(char *buf, size_t len_bytes, char **names, uint32_t n)
{
	size_t length = 0;

	*buf = '\0';
	for (uint32_t i = 0; i < n && length < len_bytes; i++)
		length += (size_t)snprintf(buf + length, len_bytes - length, "%s%s", i ? ", " : "",
					   names[i]);
}

static bool has_active_port(const struct doctor *doctor, const char *device)
{
	char **ports, state[32];
	uint32_t n = doctor_names(doctor, &ports, "sys/class/infiniband/%s/ports", device);
	bool active = false;

	for (uint32_t i = 0; i < n; i++)
		active |= doctor_line(doctor, state, sizeof(state),
				      "sys/class/infiniband/%s/ports/%s/state", device, ports[i]) &&
			  strstr(state, "ACTIVE");
	doctor_names_free(ports, n);
	return active;
}

/* The interface that the port sends by. */
static void find_netdev(struct doctor *doctor)
{
	struct doctor_port *at = &doctor->at;
	char **names;
	uint32_t n;

	for (uint32_t i = 0; i < 16; i++)
		if (doctor_line(doctor, at->netdev, sizeof(at->netdev),
				"sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u", at->device,
				at->number, i) &&
		    *at->netdev)
			return;
	if (doctor_line(doctor, at->netdev, sizeof(at->netdev), "sys/class/infiniband/%s/parent",
			at->device))
		return;
	n = doctor_names(doctor, &names, "sys/class/infiniband/%s/device/net", at->device);
	snprintf(at->netdev, sizeof(at->netdev), "%s", n ? names[0] : "");
	doctor_names_free(names, n);
}

static void describe_device(struct doctor *doctor, struct doctor_item *item, const char *all, uint32_t n)
{
	struct doctor_port *at = &doctor->at;
	char driver[64];

	find_netdev(doctor);
	at->soft = !doctor_exists(doctor, "sys/class/infiniband/%s/device", at->device);
	if (at->soft)
		snprintf(driver, sizeof(driver), "%s",
			 doctor_exists(doctor, "sys/class/infiniband/%s/parent", at->device) ?
				 "rdma_rxe, in software" :
				 "in software");
	else if (!doctor_link(doctor, driver, sizeof(driver),
			      "sys/class/infiniband/%s/device/driver", at->device))
		snprintf(driver, sizeof(driver), "unknown driver");
	doctor_found(item, "%s (%s%s%s)%s%s", at->device, driver, *at->netdev ? ", " : "",
		     at->netdev, n > 1 ? " of " : "", n > 1 ? all : "");
}

static void check_device(struct doctor *doctor)
{
	struct doctor_item *item = doctor_add(doctor, "device", "device");
	struct doctor_port *at = &doctor->at;
	char **names, all[128];
	uint32_t n = doctor_names(doctor, &names, "sys/class/infiniband"), chosen = 0;

	join(all, sizeof(all), names, n);
	at->number = doctor->port;
	at->gid_index = -1;
	while (doctor->device && chosen < n && strcmp(names[chosen], doctor->device) != 0)
		chosen++;
	if (!doctor->device)
		for (chosen = 0; chosen < n && !has_active_port(doctor, names[chosen]); chosen++)
			;
	if (!n) {
		doctor_found(item, "none");
		mend_no_device(doctor, item);
		strcpy(doctor->no_device, "no device");
	} else if (doctor->device && chosen == n) {
		doctor_found(item, "no %s among %s", doctor->device, all);
		doctor_mend(item, "choose one that is there: -d %s", names[0]);
		strcpy(doctor->no_device, "no such device");
	} else {
		snprintf(at->device, sizeof(at->device), "%s", names[chosen < n ? chosen : 0]);
		describe_device(doctor, item, all, n);
	}
	doctor_names_free(names, n);
}

/* `trace`: what shows a module that is built in. Whether it is loaded. */
static bool check_module(struct doctor *doctor, const char *name, const char *module, const char *trace)
{
	struct doctor_item *item;

	if (*doctor->no_device && !doctor_exists(doctor, "sys/module/%s", module)) {
		doctor_skip(doctor, name, module, doctor->no_device);
		return false;
	}
	item = doctor_add(doctor, name, module);
	if (doctor_exists(doctor, "sys/module/%s", module) || doctor_exists(doctor, "%s", trace)) {
		doctor_found(item, "loaded");
		return true;
	}
	if (find_module(doctor, module) == MODULE_MISSING) {
		doctor_found(item, "not loaded, and this kernel has no such module");
		doctor_mend_as_root(item, "apt-get install linux-image-amd64, and boot that kernel");
	} else {
		doctor_found(item, "not loaded");
		doctor_mend_as_root(item, "%smodprobe %s",
				    doctor_in_container(doctor) ? "on the container's host: " : "",
				    module);
	}
	return false;
}

/* A device file: there, and ours to read and write. `numbers`: "MAJOR:MINOR" if the kernel says. */
static bool check_file(struct doctor *doctor, struct doctor_item *item, const char *file,
		       const char *numbers)
{
	char path[512];
	struct stat is;

	snprintf(path, sizeof(path), "%.200s/dev/infiniband/%s", doctor->root, file);
	if (stat(path, &is)) {
		doctor_found(item, "/dev/infiniband/%s: %s", file, strerrordesc_np(errno));
		if (doctor_in_container(doctor))
			doctor_mend(item, "start the container with --device=/dev/infiniband/%s", file);
		else if (*numbers)
			doctor_mend_as_root(item, "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/%s c %.*s %s",
					    file, (int)strcspn(numbers, ":"), numbers,
					    strchr(numbers, ':') ? strchr(numbers, ':') + 1 : "");
		else
			doctor_mend_as_root(item, "udevadm trigger --subsystem-match=infiniband_verbs");
		return false;
	}
	doctor_found(item, "/dev/infiniband/%s, mode %04o", file, (unsigned int)(is.st_mode & 07777));
	if (!access(path, R_OK | W_OK))
		return true;
	doctor_mend_as_root(item, "chmod 666 /dev/infiniband/%s", file);
	return false;
}

/* The device's number among the verbs devices: "uverbs0". */
static bool find_uverbs(const struct doctor *doctor, char *buf, size_t len_bytes)
{
	char **names, device[64];
	uint32_t n = doctor_names(doctor, &names, "sys/class/infiniband_verbs");
	bool found = false;

	for (uint32_t i = 0; i < n && !found; i++) {
		found = doctor_line(doctor, device, sizeof(device),
				    "sys/class/infiniband_verbs/%s/ibdev", names[i]) &&
			!strcmp(device, doctor->at.device);
		if (found)
			snprintf(buf, len_bytes, "%s", names[i]);
	}
	doctor_names_free(names, n);
	return found;
}

static void check_files(struct doctor *doctor, bool uverbs, bool ucm)
{
	char file[64] = "uverbs0", numbers[32] = "";

	if (*doctor->no_device) {
		doctor_skip(doctor, "file_uverbs", "device file", doctor->no_device);
	} else if (!uverbs) {
		doctor_skip(doctor, "file_uverbs", "device file", "ib_uverbs is not loaded");
	} else {
		if (find_uverbs(doctor, file, sizeof(file)))
			doctor_line(doctor, numbers, sizeof(numbers),
				    "sys/class/infiniband_verbs/%s/dev", file);
		uverbs = check_file(doctor, doctor_add(doctor, "file_uverbs", "device file"), file,
				    numbers);
	}
	*numbers = '\0';
	if (*doctor->no_device) {
		doctor_skip(doctor, "file_rdma_cm", "rdma_cm file", doctor->no_device);
	} else if (!ucm) {
		doctor_skip(doctor, "file_rdma_cm", "rdma_cm file", "rdma_ucm is not loaded");
	} else {
		doctor_line(doctor, numbers, sizeof(numbers), "sys/class/misc/rdma_cm/dev");
		ucm = check_file(doctor, doctor_add(doctor, "file_rdma_cm", "rdma_cm file"),
				 "rdma_cm", numbers);
	}
	if (*doctor->no_device)
		return;
	if (!uverbs)
		snprintf(doctor->no_file, sizeof(doctor->no_file),
			 "/dev/infiniband/%s can't be used", file);
	else if (!ucm)
		strcpy(doctor->no_cm, "/dev/infiniband/rdma_cm can't be used");
}

void doctor_check_device(struct doctor *doctor)
{
	bool uverbs, ucm;

	check_device(doctor);
	uverbs = check_module(doctor, "module_ib_uverbs", "ib_uverbs",
			      "sys/class/infiniband_verbs/abi_version");
	ucm = check_module(doctor, "module_rdma_ucm", "rdma_ucm", "sys/class/misc/rdma_cm");
	check_files(doctor, uverbs, ucm);
}
