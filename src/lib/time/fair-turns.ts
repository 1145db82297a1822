import { processorNow } from './clock.ts';
import { hasTimeForWork } from './loop-turn.ts';

type Task = () => void;

/** Milliseconds of processor time of a turn that tasks may begin in. */
const TURN_MS = 5;
/** Tasks of one owner that run in a turn. */
const TASKS_PER_TURN = 16;

let due = new Map<string, Set<Task>>();
let isScheduled = false;

/**
 * Runs a task in a later turn of the event loop that has time for work, see {@link hasTimeForWork}. Each turn gives a
 * limited time to such tasks; owners take turns, and one owner's tasks are limited in number, however many there are.
 *
 * @param owner for example a client's network
 */
export function runInTurn(owner: string, task: Task): void {
  const tasks = due.get(owner);
  if (tasks) tasks.add(task);
  else due.set(owner, new Set([task]));
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

/** Node ends what a task has begun with `process.nextTick` before the next one, so that this counts as its time, too. */
function continueTurn(tasks: Iterator<undefined>): void {
  if (!tasks.next().done) process.nextTick(continueTurn, tasks);
}

/** Runs the tasks of one turn, each when the next value is asked for. */
function* tasksOfTurn(): Generator<undefined> {
  const tasks = due;
  // What tasks ask for is for the next turn.
  due = new Map();
  try {
    yield* runSome(tasks);
  } finally {
    // Those that had to wait go first.
    const added = due;
    due = tasks;
    for (const [owner, more] of added) for (const task of more) runInTurn(owner, task);
    if (due.size > 0) schedule();
  }
}

function* runSome(tasks: Map<string, Set<Task>>): Generator<undefined> {
  const end = processorNow() + TURN_MS;
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
      if (processorNow() >= end) return;
    }
  }
}
