/* SPDX-License-Identifier: BSD-2-Clause */
/* Which device, port and GID are chosen, what a device must be able to do, and what it tells later. */
#include "rig.h"
#include "verbs/verbs_private.h"

static const struct ibv_gid_entry *choose(uint32_t index, const union ibv_gid *gid)
{
	const struct ibv_gid_entry *chosen = NULL;
	struct verbs_gid_wants wants = { .port = 1, .link_layer = fake.port.link_layer, .index = index };
	int ret;

	if (gid)
		wants.gid = *gid;
	ret = verbs_gid_choose(fake.gids, fake.gid_count, &wants, &chosen);
	if (ret) {
		assert_int_equal(ret, -EINVAL);
		assert_null(chosen);
	}
	return chosen;
}

static union ibv_gid *add_gid(uint32_t type, const unsigned char raw[16], uint32_t port)
{
	struct ibv_gid_entry *entry = &fake.gids[fake.gid_count];

	entry->gid_index = fake.gid_count++;
	entry->port_num = port;
	entry->gid_type = type;
	memcpy(entry->gid.raw, raw, 16);
	return &entry->gid;
}

static const unsigned char link_local[16] = { 0xfe, 0x80, [15] = 1 };
static const unsigned char ipv4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 };
static const unsigned char other_ipv4[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 };
static const unsigned char ipv6[16] = { 0x20, 0x01, [15] = 1 };

/* As a RoCE port has them: each address twice. */
static void ethernet_gids(void)
{
	fake_reset();
	add_gid(IBV_GID_TYPE_ROCE_V1, link_local, 1);
	add_gid(IBV_GID_TYPE_ROCE_V2, link_local, 1);
	add_gid(IBV_GID_TYPE_ROCE_V1, ipv6, 1);
	add_gid(IBV_GID_TYPE_ROCE_V2, ipv6, 1);
	add_gid(IBV_GID_TYPE_ROCE_V1, ipv4, 1);
	add_gid(IBV_GID_TYPE_ROCE_V2, ipv4, 1);
	add_gid(IBV_GID_TYPE_ROCE_V2, other_ipv4, 2);
}

static void over_ethernet_the_gid_is_of_roce_v2(void **state)
{
	union ibv_gid gid;

	(void)state;
	ethernet_gids();
	assert_int_equal(choose(VERBS_UNSET, NULL)->gid_index, 5);
	memcpy(gid.raw, ipv6, 16);
	assert_int_equal(choose(VERBS_UNSET, &gid)->gid_index, 3);
	memcpy(gid.raw, link_local, 16);
	assert_int_equal(choose(VERBS_UNSET, &gid)->gid_index, 1);
	memcpy(gid.raw, other_ipv4, 16);
	assert_null(choose(VERBS_UNSET, &gid)); /* it is another port's */
	rig_says(EINVAL, "with this address");
	fake.gids[5].gid_type = IBV_GID_TYPE_ROCE_V1;
	assert_int_equal(choose(VERBS_UNSET, NULL)->gid_index, 3);
}

static void an_index_that_was_asked_for_must_fit(void **state)
{
	union ibv_gid gid;

	(void)state;
	ethernet_gids();
	assert_int_equal(choose(3, NULL)->gid_index, 3);
	assert_null(choose(4, NULL));
	rig_says(EINVAL, "gid=4");
	rig_says_too("5 (RoCE v2)");
	assert_null(choose(77, NULL));
	memcpy(gid.raw, ipv4, 16);
	assert_int_equal(choose(5, &gid)->gid_index, 5);
	assert_null(choose(3, &gid));
	rig_says(EINVAL, "not the GID of the address");
}

static void over_infiniband_the_gid_is_of_infiniband(void **state)
{
	static const unsigned char guid[16] = { 0xfe, 0x80, [8] = 0x50, [15] = 3 };

	(void)state;
	fake_reset();
	fake.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	add_gid(IBV_GID_TYPE_ROCE_V2, ipv4, 1);
	assert_null(choose(VERBS_UNSET, NULL));
	rig_says(EINVAL, "InfiniBand");
	add_gid(IBV_GID_TYPE_IB, guid, 1);
	assert_int_equal(choose(VERBS_UNSET, NULL)->gid_index, 1);
}

