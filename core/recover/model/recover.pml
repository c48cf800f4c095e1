/* Leave, choose a cut, begin a new attempt: a job of S stages on W workers, one
 * machine each, and a coordinator with its store.  README.md beside this file
 * says what is left out.
 *
 *   spin -DW=2 -DS=2 -DT=2 -DA=3 -DDEATHS=1 -DCRASHES=1 -DSTOPS=1 -a recover.pml
 *
 * W workers (2 to 4), S stages, T steps, A attempts at most (further ones end
 * the run), K copies besides the owner's (default 1).
 *
 * Broken on purpose, one -D each: STALE_LEAVE, UNEQUAL_STOP,
 * STOP_CLOSES_GATE, STOP_SKIPS_LEAVE.
 * REACH_THE_END claims that no run ends well. */

#ifndef K
#define K 1
#endif
#define ALL_STAGES ((1 << S) - 1)
#define CUT(a, x) ((a) * (T + 1) + (x))
#define CUTS ((A + 1) * (T + 1))
#define ATTEMPT(c) ((c) / (T + 1))
#define STEP(c) ((c) % (T + 1))
#define BIT(i) (1 << (i))
#define IN(set, i) (((set) >> (i)) & 1)
#define COUNT(set) (IN(set, 0) + IN(set, 1) + IN(set, 2) + IN(set, 3))
#define NOBODY 15

/* What a process does, and what it says of itself. */
#define IDLE 0
#define GATHERING 1
#define RUNNING 2
#define STOPPED 3
#define DONE 4
#define FAILED 5

/* What the coordinator does. */
#define CHOOSING 0
#define LEAVING 1
#define STORING 2
#define STORED 3
#define ORDERED 4 /* starting and running */
#define STOPPING 5
#define ENDED 6
#define ADOPTING 7

/* --- workers */
typedef Pieces { byte at[CUTS] }; /* a set of stages, by cut */
byte alive = (1 << W) - 1;
byte runs[W];       /* the attempt that it runs; 0: none */
byte phase[W];
byte step[W];
byte chain[W];     /* the attempts that applied its steps: 2 bits each */
byte left[W];      /* the newest attempt that it has left */
byte leaving;      /* a set: the run is cancelled, not ended yet */
byte echo[W];      /* of the newest leave order that it has carried out */
byte begun[W];     /* the newest attempt that it has begun */
Pieces held[W];
/* The newest order that has arrived. */
byte got_run[W];
byte got_leave[W];
byte got_floor[W]; /* a cut */
byte got_newest[W];
byte got_stop;     /* a set */

/* What is the same for everybody who holds the key. */
byte content[CUTS];
/* Of the newest attempt's first stage. */
byte reported;     /* a set: who has computed its next step */
byte stop_at = 0;  /* 0: not named */

/* --- coordinator; the store keeps rows, base, places */
bool up = true;
byte rows = 0;            /* attempts stored */
byte base[A + 1];         /* cuts */
byte place[(A + 1) * S];
byte does = CHOOSING;
byte attempt = 0;
byte next_base;
byte leave_order = 1;     /* grows with every leaving */
byte floor = 0;
bool by_stop = false;     /* all have stopped, so that nobody need leave */
bool floor_known = true;
bool floor_news = false;  /* somebody has said more since it was computed */
byte lost = 0;
byte heard = 0;
byte said_run[W];
byte said_phase[W];
byte said_step[W];
byte said_echo[W];
Pieces said[W];

/* --- faults, and what is known from outside */
byte deaths = DEATHS;
byte crashes = CRASHES;
byte stops = STOPS;
byte safe = 0;            /* the newest cut that was on enough machines */
byte lost_since = 0;
bool too_many = false;
#define OVER (does == ENDED || too_many)

