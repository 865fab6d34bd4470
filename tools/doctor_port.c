/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The port: whether it is up, by which GID it is reached, whether packets fit into the interface's, and
 * what the device can do. What sysfs knows is taken from there, so that it shows without libibverbs.
 */
#include "doctor.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GIDS       256u
#define ROCE_HEADERS   96u   /* of the largest packet, besides its payload */
#define LEAST_PATH_MTU 1024u /* what an ordinary Ethernet carries */
#define ETHERNET_MTU   1500u
#define IFF_UP_BIT     1
#define PORT_GONE_TEXT "the port is down"

enum gid_kind { /* the better the higher */
		GID_NONE = 0,
		GID_OLD, /* RoCE v1 */
		GID_LINK_LOCAL,
		GID_IPV6,
		GID_IPV4,
};

const char *doctor_gid_text(const unsigned char gid[16], char buf[DOCTOR_GID_BYTES])
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (!memcmp(gid, mapped, sizeof(mapped)))
		inet_ntop(AF_INET, gid + 12, buf, DOCTOR_GID_BYTES);
	else
		inet_ntop(AF_INET6, gid, buf, DOCTOR_GID_BYTES);
	return buf;
}

static bool port_line(const struct doctor *doctor, char *buf, size_t len_bytes, const char *file)
{
	return doctor_line(doctor, buf, len_bytes, "sys/class/infiniband/%s/ports/%u/%s",
			   doctor->at.device, doctor->at.number, file);
}

/* Why the port is not active, by what its interface or its cable says. */
static void mend_port(const struct doctor *doctor, struct doctor_item *item, const char *state,
		      const char *physical)
{
	const char *netdev = doctor->at.netdev;

	if (*netdev && !(doctor_number(doctor, IFF_UP_BIT, "sys/class/net/%s/flags", netdev) & IFF_UP_BIT))
		doctor_mend_as_root(item, "ip link set dev %s up", netdev);
	else if (!doctor->at.ethernet && strstr(state, "INIT"))
		doctor_mend_as_root(item, "systemctl start opensm, here or on one node of this network");
	else if (strstr(physical, "Disabled"))
		doctor_mend_as_root(item, "ibportstate -D 0 %u enable", doctor->at.number);
	else
		doctor_mend(item, "check the cable and the switch's port%s%s: there is no link",
			    *netdev ? " of " : "", netdev);
}

static void check_state(struct doctor *doctor)
{
	struct doctor_port *at = &doctor->at;
	struct doctor_item *item = doctor_add(doctor, "port", "port");
	char state[32], physical[32] = "", layer[32] = "", rate[64] = "";
	const char *word;

	if (!port_line(doctor, state, sizeof(state), "state")) {
		char **ports;
		uint32_t n = doctor_names(doctor, &ports, "sys/class/infiniband/%s/ports", at->device);

		doctor_found(item, "%s has no port %u", at->device, at->number);
		doctor_mend(item, "choose one that is there: -i %s", n ? ports[0] : "1");
		doctor_names_free(ports, n);
		snprintf(doctor->no_port, sizeof(doctor->no_port), "no such port");
		return;
	}
	port_line(doctor, physical, sizeof(physical), "phys_state");
	port_line(doctor, layer, sizeof(layer), "link_layer");
	port_line(doctor, rate, sizeof(rate), "rate");
	rate[strcspn(rate, "(")] = '\0';
	at->ethernet = !strcmp(layer, "Ethernet");
	at->active = strstr(state, "ACTIVE") != NULL;
	word = strchr(state, ' ');
	doctor_found(item, "port %u, %s, %s, %s", at->number, word ? word + 1 : state, layer, rate);
	if (at->active)
		return;
	mend_port(doctor, item, state, physical);
	snprintf(doctor->no_port, sizeof(doctor->no_port), PORT_GONE_TEXT);
}

