/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting on a word and waking: src/shm/shm_bell.c.
 *
 * Covers: two sleepers on two words that share one bell; the first waits until its word has changed
 * twice (full, none, full: the same half of the word as before), the second until its own changes,
 * which is long after; ringers that change the word by an atomic, look at the bell, swap it and
 * wake; a server's plain store, which its own later loads may overtake (a store buffer of one).
 *
 * Checked: no sleeper is left asleep after the last change of its word, though the code's time-out
 * SHM_LOOK_NS is left out here.
 *
 * Leaves out: the spinning before; a ringer that dies between its swap and waking (what the
 * time-out is for); a bell that wraps while somebody falls asleep.
 *
 * quick  atomics: -DCHANGES=2
 * quick  a server's store: -DCHANGES=2 -DSTORES
 * full   two ringers: -DCHANGES=4 -DRINGERS=2
 * full   stores, two ringers: -DCHANGES=4 -DRINGERS=2 -DSTORES
 * broken sleeps on half of the word: -DCHANGES=2 -DBROKEN_HALF
 * broken bell not loaded after the change: -DCHANGES=2 -DBROKEN_LOAD_FIRST
 * broken no second look: -DCHANGES=2 -DBROKEN_NO_LOOK
 * broken bell does not count up: -DCHANGES=2 -DBROKEN_COUNT
 * broken wakes before the swap: -DCHANGES=2 -DBROKEN_WAKE_FIRST
 * broken wakes one: -DCHANGES=2 -DBROKEN_WAKE_ONE
 * broken load overtakes the store: -DCHANGES=2 -DSTORES -DBROKEN_STORE
 */
#ifndef CHANGES
#define CHANGES 2
#endif
#ifndef RINGERS
#define RINGERS 1
#endif
#define BELLS 32 /* the bell counts modulo this */

byte word[2];
byte bell;
bool asleep[2];
bool heard;    /* the first sleeper is done */
byte changed;  /* how often word 0 was to change */
bool buffered; /* a store to word[0] is not yet seen by others */

proctype sleeper(byte me; byte last)
{
	byte seen, value;

	do
	:: atomic { word[me] == last -> break }
	:: atomic { word[me] < last -> seen = word[me] };
#ifdef BROKEN_HALF
		atomic { /* futex(word, seen's half) */
			if
			:: word[me] % 2 == seen % 2 -> asleep[me] = 1
			:: else
			fi
		};
#else
		atomic { /* fetch-or */
			if
			:: bell % 2 == 0 -> bell = bell + 1
			:: else
			fi;
			value = bell
		};
#ifndef BROKEN_NO_LOOK
		if
		:: word[me] == seen ->
#else
		if
		:: true ->
#endif
			atomic { /* futex(bell, value) */
				if
				:: bell == value -> asleep[me] = 1
				:: else
				fi
			}
		:: word[me] != seen
		fi;
#endif
		!asleep[me];
		atomic { seen = 0; value = 0 }
	od;
	if
	:: me == 0 -> heard = 1
	:: else
	fi
}

inline wake()
{
#ifdef BROKEN_WAKE_ONE
	atomic {
		if
		:: asleep[1] -> asleep[1] = 0
		:: else -> asleep[0] = 0
		fi
	}
#else
	atomic { asleep[0] = 0; asleep[1] = 0 }
#endif
}

/* ring(), of a bell whose value was loaded */
inline ring()
{
	if
	:: value % 2 == 1 ->
#ifdef BROKEN_WAKE_FIRST
		wake();
#endif
		atomic {
			if
#ifdef BROKEN_COUNT
			:: bell == value -> bell = bell - 1; won = 1
#else
			:: bell == value -> bell = (bell + 1) % BELLS; won = 1
#endif
			:: else
			fi
		};
#ifdef BROKEN_HALF
		won = 1;
#endif
#ifndef BROKEN_WAKE_FIRST
		if
		:: won -> wake()
		:: else
		fi;
#endif
		skip
	:: else
	fi;
	atomic { value = 0; won = 0 }
}

proctype ringer()
{
	byte value;
	bool won;

	do
	:: changed == CHANGES -> break
	:: atomic { changed < CHANGES -> changed++ };
#ifdef BROKEN_LOAD_FIRST
		value = bell;
#endif
#ifdef STORES
		atomic { !buffered -> buffered = 1 };
#ifndef BROKEN_STORE
		/* the bell is read by fetch-add of 0, which waits for the store */
		!buffered;
#endif
#else
		word[0] = word[0] + 1;
#endif
#ifndef BROKEN_LOAD_FIRST
		value = bell;
#endif
#ifdef BROKEN_HALF
		value = 1;
#endif
		ring()
	od
}

#ifdef STORES
active proctype store_buffer()
{
end:	do
	:: atomic { buffered -> word[0] = word[0] + 1; buffered = 0 }
	od
}
#endif

/* Changes the other word, when the first sleeper needs no more ringing. */
proctype other()
{
	byte value;
	bool won;

	(heard);
	word[1] = 1;
	value = bell;
#ifdef BROKEN_HALF
	value = 1;
#endif
	ring()
}

init {
	atomic {
		run sleeper(0, CHANGES);
		run sleeper(1, 1);
		run ringer();
#if RINGERS > 1
		run ringer();
#endif
		run other()
	}
}