#define OWNS(i, a, s) (place[(a) * S + (s)] == i)
#if S == 2
#define MEMBER(i, a) (OWNS(i, a, 0) || OWNS(i, a, 1))
#define OWN_STAGES(i, a) (OWNS(i, a, 0) + 2 * OWNS(i, a, 1))
#define MEMBERS(a) (BIT(place[(a) * S]) | BIT(place[(a) * S + 1]))
#else
#define MEMBER(i, a) (OWNS(i, a, 0) || OWNS(i, a, 1) || OWNS(i, a, 2))
#define OWN_STAGES(i, a) (OWNS(i, a, 0) + 2 * OWNS(i, a, 1) + \
  4 * OWNS(i, a, 2))
#define MEMBERS(a) (BIT(place[(a) * S]) | BIT(place[(a) * S + 1]) | \
  BIT(place[(a) * S + 2]))
#endif
#define FIRST(a) place[(a) * S]
#define ORDERS_RUN (does == ORDERED || does == STOPPING)
#define MAY_ORDER (up && does != ADOPTING)

/* Is `c` a cut that attempts up to `newest` allow?  Into `ok`. */
inline check_valid(c, newest) {
  ok = ATTEMPT(c) <= newest;
  r = ATTEMPT(c) + 1;
  do
  :: r <= newest ->
     ok = ok && STEP(base[r]) >= STEP(c);
     r++
  :: else -> break
  od
}

/* On how many machines does the stage lie of which the fewest hold c?  `set`
 * are the machines that count; into `fewest`. */
#define COUNT_HELD(where, c, set) \
  fewest = W; \
  s = 0; \
  do \
  :: s < S -> \
     n = 0; \
     j = 0; \
     do \
     :: j < W -> \
        n = n + (IN(set, j) && IN(where[j].at[c], s)); \
        j++ \
     :: else -> break \
     od; \
     fewest = (n < fewest -> n : fewest); \
     s++ \
  :: else -> break \
  od

/* Somebody holds more of c than before. */
inline see(c) {
  COUNT_HELD(held, c, (alive & ~lost));
  n = COUNT(alive & ~lost);
  n = (n - 1 < K -> n - 1 : K);
  check_valid(c, rows);
  if
  :: ok && fewest > n && c > safe &&
     (!up || does == ORDERED || does == STOPPING || does == ADOPTING) ->
     safe = c;
     /* What these have said still counts. */
     lost_since = COUNT((heard & ~alive))
  :: else
  fi
}

inline put(i, c, stages, what) {
  assert(content[c] == 0 || content[c] == what);
  content[c] = what;
  held[i].at[c] = held[i].at[c] | stages;
  see(c)
}

#define HISTORY(c) (STEP(c) == 0 -> 0 : content[c])

/* What may be dropped goes. */
inline prune(i) {
  c = T + 1;
  do
  :: c < CUTS ->
     ok = true;
     if
     :: held[i].at[c] != 0 && ATTEMPT(c) <= got_newest[i] ->
        check_valid(c, got_newest[i])
     :: else
     fi;
     if
     :: c < got_floor[i] || !ok -> held[i].at[c] = 0
     :: else
     fi;
     c++
  :: else -> break
  od
}

/* After a step, or a stop. */
inline settle_phase(i) {
  if
  :: step[i] == T -> phase[i] = DONE
#ifdef UNEQUAL_STOP
  :: step[i] < T && IN(got_stop, i) -> phase[i] = STOPPED
#else
  :: step[i] < T && stop_at != 0 && step[i] == stop_at -> phase[i] = STOPPED
#endif
  :: else
  fi
}

inline apply(i) {
  step[i] = step[i] + 1;
  chain[i] = (chain[i] << 2) | runs[i];
  put(i, CUT(runs[i], step[i]), OWN_STAGES(i, runs[i]), chain[i]);
  settle_phase(i)
}

/* Makes reality match the newest order. */
inline carry_out(i) {
  echo[i] = got_leave[i];
  prune(i);
  if
  :: got_run[i] != 0 && runs[i] == 0 ->
     runs[i] = got_run[i];
     step[i] = STEP(base[runs[i]]);
     phase[i] = (left[i] >= runs[i] -> FAILED : GATHERING)
  :: else
  fi
}

