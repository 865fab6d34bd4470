/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Updates of one chunk by src/ps/apply.c, and src/ps/restart.c after a kill anywhere in them.
 *
 * Covers: two ranks that stage pushes in rings (WRITE of the values and the header, add to tail;
 * a cell is used again when head has passed it), the server's undo copy, version, values, applied
 * counts and head, each a store of its own; kills between any two stores, also of the restart; a
 * reader that takes a snapshot by version, values, version. Push i of rank 0 adds i to both halves
 * of the values, push i of rank 1 adds 4 * i.
 *
 * Checked: at the end each push is in both halves once; a snapshot that is accepted has both halves
 * of one update; a cell that is looked at holds what its position says; nobody waits for ever.
 *
 * Leaves out: reordered stores (apply.c's fences keep their order, and a kill finds memory as after
 * some store); several chunks (step.pml); connections that break (ring.pml); damaged arenas.
 *
 * quick  2 pushes each, 1 kill: -DKILLS=1 -DPUSHES=2
 * quick  2 pushes each, 2 kills, no reader: -DKILLS=2 -DPUSHES=2 -DNO_READER
 * full   2 pushes each, 2 kills: -DKILLS=2 -DPUSHES=2
 * full   2 pushes each, 3 kills, no reader: -DKILLS=3 -DPUSHES=2 -DNO_READER
 * full   3 pushes each, 2 cells, 2 kills, no reader: -DKILLS=2 -DPUSHES=3 -DCELLS=2 -DNO_READER
 * broken head before commit: -DKILLS=1 -DPUSHES=2 -DBROKEN_HEAD_FIRST
 * broken undo cleared early: -DKILLS=1 -DPUSHES=2 -DBROKEN_UNDO_EARLY
 * broken change begins before the copy is complete: -DKILLS=1 -DPUSHES=2 -DBROKEN_UNDO_LATE
 * broken undo without applied counts: -DKILLS=1 -DPUSHES=2 -DBROKEN_UNDO_APPLIED
 * broken puts back what is committed: -DKILLS=1 -DPUSHES=2 -DBROKEN_PUT_BACK
 * broken version goes back: -DKILLS=1 -DPUSHES=2 -DBROKEN_VERSION_BACK
 * broken odd version kept: -DKILLS=2 -DPUSHES=2 -DBROKEN_ODD
 * broken valid cleared before the values are back: -DKILLS=2 -DPUSHES=2 -DBROKEN_VALID_FIRST
 * broken applied not looked at: -DKILLS=1 -DPUSHES=2 -DBROKEN_APPLIED
 * broken tail before data: -DPUSHES=2 -DBROKEN_TAIL_FIRST
 * broken reader does not look again: -DPUSHES=2 -DBROKEN_READER
 */
#ifndef KILLS
#define KILLS 0
#endif
#ifndef PUSHES
#define PUSHES 2
#endif
#ifndef CELLS
#define CELLS 1
#endif

#define AMOUNT(rank, p) (((p) + 1) * ((rank) == 0 -> 1 : 4))
#define ALL		(PUSHES * (PUSHES + 1) / 2 * 5)

/* slots, words and published, the rings */
byte data0[2 * CELLS], data1[2 * CELLS], position[2 * CELLS];
byte tail[2], head[2];

/* published and private, the chunk */
byte value0, value1, version, applied[2];
bool valid;
byte undo0, undo1, undo_version, undo_applied, undo_rank;

byte kills = KILLS;

#if KILLS
#define KILL if :: atomic { kills > 0 -> kills--; goto restart } :: true fi
#else
#define KILL skip
#endif
#define CELL(rank, p) ((rank) * CELLS + (p) % CELLS)

