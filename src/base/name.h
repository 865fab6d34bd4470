/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_NAME_H
#define BASE_NAME_H

/*
 * 0, or -EINVAL with text, for names of jobs, tables, barriers and clocks (see ramps.h). `what`
 * is named in the text.
 */
int base_name_check(const char *what, const char *name);

#endif