#define me _pid
#define LIVES IN(alive, me)
#define WORKS (LIVES && !IN(leaving, me) && phase[me] == RUNNING)
#define WANTED ((ORDERS_RUN && MEMBER(me, attempt)) -> attempt : 0)

active [W] proctype worker() {
  byte c; byte r; byte s; byte j; byte n; byte fewest; bool ok; byte all;
  do
  :: OVER -> break
  /* The order as it is now arrives. */
  :: atomic { d_step {
       LIVES && MAY_ORDER && !OVER && !IN(lost, me) && IN(heard, me) &&
       (got_run[me] != WANTED || got_leave[me] != leave_order ||
        (floor_known && got_floor[me] != floor) ||
        got_newest[me] != attempt ||
        IN(got_stop, me) != (does == STOPPING)) ->
       got_run[me] = WANTED;
       got_leave[me] = leave_order;
       got_newest[me] = attempt;
       got_floor[me] = (floor_known -> floor : 0);
       got_stop = (got_stop & ~BIT(me)) | (BIT(me) * (does == STOPPING));
       if
       :: IN(leaving, me)
       :: !IN(leaving, me) && runs[me] != 0 && runs[me] != got_run[me] ->
          leaving = leaving | BIT(me)
       :: else -> carry_out(me)
       fi;
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0
     } }
  /* What ran has ended. */
  :: d_step {
       LIVES && !OVER && IN(leaving, me) ->
       leaving = leaving & ~BIT(me);
       left[me] = (runs[me] > left[me] -> runs[me] : left[me]);
       if
       :: runs[me] == attempt && FIRST(runs[me]) == me -> reported = 0
       :: else
       fi;
       runs[me] = 0;
       phase[me] = IDLE;
       chain[me] = 0;
       step[me] = 0;
       carry_out(me);
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0
     }
  /* All pieces are there, or somebody who had one is gone. */
  :: d_step {
       LIVES && !OVER && !IN(leaving, me) && phase[me] == GATHERING ->
       c = base[runs[me]];
       all = 0;
       j = 0;
       do
       :: j < W ->
          all = all | (held[j].at[c] * IN(alive, j));
          j++
       :: else -> break
       od;
       if
       :: STEP(c) == 0 || (all & OWN_STAGES(me, runs[me])) ==
            OWN_STAGES(me, runs[me]) ->
          assert(begun[me] < runs[me]);
          begun[me] = runs[me];
          step[me] = STEP(c);
          chain[me] = HISTORY(c);
          phase[me] = RUNNING;
          if
          :: FIRST(runs[me]) == me -> reported = 0; stop_at = 0
          :: else
          fi;
          if
          :: STEP(c) > 0 ->
             held[me].at[c] = held[me].at[c] | OWN_STAGES(me, runs[me]);
             r = CUT(runs[me], STEP(c));
             put(me, r, OWN_STAGES(me, runs[me]), chain[me])
          :: else
          fi;
          settle_phase(me)
       :: else -> phase[me] = FAILED
       fi;
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0; all = 0
     }
  /* Its next step is computed, and the first stage hears of it. */
  :: d_step {
       WORKS && !OVER && runs[me] == attempt && FIRST(runs[me]) != me &&
       !IN(reported, me) && IN(alive, FIRST(runs[me])) &&
       runs[FIRST(runs[me])] == runs[me] && phase[FIRST(runs[me])] == RUNNING &&
       !IN(leaving, FIRST(runs[me])) && step[FIRST(runs[me])] == step[me] ->
       reported = reported | BIT(me)
     }
  /* The first stage has all reports: it names a last step, and applies. */
  :: d_step {
       WORKS && !OVER && FIRST(runs[me]) == me && runs[me] == attempt &&
       (reported | BIT(me)) == MEMBERS(runs[me]) ->
       reported = 0;
       if
       :: IN(got_stop, me) && stop_at == 0 -> stop_at = step[me] + 1
       :: else
       fi;
       apply(me);
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0
     }
  /* The verdict arrives. */
  :: d_step {
       WORKS && !OVER && FIRST(runs[me]) != me && IN(alive, FIRST(runs[me])) &&
       runs[FIRST(runs[me])] == runs[me] && !IN(leaving, FIRST(runs[me])) &&
#ifdef STOP_CLOSES_GATE
       phase[FIRST(runs[me])] != STOPPED &&
#endif
       step[FIRST(runs[me])] > step[me] ->
       apply(me);
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0
     }
  /* The newest pieces of a stage of another machine arrive. */
#define PULL(s0) d_step { \
       LIVES && !OVER && attempt != 0 && !OWNS(me, attempt, s0) && \
       IN(alive, place[attempt * S + s0]) && \
       runs[place[attempt * S + s0]] == attempt && \
       step[place[attempt * S + s0]] > 0 && \
       CUT(attempt, step[place[attempt * S + s0]]) >= got_floor[me] && \
       IN(held[place[attempt * S + s0]] \
         .at[CUT(attempt, step[place[attempt * S + s0]])], s0) && \
       !IN(held[me].at[CUT(attempt, step[place[attempt * S + s0]])], s0) -> \
       r = CUT(attempt, step[place[attempt * S + s0]]); \
       held[me].at[r] = held[me].at[r] | BIT(s0); \
       all = r; \
       see(all); \
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0; all = 0 \
     }
  :: PULL(0)
  :: PULL(1)
