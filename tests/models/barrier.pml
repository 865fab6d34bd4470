/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The barrier of src/sync/barrier*.c: a tree of two leaves and a root, for 3 or 4 ranks.
 *
 * Covers: the arrival by add, and by swap after any doubt; climbing, where who fails reads both
 * leaves and sets the bits of all that are full, and who was helped leaves the climb to the helper;
 * waiting at the root's word or at a leaf's `released`; passing the release down, which opens the
 * leaf for the next generation first; helping walks, of one's own path
 * and of a dead rank's leaf; completions that are lost after any part of a list has landed; deaths
 * at any operation, with servers that go on without the dead (stand-in) or do not; a new
 * incarnation; generations that wrap (they are counted modulo 8 and begin at 7).
 *
 * Checked: who returns from generation g finds that all live ranks have entered g, and none
 * enters a generation that is over; `released` never goes back; a node holds nothing that
 * barrier_corrupt() would complain of; the server stands in only where a live rank has arrived;
 * and nobody waits for ever.
 *
 * Leaves out: deeper trees, and nodes above with more than two children, of which one could help
 * another wrongly; reordered memory (each remote operation is one step); sleeping and
 * waking (bell.pml); timeouts as results (the next call goes on waiting, as here). What a dead or
 * cut process had posted lands before its fence: as if it had died later.
 *
 * A wait's slice ends when nothing else can move, or WALKS times earlier. Who looked around in vain
 * does not look again until a word has changed: so a state in which nobody can help is a deadlock.
 *
 * quick  3 ranks, no slice ends: -DRANKS=3 -DNO_SLICE -DLAST=9
 * quick  3 ranks, 1 lost: -DRANKS=3 -DFAULTS=1 -DLAST=8
 * quick  3 ranks, 1 death: -DRANKS=3 -DDEATHS=1 -DLAST=7
 * full   3 ranks, 2 lost: -DRANKS=3 -DFAULTS=2 -DWALKS=1 -DLAST=8
 * full   3 ranks, death, rebirth: -DRANKS=3 -DDEATHS=1 -DBIRTHS=1 -DLAST=8
 * full   3 ranks, death, rebirth, no stand-in: -DRANKS=3 -DDEATHS=1 -DBIRTHS=1 -DMUST -DLAST=9
 * full   3 ranks, death, rebirth, lost: -DRANKS=3 -DDEATHS=1 -DBIRTHS=1 -DFAULTS=1 -DMUST -DLAST=8
 * full   3 ranks, death, lost: -DRANKS=3 -DDEATHS=1 -DFAULTS=1 -DLAST=7
 * full   3 ranks, 2 deaths, rebirth: -DRANKS=3 -DDEATHS=2 -DBIRTHS=1 -DLAST=7
 * full   4 ranks, 1 lost: -DRANKS=4 -DFAULTS=1 -DLAST=8
 * full   4 ranks, 1 death: -DRANKS=4 -DDEATHS=1 -DLAST=7
 * broken climbs by add: -DRANKS=3 -DFAULTS=1 -DLAST=8 -DBROKEN_CLIMB_BY_ADD
 * broken arrives again by add: -DRANKS=3 -DFAULTS=1 -DLAST=8 -DBROKEN_ARRIVE_TWICE
 * broken nobody climbs after a loss: -DRANKS=3 -DFAULTS=1 -DLAST=8 -DBROKEN_NO_HELP
 * broken stands in early: -DRANKS=3 -DDEATHS=1 -DLAST=8 -DBROKEN_STAND_IN_EARLY
 * broken stands in unfenced: -DRANKS=3 -DDEATHS=1 -DLAST=8 -DBROKEN_UNFENCED
 * broken generations compared without wrap: -DRANKS=3 -DLAST=8 -DBROKEN_WRAP
 * broken leaf not opened by its release: -DRANKS=3 -DLAST=8 -DBROKEN_NOT_OPENED
 * broken leaf opened after it is released: -DRANKS=3 -DLAST=8 -DBROKEN_OPENED_LATE
 * broken release by store: -DRANKS=3 -DDEATHS=1 -DLAST=8 -DBROKEN_RELEASE_STORE
 * broken nobody passes the release down: -DRANKS=3 -DNO_SLICE -DLAST=8 -DBROKEN_NO_PASS_DOWN
 * broken new life repeats a generation: -DRANKS=3 -DDEATHS=1 -DBIRTHS=1 -DLAST=8 -DBROKEN_REBIRTH
 * broken new life does not catch up: -DRANKS=3 -DDEATHS=1 -DBIRTHS=1 -DLAST=8 -DBROKEN_NO_CATCH_UP
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef LAST
#define LAST 8 /* generations 7 .. LAST */
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef WALKS
#define WALKS 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef BIRTHS
#define BIRTHS 0
#endif