proctype worker(byte me)
{
	byte p = 0;

	do
	:: p == PUSHES -> break
	:: p < PUSHES && p - head[me] < CELLS ->
#ifdef BROKEN_TAIL_FIRST
		tail[me] = tail[me] + 1;
#endif
		data0[CELL(me, p)] = AMOUNT(me, p);
		data1[CELL(me, p)] = AMOUNT(me, p);
		position[CELL(me, p)] = p;
#ifndef BROKEN_TAIL_FIRST
		tail[me] = tail[me] + 1;
#endif
		p++
	od
}

inline apply(r, p)
{
	atomic { undo_version = version; undo_rank = r };
#ifdef BROKEN_UNDO_LATE
	valid = 1; KILL;
	version = undo_version + 1; KILL;
#endif
	/* 1. the undo copy */
	undo0 = value0; KILL;
	undo1 = value1; KILL;
	undo_applied = applied[r]; KILL;
	valid = 1; KILL;
	/* 2. the change */
	version = undo_version + 1; KILL;
	value0 = value0 + data0[CELL(r, p)]; KILL;
	value1 = value1 + data1[CELL(r, p)]; KILL;
#ifdef BROKEN_UNDO_EARLY
	valid = 0; KILL;
#endif
	applied[r] = p + 1; KILL;
#ifdef BROKEN_HEAD_FIRST
	head[r] = p + 1; KILL;
#endif
	/* 3. the commit point */
	version = undo_version + 2; KILL;
	/* 4. the cell is the rank's again */
	head[r] = p + 1; KILL;
	/* 5. */
	valid = 0; KILL
}

inline put_back()
{
#ifdef BROKEN_VALID_FIRST
	valid = 0; KILL;
#endif
	value0 = undo0; KILL;
	value1 = undo1; KILL;
#ifndef BROKEN_UNDO_APPLIED
	applied[undo_rank] = undo_applied; KILL;
#endif
	valid = 0; KILL;
#ifdef BROKEN_VERSION_BACK
	version = undo_version
#else
	version = undo_version + 2
#endif
}

proctype server()
{
	byte r, p;
	byte scanned[2];

next:	do
	:: atomic { tail[0] != scanned[0] -> r = 0 }; goto take
	:: atomic { tail[1] != scanned[1] -> r = 1 }; goto take
	:: head[0] == PUSHES && head[1] == PUSHES -> break
	od;
	goto end;
take:	atomic { p = scanned[r]; scanned[r] = p + 1 };
	assert(position[CELL(r, p)] == p && p < tail[r] && tail[r] - head[r] <= CELLS);
	if
#ifndef BROKEN_APPLIED
	:: p < applied[r] -> head[r] = p + 1; KILL
	:: p >= applied[r] -> apply(r, p)
#else
	:: true -> apply(r, p)
#endif
	fi;
	atomic { p = 0; r = 0 };
	goto next;

restart: /* another process: nothing but the arena is left */
	atomic { p = 0; r = 0; scanned[0] = 0; scanned[1] = 0 };
	if
#ifdef BROKEN_PUT_BACK
	:: valid -> put_back()
#else
	:: valid && version == undo_version + 1 -> put_back()
	:: valid && version != undo_version + 1 -> valid = 0
#endif
	:: !valid
	fi;
	KILL;
#ifndef BROKEN_ODD
	if
	:: version % 2 -> version = version + 1; KILL
	:: else
	fi;
#endif
	atomic { scanned[0] = head[0]; scanned[1] = head[1] };
	goto next;

end:	assert(value0 == ALL && value1 == ALL && version % 2 == 0)
}

#ifndef NO_READER
active proctype reader()
{
	byte v, x0, x1;

end:	do
	:: atomic { version % 2 == 0 -> v = version };
		x0 = value0;
		x1 = value1;
		atomic {
			if
#ifdef BROKEN_READER
			:: true -> assert(x0 == x1)
#else
			:: version == v -> assert(x0 == x1)
			:: else
#endif
			fi;
			v = 0; x0 = 0; x1 = 0
		}
	od
}
#endif

init {
	atomic { run worker(0); run worker(1); run server() }
}