static void a_port_without_gids_says_so(void **state)
{
	(void)state;
	fake_reset();
	assert_null(choose(VERBS_UNSET, NULL));
	rig_says(EINVAL, "none");
}

static void options_are_parsed_and_checked(void **state)
{
	static const struct {
		const char *text, *part;
	} bad[] = {
		{ "gid", "'gid' is not of the form" },
		{ "gid=", "gid=''" },
		{ "gid=-1", "gid='-1'" },
		{ "gid=1x", "gid='1x'" },
		{ "timeout=32", "1 to 31" },
		{ "timeout=0", "1 to 31" },
		{ "retries=8", "0 to 7" },
		{ "qps=5", "1 to 4" },
		{ "depth=0", "1 to" },
		{ "mtu=1500", "1024, 2048" },
		{ "mtu=99999999999999999999", "mtu=" },
		{ "port=1", "device=NAME" },
		{ "device=", "device=''" },
		{ "device=../x", "device='../x'" },
		{ "colour=red", "there is no option 'colour'" },
		{ "device=rxe0,gid=x", "gid='x'" },
	};
	struct verbs_options options;

	(void)state;
	assert_ok(verbs_options_parse(NULL, &options));
	assert_ok(verbs_options_parse("", &options));
	assert_string_equal(options.device, "");
	assert_int_equal(options.gid_index, VERBS_UNSET);
	assert_int_equal(options.ack_timeout, 14);
	/* 7 would retry for ever on soft-RoCE. */
	assert_int_equal(options.retries, 6);
	assert_int_equal(options.queue_pairs, 1);
	assert_int_equal(options.lease_ms, VERBS_UNSET); /* the fabric's */
	assert_ok(verbs_options_parse("device=rxe0,port=2,gid=1,mtu=4096,sl=3,tc=96,pkey=1,timeout=12,"
				      "retries=5,rnr=4,depth=64,qps=2,inline=0,lease=500",
				      &options));
	assert_string_equal(options.device, "rxe0");
	assert_int_equal(options.port, 2);
	assert_int_equal(options.gid_index, 1);
	assert_int_equal(options.mtu, 4096);
	assert_int_equal(options.service_level, 3);
	assert_int_equal(options.traffic_class, 96);
	assert_int_equal(options.pkey_index, 1);
	assert_int_equal(options.ack_timeout, 12);
	assert_int_equal(options.retries, 5);
	assert_int_equal(options.rnr_retries, 4);
	assert_int_equal(options.depth, 64);
	assert_int_equal(options.queue_pairs, 2);
	assert_int_equal(options.inline_bytes, 0);
	assert_int_equal(options.lease_ms, 500);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_error(verbs_options_parse(bad[i].text, &options), EINVAL);
		rig_says(EINVAL, bad[i].part);
	}
}

static int selftest(enum fake_atomics atomics, bool *swapped)
{
	struct rig rig;
	int ret;

	fake_reset();
	rig_open(&rig, &(const struct verbs_data_config){ .depth = 4 });
	memset(rig.data.granted, 0, sizeof(rig.data.granted));
	fake.atomics = atomics;
	ret = verbs_data_selftest(&rig.data, swapped);
	rig_close(&rig);
	return ret;
}

static void atomics_are_tried_before_they_are_used(void **state)
{
	bool swapped = true;

	(void)state;
	assert_ok(selftest(FAKE_GOOD, &swapped));
	assert_false(swapped);
	assert_ok(selftest(FAKE_BIG_RESULTS, &swapped));
	assert_true(swapped);
	assert_error(selftest(FAKE_HALVES, &swapped), EOPNOTSUPP);
	rig_says(EOPNOTSUPP, "fetch-add made");
	assert_error(selftest(FAKE_BESIDE, &swapped), EOPNOTSUPP);
	rig_says(EOPNOTSUPP, "words beside");
	assert_error(selftest(FAKE_NO_RESULTS, &swapped), EOPNOTSUPP);
	rig_says(EOPNOTSUPP, "returned");
	assert_error(selftest(FAKE_ALWAYS_SWAPS, &swapped), EOPNOTSUPP);
	rig_says(EOPNOTSUPP, "compare-and-swap of another value");
}