#define FIRST 7
#define WRAP  8
#define ROOT  2
#define FULL(n) (RANKS == 3 && (n) == 1 -> 1 : 3)

/* word = generation * 4 | arrived; released = generation + 1. Here g counts on, words wrap. */
#define WORD(g, bits)  (((g) % WRAP) * 4 + (bits))
#define GEN(w)	       ((w) / 4)
#define BITS(w)	       ((w) % 4)
#define SINCE(a, b)    (((a) + WRAP - (b) % WRAP) % WRAP) /* a - b */
#define AT(w, g)       (GEN(w) == (g) % WRAP)
#ifdef BROKEN_WRAP
#define LATER(w, g) (GEN(w) > (g) % WRAP)
#else
#define LATER(w, g) (SINCE(GEN(w), g) >= 1 && SINCE(GEN(w), g) < WRAP / 2)
#endif
#define HAS(w, g, bits) (LATER(w, g) || (AT(w, g) && (BITS(w) & (bits)) == (bits)))
#define COVERS(r, g)	(SINCE(r, (g) + 1) < WRAP / 2)

byte word[3];	  /* leaf 0: ranks 0 and 1; leaf 1: ranks 2 and 3; root */
byte released[2]; /* of the leaves */
byte entered[4];  /* what a rank, or who acts for it, has entered: not in the code */
bool died[4], absent[4];
byte faults = FAULTS, walks = WALKS, deaths = DEATHS, births = BIRTHS;
byte looked;	/* ranks that looked around in vain since a word changed */
bool dirty = 1; /* a word changed since the server looked */
bool acting;	/* the server stands in: it admits nobody meanwhile */

#define CHANGED \
	looked = 0; \
	dirty = 1

/* Swap (g-1, full) -> (g, none). */
inline open_node(n, g)
{
	atomic {
		if
		:: word[n] == WORD(g + WRAP - 1, FULL(n)) -> word[n] = WORD(g, 0); CHANGED
		:: else
		fi
	}
}

inline add(n, b, g)
{
	atomic {
		old = word[n];
		assert(AT(old, g) && (BITS(old) & (b)) == 0); /* else it would carry, or the node is corrupt */
		word[n] = old + (b);
		CHANGED
	}
}

#define HELP(leaf, g) bits = bits | (HAS(word[leaf], g, FULL(leaf)) -> 1 << (leaf) : 0)

/* The result of what was posted is lost, where it may be. */
#if FAULTS
#define LOSE(may) if :: atomic { may && faults > 0 -> faults--; old = 0; goto again } :: true fi
#else
#define LOSE(may) skip
#endif

/*
 * barrier_set() of bit b of node n: filled = the node is full at g, or later; mine = by this. Who
 * fails at the root reads the leaves, and sets the bits of those that are full.
 */
