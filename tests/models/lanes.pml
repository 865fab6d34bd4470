/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The credit of packed lanes, a table mode that is not built yet. A lane can't tell that it
 * overflowed, so no worker may have more than LIMIT pushes in a word since the server last
 * drained it. A worker that has spent LIMIT pushes reads the chunk's `epoch` after its adds have
 * completed, and waits until it has grown by 2: by then a scan has begun and ended after them.
 *
 * Covers: workers that add to both words of a chunk and then to its `touch`; a server that scans:
 * reads touch, and where it moved reads the words and keeps what it saw, then epoch + 1, also where
 * it found nothing; a worker that dies and comes back, with spent credit.
 *
 * Checked: what a worker has in a word and is not drained is LIMIT at most; workers get on.
 *
 * Leaves out: the sums themselves (the encoding is arithmetic); broken connections, after which a
 * worker goes on with spent credit as a new life does; epochs that wrap within one wait.
 *
 * quick  limit 1: -DLIMIT=1 -DROUNDS=2
 * quick  limit 1, a rebirth: -DLIMIT=1 -DROUNDS=2 -DBIRTHS=1
 * full   limit 2: -DLIMIT=2 -DROUNDS=3
 * full   limit 2, a rebirth: -DLIMIT=2 -DROUNDS=2 -DBIRTHS=1
 * broken waits for epoch + 1: -DLIMIT=2 -DROUNDS=2 -DBROKEN_ONE
 * broken epoch read before the adds: -DLIMIT=1 -DROUNDS=3 -DBROKEN_READ_FIRST
 * broken touch read after the words: -DLIMIT=2 -DROUNDS=3 -DBROKEN_TOUCH_LAST
 * broken touch added before the words: -DLIMIT=2 -DROUNDS=3 -DBROKEN_TOUCH_FIRST
 * broken idle chunk not published: -DLIMIT=2 -DROUNDS=2 -DBROKEN_IDLE
 * broken fresh credit after rebirth: -DLIMIT=2 -DROUNDS=1 -DBIRTHS=1 -DBROKEN_REBIRTH
 */
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef BIRTHS
#define BIRTHS 0
#endif
#define WRAP 8 /* of epoch and touch */

/* pushes[2 * word + worker]: in the word, not yet drained. The word itself is their sum. */
byte pushes[4];
byte touch, epoch;
byte births = BIRTHS, done;

#define SINCE(a, b) (((a) + WRAP - (b)) % WRAP)
#ifdef BROKEN_ONE
#define GROWN 1
#else
#define GROWN 2
#endif

inline add(w)
{
	atomic {
		pushes[2 * (w) + me]++;
		assert(pushes[2 * (w) + me] <= LIMIT)
	}
}

proctype worker(byte me)
{
	byte credit = LIMIT, round, e;

	do
	:: round == ROUNDS -> break
	:: round < ROUNDS && credit > 0 ->
#ifdef BROKEN_READ_FIRST
		e = epoch;
#endif
#ifdef BROKEN_TOUCH_FIRST
		touch = (touch + 1) % WRAP;
#endif
		add(0);
		add(1);
#ifndef BROKEN_TOUCH_FIRST
		touch = (touch + 1) % WRAP;
#endif
		credit--
	:: round < ROUNDS && credit == 0 ->
#ifndef BROKEN_READ_FIRST
		e = epoch;
#endif
wait:		(SINCE(epoch, e) >= GROWN && SINCE(epoch, e) < WRAP - 1);
		atomic { credit = LIMIT; round++; e = 0 }
	:: atomic { births > 0 && round < ROUNDS -> births-- };
#ifdef BROKEN_REBIRTH
		credit = LIMIT
#else
		credit = 0;
		e = epoch;
		goto wait
#endif
	od;
	done++
}

inline drain(w)
{
	atomic { pushes[2 * (w)] = 0; pushes[2 * (w) + 1] = 0 }
}

proctype server()
{
	byte seen, t;

end:	do
#ifdef BROKEN_IDLE
	:: touch != seen ->
#else
	:: done < 2 ->
#endif
		t = touch;
		if
		:: t != seen ->
			drain(0);
			drain(1)
		:: else
		fi;
#ifdef BROKEN_TOUCH_LAST
		t = touch;
#endif
		atomic { seen = t; t = 0 };
		epoch = (epoch + 1) % WRAP
	:: done == 2 -> break
	od
}

init {
	atomic { run worker(0); run worker(1); run server() }
}