/* Entry `index` of the port's table of GIDs. */
static enum gid_kind read_gid(const struct doctor *doctor, uint32_t index, unsigned char gid[16])
{
	static const unsigned char none[16], mapped[12] = { [10] = 0xff, [11] = 0xff };
	char line[64], name[32], type[32] = "";

	snprintf(name, sizeof(name), "gids/%u", index);
	if (!port_line(doctor, line, sizeof(line), name) || inet_pton(AF_INET6, line, gid) != 1)
		return GID_NONE;
	/* An entry without an address holds at most the subnet's prefix. */
	if (!memcmp(gid + 8, none, 8))
		return GID_NONE;
	if (!doctor->at.ethernet)
		return GID_IPV6;
	snprintf(name, sizeof(name), "gid_attrs/types/%u", index);
	if (!port_line(doctor, type, sizeof(type), name) || strcmp(type, "RoCE v2") != 0)
		return GID_OLD;
	if (!memcmp(gid, mapped, sizeof(mapped)))
		return GID_IPV4;
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? GID_LINK_LOCAL : GID_IPV6;
}

static void mend_gid(const struct doctor *doctor, struct doctor_item *item, enum gid_kind best)
{
	const struct doctor_port *at = &doctor->at;

	if (!at->ethernet)
		doctor_mend_as_root(item, "systemctl start opensm, here or on one node of this network");
	else if (best == GID_OLD)
		doctor_mend(item, "choose a device that does RoCE v2 by -d: %s does v1 only", at->device);
	else
		doctor_mend_as_root(item, "ip addr add ADDRESS/24 dev %s",
				    *at->netdev ? at->netdev : "NETDEV");
}

static const char *gid_type(const struct doctor *doctor, enum gid_kind kind)
{
	return !doctor->at.ethernet ? "InfiniBand" : kind == GID_OLD ? "RoCE v1" : "RoCE v2";
}

static void check_gid(struct doctor *doctor)
{
	struct doctor_port *at = &doctor->at;
	enum gid_kind best = GID_NONE, wanted = GID_NONE;
	unsigned char gid[16];
	char text[DOCTOR_GID_BYTES];
	struct doctor_item *item;
	uint32_t count = 0, best_index = 0;

	for (uint32_t i = 0; i < MAX_GIDS; i++) {
		enum gid_kind kind = read_gid(doctor, i, gid);

		count += kind != GID_NONE;
		if ((int64_t)i == doctor->gid_index)
			wanted = kind;
		if (kind <= best)
			continue;
		best = kind;
		best_index = i;
		memcpy(at->gid, gid, sizeof(gid));
	}
	if (best <= GID_LINK_LOCAL && *doctor->no_port) {
		doctor_skip(doctor, "gid", "GID", doctor->no_port);
		return;
	}
	item = doctor_add(doctor, "gid", "GID");
	if (best <= GID_LINK_LOCAL) {
		doctor_found(item, "%s",
			     !best           ? "none" :
			     best == GID_OLD ? "RoCE v1 only" :
					       "link-local only");
		mend_gid(doctor, item, best);
		return;
	}
	if (doctor->gid_index >= 0 && wanted <= GID_LINK_LOCAL) {
		doctor_found(item, "index %d: %s", doctor->gid_index,
			     !wanted           ? "none there" :
			     wanted == GID_OLD ? "RoCE v1" :
						 "link-local");
		doctor_mend(item, "choose one that serves: -x %u", best_index);
		return;
	}
	if (doctor->gid_index >= 0) {
		best_index = (uint32_t)doctor->gid_index;
		best = read_gid(doctor, best_index, at->gid);
	}
	at->gid_index = (int32_t)best_index;
	doctor_found(item, "index %u of %u, %s, %s", best_index, count, gid_type(doctor, best),
		     doctor_gid_text(at->gid, text));
}