inline set(n, b, g, filled, may)
{
	mine = 0;
	bits = b;
	if
	:: n == ROOT -> open_node(n, g); LOSE(may)
	:: else
	fi;
	old = WORD(g, 0);
	do
	:: atomic {
		if
		:: word[n] == old ->
			word[n] = old | bits; CHANGED;
			filled = (BITS(word[n]) == FULL(n));
			mine = 1;
			break
		:: else ->
			old = word[n];
			if
			:: HAS(old, g, b) -> filled = HAS(old, g, FULL(n)); break
			:: !HAS(old, g, b) && old == WORD(g + WRAP - 1, FULL(n))
			:: else -> assert(AT(old, g))
			fi
		fi
	};
		LOSE(may);
		if
		:: !AT(old, g) -> open_node(n, g); old = WORD(g, 0)
		:: AT(old, g) && n == ROOT ->
			if /* one READ, sampled in any order */
			:: HELP(0, g); HELP(1, g)
			:: HELP(1, g); HELP(0, g)
			fi
		:: AT(old, g) && n != ROOT
		fi
	od;
	LOSE(may);
	bits = 0;
	old = 0
}

/* A full leaf's bit at the root. */
inline climb(leaf, g, filled, may)
{
#ifdef BROKEN_CLIMB_BY_ADD
	open_node(ROOT, g);
	LOSE(may);
	mine = 1;
	add(ROOT, 1 << (leaf), g);
	LOSE(may);
	filled = (BITS(word[ROOT]) == FULL(ROOT));
	old = 0
#else
	set(ROOT, 1 << (leaf), g, filled, may)
#endif
}

/* barrier_release(): opens the leaf, then moves `released` on, by swap from what was seen. */
inline release(leaf, g)
{
	old = released[leaf];
	do
	:: COVERS(old, g) -> break
	:: else ->
#if !defined(BROKEN_NOT_OPENED) && !defined(BROKEN_OPENED_LATE)
		open_node(leaf, (g) + 1);
#endif
		atomic {
#ifdef BROKEN_RELEASE_STORE
			assert(SINCE(g + 1, released[leaf]) < WRAP / 2);
			released[leaf] = ((g) + 1) % WRAP; CHANGED; old = released[leaf]
#else
			if
			:: released[leaf] == old ->
				released[leaf] = ((g) + 1) % WRAP; CHANGED; old = released[leaf]
			:: else -> old = released[leaf]
			fi
#endif
		};
#ifdef BROKEN_OPENED_LATE
		open_node(leaf, (g) + 1);
#endif
		skip
	od;
	old = 0
}

/* barrier_walk() from a leaf: over = generation g is released. */
inline walk(leaf, g, over)
{
	old = word[leaf];
	if
	:: LATER(old, g) || COVERS(released[leaf], g) -> over = 1
	:: else ->
		filled = HAS(old, g, FULL(leaf));
		old = word[ROOT];
		if
		:: LATER(old, g) -> over = 1
		:: else ->
#ifndef BROKEN_NO_HELP
			if
			:: filled && !HAS(old, g, 1 << (leaf)) -> climb(leaf, g, over, 0)
			:: else -> over = (filled && HAS(old, g, FULL(ROOT)))
			fi
#else
			over = (filled && HAS(old, g, FULL(ROOT)))
#endif
		fi
	fi;
	filled = 0;
	old = 0
}

/* look_around(): own path; where nobody stands in for the dead, theirs too. */
inline look_around(g)
{
	walk(me / 2, g, over);
#ifdef MUST
	if
	:: !over && (absent[2 - me / 2 * 2] || absent[3 - me / 2 * 2]) -> walk(1 - me / 2, g, over)
	:: else
	fi;
#endif
	if
	:: over -> stop = 2
	:: else
	fi;
	over = 0
}

#define DONE(g) \
	(stop == 2 || (stop == 1 && HAS(word[ROOT], g, FULL(ROOT))) || \
	 (stop == 0 && COVERS(released[me / 2], g)))

#ifdef BROKEN_UNFENCED
#define DIES atomic { absent[me] -> goto dead }
#else
#define DIES atomic { deaths > 0 -> deaths--; goto dead }
#endif
#if DEATHS
#define DIE if :: DIES :: true fi
#else
#define DIE skip
#endif

