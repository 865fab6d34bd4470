/* SPDX-License-Identifier: BSD-2-Clause */
/* What RAMPS_VERBS says: a list of NAME=VALUE with commas between. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

struct number {
	const char *name;
	size_t at;
	uint32_t least, most;
	uint32_t unset; /* the default */
};

#define NUMBER(name, member, least, most, unset)                                 \
	{                                                                        \
		name, offsetof(struct verbs_options, member), least, most, unset \
	}

/* timeout and retries: an error comes after 4.096 us * 2^14 * 7, half a second. */
static const struct number numbers[] = {
	NUMBER("port", port, 1, 255, VERBS_UNSET),
	NUMBER("gid", gid_index, 0, 65535, VERBS_UNSET),
	NUMBER("mtu", mtu, 256, 4096, VERBS_UNSET),
	NUMBER("sl", service_level, 0, 15, VERBS_UNSET),
	NUMBER("tc", traffic_class, 0, 255, VERBS_UNSET),
	NUMBER("pkey", pkey_index, 0, 65535, 0),
	NUMBER("timeout", ack_timeout, 1, 31, 14),
	NUMBER("retries", retries, 0, 7, 6),
	NUMBER("rnr", rnr_retries, 0, 7, 7),
	NUMBER("depth", depth, 1, 32768, VERBS_UNSET),
	NUMBER("qps", queue_pairs, 1, VERBS_MAX_DATA, 1),
	NUMBER("inline", inline_bytes, 0, 4096, VERBS_UNSET),
	NUMBER("lease", lease_ms, 100, 86400000, VERBS_UNSET),
};

#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static uint32_t *number_in(struct verbs_options *options, const struct number *number)
{
	return (uint32_t *)((char *)options + number->at);
}

static int take_device(const char *value, struct verbs_options *options)
{
	size_t length = strlen(value);

	if (!length || length >= sizeof(options->device) || strchr(value, '/'))
		return base_fail(-EINVAL,
				 "verbs options: device='%s' is no name of a device; see "
				 "ibv_devices",
				 value);
	memcpy(options->device, value, length + 1);
	return 0;
}

static int take_number(const struct number *number, const char *value, struct verbs_options *options)
{
	unsigned long parsed;
	char *end;

	errno = 0;
	parsed = strtoul(value, &end, 10);
	if (errno || *value < '0' || *value > '9' || *end || parsed < number->least ||
	    parsed > number->most)
		return base_fail(-EINVAL, "verbs options: %s='%s' is not a number from %u to %u",
				 number->name, value, number->least, number->most);
	*number_in(options, number) = (uint32_t)parsed;
	return 0;
}

static int unknown(const char *name)
{
	char known[256] = "device";
	size_t length = strlen(known);

	for (size_t i = 0; i < NUMBERS; i++)
		length += (size_t)snprintf(known + length, sizeof(known) - length, ", %s",
					   numbers[i].name);
	return base_fail(-EINVAL, "verbs options: there is no option '%s'; there are %s", name, known);
}

static int take_option(char *text, struct verbs_options *options)
{
	char *value = strchr(text, '=');

	if (!value)
		return base_fail(-EINVAL, "verbs options: '%s' is not of the form NAME=VALUE", text);
	*value++ = '\0';
	if (!strcmp(text, "device"))
		return take_device(value, options);
	for (size_t i = 0; i < NUMBERS; i++)
		if (!strcmp(text, numbers[i].name))
			return take_number(&numbers[i], value, options);
	return unknown(text);
}

static int check_together(const struct verbs_options *options)
{
	uint32_t mtu = options->mtu;

	if (mtu != VERBS_UNSET && (mtu & (mtu - 1)))
		return base_fail(-EINVAL,
				 "verbs options: mtu=%u is none of 256, 512, 1024, 2048, 4096", mtu);
	if (options->port != VERBS_UNSET && !*options->device)
		return base_fail(-EINVAL, "verbs options: port=%u of which device? Give device=NAME too",
				 options->port);
	return 0;
}

int verbs_options_parse(const char *text, struct verbs_options *options)
{
	char part[128];
	int ret = 0;

	memset(options, 0, sizeof(*options));
	for (size_t i = 0; i < NUMBERS; i++)
		*number_in(options, &numbers[i]) = numbers[i].unset;
	while (text && *text && !ret) {
		size_t length = strcspn(text, ",");

		if (length >= sizeof(part))
			return base_fail(-EINVAL,
					 "verbs options: '%.40s...' is too long for an option", text);
		memcpy(part, text, length);
		part[length] = '\0';
		text += length + (text[length] == ',');
		if (length)
			ret = take_option(part, options);
	}
	return ret ? ret : check_together(options);
}
