let turn = 0;
let isScheduled = false;

/** Numbers the turns of the event loop: work without a wait in between has one number. */
export function currentTurn(): number {
  if (!isScheduled) {
    isScheduled = true;
    setImmediate(() => {
      isScheduled = false;
      turn += 1;
    });
  }
  return turn;
}