/* wait_release() and pass_down(). stop: 0 waits at the leaf, 1 at the root, 2 knows. */
inline wait_release(g)
{
	do
	:: DONE(g) -> break
	:: atomic { walks > 0 && !DONE(g) -> walks--; looked = looked | (1 << me) }; look_around(g)
#ifndef NO_SLICE
	:: atomic { timeout && !DONE(g) && !(looked & (1 << me)) -> looked = looked | (1 << me) };
		look_around(g)
#endif
#if DEATHS
	:: DIES
#endif
	od;
	if
	:: stop > 0 ->
		DIE;
#ifndef BROKEN_NO_PASS_DOWN
		release(me / 2, g)
#endif
	:: else
	fi
}

#define LEAF_BIT ((BITS(word[me / 2]) >> (me % 2)) & 1)
#define LEAF_G	 (FIRST - 1 + SINCE(GEN(word[me / 2]), FIRST - 1)) /* counted on */

#define ALL_ENTERED(g) \
	((entered[0] >= g || died[0]) && (entered[1] >= g || died[1]) && \
	 (entered[2] >= g || died[2]) && (entered[3] >= g || died[3] || RANKS == 3))

proctype rank(byte me)
{
	byte g = FIRST, old, stop, bits;
	bool filled, over, mine, doubt, behind;

next:	do
	:: g > LAST -> break
	:: else ->
		DIE;
		assert(!HAS(word[ROOT], g, FULL(ROOT)));
		entered[me] = g;
		add(me / 2, 1 << (me % 2), g);
		filled = (BITS(old) + (1 << (me % 2)) == FULL(me / 2));
		old = 0;
		LOSE(1);
		DIE;
		goto arrived;
again:		/* arrive_by_swap() */
		filled = 0;
		doubt = 1;
#ifdef BROKEN_ARRIVE_TWICE
		add(me / 2, 1 << (me % 2), g);
		filled = (BITS(old) + (1 << (me % 2)) == FULL(me / 2));
		old = 0;
#elif defined(BROKEN_NO_HELP)
		if
		:: HAS(word[me / 2], g, 1 << (me % 2))
		:: else -> set(me / 2, 1 << (me % 2), g, filled, 1)
		fi;
#else
		set(me / 2, 1 << (me % 2), g, filled, 1);
#endif
		DIE;
arrived:	stop = 0;
		if
		:: filled ->
			filled = 0;
			stop = 1;
			climb(me / 2, g, filled, 1);
			if
			:: filled && (mine || doubt) -> stop = 2
			:: else
			fi
		:: else
		fi;
		filled = 0;
waits:		wait_release(g);
		atomic {
			assert(ALL_ENTERED(g) || behind);
			stop = 0;
			doubt = 0;
			mine = 0;
			behind = 0;
			g++
		};
	od;
	goto end;
dead:	/* Its process has ended; sync_barrier_open() in the next life. */
	atomic {
		died[me] = 1; looked = looked & ~(1 << me);
		g = 0; old = 0; stop = 0; bits = 0;
		filled = 0; over = 0; mine = 0; doubt = 0; behind = 0
	}
end_dead: /* the server admits it */
	atomic {
		died[me] && absent[me] && births > 0 && !acting;
		births--;
		absent[me] = 0;
		died[me] = 0;
		dirty = 1;
		looked = 0;
		entered[me] = LEAF_G - !LEAF_BIT
	};
	atomic {
		g = LEAF_G;
		behind = LEAF_BIT;
		entered[me] = g - !behind;
#ifdef BROKEN_REBIRTH
		behind = 0;
#endif
#ifdef BROKEN_NO_CATCH_UP
		g = g + behind;
		behind = 0
#endif
	};
	if
	:: behind ->
		walk(me / 2, g, over);
		if
		:: over -> stop = 2
		:: else
		fi;
		over = 0;
		goto waits
	:: else -> goto next
	fi;
end:	skip
}

#define ARRIVED(r, g) (!absent[r] && (r) < RANKS && HAS(seen[(r) / 2], g, 1 << ((r) % 2)))
#define LIVE_ENTERED(r, g) ((r) < RANKS && !absent[r] && entered[r] >= g)

