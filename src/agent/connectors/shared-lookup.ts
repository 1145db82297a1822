import { type LookupAddress, lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';

type Answer = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void;

/**
 * getaddrinfo cannot be cancelled, takes its own time over a name server that is silent (5 s a try) and runs in a
 * pool of which libuv gives it two threads. So no more than two run at a time and everybody else waits for the newer
 * one: a queue of stale questions would be in the way of the first one that can be answered.
 */
const MAX_RUNNING = 2;

/** Makes a `lookup` for node:net whose concurrent callers, all asking for one name, share their questions. */
export function sharedLookup(): LookupFunction {
  const running: Answer[][] = [];
  const ask = (host: string, waiting: Answer[]) => {
    running.push(waiting);
    lookup(host, { all: true }, (error, addresses) => {
      running.splice(running.indexOf(waiting), 1);
      for (const answer of waiting) answer(error, addresses);
    });
  };
  return (host, options, callback) => {
    const answer: Answer = (error, addresses) => {
      const [first] = addresses ?? [];
      if (options.all) callback(error, addresses ?? []);
      else callback(error, first?.address ?? '', first?.family);
    };
    const newest = running.at(-1);
    if (running.length < MAX_RUNNING || !newest) ask(host, [answer]);
    else newest.push(answer);
  };
}
