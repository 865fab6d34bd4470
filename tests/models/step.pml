/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Steps of a synchronous table: src/ps/ring.c and ps_apply_step(), with kills and the restart.
 *
 * Covers: two ranks that push two chunks, in different orders, and run ahead of each other; cells
 * that are pending until the other rank's has come, parked for a later step, consumed out of order;
 * head, which is published in order only; a kill between any two stores, after which the cells from
 * head on are looked at again. Push i of rank 0 adds i to its chunk, of rank 1 16 * i.
 *
 * Rank 0 pushes chunk 0, chunk 1, chunk 0 again; rank 1 chunk 1, chunk 0, chunk 0 again.
 *
 * Checked: each step of a chunk takes both ranks' pushes for it, once; a cell that is applied is
 * still its rank's push; nobody waits for ever.
 *
 * Leaves out: the reader and the halves of values (update.pml); ranks that die or leave; a ring too
 * small for what runs ahead, which the documentation excludes.
 *
 * quick  no kill: -DKILLS=0
 * quick  1 kill: -DKILLS=1
 * full   2 kills: -DKILLS=2
 * full   1 kill, 4 cells: -DKILLS=1 -DCELLS=4 -DPUSHES=4
 * broken a later step's cell is not parked: -DKILLS=0 -DBROKEN_PARK
 * broken parked cells not looked at again: -DKILLS=0 -DBROKEN_UNPARK
 * broken head passes what is not consumed: -DKILLS=1 -DPUSHES=4 -DBROKEN_HEAD
 * broken pending cells forgotten by the restart: -DKILLS=1 -DBROKEN_RESCAN
 * broken steps not in the undo copy: -DKILLS=1 -DBROKEN_STEPS
 * broken an older cell is taken again: -DKILLS=1 -DBROKEN_AGAIN
 */
#ifndef KILLS
#define KILLS 0
#endif
#ifndef CELLS
#define CELLS 3
#endif
#ifndef PUSHES
#define PUSHES 3
#endif
#define CELL(r, p) ((r) * CELLS + (p) % CELLS)

/* What a rank's push p is for: chunk, step. The fourth is of chunk 1, step 1. */
#define CHUNK(r, p) (((p) == 0 && (r) == 1) || ((p) == 1 && (r) == 0) || (p) == 3)
#define STEP(p)	    ((p) >= 2)
#define AMOUNT(r, p) (((p) + 1) * ((r) == 0 -> 1 : 16))

byte position[2 * CELLS]; /* of the cell's header; chunk, step and value follow from it */
byte tail[2], head[2];
byte value[2], version[2], steps[2];
byte applied[4]; /* of chunk * 2 + rank: step + 1 */
bool valid;
byte undo_chunk, undo_value, undo_version, undo_steps, undo_applied[2];
byte kills = KILLS;

#define FREE	0
#define PARKED	1
#define PENDING 2
#define DONE	3

#if KILLS
#define KILL if :: atomic { kills > 0 -> kills--; goto restart } :: true fi
#else
#define KILL skip
#endif

proctype worker(byte me)
{
	byte p = 0;

	do
	:: p == PUSHES -> break
	:: p < PUSHES && p - head[me] < CELLS ->
		position[CELL(me, p)] = p;
		tail[me] = tail[me] + 1;
		p++
	od
}

/* ps_ring_consume() */
inline consume(r, p)
{
	atomic {
		state[CELL(r, p)] = DONE;
		i = mine[r];
#ifdef BROKEN_HEAD
		if
		:: i <= p -> i = p + 1; state[CELL(r, p)] = FREE
		:: else
		fi;
#else
		do
		:: i != scanned[r] && state[CELL(r, i)] == DONE -> state[CELL(r, i)] = FREE; i++
		:: else -> break
		od;
#endif
		mine[r] = i;
		head[r] = i;
		i = 0
	};
	KILL
}

/* ps_apply_step() of chunk c, whose pending cells are pending[2 * c] and [2 * c + 1], + 1 */
inline apply(c)
{
	atomic { /* the sum; the cells must still be what they were */
		assert(position[CELL(0, pending[2 * c] - 1)] == pending[2 * c] - 1);
		assert(position[CELL(1, pending[2 * c + 1] - 1)] == pending[2 * c + 1] - 1);
		assert(STEP(pending[2 * c] - 1) == STEP(pending[2 * c + 1] - 1));
#ifndef BROKEN_AGAIN
		assert(STEP(pending[2 * c] - 1) == steps[c]);
#endif
		undo_chunk = c;
		undo_version = version[c];
		undo_steps = steps[c]
	};
	undo_value = value[c]; KILL;
	atomic { undo_applied[0] = applied[2 * c]; undo_applied[1] = applied[2 * c + 1] }; KILL;
	valid = 1; KILL;
	version[c] = undo_version + 1; KILL;
	value[c] = value[c] + AMOUNT(0, pending[2 * c] - 1) + AMOUNT(1, pending[2 * c + 1] - 1); KILL;
	applied[2 * c] = undo_steps + 1; KILL;
	applied[2 * c + 1] = undo_steps + 1; KILL;
	steps[c] = undo_steps + 1; KILL;
	version[c] = undo_version + 2; KILL;
	atomic { q = pending[2 * c] - 1; pending[2 * c] = 0 };
	consume(0, q);
	atomic { q = pending[2 * c + 1] - 1; pending[2 * c + 1] = 0 };
	consume(1, q);
	q = 0;
	valid = 0; KILL
}