/* The server: fences, and on a picture of the whole tree does what sync_barrier_stand_in() does. */
proctype server()
{
	byte seen[3], g, old, r, bits;
	bool filled, over, mine;

end:	do
#ifdef BROKEN_UNFENCED
	:: atomic { deaths > 0 -> deaths--; r = 0 };
		do
		:: r < RANKS - 1 -> r++
		:: break
		od;
		atomic { absent[r] = 1; dirty = 1; r = 0 }
#else
	:: atomic { died[0] && !absent[0] -> absent[0] = 1; dirty = 1; looked = 0 }
	:: atomic { died[1] && !absent[1] -> absent[1] = 1; dirty = 1; looked = 0 }
	:: atomic { died[2] && !absent[2] -> absent[2] = 1; dirty = 1; looked = 0 }
	:: atomic { died[3] && !absent[3] -> absent[3] = 1; dirty = 1; looked = 0 }
#endif
#ifndef MUST
	:: atomic { dirty && (absent[0] || absent[1] || absent[2] || absent[3]) -> dirty = 0; acting = 1 };
		if /* one READ, sampled in any order */
		:: seen[0] = word[0]; seen[1] = word[1]; seen[ROOT] = word[ROOT]
		:: seen[ROOT] = word[ROOT]; seen[1] = word[1]; seen[0] = word[0]
		fi;
		g = FIRST - 1 + SINCE(GEN(seen[ROOT]), FIRST - 1) + (BITS(seen[ROOT]) == FULL(ROOT));
		release(0, g - 1);
		release(1, g - 1);
		/* complete_climbs() */
		if
		:: HAS(seen[0], g, FULL(0)) && !HAS(seen[ROOT], g, 1) -> climb(0, g, over, 0)
		:: else
		fi;
		if
		:: HAS(seen[1], g, FULL(1)) && !HAS(seen[ROOT], g, 2) -> climb(1, g, filled, 0);
			over = over | filled;
			filled = 0
		:: else
		fi;
		/* arrive_for_absent() */
		if
#ifdef BROKEN_STAND_IN_EARLY
		:: !over && g <= LAST ->
#else
		:: !over && (ARRIVED(0, g) || ARRIVED(1, g) || ARRIVED(2, g) || ARRIVED(3, g)) ->
#endif
			r = 0;
			do
			:: r == RANKS -> break
			:: r < RANKS && absent[r] && !HAS(seen[r / 2], g, 1 << (r % 2)) ->
				assert(LIVE_ENTERED(0, g) || LIVE_ENTERED(1, g) || LIVE_ENTERED(2, g) ||
				       LIVE_ENTERED(3, g));
				atomic { (true) -> entered[r] = (entered[r] > g -> entered[r] : g) };
				set(r / 2, 1 << (r % 2), g, filled, 0);
				if
				:: filled -> climb(r / 2, g, filled, 0); over = over | filled
				:: else
				fi;
				filled = 0;
				r++
			:: r < RANKS && (!absent[r] || HAS(seen[r / 2], g, 1 << (r % 2))) -> r++
			od
		:: else
		fi;
		if
		:: over -> release(0, g); release(1, g)
		:: else
		fi;
		atomic { g = 0; r = 0; over = 0; mine = 0; old = 0; seen[0] = 0; seen[1] = 0; seen[ROOT] = 0; acting = 0 }
#endif
	od;
again:	skip /* nothing of the server is lost */
}

init {
	atomic {
		word[0] = WORD(FIRST, 0);
		word[1] = WORD(FIRST, 0);
		word[ROOT] = WORD(FIRST - 1, FULL(ROOT));
		released[0] = FIRST % WRAP;
		released[1] = FIRST % WRAP;
		run rank(0); run rank(1); run rank(2);
#if RANKS == 4
		run rank(3);
#endif
#if DEATHS
		run server()
#endif
	}
}