static void a_device_that_does_not_answer_itself_is_refused(void **state)
{
	bool swapped;
	RIG(rig, .depth = 4);

	(void)state;
	memset(rig->data.granted, 0, sizeof(rig->data.granted));
	fake.fail_wr = 1;
	fake.fail_status = IBV_WC_LOC_QP_OP_ERR;
	assert_error(verbs_data_selftest(&rig->data, &swapped), ENOTCONN);
	rig_close(rig);
	{
		RIG(other, .depth = 4);

		fake.fail_register = 1;
		assert_error(verbs_data_selftest(&other->data, &swapped), ENOMEM);
		rig_close(other);
	}
}

static void a_device_without_atomics_is_refused_by_name(void **state)
{
	bool swapped;
	RIG(rig, .depth = 4);

	(void)state;
	rig->data.config.atomic_cap = IBV_ATOMIC_NONE;
	assert_error(verbs_data_selftest(&rig->data, &swapped), EOPNOTSUPP);
	rig_says(EOPNOTSUPP, "no atomics");
	rig_close(rig);
}

/* Opens the device as an address leads to it. */
static int open_device(struct verbs_fabric *fabric, const char *options, const struct verbs_route *route)
{
	int ret;

	memset(fabric, 0, sizeof(*fabric));
	pthread_mutex_init(&fabric->lock, NULL);
	assert_ok(verbs_options_parse(options, &fabric->options));
	ret = verbs_device_open(fabric, route);
	if (ret)
		assert_int_equal(fake.live, 0);
	return ret;
}

static void close_device(struct verbs_fabric *fabric)
{
	verbs_buffers_close(&fabric->buffers);
	verbs_device_close(&fabric->device);
	assert_int_equal(fake.live, 0);
}

static const struct verbs_route to_fake0 = { .device = "fake0", .port = 1, .address = "verbs://10.0.0.1" };

static void a_good_device_opens(void **state)
{
	struct verbs_fabric fabric;

	(void)state;
	ethernet_gids();
	fake.attr.max_qp_init_rd_atom = 7;
	fake.most_inline = 60;
	assert_ok(open_device(&fabric, NULL, &to_fake0));
	assert_int_equal(fabric.device.gid_index, 5);
	assert_int_equal(fabric.device.reads, 7);
	assert_in_range(fabric.device.inline_bytes, 16, 60);
	close_device(&fabric);
}

static void a_device_that_is_not_fit_is_refused_and_says_why(void **state)
{
	struct verbs_route route = to_fake0;
	struct verbs_fabric fabric;

	(void)state;
	ethernet_gids();
	fake.attr.atomic_cap = IBV_ATOMIC_NONE;
	assert_error(open_device(&fabric, NULL, &to_fake0), EOPNOTSUPP);
	rig_says(EOPNOTSUPP, "fake0 has no atomics");
	ethernet_gids();
	fake.atomics = FAKE_HALVES;
	assert_error(open_device(&fabric, NULL, &to_fake0), EOPNOTSUPP);
	ethernet_gids();
	fake.port.state = IBV_PORT_DOWN;
	assert_error(open_device(&fabric, NULL, &to_fake0), ENETDOWN);
	rig_says(ENETDOWN, "port 1 of fake0");
	ethernet_gids();
	fake.gid_count = 0;
	assert_error(open_device(&fabric, NULL, &to_fake0), EINVAL);
	ethernet_gids();
	fake.port.active_mtu = IBV_MTU_1024;
	assert_error(open_device(&fabric, "mtu=4096", &to_fake0), EINVAL);
	rig_says(EINVAL, "has 1024");
	ethernet_gids();
	assert_error(open_device(&fabric, "device=fake1", &to_fake0), EINVAL);
	rig_says(EINVAL, "device=fake1");
	route.device = "fake9";
	assert_error(open_device(&fabric, NULL, &route), ENODEV);
	rig_says(ENODEV, "fake9");
}

