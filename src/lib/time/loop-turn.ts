let turn = 0;
let isCurrent = false;
let time = 0;

function enter(): void {
  isCurrent = true;
  time = performance.now();
  setImmediate(leave);
}

function leave(): void {
  isCurrent = false;
  turn += 1;
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
