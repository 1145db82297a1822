import { processorNow } from '../time/clock.ts';
import { runInTurn } from '../time/loop-turn.ts';
import { TokenBucket } from '../time/token-bucket.ts';

/** The share of a processor core that the certificates of all others may take, and what they may take after a pause. */
const SHARE = 0.25;
const BURST_MS = 100;

type Task = () => void;

/** Milliseconds of the processor. */
const time = new TokenBucket({ burst: BURST_MS, perMs: SHARE }, performance.now());
/** By owner and peer; those in front are next. */
const waiting = new Map<string, Map<string, Task[]>>();
let isScheduled = false;

/**
 * Runs a task that has OpenSSL verify certificates, as soon as there is time. All of them together have a share of a core;
 * owners take turns, and so do the peers of an owner, however many tasks each has.
 *
 * @param owner whose connection it is, such as an authtoken
 * @param peer who presents the certificates, such as a client's network
 */
export function runCertificateTask(owner: string, peer: string, task: Task): void {
  const peers = waiting.get(owner) ?? new Map<string, Task[]>();
  const tasks = peers.get(peer) ?? [];
  tasks.push(task);
  peers.set(peer, tasks);
  waiting.set(owner, peers);
  schedule();
}

function schedule(): void {
  if (isScheduled || waiting.size === 0) return;
  isScheduled = true;
  const waitMs = time.waitMs(0, performance.now());
  if (waitMs > 0) setTimeout(runNext, waitMs).unref();
  else runInTurn('certificates', runNext);
}

function runNext(): void {
  isScheduled = false;
  const task = takeNext();
  const start = processorNow();
  task?.();
  time.take(processorNow() - start, performance.now());
  schedule();
}

/** Owner and peer go behind the others. */
function takeNext(): Task | undefined {
  const [next] = waiting;
  if (!next) return undefined;
  const [owner, peers] = next;
  waiting.delete(owner);
  const [[peer, tasks] = ['', []]] = peers;
  peers.delete(peer);
  const task = tasks.shift();
  if (tasks.length > 0) peers.set(peer, tasks);
  if (peers.size > 0) waiting.set(owner, peers);
  return task;
}