#if S > 2
  :: PULL(2)
#endif
  /* It says what it does and holds. */
  :: d_step {
       LIVES && up && !OVER && !IN(lost, me) &&
       (!IN(heard, me) || said_run[me] != runs[me] ||
        said_phase[me] != phase[me] || said_step[me] != step[me] ||
        said_echo[me] != echo[me]) ->
       heard = heard | BIT(me);
       floor_news = true;
       said_run[me] = runs[me];
       said_phase[me] = phase[me];
       said_step[me] = step[me];
       said_echo[me] = echo[me];
       c = T + 1;
       do
       :: c < CUTS -> said[me].at[c] = held[me].at[c]; c++
       :: else -> break
       od;
       c = 0
     }
  /* So it does when it holds more. */
  :: d_step {
       LIVES && up && !OVER && !IN(lost, me) && IN(heard, me) && attempt != 0 &&
       said[me].at[CUT(attempt, step[FIRST(attempt)])] !=
         held[me].at[CUT(attempt, step[FIRST(attempt)])] ->
       floor_news = true;
       said[me].at[CUT(attempt, step[FIRST(attempt)])] =
         held[me].at[CUT(attempt, step[FIRST(attempt)])]
     }
  /* It dies. */
  :: d_step {
       LIVES && deaths > 0 && !OVER ->
       printf("worker %d dies\n", me);
       deaths--;
       lost_since++;
       alive = alive & ~BIT(me);
       leaving = leaving & ~BIT(me);
       if
       :: attempt != 0 && FIRST(attempt) == me -> reported = 0
       :: else
       fi;
       runs[me] = 0; phase[me] = IDLE; step[me] = 0; chain[me] = 0;
       got_run[me] = 0; got_leave[me] = 0; got_floor[me] = 0;
       got_newest[me] = 0; got_stop = got_stop & ~BIT(me); echo[me] = 0;
       left[me] = 0; begun[me] = 0;
       c = T + 1;
       do
       :: c < CUTS -> held[me].at[c] = 0; c++
       :: else -> break
       od;
       c = 0
     }
  od
}

#undef me

/* What the workers say of the present attempt. */
#define SAYS(j, what) (IN(MEMBERS(attempt), j) && IN(heard, j) && \
  said_run[j] == attempt && said_phase[j] == what)
#ifdef STALE_LEAVE
#define HAS_LEFT(j) (IN(lost, j) || (IN(heard, j) && said_run[j] == 0))
#else
#define HAS_LEFT(j) (IN(lost, j) || (IN(heard, j) && \
  said_echo[j] == leave_order))
