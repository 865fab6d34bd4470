/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses: "verbs://HOST:PORT". */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

static const char scheme[] = "verbs://";

static int bad(const char *address)
{
	return base_fail(-EINVAL,
			 "'%s' is no address of the form verbs://HOST:PORT, with a host name, an IPv4 "
			 "address or an [IPv6 address]",
			 address ? address : "");
}

/* Splits off the port. text is what follows the host. */
static int take_port(const char *address, const char *text, char port[8])
{
	unsigned long number = VERBS_DEFAULT_PORT;
	char *end;

	if (*text) {
		if (*text != ':' || text[1] < '0' || text[1] > '9')
			return bad(address);
		number = strtoul(text + 1, &end, 10);
		if (*end)
			return bad(address);
		if (number > 65535)
			return base_fail(-EINVAL, "%s: a port is a number from 0 to 65535", address);
	}
	snprintf(port, 8, "%u", (unsigned int)number);
	return 0;
}

int verbs_address_split(const char *address, char host[VERBS_HOST_BYTES], char port[8])
{
	const char *at, *end;
	size_t length;

	if (!address || strncmp(address, scheme, sizeof(scheme) - 1) != 0)
		return bad(address);
	at = address + sizeof(scheme) - 1;
	if (*at == '[') {
		end = strchr(++at, ']');
		if (!end)
			return bad(address);
		length = (size_t)(end - at);
		end++;
	} else {
		length = strcspn(at, ":/[]");
		end = at + length;
	}
	if (!length || length >= VERBS_HOST_BYTES)
		return bad(address);
	memcpy(host, at, length);
	host[length] = '\0';
	return take_port(address, end, port);
}

int verbs_address_resolve(const char *address, bool passive, struct addrinfo **list)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = passive ? AI_PASSIVE : 0,
	};
	char host[VERBS_HOST_BYTES], port[8];
	int ret = verbs_address_split(address, host, port);

	if (ret)
		return ret;
	if (!passive && !strcmp(port, "0"))
		return base_fail(-EINVAL,
				 "%s: port 0 is for servers; connect to the port that the "
				 "server says",
				 address);
	ret = getaddrinfo(host, port, &hints, list);
	if (!ret)
		return 0;
	return base_fail(ret == EAI_MEMORY ? -ENOMEM : -EADDRNOTAVAIL,
			 "%s: the name %s has no address: %s; check its spelling and /etc/hosts or DNS",
			 address, host, gai_strerror(ret));
}

bool verbs_address_is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

void verbs_address_text(const struct sockaddr *address, char *buf, size_t len_bytes)
{
	char host[INET6_ADDRSTRLEN + 32] = "?", port[8] = "?";
	socklen_t length = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
							    sizeof(struct sockaddr_in);

	getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(buf, len_bytes, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int verbs_directory(const char *address, char *buf, size_t len_bytes)
{
	const char *top = getenv("RAMPS_SHM_DIR");
	char host[VERBS_HOST_BYTES], port[8];
	int ret = verbs_address_split(address, host, port), length;

	if (ret)
		return ret;
	/* Of a port that is not known yet, the process has to tell arenas apart. */
	if (!strcmp(port, "0"))
		length = snprintf(buf, len_bytes, "%s/ramps.%u.verbs.%s+any+%d",
				  top && *top ? top : "/dev/shm", (unsigned int)geteuid(), host,
				  (int)getpid());
	else
		length = snprintf(buf, len_bytes, "%s/ramps.%u.verbs.%s+%s",
				  top && *top ? top : "/dev/shm", (unsigned int)geteuid(), host, port);
	if (length < 0 || (size_t)length >= len_bytes)
		return base_fail(-ENAMETOOLONG,
				 "the directory of %s has a path of %d bytes; set RAMPS_SHM_DIR to a "
				 "shorter one",
				 address, length);
	return 0;
}