/* The path MTU that fits into an interface's, as the kernel reckons. */
static uint32_t path_mtu_of(int64_t netdev_mtu)
{
	uint32_t mtu = 4096;

	while (mtu > 256 && netdev_mtu < mtu + ROCE_HEADERS)
		mtu /= 2;
	return mtu;
}

static void check_mtu(struct doctor *doctor, const struct doctor_verbs *verbs)
{
	struct doctor_port *at = &doctor->at;
	int64_t netdev = doctor_number(doctor, -1, "sys/class/net/%s/mtu", at->netdev);
	struct doctor_item *item;
	uint32_t active = verbs->active_mtu;
	char most[96] = "";

	if (!at->ethernet || !*at->netdev || netdev < 0) {
		if (!active) {
			doctor_skip(doctor, "mtu", "MTU", "the device can't be asked");
			return;
		}
		item = doctor_add(doctor, "mtu", "MTU");
		doctor_found(item, "path %u of at most %u", active, verbs->max_mtu);
		return;
	}
	item = doctor_add(doctor, "mtu", "MTU");
	if (!active)
		active = path_mtu_of(netdev);
	if (active < 4096)
		snprintf(most, sizeof(most), " (4096 wants %s at %u)", at->netdev, 4096 + ROCE_HEADERS);
	doctor_found(item, "%s %lld, path %u%s", at->netdev, (long long)netdev, active, most);
	if (netdev < LEAST_PATH_MTU + ROCE_HEADERS)
		doctor_mend_as_root(item, "ip link set dev %s mtu %u", at->netdev, ETHERNET_MTU);
	else if (netdev < active + ROCE_HEADERS)
		doctor_mend_as_root(item, "ip link set dev %s mtu %u", at->netdev, active + ROCE_HEADERS);
}

/* Whether two lists "0-3,8" have a number in common. */
static bool lists_meet(const char *a, const char *b)
{
	for (; *a; a += strcspn(a, ","), a += *a == ',') {
		unsigned long first = strtoul(a, NULL, 10), last = first;
		const char *dash = strchr(a, '-');

		if (dash && dash < a + strcspn(a, ","))
			last = strtoul(dash + 1, NULL, 10);
		for (const char *c = b; *c; c += strcspn(c, ","), c += *c == ',') {
			unsigned long from = strtoul(c, NULL, 10), to = from;
			const char *range = strchr(c, '-');

			if (range && range < c + strcspn(c, ","))
				to = strtoul(range + 1, NULL, 10);
			if (from <= last && first <= to)
				return true;
		}
	}
	return false;
}

static void check_numa(struct doctor *doctor)
{
	struct doctor_port *at = &doctor->at;
	struct doctor_item *item;
	char own[512] = "", cpus[512] = "";
	int64_t node;

	if (*doctor->no_device) {
		doctor_skip(doctor, "numa_node", "NUMA node", doctor->no_device);
		return;
	}
	node = doctor_number(doctor, -1, "sys/class/infiniband/%s/device/numa_node", at->device);
	if (node < 0 && *at->netdev)
		node = doctor_number(doctor, -1, "sys/class/net/%s/device/numa_node", at->netdev);
	item = doctor_add(doctor, "numa_node", "NUMA node");
	if (node < 0) {
		doctor_found(item, doctor_exists(doctor, "sys/devices/system/node/node1") ?
					   "the device tells none" :
					   "there is one");
		return;
	}
	doctor_field(doctor, "proc/self/status", "Cpus_allowed_list:", own, sizeof(own));
	doctor_line(doctor, cpus, sizeof(cpus), "sys/devices/system/node/node%lld/cpulist",
		    (long long)node);
	doctor_found(item, "device on node %lld, CPUs %s; this process on CPUs %s", (long long)node,
		     cpus, own);
	if (*cpus && *own && !lists_meet(cpus, own))
		doctor_mend(item, "numactl --cpunodebind=%lld --membind=%lld COMMAND",
			    (long long)node, (long long)node);
}

