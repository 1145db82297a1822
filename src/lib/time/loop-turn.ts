import { processorNow } from './clock.ts';

/** Milliseconds of processor time for which work waits at most while connections arrive. */
const ARRIVALS_MS = 5;

let turn = 0;
let isCurrent = false;
let time = 0;
/** The last turn in which a connection arrived. */
let arrivedIn = -2;
/** The last turn that had time for work. */
let workedIn = -1;
/** Since when work has been waiting, in milliseconds of processor time; null when it has not. */
let waitsSince: number | null = null;

function enter(): void {
  isCurrent = true;
  time = performance.now();
  setImmediate(leave);
}

function leave(): void {
  isCurrent = false;
  turn += 1;
  // Nothing may ask for the next turn, and the arrival is in the past all the same.
  if (arrivedIn === turn - 1) setImmediate(leaveUnasked);
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
 * the next connection is accepted soon; after 5 ms of processor time, work goes on regardless.
 */
export function hasTimeForWork(): boolean {
  if (workedIn === currentTurn()) return true;
  // A turn's end may come before what the event loop still does in it.
  if (arrivedIn >= turn - 1) {
    const now = processorNow();
    waitsSince ??= now;
    if (now - waitsSince < ARRIVALS_MS) return false;
  }
  workedIn = turn;
  waitsSince = null;
  return true;
}