#endif
#if W == 2
#define HOW_MANY(what) (SAYS(0, what) + SAYS(1, what))
#define ALL_HAVE_LEFT (HAS_LEFT(0) && HAS_LEFT(1))
#elif W == 3
#define HOW_MANY(what) (SAYS(0, what) + SAYS(1, what) + SAYS(2, what))
#define ALL_HAVE_LEFT (HAS_LEFT(0) && HAS_LEFT(1) && HAS_LEFT(2))
#else
#define HOW_MANY(what) (SAYS(0, what) + SAYS(1, what) + SAYS(2, what) + \
  SAYS(3, what))
#define ALL_HAVE_LEFT (HAS_LEFT(0) && HAS_LEFT(1) && HAS_LEFT(2) && HAS_LEFT(3))
#endif
#define MEMBER_COUNT COUNT(MEMBERS(attempt))
#define ALL_HEARD ((heard | lost) == (1 << W) - 1)

#ifdef STOP_SKIPS_LEAVE
#define LOST_SINCE_STOP false
#else
#define LOST_SINCE_STOP (by_stop && (lost & MEMBERS(attempt)) != 0)
#endif

inline leave() {
  does = LEAVING;
  by_stop = false;
  leave_order++;
  printf("attempt %d is left\n", attempt)
}

inline compute_floor(newest) {
  c = CUTS - 1;
  do
  :: c > floor ->
     COUNT_HELD(said, c, (heard & ~lost));
     check_valid(c, newest);
     /* The base may be in the store already. */
     ok = ok && !((does == STORING || does == STORED) &&
                  STEP(c) > STEP(next_base));
     n = W - COUNT(lost);
     n = (n - 1 < K -> n - 1 : K);
     if
     :: ok && fewest > n -> floor = c; break
     :: else -> c--
     fi
  :: else -> break
  od
}