static void check_open(struct doctor *doctor, const struct doctor_verbs *verbs)
{
	struct doctor_item *item = doctor_add(doctor, "open", "libibverbs");

	if (!*verbs->open_error) {
		doctor_found(item, "opens %s", doctor->at.device);
		return;
	}
	doctor_found(item, "%s", verbs->open_error);
	doctor_mend_as_root(item, "apt-get install ibverbs-providers");
}

static void check_atomics(struct doctor *doctor, const struct doctor_verbs *verbs)
{
	struct doctor_item *item = doctor_add(doctor, "atomics", "atomics");

	if (!strcmp(verbs->atomic_cap, "NONE") || !verbs->outstanding) {
		doctor_found(item, "none");
		doctor_mend(item, "choose a device that has them by -d: all of ramps is made of fetch-adds");
		return;
	}
	doctor_found(item, "%s, %u READs and atomics at once",
		     !strcmp(verbs->atomic_cap, "GLOB") ? "GLOB: with this node's CPUs too" :
							  "HCA: among this device's queue pairs",
		     verbs->outstanding);
}

static void check_address(struct doctor *doctor, const struct doctor_verbs *verbs)
{
	char text[DOCTOR_GID_BYTES];
	struct doctor_item *item = doctor_add(doctor, "address", "rdma_cm");

	doctor_gid_text(doctor->at.gid, text);
	if (!*verbs->bind_error) {
		doctor_found(item, "%s is %s's", text, doctor->at.device);
		return;
	}
	doctor_found(item, "%s", verbs->bind_error);
	doctor_mend_as_root(item, "ip addr show dev %s: %s must be there, and on no other interface",
			    doctor->at.netdev, text);
}

/* Why librdmacm is not asked about the GID's address, or NULL. */
static const char *no_address(const struct doctor *doctor)
{
	if (*doctor->no_cm)
		return doctor->no_cm;
	if (*doctor->no_port)
		return doctor->no_port;
	if (doctor->at.gid_index < 0)
		return "no GID";
	return doctor->at.ethernet ? NULL : "an InfiniBand GID is no IP address";
}

/* The items that need the device opened; `why` not, or NULL. */
static void check_by_verbs(struct doctor *doctor, const char *why)
{
	struct doctor_verbs verbs = { 0 };
	const char *why_open = why;

	if (!why && !doctor_verbs_ask(doctor, &verbs))
		why = why_open = "this ramps was built without libibverbs";
	if (why)
		doctor_skip(doctor, "open", "libibverbs", why);
	else
		check_open(doctor, &verbs);
	if (!why && *verbs.open_error)
		why_open = "the device could not be opened";
	if (why_open)
		doctor_skip(doctor, "atomics", "atomics", why_open);
	else
		check_atomics(doctor, &verbs);
	if (*doctor->no_device)
		doctor_skip(doctor, "mtu", "MTU", doctor->no_device);
	else if (*doctor->no_port)
		doctor_skip(doctor, "mtu", "MTU", doctor->no_port);
	else
		check_mtu(doctor, &verbs);
	why_open = why_open ? why_open : no_address(doctor);
	if (why_open)
		doctor_skip(doctor, "address", "rdma_cm", why_open);
	else
		check_address(doctor, &verbs);
}

void doctor_check_port(struct doctor *doctor)
{
	const char *why = NULL;

	if (*doctor->no_device) {
		why = doctor->no_device;
		doctor_skip(doctor, "port", "port", why);
		doctor_skip(doctor, "gid", "GID", why);
	} else {
		check_state(doctor);
		if (!strcmp(doctor->no_port, PORT_GONE_TEXT) || !*doctor->no_port)
			check_gid(doctor);
		else
			doctor_skip(doctor, "gid", "GID", doctor->no_port);
		if (*doctor->no_file)
			why = doctor->no_file;
	}
	check_by_verbs(doctor, why);
	check_numa(doctor);
}