static void opening_a_device_fails_cleanly_wherever_it_fails(void **state)
{
	struct verbs_fabric fabric;
	int ret = -1;

	(void)state;
	for (uint32_t at = 1; ret; at++) {
		ethernet_gids();
		fake.fail_create = at;
		ret = open_device(&fabric, NULL, &to_fake0);
		assert_true(at < 40);
		if (!ret)
			close_device(&fabric);
		/* A probe for inline data may fail, and opening goes on with less. */
		if (fake.fail_create == 0)
			ret = -1;
	}
	for (uint32_t at = 1; at <= 2; at++) {
		ethernet_gids();
		fake.fail_register = at;
		assert_true(open_device(&fabric, NULL, &to_fake0) < 0);
	}
}

static void one_fabric_is_of_one_device(void **state)
{
	struct verbs_route other = { .device = "fake1", .port = 1, .address = "verbs://10.0.1.1" };
	struct verbs_fabric fabric;

	(void)state;
	ethernet_gids();
	fake.devices = 2;
	assert_ok(open_device(&fabric, NULL, &to_fake0));
	assert_ok(verbs_device_open(&fabric, &to_fake0));
	assert_error(verbs_device_open(&fabric, &other), EXDEV);
	rig_says(EXDEV, "fake1");
	rig_says_too("fake0");
	close_device(&fabric);
}

static void any_device_means_the_only_one(void **state)
{
	struct verbs_fabric fabric = { 0 };

	(void)state;
	pthread_mutex_init(&fabric.lock, NULL);
	ethernet_gids();
	assert_ok(verbs_options_parse(NULL, &fabric.options));
	assert_ok(verbs_device_any(&fabric, "verbs://0.0.0.0"));
	close_device(&fabric);
	fake.devices = 2;
	assert_error(verbs_device_any(&fabric, "verbs://0.0.0.0"), EINVAL);
	rig_says(EINVAL, "2 RDMA devices");
	fake.devices = 0;
	assert_error(verbs_device_any(&fabric, "verbs://0.0.0.0"), ENODEV);
	fake.devices = 3;
	assert_ok(verbs_options_parse("device=fake2", &fabric.options));
	assert_ok(verbs_device_any(&fabric, "verbs://0.0.0.0"));
	assert_string_equal(ibv_get_device_name(fabric.device.context->device), "fake2");
	close_device(&fabric);
	assert_int_equal(fake.live, 0);
}

static void a_device_that_fails_is_noticed_and_a_port_that_blinks_is_not_fatal(void **state)
{
	struct verbs_fabric fabric;

	(void)state;
	ethernet_gids();
	assert_ok(open_device(&fabric, NULL, &to_fake0));
	verbs_device_events(&fabric.device); /* never blocks */
	fake_event(IBV_EVENT_PORT_ERR);
	fake_event(IBV_EVENT_PORT_ACTIVE);
	fake_event(IBV_EVENT_GID_CHANGE);
	fake_event(IBV_EVENT_COMM_EST);
	verbs_device_events(&fabric.device);
	assert_false(fabric.device.failed);
	fake_event(IBV_EVENT_PORT_ERR);
	fake_event(IBV_EVENT_DEVICE_FATAL);
	verbs_device_events(&fabric.device);
	assert_true(fabric.device.failed);
	close_device(&fabric); /* all were acknowledged */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_ethernet_the_gid_is_of_roce_v2),
		cmocka_unit_test(an_index_that_was_asked_for_must_fit),
		cmocka_unit_test(over_infiniband_the_gid_is_of_infiniband),
		cmocka_unit_test(a_port_without_gids_says_so),
		cmocka_unit_test(options_are_parsed_and_checked),
		cmocka_unit_test(atomics_are_tried_before_they_are_used),
		cmocka_unit_test(a_device_that_does_not_answer_itself_is_refused),
		cmocka_unit_test(a_device_without_atomics_is_refused_by_name),
		cmocka_unit_test(a_good_device_opens),
		cmocka_unit_test(a_device_that_is_not_fit_is_refused_and_says_why),
		cmocka_unit_test(opening_a_device_fails_cleanly_wherever_it_fails),
		cmocka_unit_test(one_fabric_is_of_one_device),
		cmocka_unit_test(any_device_means_the_only_one),
		cmocka_unit_test(a_device_that_fails_is_noticed_and_a_port_that_blinks_is_not_fatal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
