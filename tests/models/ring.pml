/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rank's ring when connections break: src/worker/push_slots.c and flight.c, and the join that
 * names the connection which it replaces (src/worker/link.c, src/ps/links.c).
 *
 * Covers: a worker that stages pushes in a ring of CELLS cells, each by a list of two WRITEs and an
 * add to tail; lists that land in order, their WRITEs in any order, their completions lost; a
 * connection that breaks at the worker while what was posted on it can still land at the server,
 * until the server cuts it; joining again, in vain at first where the next connection breaks too;
 * the server cutting the old connection, then admitting the new one; the worker reading tail over
 * that, and posting again the cells from tail on; the server consuming cells and moving head.
 *
 * Checked: the server finds in each cell the push that belongs there, whole, once and in order;
 * never more committed than the ring has cells; all pushes arrive; nobody waits for ever.
 *
 * Leaves out: crashes of the server (update.pml), several servers, clones of a worker that share its
 * ring, deaths of the worker.
 *
 * quick  2 pushes, 1 break: -DPUSHES=2 -DBREAKS=1
 * full   3 pushes, 2 breaks: -DPUSHES=3 -DBREAKS=2
 * full   4 pushes, 1 break, 3 cells: -DPUSHES=4 -DBREAKS=1 -DCELLS=3
 * full   4 pushes, 3 breaks, 1 cell: -DPUSHES=4 -DBREAKS=3 -DCELLS=1
 * broken not cut: -DPUSHES=2 -DBREAKS=1 -DBROKEN_NOT_CUT
 * broken admits first, cuts later: -DPUSHES=2 -DBREAKS=1 -DBROKEN_CUT_LATE
 * broken tail read before the cut: -DPUSHES=2 -DBREAKS=1 -DBROKEN_READ_EARLY
 * broken posts all again without reading: -DPUSHES=2 -DBREAKS=1 -DBROKEN_POST_ALL
 * broken takes all for landed: -DPUSHES=2 -DBREAKS=1 -DBROKEN_POST_NONE
 * broken names the wrong connection: -DPUSHES=2 -DBREAKS=2 -DBROKEN_NAME
 * broken add before the writes: -DPUSHES=2 -DBROKEN_ADD_FIRST
 * broken ignores head: -DPUSHES=3 -DBROKEN_FULL
 */
#ifndef PUSHES
#define PUSHES 2
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef CELLS
#define CELLS 2
#endif
#define NONE 7

byte values[CELLS] = NONE, header[CELLS] = NONE; /* the position that they are of */
byte tail, head;
byte consumed; /* pushes that the server took, in order */

/* Of each connection: lists posted and not yet landed; what the server thinks of it. */
chan wire[4] = [CELLS] of { byte };
bool is_cut[4];

/* The join: which connection asks, which it replaces, whether it was answered. */
byte asking, replaces, admitted;
byte breaks = BREAKS;

/* The network and the server's device: lands what one connection has posted, until it is cut. */
proctype device(byte c)
{
	byte p;

end:	do
	:: atomic { !is_cut[c] && nempty(wire[c]) -> wire[c] ? <p> };
#ifdef BROKEN_ADD_FIRST
		atomic { !is_cut[c] -> tail++ };
#endif
		if
		:: atomic { !is_cut[c] -> values[p % CELLS] = p };
			atomic { !is_cut[c] -> header[p % CELLS] = p }
		:: atomic { !is_cut[c] -> header[p % CELLS] = p };
			atomic { !is_cut[c] -> values[p % CELLS] = p }
		fi;
#ifndef BROKEN_ADD_FIRST
		atomic { !is_cut[c] -> tail++; wire[c] ? p; p = 0 }
#else
		atomic { wire[c] ? p; p = 0 }
#endif
	od unless { is_cut[c] }
}

proctype server()
{
end:	do
	:: atomic { tail != consumed ->
			assert(tail - head <= CELLS);
			assert(header[consumed % CELLS] == consumed && values[consumed % CELLS] == consumed);
			consumed++
		};
		head = consumed
	:: atomic { asking != admitted && !is_cut[asking] ->
#if !defined(BROKEN_NOT_CUT) && !defined(BROKEN_CUT_LATE)
			is_cut[replaces] = 1;
#endif
			admitted = asking
		}
#ifdef BROKEN_CUT_LATE
	:: atomic { admitted != replaces && !is_cut[replaces] -> is_cut[replaces] = 1 }
#endif
	od
}

#define BREAK if :: atomic { breaks > 0 -> breaks--; goto broken } :: true fi

proctype worker()
{
	byte c, next, p, posted, known;

	/* next: the first push not yet posted; posted: all that ever were; known: of them landed */
	do
	:: known == PUSHES -> break
#ifdef BROKEN_FULL
	:: next < PUSHES && len(wire[c]) < CELLS ->
#else
	:: next < PUSHES && next - head < CELLS ->
#endif
		wire[c] ! next;
		next++;
		posted = (next > posted -> next : posted);
		BREAK
	:: atomic { next > known && empty(wire[c]) -> known = next } /* their completion */
	:: atomic { breaks > 0 -> breaks-- };
broken:		/* this end is gone; what it posted may land until the server has cut it */
#ifdef BROKEN_READ_EARLY
		p = tail;
#endif
		replaces = c;
again:		c++;
		asking = c;
		if
		:: admitted == c
		:: atomic { breaks > 0 -> breaks-- }; /* before the answer came, if it was sent */
#ifdef BROKEN_NAME
			replaces = c;
#endif
			goto again
		fi;
#ifndef BROKEN_READ_EARLY
		if
		:: p = tail
		:: atomic { breaks > 0 -> breaks--; replaces = c; goto again }
		fi;
#endif
#if defined(BROKEN_POST_ALL)
		next = known;
#elif defined(BROKEN_POST_NONE)
		known = next;
#else
		next = p;
		known = p;
#endif
		p = 0
	od;
	assert(posted == PUSHES);
	(consumed == PUSHES) /* as a barrier would wait for it */
}

init {
	atomic {
		run device(0);
#if BREAKS > 0
		run device(1);
#endif
#if BREAKS > 1
		run device(2);
#endif
#if BREAKS > 2
		run device(3);
#endif
		run server();
		run worker()
	}
}