/* Takes what rank r has parked for a step that has come. */
inline unpark(r, c)
{
	atomic {
		i = mine[r];
		do
		:: i == scanned[r] -> break
		:: i != scanned[r] && state[CELL(r, i)] == PARKED && CHUNK(r, i) == c && STEP(i) == steps[c] ->
			state[CELL(r, i)] = PENDING;
			pending[2 * c + r] = i + 1;
			i++
		:: else -> i++
		od;
		i = 0
	}
}

proctype server()
{
	byte r, p, c, q, i;
	byte scanned[2], mine[2], state[2 * CELLS], pending[4];

next:	do
	:: atomic { tail[0] != scanned[0] -> r = 0 }; goto take
	:: atomic { tail[1] != scanned[1] -> r = 1 }; goto take
	:: head[0] == PUSHES && head[1] == PUSHES -> break
	od;
	goto end;
take:	atomic {
		p = scanned[r];
		scanned[r] = p + 1;
		assert(position[CELL(r, p)] == p && tail[r] - mine[r] <= CELLS);
		c = CHUNK(r, p)
	};
	/* take_synchronous() */
	if
#ifndef BROKEN_AGAIN
	:: applied[2 * c + r] > STEP(p) -> consume(r, p)
#endif
#if defined(BROKEN_PARK)
	:: STEP(p) >= steps[c] && applied[2 * c + r] <= STEP(p) ->
#elif defined(BROKEN_AGAIN)
	:: STEP(p) <= steps[c] && !pending[2 * c + r] ->
#else
	:: STEP(p) == steps[c] && applied[2 * c + r] <= STEP(p) ->
#endif
		atomic { state[CELL(r, p)] = PENDING; pending[2 * c + r] = p + 1 }
#ifndef BROKEN_PARK
	:: STEP(p) > steps[c] -> state[CELL(r, p)] = PARKED
#endif
#ifdef BROKEN_AGAIN
	:: STEP(p) <= steps[c] && pending[2 * c + r] -> consume(r, p)
#endif
	fi;
	do
	:: pending[2 * c] && pending[2 * c + 1] ->
		apply(c);
#ifndef BROKEN_UNPARK
		unpark(0, c);
		unpark(1, c)
#endif
	:: else -> break
	od;
	atomic { p = 0; r = 0; c = 0 };
	goto next;

restart:
	atomic {
		p = 0; r = 0; c = 0; q = 0;
		for (i : 0 .. 2 * CELLS - 1) { state[i] = FREE };
		for (i : 0 .. 3) { pending[i] = 0 };
		scanned[0] = 0; scanned[1] = 0; mine[0] = 0; mine[1] = 0;
		i = 0
	};
	if
	:: valid && version[undo_chunk] == undo_version + 1 ->
		value[undo_chunk] = undo_value; KILL;
		atomic {
			applied[2 * undo_chunk] = undo_applied[0];
			applied[2 * undo_chunk + 1] = undo_applied[1]
		};
		KILL;
#ifndef BROKEN_STEPS
		steps[undo_chunk] = undo_steps; KILL;
#endif
		valid = 0; KILL;
		version[undo_chunk] = undo_version + 2
	:: else -> valid = 0
	fi;
	KILL;
	for (i : 0 .. 1) {
		if
		:: version[i] % 2 -> version[i] = version[i] + 1; KILL
		:: else
		fi
	}
	atomic {
		i = 0;
		mine[0] = head[0]; mine[1] = head[1];
#ifdef BROKEN_RESCAN
		scanned[0] = tail[0]; scanned[1] = tail[1]
#else
		scanned[0] = head[0]; scanned[1] = head[1]
#endif
	};
	goto next;

end:	assert(value[0] == AMOUNT(0, 0) + AMOUNT(0, 2) + AMOUNT(1, 1) + AMOUNT(1, 2));
	assert(value[1] == AMOUNT(0, 1) + AMOUNT(1, 0) + (PUSHES == 4 -> AMOUNT(0, 3) + AMOUNT(1, 3) : 0));
	assert(steps[0] == 2 && steps[1] == (PUSHES == 4 -> 2 : 1))
}

init {
	atomic { run worker(0); run worker(1); run server() }
}