active proctype coordinator() {
  byte c; byte r; byte s; byte j; byte n; byte fewest; bool ok;
  do
  :: OVER -> break
  /* A machine is declared lost. */
  :: d_step {
       up && !OVER && (~alive & ~lost & ((1 << W) - 1)) != 0 ->
       lost = lost | (~alive & ((1 << W) - 1));
       floor_news = true;
       heard = heard & alive;
       j = 0;
       do
       :: j < W ->
          if
          :: IN(lost, j) ->
             said_run[j] = 0; said_phase[j] = IDLE; said_step[j] = 0;
             said_echo[j] = 0;
             c = T + 1;
             do
             :: c < CUTS -> said[j].at[c] = 0; c++
             :: else -> break
             od
          :: else
          fi;
          j++
       :: else -> break
       od;
       c = 0; j = 0
     }
  /* A member of what runs is lost, or has failed. */
  :: d_step {
       up && !OVER && ORDERS_RUN &&
       ((lost & MEMBERS(attempt)) != 0 || HOW_MANY(FAILED) > 0) -> leave()
     }
  :: d_step {
       up && !OVER && ORDERS_RUN && HOW_MANY(DONE) == MEMBER_COUNT ->
       does = ENDED;
       printf("done in attempt %d\n", attempt)
     }
  /* A better plan, or a stage has stopped already. */
  :: d_step {
       up && !OVER && does == ORDERED && stops > 0 && HOW_MANY(RUNNING) > 0 ->
       stops--;
       does = STOPPING
     }
  :: d_step {
       up && !OVER && does == ORDERED && HOW_MANY(STOPPED) > 0 ->
       does = STOPPING
     }
  :: d_step {
       up && !OVER && does == STOPPING && HOW_MANY(STOPPED) == MEMBER_COUNT ->
       does = CHOOSING;
       by_stop = true
     }
  /* What the others hold of its pieces must be heard first. */
  :: d_step {
       up && !OVER && does == CHOOSING && LOST_SINCE_STOP -> leave()
     }
  :: d_step {
       up && !OVER && does == LEAVING && ALL_HAVE_LEFT -> does = CHOOSING
     }
  /* The newest complete valid cut. */
  :: d_step {
       up && !OVER && does == CHOOSING && !LOST_SINCE_STOP && ALL_HEARD &&
       (heard & ~lost) != 0 ->
       if
       :: attempt == A -> too_many = true
       :: else ->
          next_base = 0;
          c = CUTS - 1;
          do
          :: c > T ->
             COUNT_HELD(said, c, (heard & ~lost));
             check_valid(c, rows);
             if
             :: ok && fewest > 0 && STEP(c) > 0 -> next_base = c; break
             :: else -> c--
             fi
          :: else -> break
          od;
          printf("attempt %d: base %d, safe %d\n", attempt + 1, next_base,
                 safe);
          assert(lost_since > K || STEP(next_base) >= STEP(safe));
          r = attempt + 1;
          base[r] = next_base;
          n = 0;
          j = 0;
          do
          :: n < S ->
             if
             :: IN(lost, j)
             :: else -> place[r * S + n] = j; n++
             fi;
             j = (j + 1) % W
          :: else -> break
          od;
          does = STORING
       fi;
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0
     }
  :: d_step {
       up && !OVER && does == STORING ->
       rows = attempt + 1;
       does = STORED
     }
  /* From now on it may be seen. */
  :: d_step {
       up && !OVER && does == STORED ->
       attempt = attempt + 1;
       does = ORDERED;
       by_stop = false;
       reported = 0;
       stop_at = 0;
       check_valid(floor, attempt);
       floor = (ok -> floor : 0);
       check_valid(safe, attempt);
       safe = (ok -> safe : 0);
       c = 0; r = 0; ok = 0
     }
  /* The floor. */
  :: d_step {
       up && !OVER && does != ADOPTING && ALL_HEARD && (heard & ~lost) != 0 &&
       floor_news ->
       floor_news = false;
       floor_known = true;
       compute_floor(rows);
       c = 0; r = 0; s = 0; j = 0; n = 0; fewest = 0; ok = 0
     }
  /* It crashes, and what is not stored is gone. */
  :: d_step {
       up && !OVER && crashes > 0 ->
       printf("the coordinator crashes\n");
       crashes--;
       up = false;
       by_stop = false;
       heard = 0;
       lost = 0;
       floor = 0;
       floor_known = false;
       floor_news = true;
       attempt = rows;
       next_base = 0;
       j = 0;
       do
       :: j < W ->
          said_run[j] = 0; said_phase[j] = IDLE; said_step[j] = 0;
          said_echo[j] = 0;
          c = T + 1;
          do
          :: c < CUTS -> said[j].at[c] = 0; c++
          :: else -> break
          od;
          j++
       :: else -> break
       od;
       c = 0; j = 0
     }
  :: d_step {
       !up && !OVER ->
       up = true;
       leave_order++;
       does = (rows == 0 -> LEAVING : ADOPTING)
     }
  /* It goes on where all members run the stored attempt. */
  :: d_step {
       up && !OVER && does == ADOPTING &&
       (heard & MEMBERS(attempt)) == MEMBERS(attempt) &&
       HOW_MANY(GATHERING) + HOW_MANY(RUNNING) + HOW_MANY(STOPPED) +
         HOW_MANY(DONE) == MEMBER_COUNT ->
       does = ORDERED
     }
  :: d_step {
       up && !OVER && does == ADOPTING &&
       ((lost & MEMBERS(attempt)) != 0 ||
        HOW_MANY(GATHERING) + HOW_MANY(RUNNING) + HOW_MANY(STOPPED) +
          HOW_MANY(DONE) < COUNT(heard & MEMBERS(attempt))) -> leave()
     }
#ifdef REACH_THE_END
  :: d_step {
       does == ENDED && deaths == 0 && crashes == 0 && stops == 0 ->
       assert(false)
     }
#endif
  od
}
