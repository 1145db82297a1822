/** Milliseconds for which work waits at most while connections arrive. */
const ARRIVALS_MS = 5;

let turn = 0;
let isCurrent = false;
let time = 0;
/** The last turn in which a connection arrived. */
let arrivedIn = -2;
/** The last turn that had time for work. */
let workedIn = -1;
/** Since when work has been waiting, in milliseconds of `performance.now()`; null when it has not. */
let waitingSince: number | null = null;
/** The last turn in which work had to wait. */
let waitedIn = -1;

function enter(): void {
  isCurrent = true;
  time = performance.now();
  setImmediate(leave);
}

function leave(): void {
  isCurrent = false;
  turn += 1;
  // Nothing may ask for the next turn, and what was in this one is in the past all the same.
  if (Math.max(arrivedIn, waitedIn) === turn - 1) setImmediate(leaveUnasked);
}

function leaveUnasked(): void {
  if (!isCurrent) turn += 1;
}

/** Numbers the turns of the event loop: work without a wait in between has one number. */
export function currentTurn(): number {
  if (!isCurrent) enter();
  return turn;
}

/**
 * When the current turn first asked for its time, in milliseconds of `performance.now()`. For deadlines of what happens many
 * times in a turn: reading the clock each time would cost more than the rest.
 */
export function turnTime(): number {
  if (!isCurrent) enter();
  return time;
}

/**
 * A connection was accepted. Others may wait behind it: libuv accepts one for each port in a turn of the event loop (since
 * version 1.45), so that long turns would keep new clients waiting for seconds.
 */
export function noteArrival(): void {
  arrivedIn = currentTurn();
}

/**
 * Whether this turn has time for work that can wait. While connections arrive, turns have none, so that they are short and
 * the next connection is accepted soon; after 5 ms, work goes on regardless.
 */
export function hasTimeForWork(): boolean {
  if (workedIn === currentTurn()) return true;
  // A turn's end may come before what the event loop still does in it.
  if (arrivedIn >= turn - 1) {
    // What waits asks in each turn: what was asked for before that waits no more.
    const isNew = waitedIn < turn - 1;
    waitedIn = turn;
    if (isNew || waitingSince === null) {
      waitingSince = performance.now();
      return false;
    }
    if (performance.now() - waitingSince < ARRIVALS_MS) return false;
  }
  workedIn = turn;
  waitingSince = null;
  return true;
}

type Task = () => void;

/**
 * Milliseconds of a turn that tasks may begin in. On a busy machine, others run in them, too: to ask the system for each turn how
 * much of them was this process's would take an eighth of its time then.
 */
const TURN_MS = 5;
/** The part of it that later tasks have in any case. */
const LATER_MS = 1;
/** Tasks of one owner that run in a turn. */
const TASKS_PER_TURN = 16;

/** By owner. */
type Tasks = Map<string, Set<Task>>;

/**
 * What agents ask that are connected comes first: accepting agents faster than they can authenticate would let all of them time out.
 * It is limited for each authtoken; what is not, such as handshakes and requests of clients, comes later.
 */
type Rank = 'first' | 'later';

let due: Record<Rank, Tasks> = { first: new Map(), later: new Map() };
let isScheduled = false;

/**
 * Runs a task in a later turn of the event loop that has time for work, see {@link hasTimeForWork}. Each turn gives a
 * limited time to such tasks; owners take turns, and one owner's tasks are limited in number, however many there are.
 *
 * @param owner for example a client's network
 */
export function runInTurn(owner: string, task: Task, rank: Rank = 'later'): void {
  const tasks = due[rank].get(owner);
  if (tasks) tasks.add(task);
  else due[rank].set(owner, new Set([task]));
  schedule();
}

function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  setImmediate(runTurn);
}

function runTurn(): void {
  isScheduled = false;
  if (hasTimeForWork()) continueTurn(tasksOfTurn());
  else schedule();
}

/**
 * What a task has begun with promises and `process.nextTick` ends before the next one, so that this counts as its time, too: also
 * what promises have begun with `process.nextTick`.
 */
function continueTurn(tasks: Iterator<undefined>): void {
  if (!tasks.next().done) queueMicrotask(() => process.nextTick(() => process.nextTick(continueTurn, tasks)));
}

/** Runs the tasks of one turn, each when the next value is asked for. */
function* tasksOfTurn(): Generator<undefined> {
  const { first, later } = due;
  // What tasks ask for is for the next turn.
  due = { first: new Map(), later: new Map() };
  try {
    const begun = performance.now();
    const firstMs = later.size > 0 ? TURN_MS - LATER_MS : TURN_MS;
    yield* runSome(first, () => performance.now() - begun >= firstMs);
    if (later.size === 0) return;
    const end = Math.max(begun + TURN_MS, performance.now() + LATER_MS);
    yield* runSome(later, () => performance.now() >= end);
  } finally {
    const added = due;
    // Those that had to wait go first.
    due = { first: joined(first, added.first), later: joined(later, added.later) };
    if (due.first.size + due.later.size > 0) schedule();
  }
}

function joined(tasks: Tasks, added: Tasks): Tasks {
  for (const [owner, more] of added) {
    const own = tasks.get(owner) ?? new Set();
    for (const task of more) own.add(task);
    tasks.set(owner, own);
  }
  return tasks;
}

function* runSome(tasks: Tasks, isTimeUp: () => boolean): Generator<undefined> {
  for (let round = 0; round < TASKS_PER_TURN && tasks.size > 0; round++) {
    for (const owner of [...tasks.keys()]) {
      const own = tasks.get(owner) ?? new Set();
      const [task] = own;
      if (task) own.delete(task);
      // Behind the others, for when time is up.
      tasks.delete(owner);
      if (own.size > 0) tasks.set(owner, own);
      task?.();
      if (tasks.size === 0) return;
      yield;
      if (isTimeUp()) return;
    }
  }
}
